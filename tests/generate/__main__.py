"""``make generate``: every generated file of the repository, from its sources."""

from tests.generate import crds, packages, protos

for generator in (crds, protos, packages):
    for path in generator.generate(generator.ROOT):
        print(path)
