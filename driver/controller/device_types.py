"""The device types that can exist, and the rejection of documents that require others. Pure.

A type can exist if an installed family ships its model or a node publishes it now. A document that requires any other
is an error of its author, reported with the faulty field and the known values; a type that no node publishes yet is no
error. Classes (``kerf.dev``) and the parameters of classic classes and claims are checked by the same rules.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Final

from kerf_dra.api.errors import InvalidDocumentError, Problem
from kerf_dra.api.kerf.validation import suggest
from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Attribute, Device
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.model_names import UnknownModelError
from kerf_dra.driver.families.profile_names import (
    describe_both_names,
    describe_other_names,
    find_profile_names,
)
from kerf_dra.driver.families.registry import installed_families
from kerf_dra.driver.partitions.geometry import NOTHING, Geometry

_ABSENT: Final = Attribute()
_LEAST_BYTES: Final = Quantity("1Mi")
"""Less memory than any device has or divides: a smaller value lacks its unit."""
_SUGGESTIONS: Final = 3
"""The number of similar names in a message: profiles of one kind differ in a digit between models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceType:
    """All properties by which a class can select devices, except the node. All cards of a model share their types."""

    kind: str
    """The name of the family."""
    cut: str
    model: str
    profile: str
    function: str
    sizes: tuple[tuple[str, Quantity], ...]
    """The amount of each capacity of which classes of the family may set a minimum."""

    def size(self, capacity: str) -> Quantity:
        return next((amount for name, amount in self.sizes if name == capacity), NOTHING)

    def __str__(self) -> str:
        what = self.profile or self.function or ("the whole card" if self.cut == "whole" else "a partition")
        return f"{what} of {self.model}"


class UnsatisfiableError(InvalidDocumentError):
    """No device can meet a document, or an amount in it lacks its unit.

    ``reason`` is the reason of a condition, ``problems`` name the faulty fields.
    """

    def __init__(self, document: str, reason: str, problems: Iterable[Problem]) -> None:
        self.reason = reason
        super().__init__(document, problems)


def known_device_types(published: Collection[DeviceType] = frozenset()) -> frozenset[DeviceType]:
    """Return the types of the models that families ship, together with those ``published``."""
    return _shipped_device_types().union(published)


def device_type_of(device: Device, family: Family) -> DeviceType:
    """Return the type of a published device of ``family``; attributes that it lacks count as empty."""

    def word(name: str) -> str:
        return device.attributes.get(name, _ABSENT).string or ""

    capacity = device.capacity
    return DeviceType(
        kind=family.name,
        cut=word(v.ATTRIBUTE_CUT),
        model=word(v.ATTRIBUTE_MODEL),
        profile=word(v.ATTRIBUTE_PROFILE),
        function=word(v.ATTRIBUTE_FUNCTION),
        sizes=tuple((name, capacity[name].value if name in capacity else NOTHING) for name in family.minimums),
    )


def device_types_of(geometry: Geometry) -> frozenset[DeviceType]:
    """Return the types of all devices that a node publishes for a card of this geometry."""
    family = installed_families().get(geometry.kind)
    minimums = family.minimums if family is not None else ()
    return frozenset(
        DeviceType(
            kind=geometry.kind,
            cut="whole" if spec.placement is None else "partition",
            model=geometry.model,
            profile=spec.profile or "",
            function=spec.function or "",
            sizes=tuple((name, spec.amount(name)) for name in minimums),
        )
        for spec in geometry.specs
    )


def is_shipped(geometry: Geometry) -> bool:
    """Whether a family ships this geometry: what administrators describe may have the name of an example."""
    family = installed_families().get(geometry.kind)
    if family is not None and family.description_kinds:
        return False
    return (geometry.kind, geometry.model) in _shipped_models()


def largest_of(capacity: str, device_type: DeviceType) -> str:
    """Return a message about the largest type: ``the largest is 79.25Gi (7g.80gb of h100-80gb-sxm)``."""
    return f"the largest is {_format_size(device_type.size(capacity))} ({device_type})"


def _format_size(size: Quantity) -> str:
    return f"{int(size) / 2**30:.6g}Gi" if size.family == "binary" else str(int(size))


def resolve_models(document: str, family: Family, names: Iterable[str], types: Collection[DeviceType]) -> list[str]:
    """Return the models of ``spec.models`` as devices of ``family`` spell them.

    Raises UnsatisfiableError when a name matches no model of the family, or several.
    """
    published = {each.model for each in types if each.kind == family.name}
    found: list[str] = []
    problems = []
    for index, name in enumerate(names):
        try:
            found.append(name if name in published else _shipped_name(family, name, published))
        except UnknownModelError as error:
            problems.append(Problem(f"spec.models[{index}]", str(error)))
    if problems:
        raise UnsatisfiableError(document, "UnknownModel", problems)
    return list(dict.fromkeys(found))


