"""Converts classic classes and templates to ``kerf.dev`` ResourceClasses and ``resource.k8s.io/v1`` templates. Pure.

A claim's parameters become selectors and configuration of its request. Settings without an equivalent become remarks.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.classic_parameters import (
    ClaimParameters,
    ClassParameters,
    FpgaClaimParametersSpec,
    FpgaClassParametersSpec,
    GpuClaimParametersSpec,
    GpuClassParametersSpec,
)
from kerf_dra.api.kerf.v1alpha1 import API_VERSION, FpgaConfig, GpuConfig, config_to_parameters
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.classic import ClassicClass, ClassicTemplate
from kerf_dra.api.model.device_attributes import (
    ATTRIBUTE_FUNCTION,
    ATTRIBUTE_MODEL,
    ATTRIBUTE_PROFILE,
    CAPACITY_COMPUTE_SLICES,
    CAPACITY_MEMORY,
    monitor_taint_key,
)
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.families import selectors
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU

V1: Final = "resource.k8s.io/v1"
REQUEST: Final = "device"
"""The name of the only request of a migrated claim."""
_SIZE: Final = frozenset({"profile", "minimum", "orWhole"})
"""The fields of a class that say how large its partitions are."""
_VERSION_NUMBERS: Final = 3
"""The numbers of a driver's version that the attribute ``driverVersion`` has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationResult:
    """The documents to apply to the new cluster, and what their reader should know of the conversion."""

    documents: tuple[JsonObject, ...]
    remarks: tuple[str, ...] = ()
    """What to do or to check beside applying the documents."""
    left: tuple[str, ...] = ()
    """What is not in the documents, or not converted in them, each with the reason."""


def migrate_class(template: ClassicClass, parameters: ClassParameters) -> MigrationResult:
    """Return the ``kerf.dev`` ResourceClasses for a classic class with these parameters."""
    name = template.metadata.name
    spec: JsonObject = {"device": _family(parameters).name}
    for field in ("cut", "profile", "minimum", "function", "sharing", "nodes"):
        value = getattr(parameters, field, None)
        if value is not None:
            spec[field] = to_builtins(value)
    if parameters.models:
        spec["models"] = list(parameters.models)
    if parameters.min_driver_version is not None:
        spec["minimumDriverVersion"] = ".".join(parameters.min_driver_version.split(".")[:_VERSION_NUMBERS])
    if isinstance(parameters, GpuClassParametersSpec) and parameters.allow_whole and _has_only_minimum(parameters):
        spec["orWhole"] = True
    if isinstance(parameters, FpgaClassParametersSpec) and (parameters.release or parameters.timeout_seconds):
        spec["config"] = _fpga_config(parameters.release, parameters.timeout_seconds)
    documents = [_resource_class(name, spec)]
    left = tuple(_class_settings_left(name, template, parameters))
    remarks = tuple(_class_remarks(name, parameters))
    if isinstance(parameters, GpuClassParametersSpec) and parameters.allow_whole and parameters.cut != "Whole":
        whole = {key: value for key, value in spec.items() if key not in _SIZE} | {"cut": "Whole"}
        documents.append(_resource_class(f"{name}-whole", whole))
    return MigrationResult(documents=tuple(documents), remarks=remarks, left=left)


def migrate_template(template: ClassicTemplate, parameters: ClaimParameters | None) -> MigrationResult:
    """Return the ResourceClaimTemplate for a classic template and its parameters; None: the template has none."""
    (request,) = template.spec.spec.requests
    whole = parameters is not None and parameters.cut == "Whole"
    exactly: JsonObject = {"deviceClassName": f"{request.class_name}-whole" if whole else request.class_name}
    devices: JsonObject = {"requests": [{"name": REQUEST, "exactly": exactly}]}
    if parameters is not None:
        if parameters.count > 1:
            exactly["count"] = parameters.count
        selectors = [{"cel": {"expression": expression}} for expression in _selectors(parameters)]
        if selectors:
            exactly["selectors"] = selectors
        config = _build_config(parameters)
        if config is not None:
            opaque = {"driver": _family(parameters).driver, "parameters": config}
            devices["config"] = [{"requests": [REQUEST], "opaque": opaque}]
    metadata = {"name": template.metadata.name, "namespace": template.metadata.namespace}
    document = {
        "apiVersion": V1,
        "kind": "ResourceClaimTemplate",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {"spec": {"devices": devices}},
    }
    return MigrationResult(documents=(document,), left=tuple(_template_settings_left(template)))


