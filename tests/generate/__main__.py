"""``make generate``: every generated file of the repository, from its sources."""

from tests.generate import crds, protos

for generator in (crds, protos):
    for path in generator.generate(generator.ROOT):
        print(path)