def check_satisfiable(
    document: str,
    types: Collection[DeviceType],
    *,
    kind: str,
    cuts: Collection[str],
    models: Sequence[str],
    profile: str | None,
    function: str | None,
    minimum: Mapping[str, Quantity],
    limits: Mapping[str, tuple[str, Quantity]] = MappingProxyType({}),
) -> None:
    """Check that one of ``types`` has all of these properties, one of ``cuts`` and ``models``, and every ``minimum``.

    ``kind`` is the family; ``models`` may be empty: all; ``minimum`` is by capacity; ``limits`` are those of the
    configuration, by field, with their capacity. Of a family without known types nothing is known to be impossible.
    Raises UnsatisfiableError when none has, for a limit above what all have, and for an amount of bytes without a unit.
    """
    if not any(each.kind == kind for each in types):
        return
    candidates = [
        each for each in types if each.kind == kind and each.cut in cuts and (not models or each.model in models)
    ]
    where = f"model {models[0]}" if len(models) == 1 else "the chosen models" if models else "any known model"
    for attribute, wanted in (("profile", profile), ("function", function)):
        if wanted is not None:
            names, others = _find_names(kind, attribute, wanted, types, models)
            known = {getattr(each, attribute) for each in candidates} - {""}
            candidates = [each for each in candidates if getattr(each, attribute) in names]
            if not candidates:
                advice = suggest(wanted, {*known, *chain(*others.values())}, _SUGGESTIONS)
                message = f'"{wanted}" is not a {attribute} of {where}; {advice}{describe_both_names(advice, others)}'
                reason = f"Unknown{attribute.capitalize()}"
                raise UnsatisfiableError(document, reason, [Problem(f"spec.{attribute}", message)])
    if minimum and not any(all(each.size(name) >= least for name, least in minimum.items()) for each in candidates):
        raise UnsatisfiableError(document, "MinimumTooLarge", _missed_minimums(minimum, candidates, where))
    if problems := list(_forgotten_units(minimum, candidates)):
        raise UnsatisfiableError(document, "MinimumTooSmall", problems)
    if problems := list(_impossible_limits(limits, candidates, where)):
        raise UnsatisfiableError(document, "LimitOutOfRange", problems)


def _find_names(
    kind: str, attribute: str, wanted: str, types: Collection[DeviceType], models: Collection[str]
) -> tuple[Collection[str], Mapping[str, Sequence[str]]]:
    """Return all names of ``wanted``, and the other names of what is known."""
    family = installed_families().get(kind)
    if attribute != "profile" or family is None:
        return (wanted,), {}
    return profile_names(family, wanted, types, models), describe_other_names(family, models)


def profile_names(
    family: Family, profile: str, types: Collection[DeviceType], models: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the names under which nodes may publish a profile of ``family``, ``profile`` itself first."""
    published = {(each.model, each.profile) for each in types if each.kind == family.name}
    return find_profile_names(family, profile, published, models)


def _forgotten_units(minimum: Mapping[str, Quantity], candidates: Sequence[DeviceType]) -> Iterator[Problem]:
    for capacity, amount in minimum.items():
        if amount < _LEAST_BYTES and (smallest := _smallest_of(capacity, candidates)) is not None:
            yield Problem(f"spec.minimum.{capacity}", _describe_bytes(amount, capacity, smallest))


def _impossible_limits(
    limits: Mapping[str, tuple[str, Quantity]], candidates: Sequence[DeviceType], where: str
) -> Iterator[Problem]:
    for field, (capacity, amount) in limits.items() if candidates else ():
        largest = max(candidates, key=lambda each: (each.size(capacity), str(each)))
        if amount > largest.size(capacity):
            yield Problem(field, f"{amount} is more than {where} has; {largest_of(capacity, largest)}")
        elif amount < _LEAST_BYTES and (smallest := _smallest_of(capacity, candidates)) is not None:
            yield Problem(field, _describe_bytes(amount, capacity, smallest))


def _smallest_of(capacity: str, candidates: Sequence[DeviceType]) -> DeviceType | None:
    """Return the type that has the least of ``capacity``; None: it is not counted in bytes, or no type has any."""
    having = [each for each in candidates if each.size(capacity) and each.size(capacity).family == "binary"]
    return min(having, key=lambda each: (each.size(capacity), str(each)), default=None)


def _describe_bytes(amount: Quantity, capacity: str, smallest: DeviceType) -> str:
    least = f"the smallest is {_format_size(smallest.size(capacity))} ({smallest})"
    return f"{amount} counts bytes, and is less than 1Mi: write a unit, such as {int(amount) or 1}Gi; {least}"


def _missed_minimums(minimum: Mapping[str, Quantity], candidates: Sequence[DeviceType], where: str) -> list[Problem]:
    problems = []
    for capacity, amount in minimum.items():
        largest = max(candidates, key=lambda each: (each.size(capacity), str(each)), default=None)
        if largest is None or largest.size(capacity) < amount:
            most = largest_of(capacity, largest) if largest else "there is none"
            message = f"{amount} is more than {where} has; {most}"
            problems.append(Problem(f"spec.minimum.{capacity}", message))
    return problems or [Problem("spec.minimum", f"no partition of {where} has all of this together")]


def _shipped_name(family: Family, name: str, published: Collection[str]) -> str:
    """The name that the tables resolve ``name`` to. Raises UnknownModelError when it matches no model, or several."""
    if any(family.geometries()):
        return family.resolve_model(name)
    if not published:
        return name  # of a family without tables, of which no node has published a card yet
    raise UnknownModelError(f"model of {family.name}", name, get_close_matches(name, published))


@cache
def _shipped_device_types() -> frozenset[DeviceType]:
    geometries = (geometry for family in installed_families().values() for geometry in family.geometries())
    return frozenset(each for geometry in geometries for each in device_types_of(geometry))


@cache
def _shipped_models() -> frozenset[tuple[str, str]]:
    return frozenset((each.kind, each.model) for each in _shipped_device_types())
