"""Shells with several layouts for the tests."""

import uuid
from collections.abc import Iterable, Sequence

from kerf_dra.driver.families.fpga.shell import Function, Logic, Shell, ShellLayout
from kerf_dra.driver.partitions.geometry import Placement

_LUT = 1200
"""The look-up tables of a card, which each layout divides."""
NAMES = ("", "halves", "whole", "fourth", "fifth")


def divided(*slots: int, functions: Iterable[Function] = (), undivided: Sequence[int] = ()) -> Shell:
    """A shell with a layout of so many slots each; those numbered ``undivided`` have no partial reconfiguration."""
    first, *further = (
        ShellLayout(
            name=name,
            uuid=f"00000000-0000-4000-8000-00000000000{number}",
            slots=tuple(Logic(lut=_LUT // count) for _ in range(count)),
            load_s=2.0,
            is_undivided=number in undivided,
        )
        for number, (name, count) in enumerate(zip(NAMES, slots, strict=False))
    )
    return Shell(
        name="-".join(map(str, slots)),
        uuid=first.uuid,
        family="test",
        slots=first.slots,
        functions=tuple(functions),
        load_s=first.load_s,
        is_undivided=first.is_undivided,
        further_layouts=tuple(further),
    )


def function(name: str, *placements: Placement, load_s: float = 1.0, compute_units: int = 0) -> Function:
    return Function(
        name=name,
        version="1",
        afu_id=str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
        placements=placements,
        load_s=load_s,
        compute_units=compute_units,
    )


def scattered(*units: int, layout: str = "") -> Placement:
    return Placement.of_units(units, layout)
