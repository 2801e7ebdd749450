"""``make generate``: every generated file of the repository, from its sources."""

from tools.generate import (
    chart,
    command_line,
    compatibility,
    crds,
    dashboard,
    device_classes,
    driver_differences,
    examples,
    kinds,
    kubernetes_messages,
    metrics,
    nvml_functions,
    packages,
    pictures,
    placement_plot,
    policies,
    protos,
    rbac,
    sanity_rows,
    vocabularies,
)

for generator in (
    compatibility,
    crds,
    chart,
    protos,
    kubernetes_messages,
    packages,
    rbac,
    policies,
    device_classes,
    vocabularies,
    metrics,
    dashboard,
    kinds,
    nvml_functions,
    driver_differences,
    sanity_rows,
    command_line,
    pictures,
    placement_plot,
    examples,
):
    for path in generator.generate(generator.ROOT):
        print(path)
