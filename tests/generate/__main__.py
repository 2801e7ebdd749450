"""``make generate``: every generated file of the repository, from its sources."""

from tests.generate import crds, packages, policies, protos, rbac

for generator in (crds, protos, packages, rbac, policies):
    for path in generator.generate(generator.ROOT):
        print(path)
