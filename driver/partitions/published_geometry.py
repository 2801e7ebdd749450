"""The geometry of a card, rebuilt from its published devices: for models that no family ships, such as FPGA shells.

A device's counters say which units it covers, if all counters of the card are units, as the compiler of pools names
them (``slot-0``, and ``halves-slot-0`` of a layout). The order of sizes and the worth of a partition are not published:
a partition with more units counts as larger, and is worth as much as it has units.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Attribute, Device
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.partitions.device_names import name_part, parse_device_name
from kerf_dra.driver.partitions.geometry import (
    Geometry,
    InvalidGeometryError,
    Layout,
    PartitionSpec,
    Placement,
    card_mask,
    order_specs,
)

_UNIT: Final = re.compile(r"(?P<stem>.*)-(?P<number>[0-9]+)")
_ABSENT: Final = Attribute()


class _Units(NamedTuple):
    """The units of a card by their counters."""

    unit: str
    """The name of a unit."""
    layouts: tuple[Layout, ...]


def rebuild_geometry(kind: str, devices: Mapping[str, Device]) -> Geometry | None:
    """Return the geometry of the card with these ``devices``, all of one card, as far as they are published.

    None: the card has other counters than units, or its devices do not follow Kerf's names.
    """
    exclusive = {
        name: device
        for name, device in devices.items()
        if device.consumes_counters and not device.allow_multiple_allocations
    }
    wholes = [device for device in exclusive.values() if _text(device, v.ATTRIBUTE_CUT) == v.CUT_WHOLE]
    units = _find_units(wholes[0], exclusive.values()) if len(wholes) == 1 else None
    if units is None:
        return None
    model = _text(wholes[0], v.ATTRIBUTE_MODEL)
    specs = [_rebuild_spec(kind, model, units, name, device) for name, device in exclusive.items()]
    try:
        return Geometry(
            kind=kind,
            model=model,
            unit=units.unit,
            units=sum(layout.units for layout in units.layouts),
            layouts=units.layouts if len(units.layouts) > 1 else (),
            specs=order_specs(spec for spec in specs if spec is not None),
        )
    except InvalidGeometryError:
        return None


def _find_units(whole: Device, devices: Iterable[Device]) -> _Units | None:
    """Find the units among the counters of the whole card, which consumes all of them."""
    matches = [_UNIT.fullmatch(name) for name in _consumed(whole)]
    stems = Counter(match["stem"] for match in matches if match is not None)
    if None in matches or not stems:
        return None
    names = sorted({_text(device, v.ATTRIBUTE_LAYOUT) for device in devices})
    first = [stem for stem in stems if not any(name and stem.startswith(f"{name}-") for name in names)]
    if len(first) != 1:
        return None
    prefixed = [(name, f"{name}-{first[0]}" if name else first[0]) for name in names]
    return _Units(first[0], tuple(Layout(name, stems[stem]) for name, stem in prefixed if stem in stems))


def _rebuild_spec(kind: str, model: str, units: _Units, name: str, device: Device) -> PartitionSpec | None:
    """Rebuild the partition of a device; None: it has another name than its placement should have."""
    is_whole = _text(device, v.ATTRIBUTE_CUT) == v.CUT_WHOLE
    layout = _text(device, v.ATTRIBUTE_LAYOUT)
    placement = None if is_whole else Placement.of_units(_find_covered(device, units, layout) or [0], layout)
    function = _text(device, v.ATTRIBUTE_FUNCTION) or None
    parsed = parse_device_name(name)
    expected = "" if placement is None else f"-{name_part(placement, function, units.unit)}"
    if parsed is None or parsed.suffix != expected:
        return None
    try:
        mask = card_mask(model, units.layouts, placement)
    except InvalidGeometryError:
        return None
    amounts = sorted((capacity, held.value) for capacity, held in device.capacity.items())
    return PartitionSpec(
        kind=kind,
        function=function,
        placement=placement,
        mask=mask,
        size=(mask.bit_count(), *(amount.nano for _, amount in amounts)),
        weight=mask.bit_count(),
        capacity=tuple((capacity, amount) for capacity, amount in amounts if amount != Quantity(0)),
    )


def _find_covered(device: Device, units: _Units, layout: str) -> list[int]:
    stem = f"{layout}-{units.unit}" if layout else units.unit
    matches = (_UNIT.fullmatch(name) for name in _consumed(device))
    return [int(match["number"]) for match in matches if match is not None and match["stem"] == stem]


def _consumed(device: Device) -> Iterator[str]:
    return (name for consumption in device.consumes_counters for name in consumption.counters)


def _text(device: Device, name: str) -> str:
    return device.attributes.get(name, _ABSENT).string or ""
