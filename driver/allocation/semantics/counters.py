"""Shared counters (KEP-4815) and compatibility groups (KEP-5963), packed for fast checks.

The counters of one set are the fields of one integer. Above every field stands a guard bit; taking from a set is one
subtraction, and it fits exactly when no field borrows from its guard::

    guards | available   1.0111 1.0010
    - use                0.0011 0.0011
                         1.0100 0.1111     the second guard is 0: the second counter does not suffice

Amounts are whole multiples of the counter's greatest common divisor, so that fields stay narrow.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import gcd
from typing import Final, NamedTuple

from kerf_dra.api.model.devices import CounterSet, Device

Groups = frozenset[str]
NO_GROUPS: Final[Groups] = frozenset()
INCOMPATIBLE: Final[Groups] = frozenset({""})
"""The groups of allocated devices that have none in common; no device has the empty group, so none can join them."""


class CounterUse(NamedTuple):
    """The consumption of a device from one set; ``amount`` None: more than the set ever has."""

    set: int
    """The index of the set in ``PackedCounters.names``."""
    amount: int | None
    groups: Groups


_counter_use: Final = lru_cache(maxsize=2**14)(CounterUse)
"""Returns equal uses as one object: the cards of a cluster have some dozen placements each."""


@dataclass(frozen=True, slots=True)
class PackedCounters:
    """The counter sets of a pool, and the consumption of its devices."""

    names: tuple[str, ...]
    guards: tuple[int, ...]
    totals: tuple[int, ...]
    """The total of all counters of each set, packed, with the guards."""
    fields: tuple[Mapping[str, "PackedField"], ...]

    def use(self, device: Device) -> tuple[CounterUse, ...]:
        """Return the consumption of ``device``, one of the pool's."""
        return tuple(
            _counter_use(
                set=(index := self.names.index(consumption.counter_set)),
                amount=_packed(
                    self.fields[index], {name: counter.value.nano for name, counter in consumption.counters.items()}
                ),
                groups=frozenset(consumption.compatibility_groups),
            )
            for consumption in device.consumes_counters
        )

    def remaining(self, taken: Iterable[CounterUse]) -> list[int] | None:
        """The remaining counters of each set beside ``taken``, with the guards; None: a set is overdrawn."""
        remaining = list(self.totals)
        for use in taken:
            if not fits(remaining[use.set], use.amount, self.guards[use.set]):
                return None
            remaining[use.set] -= use.amount or 0
        return remaining

    def find_exhausted(self, remaining: int, use: CounterUse) -> str:
        """The name of the first counter of a set for which ``remaining`` does not suffice; for messages."""
        for name, field in self.fields[use.set].items():
            if use.amount is None or field.read(use.amount) > field.read(remaining):
                return name
        return ""


class PackedField(NamedTuple):
    """The position of one counter in the packed integer of its set."""

    shift: int
    width: int
    """The width in bits, without the guard bit above it."""
    unit: int
    """The size of one step of the field, in units of 1e-9."""

    def read(self, packed: int) -> int:
        """The counter's value in ``packed``, in units of the field."""
        return (packed >> self.shift) & ((1 << self.width) - 1)


def fits(remaining: int, amount: int | None, guards: int) -> bool:
    """Whether ``amount`` can be taken from ``remaining`` (which has its guards)."""
    return amount is not None and (remaining - amount) & guards == guards


def pack_counters(sets: Sequence[CounterSet], devices: Iterable[Device]) -> PackedCounters:
    """The packed form of a pool's ``sets``. Every set and counter that ``devices`` name must exist."""
    amounts = {set_.name: {name: [counter.value.nano] for name, counter in set_.counters.items()} for set_ in sets}
    for device in devices:
        for consumption in device.consumes_counters:
            of_set = amounts[consumption.counter_set]
            for name, counter in consumption.counters.items():
                of_set[name].append(counter.value.nano)
    fields = tuple(_fields_of_set(amounts[set_.name]) for set_ in sets)
    guards = tuple(sum(1 << (field.shift + field.width) for field in of_set.values()) for of_set in fields)
    return PackedCounters(
        names=tuple(set_.name for set_ in sets),
        guards=guards,
        totals=tuple(
            guard + (_packed(of_set, {name: counter.value.nano for name, counter in set_.counters.items()}) or 0)
            for set_, of_set, guard in zip(sets, fields, guards, strict=True)
        ),
        fields=fields,
    )


def _fields_of_set(amounts: Mapping[str, Sequence[int]]) -> dict[str, PackedField]:
    """Fields for the counters of a set; ``amounts`` lists the total of each first, then the consumption of devices."""
    fields: dict[str, PackedField] = {}
    shift = 0
    for name, (total, *taken) in amounts.items():
        unit = reduce(gcd, taken, total) or 1
        fields[name] = PackedField(shift=shift, width=(total // unit).bit_length(), unit=unit)
        shift += fields[name].width + 1
    return fields


def _packed(fields: Mapping[str, PackedField], amounts: Mapping[str, int]) -> int | None:
    packed = 0
    for name, amount in amounts.items():
        field = fields[name]
        multiple = amount // field.unit
        if multiple.bit_length() > field.width:
            return None
        packed |= multiple << field.shift
    return packed


def join_groups(present: Groups | None, joining: Groups) -> Groups | None:
    """The groups that all devices on a counter set share once another joins; None when it must not.

    ``present`` are the groups that the devices there share, None without devices. A device without groups shares a
    set only with others without groups (KEP-5963).
    """
    if present is None:
        return joining
    if not present or not joining:
        return NO_GROUPS if not present and not joining else None
    return present & joining or None
