"""Decodes users' documents of ``kerf.dev/v1alpha1`` strictly: unknown fields are errors.

Of a ResourceClass, two parts belong to its family (``kerf_dra.driver.families.class_validation``): which names
``minimum`` may have, and the whole of ``config``, which is decoded by ``decode_device_config`` with the kinds that the
family has.

All functions raise InvalidDocumentError with every problem of the document, each with its field path.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from kerf_dra.api.errors import InvalidDocumentError, Problem
from kerf_dra.api.kerf.card_maintenance import CardMaintenance, CardMaintenanceObject
from kerf_dra.api.kerf.classic_parameters import SPECS, ClaimParameters, ClassParameters, ParametersObject
from kerf_dra.api.kerf.cross_field_rules import find_broken_rules
from kerf_dra.api.kerf.discovery_objects import (
    DiscoveredDevice,
    DiscoveredDeviceObject,
    DiscoveryConfiguration,
    DiscoveryConfigurationObject,
)
from kerf_dra.api.kerf.fpga_objects import FpgaImage, FpgaShell
from kerf_dra.api.kerf.v1alpha1 import (
    API_VERSION,
    DeviceConfigBase,
    ResourceClass,
    ResourceClassObject,
    ResourceClassSpec,
)
from kerf_dra.api.kerf.validation import check_document, convert_document, join_path, quote, show_name, suggest
from kerf_dra.api.model.base import JsonObject

_FPGA_KINDS: Final[Mapping[str, type[FpgaShell] | type[FpgaImage]]] = MappingProxyType(
    {"FpgaShell": FpgaShell, "FpgaImage": FpgaImage}
)


def decode_device_config(
    parameters: JsonObject, path: str, configurations: Mapping[str, type[DeviceConfigBase]]
) -> DeviceConfigBase:
    """Decode opaque parameters at ``path`` of a claim or class; ``configurations`` are their family's kinds."""
    kind, known = parameters.get("kind"), ", ".join(configurations)
    type_ = configurations.get(kind) if isinstance(kind, str) else None
    if type_ is None:
        if not configurations:
            message = "does not exist: this family of devices has no configuration"
        elif kind is None:
            message = f"is required: {known}"
        else:
            message = f"{quote(kind)} is not one of {known}"
        raise InvalidDocumentError("device config", [Problem(join_path(path, "kind"), message)])
    config: DeviceConfigBase = _decode(parameters, type_, subject="device config", path=path)
    return config


def decode_resource_class(document: JsonObject) -> ResourceClass:
    """Decode the ResourceClass in a manifest."""
    resource_class: ResourceClass = _decode_manifest(document, "ResourceClass", ResourceClass)
    return resource_class


def read_resource_class(document: JsonObject) -> tuple[ResourceClass | None, Sequence[Problem]]:
    """Return a manifest's ResourceClass as far as it can be read, None: not at all, and every problem of its shape.

    Its family may have more to say of what could be read (``kerf_dra.driver.families.class_validation``).
    """
    found: tuple[ResourceClass | None, Sequence[Problem]] = _read_manifest(document, "ResourceClass", ResourceClass)
    return found


def decode_fpga_object(document: object) -> FpgaShell | FpgaImage:
    """Decode the FpgaShell or FpgaImage in a manifest, as it is in a file or as the server stores it."""
    kind = document.get("kind") if isinstance(document, Mapping) else None
    type_ = _FPGA_KINDS.get(kind) if isinstance(kind, str) else None
    if type_ is None or not isinstance(document, Mapping):
        known = ", ".join(_FPGA_KINDS)
        message = f"is required: one of {known}" if kind is None else f"{quote(kind)} is not one of {known}"
        raise InvalidDocumentError("FPGA description", [Problem("kind", message)])
    found: FpgaShell | FpgaImage = _decode_manifest(document, str(kind), type_)
    return found


def decode_discovery_document(document: JsonObject) -> DiscoveryConfiguration:
    """Decode the DiscoveryConfiguration in a manifest."""
    found: DiscoveryConfiguration = _decode_manifest(document, "DiscoveryConfiguration", DiscoveryConfiguration)
    return found


def decode_resource_class_object(held: ResourceClassObject) -> ResourceClass:
    """Decode the spec of a class as the server stores it."""
    subject = f'ResourceClass "{held.metadata.name}"'
    spec: ResourceClassSpec = _decode(held.spec, ResourceClassSpec, subject=subject, path="spec")
    return ResourceClass(metadata=held.metadata, spec=spec, status=held.status)


def decode_discovery_configuration(held: DiscoveryConfigurationObject) -> DiscoveryConfiguration:
    """Decode the spec of a DiscoveryConfiguration as the server stores it."""
    found: DiscoveryConfiguration = _decode_stored(held, DiscoveryConfiguration)
    return DiscoveryConfiguration(metadata=held.metadata, spec=found.spec, status=held.status)


