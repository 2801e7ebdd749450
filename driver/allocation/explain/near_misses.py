"""The devices that come nearest to what selectors ask for, and the attribute in which each differs.

Near is who fails the fewest conditions; among those, whose values are closest to a literal that the condition names:
``80Gi`` is nearer to 79Gi than to 10Gi, ``h100-80gb`` nearer to ``h100-80gb-sxm`` than to ``a30-24gb``.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, NamedTuple, TypeAlias

from api.errors import InvalidQuantityError
from api.model.devices import AttributeValue, Device
from api.model.names import DeviceId
from api.model.quantity import Quantity
from driver.cel.attribute_references import Read
from driver.cel.compile import (
    ExpressionCompileError,
    ExpressionRuntimeError,
    UnsupportedExpressionError,
    compile_selector,
)
from driver.cel.conjuncts import Conjunct, split_conjuncts

SHOWN: Final = 3
"""Different near misses that are told: the first is the answer, the others say whether it is the only one."""
_FARTHEST: Final = 1.0
"""Of a value that cannot be compared with what is asked for."""

_QUANTITY: Final = re.compile(r"""quantity\(\s*["']([^"']+)["']\s*\)""")
_TEXT: Final = re.compile(r"""(?P<key>[\w\]]\[)?(["'])(?P<text>[^"'\\]*)\2""")
"""A text, and whether it is a key in brackets behind a name rather than something to compare with."""
_NUMBER: Final = re.compile(r"(?<![\w.\"'])-?\d+(?![\w.\"'])")

Value: TypeAlias = AttributeValue | Quantity | None


@dataclass(frozen=True, slots=True)
class Unmet:
    """A condition that a device does not meet."""

    source: str
    """Where it stands: ``class gpu``, ``selector 0``."""
    condition: str
    has: tuple[tuple[str, str], ...]
    """What it reads of the device, names and values as text; ``(absent)`` for what the device does not have."""


@dataclass(frozen=True, slots=True)
class Miss:
    """Devices that nearly match, alike in what they lack."""

    device: DeviceId
    """The first of them."""
    devices: int
    """How many they are."""
    unmet: tuple[Unmet, ...]


class Sourced(NamedTuple):
    """A selector and where it stands."""

    source: str
    expression: str


class _Failing(NamedTuple):
    source: str
    condition: Conjunct
    values: tuple[Value, ...]
    """Of ``condition.reads``; None: absent."""


def near_misses(selectors: Sequence[Sourced], devices: Iterable[tuple[DeviceId, Device]]) -> tuple[Miss, ...]:
    """The nearest of ``devices`` first, at most ``SHOWN``. Devices that meet everything are passed over."""
    wanted = [(each.source, condition) for each in selectors for condition in split_conjuncts(each.expression)]
    groups: dict[tuple[_Failing, ...], list[DeviceId]] = {}
    for id_, device in devices:
        failing = tuple(_failing(wanted, id_.driver, device))
        if failing:
            groups.setdefault(failing, []).append(id_)
    nearest = sorted(groups, key=lambda failing: (len(failing), sum(map(_distance, failing))))
    return tuple(
        Miss(device=groups[failing][0], devices=len(groups[failing]), unmet=tuple(map(_unmet, failing)))
        for failing in nearest[:SHOWN]
    )


def _failing(wanted: Iterable[tuple[str, Conjunct]], driver: str, device: Device) -> Iterator[_Failing]:
    for source, condition in wanted:
        if not _holds(condition, driver, device):
            yield _Failing(source, condition, tuple(_value(driver, device, read) for read in condition.reads))


def _holds(condition: Conjunct, driver: str, device: Device) -> bool:
    """A condition that cannot be evaluated, usually because the device lacks what it reads, does not hold."""
    try:
        return compile_selector(condition.expression).matches(driver, device)
    except (ExpressionCompileError, ExpressionRuntimeError, UnsupportedExpressionError):
        return False


def _value(driver: str, device: Device, read: Read) -> Value:
    """What the device has there; names without a domain belong to the driver's."""
    names = [f"{read.domain}/{read.id}", *([read.id] if read.domain == driver and read.id else [])]
    if read.map == "attributes":
        return next((device.attributes[name].value for name in names if name in device.attributes), None)
    return next((device.capacity[name].value for name in names if name in device.capacity), None)


def _unmet(failing: _Failing) -> Unmet:
    pairs = zip(failing.condition.reads, failing.values, strict=True)
    has = tuple((read.id or read.domain, shown(value)) for read, value in pairs)
    return Unmet(failing.source, failing.condition.expression, has)


def shown(value: Value) -> str:
    """A value as CEL would write it; None: ``(absent)``."""
    if value is None:
        return "(absent)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(shown, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _distance(failing: _Failing) -> float:
    """From 0, what is asked for, to 1."""
    distances = [_apart(value, failing.condition.expression) for value in failing.values]
    return min(distances, default=_FARTHEST)


def _apart(value: Value, expression: str) -> float:
    if isinstance(value, Quantity):
        return _relative(value.nano, (wanted.nano for wanted in _quantities(expression)))
    if isinstance(value, int) and not isinstance(value, bool):
        return _relative(value, (int(number) for number in _NUMBER.findall(expression)))
    if isinstance(value, str):
        texts = [match["text"] for match in _TEXT.finditer(expression) if not match["key"]]
        return 1 - max((SequenceMatcher(None, value, text).ratio() for text in texts), default=0.0)
    return _FARTHEST


def _relative(have: int, wanted: Iterable[int]) -> float:
    return min((abs(have - each) / max(abs(have), abs(each), 1) for each in wanted), default=_FARTHEST)


def _quantities(expression: str) -> Iterator[Quantity]:
    for text in _QUANTITY.findall(expression):
        try:
            yield Quantity(text)
        except InvalidQuantityError:
            continue
