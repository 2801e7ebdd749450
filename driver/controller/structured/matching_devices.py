"""Counts the published devices that a class selects, and finds the faulty field of a class that selects none.

The compiled CEL itself is evaluated, not another interpretation of the class, but on one device of each group only
(``device_groups``).

Example: a class without ``nodes`` is evaluated once for each device type, however many nodes there are.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from kerf_dra.api.kerf.v1alpha1 import MatchingDevices
from kerf_dra.api.model.devices import Device
from kerf_dra.api.model.semver import version_numbers
from kerf_dra.driver.controller.device_types import largest_of
from kerf_dra.driver.controller.structured.class_compiler import DRIVER_VERSION, CompiledClass, Requirement
from kerf_dra.driver.controller.structured.device_groups import DeviceGroup, DeviceKind

DevicePredicate: TypeAlias = Callable[[str, Device], bool]
"""A compiled selector, of driver and device. Raises KerfError when the expression fails on the device."""
SelectorCompiler: TypeAlias = Callable[[str], DevicePredicate]
"""A compiler of CEL expressions. Raises KerfError when the expression is invalid."""


def count_matching_devices(
    compiled: CompiledClass, groups: Iterable[DeviceGroup], compile_selector: SelectorCompiler
) -> MatchingDevices:
    """Count the devices of ``groups`` that the class selects. Raises KerfError when its CEL cannot be evaluated."""
    matches = compile_selector(compiled.expression)
    known: dict[tuple[DeviceKind, str], bool] = {}
    selected = []
    for group in groups:
        key = (group.kind, group.node if compiled.chooses_nodes else "")
        if key not in known:
            known[key] = matches(group.driver, group.device)
        if known[key]:
            selected.append(group)
    cards = {card for group in selected for card in group.cards}
    nodes = {group.node for group in selected}
    return MatchingDevices(total=sum(group.total for group in selected), cards=len(cards), nodes=len(nodes))


def find_unsupported(compiled: CompiledClass, groups: Iterable[DeviceGroup], compile_selector: SelectorCompiler) -> str:
    """Return why no published device of the class's driver can do what the class says, whatever its size, model or
    node; empty: one can, or there is none yet. Raises KerfError when CEL cannot be evaluated.
    """
    published = [group for group in groups if group.driver == compiled.driver]
    for requirement in compiled.requirements:
        if requirement.needs_support and published:
            matches = compile_selector(requirement.cel)
            kinds = {group.kind: group for group in published}
            if not any(matches(group.driver, group.device) for group in kinds.values()):
                total = sum(group.total for group in published)
                return (
                    f"{requirement.field}: none of the {total} published devices of {compiled.driver} has "
                    f"{requirement.wants}, so no node can do this: omit the field, or add a node that can; claims of "
                    "the class wait until then"
                )
    return ""


class Mismatch(NamedTuple):
    """The reason why a class selects nothing."""

    message: str
    field: str = ""
    """The field of the class that no device satisfies; empty: no field is at fault."""
    is_final: bool = False
    """Whether none of these devices can ever satisfy it."""


def explain_mismatch(
    compiled: CompiledClass, groups: Iterable[DeviceGroup], compile_selector: SelectorCompiler
) -> Mismatch:
    """Find the first requirement that no device meets that satisfies all requirements before it.

    Raises KerfError when a requirement's CEL cannot be evaluated.
    """
    left = [group for group in groups if group.driver == compiled.driver]
    if not left:
        return Mismatch(f"no node has published devices of {compiled.driver} yet")
    met: list[Requirement] = []
    for requirement in compiled.requirements:
        matches = compile_selector(requirement.cel) if requirement.field else lambda _driver, _device: True
        meeting = [group for group in left if matches(group.driver, group.device)]
        if not meeting:
            is_final = bool(requirement.divided) and not any(_has_any(group, requirement.divided) for group in left)
            return Mismatch(_mismatch_message(requirement, met, left, is_final=is_final), requirement.field, is_final)
        left = meeting
        met.append(requirement)
    return Mismatch("devices match now")


def _has_any(group: DeviceGroup, capacities: Iterable[str]) -> bool:
    held = group.kind.device.capacity
    return any(name in held and held[name].value for name in capacities)


def _mismatch_message(
    missed: Requirement, met: Sequence[Requirement], left: Sequence[DeviceGroup], *, is_final: bool
) -> str:
    those = ", ".join(requirement.wants for requirement in met if requirement.field)
    total = sum(group.total for group in left)
    with_those = f" with {those}" if those else ""
    message = f"{missed.field}: none of the {total} published devices{with_those} has {missed.wants}"
    if is_final:
        message += f", and none can have it: shares divide {' or '.join(missed.divided)}, and these devices have none"
    if missed.capacity:
        largest = max(
            (group.kind.device_type for group in left), key=lambda each: (each.size(missed.capacity), str(each))
        )
        message += f"; {largest_of(missed.capacity, largest)}"
    elif missed.field == DRIVER_VERSION:
        message += f"; the newest is {max((group.kind.driver_version for group in left), key=version_numbers)}"
    return message