def decode_discovered_device(held: DiscoveredDeviceObject) -> DiscoveredDevice:
    """Decode the spec of a DiscoveredDevice as the server stores it."""
    found: DiscoveredDevice = _decode_stored(held, DiscoveredDevice)
    return DiscoveredDevice(metadata=held.metadata, spec=found.spec, status=held.status)


def decode_card_maintenance(held: CardMaintenanceObject) -> CardMaintenance:
    """Decode the spec of a CardMaintenance as the server stores it."""
    found: CardMaintenance = _decode_stored(held, CardMaintenance)
    return CardMaintenance(metadata=held.metadata, spec=found.spec, status=held.status)


def decode_parameters_object(kind: str, held: ParametersObject) -> ClassParameters | ClaimParameters:
    """Decode the spec of a parameters object of ``kind`` as the server stores it."""
    spec: ClassParameters | ClaimParameters = _decode(
        held.spec, SPECS[kind], subject=f'{kind} "{held.ref}"', path="spec"
    )
    return spec


def decode_parameters(parameters: JsonObject, path: str) -> ClassParameters | ClaimParameters:
    """Decode the spec in opaque parameters at ``path`` of a claim or class: a parameters object without metadata."""
    fields = dict(parameters)
    kind = fields.pop("kind", None)
    found = []
    if (version := fields.pop("apiVersion", None)) != API_VERSION:
        found.append(Problem(f"{path}.apiVersion", f"{quote(str(version))} is not {API_VERSION}"))
    if kind not in SPECS:
        found.append(Problem(f"{path}.kind", f"{quote(str(kind))} is not known; {suggest(str(kind), SPECS)}"))
    found += [Problem(f"{path}.{show_name(name)}", "unknown field; known: spec") for name in fields if name != "spec"]
    if found:
        raise InvalidDocumentError("parameters", found)
    spec: ClassParameters | ClaimParameters = _decode(
        fields.get("spec") or {}, SPECS[str(kind)], subject=str(kind), path=f"{path}.spec"
    )
    return spec


def _decode_manifest(document: Mapping[str, Any], kind: str, type_: Any) -> Any:  # noqa: ANN401  (as _decode)
    value, problems = _read_manifest(document, kind, type_)
    if problems:
        name = _name_of(document)
        raise InvalidDocumentError(f'{kind} "{name}"' if name else kind, problems)
    return value


def _read_manifest(document: Mapping[str, Any], kind: str, type_: Any) -> tuple[Any, Sequence[Problem]]:  # noqa: ANN401  (as _decode)
    fields = dict(document)
    found = list(_type_problems(fields.pop("apiVersion", None), fields.pop("kind", None), kind))
    if not _name_of(document):
        found.append(Problem("metadata.name", "is required"))
    value, problems = _read(fields, type_, "")
    return value, (*found, *problems)


def _name_of(document: Mapping[str, Any]) -> object:
    metadata = document.get("metadata")
    return metadata.get("name") if isinstance(metadata, Mapping) else None


def _decode_stored(
    held: DiscoveryConfigurationObject | DiscoveredDeviceObject | CardMaintenanceObject,
    type_: Any,  # noqa: ANN401  (as _decode)
) -> Any:  # noqa: ANN401  (as _decode)
    name = held.metadata.name
    return _decode(
        {"metadata": {"name": name}, "spec": held.spec}, type_, subject=f'{type_.__name__} "{name}"', path=""
    )


def _decode(document: JsonObject, type_: Any, *, subject: str, path: str) -> Any:  # noqa: ANN401  (type_ may be a union, which no type variable can say)
    value, problems = _read(document, type_, path)
    if problems:
        raise InvalidDocumentError(subject, problems)
    return value


def _read(document: JsonObject, type_: Any, path: str) -> tuple[Any, Sequence[Problem]]:  # noqa: ANN401  (as _decode)
    """Return what is valid of a document, None: it cannot be read without the rest, and every problem."""
    checked = check_document(document, type_, path)
    if checked.cleaned is None:
        return None, checked.problems
    value = convert_document(checked.cleaned, type_)
    broken = find_broken_rules(value, path, unreadable=[problem.path for problem in checked.problems])
    return value, (*checked.problems, *broken)


def _type_problems(api_version: object, kind: object, wanted: str) -> Iterator[Problem]:
    for field, found, expected in (("apiVersion", api_version, API_VERSION), ("kind", kind, wanted)):
        if found != expected:
            wrong = "is required: " if found is None else f"{quote(str(found))} is not "
            yield Problem(field, f"{wrong}{expected}")
