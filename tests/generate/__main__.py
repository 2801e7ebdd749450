"""``make generate``: every generated file of the repository, from its sources."""

from tests.generate import (
    chart,
    compatibility,
    crds,
    device_classes,
    metrics,
    packages,
    policies,
    protos,
    rbac,
    vocabularies,
)

for generator in (compatibility, crds, chart, protos, packages, rbac, policies, device_classes, vocabularies, metrics):
    for path in generator.generate(generator.ROOT):
        print(path)
