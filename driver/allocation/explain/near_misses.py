"""Near misses: the devices that come nearest to satisfying selectors, and the conditions that they fail.

The nearest devices fail the fewest conditions; ties are broken by the distance of their values from a literal of the
condition: relative for numbers and quantities, by ``SequenceMatcher.ratio`` for strings. So ``80Gi`` is nearer to
79Gi than to 10Gi, ``h100-80gb`` nearer to ``h100-80gb-sxm`` than to ``a30-24gb``.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, NamedTuple, TypeAlias

from kerf_dra.api.errors import InvalidQuantityError
from kerf_dra.api.model.devices import AttributeValue, Device
from kerf_dra.api.model.names import DeviceId
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.cel.attribute_references import Read
from kerf_dra.driver.cel.compile import (
    ExpressionCompileError,
    ExpressionRuntimeError,
    UnsupportedExpressionError,
    compile_selector,
)
from kerf_dra.driver.cel.conjuncts import Conjunct, split_conjuncts

MAX_NEAR_MISSES: Final = 3
"""The number of groups that are reported: the nearest, and two more to show whether it is the only one."""
_FARTHEST: Final = 1.0
"""The distance of a value that cannot be compared with the literal."""

_QUANTITY: Final = re.compile(r"""quantity\(\s*["']([^"']+)["']\s*\)""")
_STRING: Final = re.compile(r"""(?P<key>[\w\]]\[)?(["'])(?P<literal>[^"'\\]*)\2""")
"""A string literal, with a ``key`` group if it is a key in brackets behind a name, not a value of a comparison."""
_NUMBER: Final = re.compile(r"(?<![\w.\"'])-?\d+(?![\w.\"'])")

Value: TypeAlias = AttributeValue | Quantity | None


@dataclass(frozen=True, slots=True)
class FailedCondition:
    """A condition that a device does not meet."""

    source: str
    """The origin of the selector: ``class gpu``, ``selector 0``."""
    condition: str
    has: tuple[tuple[str, str], ...]
    """Names and values of the attributes and capacities that the condition reads; ``(absent)`` where one is missing."""


@dataclass(frozen=True, slots=True)
class NearMissGroup:
    """Devices that fail the same conditions with the same values."""

    device: DeviceId
    """The first device of the group."""
    devices: int
    """The number of devices in the group."""
    unmet: tuple[FailedCondition, ...]


class SourcedSelector(NamedTuple):
    """A selector and its origin, as in ``FailedCondition``."""

    source: str
    expression: str


class _Failing(NamedTuple):
    source: str
    condition: Conjunct
    values: tuple[Value, ...]
    """The values of ``condition.reads``; None: absent."""


def near_misses(
    selectors: Sequence[SourcedSelector], devices: Iterable[tuple[DeviceId, Device]]
) -> tuple[NearMissGroup, ...]:
    """The groups of ``devices`` that fail some condition, the nearest first, at most ``MAX_NEAR_MISSES``."""
    wanted = [(each.source, condition) for each in selectors for condition in split_conjuncts(each.expression)]
    groups: dict[tuple[_Failing, ...], list[DeviceId]] = {}
    for id_, device in devices:
        failing = tuple(_failing(wanted, id_.driver, device))
        if failing:
            groups.setdefault(failing, []).append(id_)
    nearest = sorted(groups, key=lambda failing: (len(failing), sum(map(_distance, failing))))
    return tuple(
        NearMissGroup(device=groups[failing][0], devices=len(groups[failing]), unmet=tuple(map(_unmet, failing)))
        for failing in nearest[:MAX_NEAR_MISSES]
    )


def _failing(wanted: Iterable[tuple[str, Conjunct]], driver: str, device: Device) -> Iterator[_Failing]:
    for source, condition in wanted:
        if not _holds(condition, driver, device):
            yield _Failing(source, condition, tuple(_value(driver, device, read) for read in condition.reads))


def _holds(condition: Conjunct, driver: str, device: Device) -> bool:
    """Whether a device meets a condition; one that cannot be evaluated, usually for a missing attribute, is not met."""
    try:
        return compile_selector(condition.expression).matches(driver, device)
    except (ExpressionCompileError, ExpressionRuntimeError, UnsupportedExpressionError):
        return False


def _value(driver: str, device: Device, read: Read) -> Value:
    """The device's value of what ``read`` names; a name without a domain belongs to the driver's domain."""
    names = [f"{read.domain}/{read.id}", *([read.id] if read.domain == driver and read.id else [])]
    if read.map == "attributes":
        return next((device.attributes[name].value for name in names if name in device.attributes), None)
    return next((device.capacity[name].value for name in names if name in device.capacity), None)


def _unmet(failing: _Failing) -> FailedCondition:
    pairs = zip(failing.condition.reads, failing.values, strict=True)
    has = tuple((read.id or read.domain, format_value(value)) for read, value in pairs)
    return FailedCondition(failing.source, failing.condition.expression, has)


def format_value(value: Value) -> str:
    """A value as CEL would write it; None: ``(absent)``."""
    if value is None:
        return "(absent)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(format_value, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _distance(failing: _Failing) -> float:
    """The distance of a device's values from the condition's literals, from 0 to 1."""
    distances = [_value_distance(value, failing.condition.expression) for value in failing.values]
    return min(distances, default=_FARTHEST)


def _value_distance(value: Value, expression: str) -> float:
    if isinstance(value, Quantity):
        return _relative(value.nano, (wanted.nano for wanted in _quantities(expression)))
    if isinstance(value, int) and not isinstance(value, bool):
        return _relative(value, (int(number) for number in _NUMBER.findall(expression)))
    if isinstance(value, str):
        literals = [match["literal"] for match in _STRING.finditer(expression) if not match["key"]]
        return 1 - max((SequenceMatcher(None, value, literal).ratio() for literal in literals), default=0.0)
    return _FARTHEST


def _relative(have: int, wanted: Iterable[int]) -> float:
    return min((abs(have - each) / max(abs(have), abs(each), 1) for each in wanted), default=_FARTHEST)


def _quantities(expression: str) -> Iterator[Quantity]:
    for literal in _QUANTITY.findall(expression):
        try:
            yield Quantity(literal)
        except InvalidQuantityError:
            continue
