"""Checks a ResourceClass against its family: which fields it may have, which sizes, which configuration. Pure.

The decoder (``kerf_dra.api.kerf.decoder``) knows the shape of a class, which is the same for all families; everything
that differs between them is checked here. The API server repeats the rules of Kerf's own families in part
(``kerf_dra.api.kerf.cross_field_rules.SERVER_RULES``).

Example: a class ``{device: npu, profile: 1c}`` of a family without profiles is refused with the problem ``spec.profile:
is not for device: npu``; one of a family that is not installed with the names of those that are.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kerf_dra.api.errors import InvalidDocumentError, Problem
from kerf_dra.api.kerf.decoder import decode_device_config, read_resource_class
from kerf_dra.api.kerf.v1alpha1 import API_VERSION, DeviceConfigBase, ResourceClassSpec
from kerf_dra.api.kerf.validation import suggest
from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.families.base import CLASS_FIELDS, Family

_UNSET: Final = ResourceClassSpec(device="any")
"""A class that sets none of the fields."""


class FamilyNotInstalledError(InvalidDocumentError):
    """A class names a family that is not installed in this program; ``reason`` is the reason of a condition."""

    reason: Final = "FamilyNotInstalled"

    def __init__(self, document: str, name: str, installed: Collection[str]) -> None:
        known = ", ".join(sorted(installed))
        message = f'family "{name}" is not installed; installed: {known}'
        super().__init__(document, [Problem("spec.device", message)])


@dataclass(frozen=True, slots=True)
class FamilyClass:
    """What a class says to its family."""

    family: Family
    config: DeviceConfigBase | None
    """The configuration of the class's devices, abbreviations such as ``sharing`` included; None: it has none."""
    required_attributes: Mapping[str, str]
    """The boolean attributes that the configuration needs of devices: the field of the class, by attribute."""


def check_class(document: str, spec: ResourceClassSpec, families: Mapping[str, Family]) -> FamilyClass:
    """Check ``spec`` against its family, one of ``families`` by name; ``document`` names the class in errors.

    Raises FamilyNotInstalledError, and InvalidDocumentError with every problem of the fields that depend on the family.
    """
    family = families.get(spec.device)
    if family is None:
        raise FamilyNotInstalledError(document, spec.device, families)
    problems = [*_unused_fields(spec, family), *_unknown_minimums(spec, family), *_unknown_driver(spec, family)]
    config: DeviceConfigBase | None = None
    if spec.config is not None and "config" in family.class_fields:
        try:
            config = decode_device_config(spec.config, "spec.config", family.configurations)
        except InvalidDocumentError as error:
            problems += error.problems
        else:
            problems += _repeated_function(spec, config)
    if problems:
        raise InvalidDocumentError(document, problems)
    config = _with_abbreviations(spec, family, config)
    required = _required_attributes(spec, config)
    if problems := list(_impossible(required, family)):
        raise InvalidDocumentError(document, problems)
    return FamilyClass(family, config, required)


def find_class_problems(document: JsonObject, families: Mapping[str, Family]) -> list[Problem]:
    """Find every problem of a ResourceClass's manifest: those of its shape, and those that its family has with it."""
    resource_class, problems = read_resource_class(document)
    found = list(problems)
    if resource_class is not None:
        try:
            check_class("ResourceClass", resource_class.spec, families)
        except InvalidDocumentError as error:
            paths = {problem.path for problem in found}  # a field with a problem was left out, and may seem missing
            found += (problem for problem in error.problems if problem.path not in paths)
    return found


def _unused_fields(spec: ResourceClassSpec, family: Family) -> Iterator[Problem]:
    for field in sorted(CLASS_FIELDS - family.class_fields):
        value = getattr(spec, field)
        if value != getattr(_UNSET, field):
            word = "Shared " if field == "allocation" else ""
            yield Problem(f"spec.{field}", f"{word}is not for device: {family.name}")
    if {"function", "allocation"} <= family.class_fields and spec.allocation == "Shared" and spec.function is None:
        yield Problem("spec.allocation", f"Shared needs function: of device: {family.name} only functions have shares")
    if spec.device_metadata and not family.default_configuration:
        yield Problem("spec.deviceMetadata", f"is not for device: {family.name}, which has no configuration")
    if spec.placement is not None and family.is_network_attached:
        yield Problem("spec.placement", f"is not for device: {family.name}, whose devices belong to no node")


def _unknown_minimums(spec: ResourceClassSpec, family: Family) -> Iterator[Problem]:
    if "minimum" in family.class_fields:
        for name in spec.minimum or ():
            if name not in family.minimums:
                message = f"is not a size of device: {family.name}; {suggest(name, family.minimums)}"
                yield Problem(f"spec.minimum.{name}", message)


def _unknown_driver(spec: ResourceClassSpec, family: Family) -> Iterator[Problem]:
    if spec.minimum_driver_version is not None and v.ATTRIBUTE_DRIVER_VERSION not in family.attributes:
        message = f"is not for device: {family.name}, whose devices do not say which driver they have"
        yield Problem("spec.minimumDriverVersion", message)


def _required_attributes(spec: ResourceClassSpec, config: DeviceConfigBase | None) -> Mapping[str, str]:
    required = {} if config is None else config.required_attributes
    short = "spec" if spec.config is None else "spec.config"
    return {attribute: f"{short}.{field}" for attribute, field in required.items()}


def _impossible(required: Mapping[str, str], family: Family) -> Iterator[Problem]:
    for attribute, field in required.items():
        definition = family.attributes.get(attribute)
        if definition is None or not isinstance(definition.neutral.value, bool):
            yield Problem(field, f"no device: {family.name} can do this: the family has no attribute {attribute}")


def _repeated_function(spec: ResourceClassSpec, config: DeviceConfigBase) -> Iterator[Problem]:
    if spec.function is not None and getattr(config, "function", None) is not None:
        yield Problem("spec.config.function", "is the class's function already: set one of the two")


def _with_abbreviations(
    spec: ResourceClassSpec, family: Family, config: DeviceConfigBase | None
) -> DeviceConfigBase | None:
    """Return ``config`` with what ``sharing`` and ``deviceMetadata`` of the class stand for."""
    fields = {name: value for name in ("sharing", "device_metadata") if (value := getattr(spec, name))}
    if not fields:
        return config
    if config is None:
        return family.configurations[family.default_configuration](api_version=API_VERSION, **fields)
    return msgspec.structs.replace(config, **fields)
