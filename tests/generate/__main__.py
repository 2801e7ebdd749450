"""``make generate``: every generated file of the repository, from its sources."""

from tests.generate import compatibility, crds, packages, protos, rbac

for generator in (crds, protos, packages, rbac, compatibility):
    for path in generator.generate(generator.ROOT):
        print(path)