def leave_out(subject: str, reason: str) -> MigrationResult:
    """Return the result for an object that is not migrated."""
    return MigrationResult(documents=(), left=(f"{subject}: left out: {reason}",))


def report_unreadable(subject: str, error: InvalidDocumentError | LookupError) -> MigrationResult:
    """Return the result for an object that must be corrected before it can be migrated."""
    return leave_out(subject, str(error))


def _family(parameters: ClassParameters | ClaimParameters) -> Family:
    return GPU if isinstance(parameters, GpuClassParametersSpec | GpuClaimParametersSpec) else FPGA


def _resource_class(name: str, spec: JsonObject) -> JsonObject:
    return {"apiVersion": API_VERSION, "kind": "ResourceClass", "metadata": {"name": name}, "spec": spec}


def _fpga_config(release: str | None, timeout_seconds: int | None) -> JsonObject:
    config = FpgaConfig(
        api_version=API_VERSION,
        release="Keep" if release == "Keep" else "Blank",
        timeout_seconds=timeout_seconds,
    )
    return config_to_parameters(config)


def _class_settings_left(name: str, template: ClassicClass, parameters: ClassParameters) -> Iterator[str]:
    subject = f"ResourceClass {name}"
    if template.suitable_nodes is not None:
        yield f"{subject}: suitableNodes has no equivalent: choose nodes by spec.nodes"
    if parameters.max_pods < 32:
        yield f"{subject}: maxPods: {parameters.max_pods} has no equivalent: every claim may be used by up to 256 pods"
    if (parameters.min_driver_version or "").count(".") >= _VERSION_NUMBERS:
        yield f"{subject}: minDriverVersion: {parameters.min_driver_version}: only the first three numbers are compared"
    if parameters.claims_may_override:
        yield f"{subject}: claimsMayOverride has no equivalent: a claim's configuration always comes after its class's"


def _class_remarks(name: str, parameters: ClassParameters) -> Iterator[str]:
    subject = f"ResourceClass {name}"
    if isinstance(parameters, GpuClassParametersSpec) and parameters.monitor:
        taint = monitor_taint_key(GPU.driver)
        yield (
            f"{subject}: monitor: its claims need adminAccess, in a namespace that is labeled for it (KEP-5018), and a "
            f"toleration of {taint}"
        )
    if isinstance(parameters, GpuClassParametersSpec) and parameters.allow_whole:
        yield f"{subject}: allowWhole: whole cards have a class of their own, {name}-whole"


def _has_only_minimum(parameters: GpuClassParametersSpec) -> bool:
    return parameters.profile is None and parameters.cut != "Whole" and not parameters.monitor


def _template_settings_left(template: ClassicTemplate) -> Iterator[str]:
    if template.spec.spec.immediate:
        yield (
            f"ResourceClaimTemplate {template.ref}: allocationMode: Immediate has no equivalent: devices are allocated "
            "when a pod is scheduled"
        )


def _selectors(parameters: ClaimParameters) -> Iterable[str]:
    """Yield CEL over the attributes that Kerf publishes (``kerf_dra.driver.families``)."""
    family = _family(parameters)
    if parameters.models:
        yield selectors.attribute_is_one_of(family, ATTRIBUTE_MODEL, parameters.models)
    if isinstance(parameters, FpgaClaimParametersSpec):
        if parameters.function is not None:
            yield selectors.attribute_is(family, ATTRIBUTE_FUNCTION, parameters.function)
        return
    if parameters.sharing is not None:
        for attribute in GpuConfig(api_version=API_VERSION, sharing=parameters.sharing).required_attributes:
            yield selectors.attribute_is(family, attribute, True)
    if parameters.profile is not None:
        yield selectors.attribute_is(family, ATTRIBUTE_PROFILE, parameters.profile)
    if parameters.minimum is not None:
        if parameters.minimum.memory is not None:
            yield selectors.capacity_at_least(family, CAPACITY_MEMORY, parameters.minimum.memory)
        if parameters.minimum.compute_slices is not None:
            slices = Quantity(parameters.minimum.compute_slices)
            yield selectors.capacity_at_least(family, CAPACITY_COMPUTE_SLICES, slices)


def _build_config(parameters: ClaimParameters) -> JsonObject | None:
    if isinstance(parameters, GpuClaimParametersSpec) and parameters.sharing is not None:
        return config_to_parameters(GpuConfig(api_version=API_VERSION, sharing=parameters.sharing))
    if isinstance(parameters, FpgaClaimParametersSpec) and parameters.release is not None:
        return _fpga_config(parameters.release, None)
    return None
