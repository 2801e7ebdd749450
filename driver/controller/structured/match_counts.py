"""How many published devices a class selects, and which of its fields is to blame when there are none.

The compiled CEL itself is evaluated, not a second opinion on the class.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from api.kerf.v1alpha1 import MatchingDevices
from api.model.devices import Device
from driver.controller.device_types import DeviceType, largest_of
from driver.controller.structured.class_compiler import CompiledClass, Requirement
from driver.controller.structured.matching_devices import Group

Matches: TypeAlias = Callable[[str, Device], bool]
"""A compiled selector: whether it holds for a device of a driver."""
CompileSelector: TypeAlias = Callable[[str], Matches]
"""Both raise KerfError: for an expression that is none, or that fails on a device."""


def count(compiled: CompiledClass, groups: Iterable[Group], compile_selector: CompileSelector) -> MatchingDevices:
    """What ``compiled`` selects of ``groups``. Raises KerfError when its expression cannot be evaluated."""
    total = 0
    cards: set[str] = set()
    nodes: set[str] = set()
    for group in _matching(compiled, groups, compile_selector(compiled.expression)):
        total += group.total
        cards |= group.cards
        nodes.add(group.node)
    return MatchingDevices(total=total, cards=len(cards), nodes=len(nodes))


def _matching(compiled: CompiledClass, groups: Iterable[Group], matches: Matches) -> Iterator[Group]:
    """One device is asked for all of its type: a large cluster has millions of devices, and some dozen types."""
    verdicts: dict[tuple[DeviceType, bool, str], bool] = {}
    for group in groups:
        key = (group.device_type, group.shared, group.node if compiled.chooses_nodes else "")
        if key not in verdicts:
            verdicts[key] = matches(group.driver, group.device)
        if verdicts[key]:
            yield group


class Blame(NamedTuple):
    """Why nothing matches."""

    message: str
    field: str = ""
    """The field of the class that asks for what no device has; empty: none is to blame."""


def blame(compiled: CompiledClass, groups: Iterable[Group], compile_selector: CompileSelector) -> Blame:
    """Why nothing matches: the first requirement that no device meets that met those before it. Raises KerfError."""
    left = list(groups)
    if not left:
        return Blame("no node has published devices of this driver yet")
    met: list[Requirement] = []
    for requirement in compiled.requirements:
        matches = compile_selector(requirement.cel) if requirement.field else lambda _driver, _device: True
        meeting = [group for group in left if matches(group.driver, group.device)]
        if not meeting:
            return Blame(_sentence(requirement, met, left), requirement.field)
        left = meeting
        met.append(requirement)
    return Blame("devices match now")


def _sentence(missed: Requirement, met: Sequence[Requirement], left: Sequence[Group]) -> str:
    those = ", ".join(requirement.wants for requirement in met if requirement.field)
    total = sum(group.total for group in left)
    with_those = f" with {those}" if those else ""
    sentence = f"{missed.field}: none of the {total} published devices{with_those} has {missed.wants}"
    if missed.capacity:
        largest = max((group.device_type for group in left), key=lambda each: (each.size(missed.capacity), str(each)))
        sentence += f"; {largest_of(missed.capacity, largest)}"
    return sentence
