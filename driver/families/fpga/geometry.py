"""The geometry of an FPGA shell: each function at each placement, each run of slots, and the whole FPGA.

A shell with several layouts has those of each. A set of slots with gaps is a partition if there is an image for it. A
layout without partial reconfiguration has no slots: its functions, and the whole FPGA.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.families.fpga.shell import Function, Logic, Shell, ShellLayout
from kerf_dra.driver.partitions.geometry import (
    Amounts,
    Geometry,
    PartitionSpec,
    Placement,
    card_mask,
    order_specs,
    select_present,
)

KIND: Final = "fpga"
"""The name of the family."""
_PERCENT: Final = 100
"""A compute unit is shared in percent: kube-scheduler rounds shares to whole numbers where a policy has a step
(``k8s.io/dynamic-resource-allocation`` ``structured``, Kubernetes 1.36)."""
_SHELLS: Final = 256
"""The most geometries kept: more than there are shells in any cluster."""


@lru_cache(maxsize=_SHELLS)
def fpga_geometry(shell: Shell) -> Geometry:
    """Return the geometry of ``shell``: the same object as long as it is in use."""
    layouts = shell.card_layouts
    return Geometry(
        kind=KIND,
        model=shell.name,
        unit="slot",
        units=sum(layout.units for layout in layouts),
        layouts=layouts if len(layouts) > 1 else (),
        specs=order_specs(_specs(shell)),
        attributes=(
            ("productName", Attribute.of(shell.name)),
            ("architecture", Attribute.of(shell.family)),
            ("interfaceUUID", Attribute.of(shell.uuid)),
        ),
        shareable=v.CAPACITY_COMPUTE_UNIT_PERCENT if any(one.compute_units for one in shell.functions) else "",
    )


def _specs(shell: Shell) -> Iterator[PartitionSpec]:
    for layout in shell.layouts:
        if not layout.is_undivided:  # else the whole card stands for its only unit
            for placement in _list_slot_sets(shell, layout):
                yield _spec(shell, layout, placement, None)
    for function in shell.functions:
        for placement in function.placements:
            yield _spec(shell, shell.layout(placement.layout), placement, function)
    yield _whole(shell)


def _list_slot_sets(shell: Shell, layout: ShellLayout) -> Iterator[Placement]:
    """Yield every run of slots, and those sets with gaps for which there is an image."""
    slots = len(layout.slots)
    for start in range(slots):
        for size in range(1, slots - start + 1):
            yield Placement(start, size, layout=layout.name)
    images = [placement for function in shell.functions for placement in function.placements]
    yield from dict.fromkeys(one for one in images if one.gaps and one.layout == layout.name)


def _spec(shell: Shell, layout: ShellLayout, placement: Placement, function: Function | None) -> PartitionSpec:
    logic = layout.logic(placement)
    loads = [one for one in shell.functions if one.placements[0].layout == layout.name and function in (None, one)]
    is_one_of_several = len(shell.layouts) > 1
    return PartitionSpec(
        kind=KIND,
        function=None if function is None else function.name,
        placement=placement,
        mask=card_mask(shell.name, shell.card_layouts, placement),
        size=_size(shell, layout, placement, function),
        weight=placement.size,
        capacity=_capacity(logic, 0 if layout.is_undivided else placement.size, function),
        attributes=(
            *(() if function is None else (("imageDigest", Attribute.of(function.digest(placement))),)),
            *((("interfaceUUID", Attribute.of(layout.uuid)),) if is_one_of_several else ()),
            *((("layout", Attribute.of(layout.name)),) if is_one_of_several else ()),
        ),
        load_s=max((one.load_s for one in loads), default=0.0) + (layout.load_s if is_one_of_several else 0.0),
    )


def _whole(shell: Shell) -> PartitionSpec:
    """The whole card, whose capacities are those of the layout that has most of each."""
    all_of = [layout.logic(layout.everything) for layout in shell.layouts]
    logic = Logic(
        lut=max(one.lut for one in all_of),
        ff=max(one.ff for one in all_of),
        bram=max(one.bram for one in all_of),
        dsp=max(one.dsp for one in all_of),
    )
    slots = max(0 if layout.is_undivided else len(layout.slots) for layout in shell.layouts)
    switch_s = max(layout.load_s for layout in shell.layouts) if shell.further_layouts else 0.0
    return PartitionSpec(
        kind=KIND,
        mask=card_mask(shell.name, shell.card_layouts, None),
        size=(logic.lut, slots, logic.dsp, logic.bram, logic.ff, 0),
        weight=slots or 1,
        capacity=_capacity(logic, slots, None),
        load_s=max((one.load_s for one in shell.functions), default=0.0) + switch_s,
    )


def _capacity(logic: Logic, slots: int, function: Function | None) -> Amounts:
    return select_present(
        (v.CAPACITY_SLOTS, Quantity(slots)),
        ("lut", Quantity(logic.lut)),
        ("ff", Quantity(logic.ff)),
        ("bram", Quantity(logic.bram)),
        ("dsp", Quantity(logic.dsp)),
        (v.CAPACITY_COMPUTE_UNIT_PERCENT, Quantity(_PERCENT * function.compute_units if function is not None else 0)),
    )


def _size(shell: Shell, layout: ShellLayout, placement: Placement, function: Function | None) -> tuple[int, ...]:
    """The logic, then the number of slots: two small slots may have less than a big one. Each function is a size."""
    logic = layout.logic(placement)
    which = 0 if function is None else 1 + shell.functions.index(function)
    return (logic.lut, placement.size, logic.dsp, logic.bram, logic.ff, which)
