"""The geometry of an FPGA shell: each function at each placement, each run of slots, and the whole FPGA."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from api.model.devices import Attribute
from api.model.quantity import Quantity
from driver.families.fpga.shell import Function, Shell
from driver.partitions.geometry import Geometry, PartitionSpec, Placement, order_specs, select_present, unit_mask

KIND: Final = "fpga"
"""The name of the family."""
_SHELLS: Final = 256
"""The most geometries kept: more than there are shells in any cluster."""


@lru_cache(maxsize=_SHELLS)
def fpga_geometry(shell: Shell) -> Geometry:
    """Return the geometry of ``shell``: the same object as long as it is in use."""
    return Geometry(
        kind=KIND,
        model=shell.name,
        unit="slot",
        units=len(shell.slots),
        specs=order_specs(_specs(shell)),
        attributes=(
            ("productName", Attribute.of(shell.name)),
            ("architecture", Attribute.of(shell.family)),
            ("interfaceUUID", Attribute.of(shell.uuid)),
        ),
    )


def _specs(shell: Shell) -> Iterator[PartitionSpec]:
    slots = len(shell.slots)
    for start in range(slots):
        for size in range(1, slots - start + 1):
            yield _spec(shell, Placement(start, size), None)
    for function in shell.functions:
        for placement in function.placements:
            yield _spec(shell, placement, function)
    yield _spec(shell, None, None)


def _spec(shell: Shell, placement: Placement | None, function: Function | None) -> PartitionSpec:
    slots = placement or Placement(0, len(shell.slots))
    logic = shell.logic(slots)
    capacity = select_present(
        ("slots", Quantity(slots.size)),
        ("lut", Quantity(logic.lut)),
        ("ff", Quantity(logic.ff)),
        ("bram", Quantity(logic.bram)),
        ("dsp", Quantity(logic.dsp)),
    )
    return PartitionSpec(
        kind=KIND,
        function=None if function is None else function.name,
        placement=placement,
        mask=unit_mask(slots),
        size=_size(shell, slots, function),
        weight=slots.size,
        capacity=capacity,
        attributes=() if function is None else (("imageDigest", Attribute.of(function.digest(slots))),),
        load_s=max((each.load_s for each in shell.functions if function in (None, each)), default=0.0),
    )


def _size(shell: Shell, placement: Placement, function: Function | None) -> tuple[int, ...]:
    """The logic, then the number of slots: two small slots may have less than a big one. Each function is a size."""
    logic = shell.logic(placement)
    which = 0 if function is None else 1 + shell.functions.index(function)
    return (logic.lut, placement.size, logic.dsp, logic.bram, logic.ff, which)
