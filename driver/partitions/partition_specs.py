"""Everything that can be had from a card of some geometry: each profile, function and run of slots at each place.

A *cut* is a Partition before it belongs to a card. Units are bits of an int: unit i is bit i of ``mask``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from driver.partitions.geometry import DeviceKind, Engines, Function, GpuModel, Partition, Placement, Profile, Shell


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A profile or a function at a placement, a run of slots, or the whole card."""

    kind: DeviceKind
    profile: Profile | None = None
    function: Function | None = None
    placement: Placement | None = None
    """None: the whole card."""
    mask: int
    """The units it covers."""
    engines: tuple[int, ...] = ()
    """How many it takes of each of the geometry's exclusive engines."""
    size: tuple[int, ...]
    """Orders cuts from small to large, also those of different models. Cuts of one size serve a request equally."""

    def of(self, card_uuid: str) -> Partition:
        """The cut as a partition of one card."""
        return Partition(
            kind=self.kind,
            card_uuid=card_uuid,
            profile=self.profile.name if self.profile else None,
            placement=self.placement,
            function=self.function.name if self.function else None,
        )


def mask_of(placement: Placement) -> int:
    return ((1 << placement.size) - 1) << placement.start


def cuts_of(geometry: GpuModel | Shell) -> tuple[Cut, ...]:
    """Every cut, smallest first, the whole card last. Cuts of one size stand in order of their first unit."""
    cuts = _gpu_cuts(geometry) if isinstance(geometry, GpuModel) else _fpga_cuts(geometry)
    return tuple(sorted(cuts, key=lambda cut: (cut.placement is None, cut.size, cut.placement or ())))


def exclusive_engines(model: GpuModel, engines: Engines) -> tuple[int, ...]:
    """The counts of ``engines`` that partitions of ``model`` compete for, in the order the model names them."""
    return tuple(getattr(engines, name) for name in model.exclusive_engines)


def _gpu_cuts(model: GpuModel) -> Iterator[Cut]:
    for profile in model.profiles:
        engines = exclusive_engines(model, profile.engines)
        for placement in profile.placements:
            yield Cut(
                kind=DeviceKind.GPU,
                profile=profile,
                placement=placement,
                mask=mask_of(placement),
                engines=engines,
                size=_gpu_size(model, profile, placement.size, engines),
            )
    yield Cut(
        kind=DeviceKind.GPU,
        mask=(1 << model.memory_slices) - 1,
        engines=exclusive_engines(model, model.engines),
        size=(model.memory_bytes, model.compute_slices),
    )


def _gpu_size(model: GpuModel, profile: Profile, units: int, engines: tuple[int, ...]) -> tuple[int, ...]:
    """The part of the card it covers, then what it computes, then which scarce engines it takes from others.

    Covered memory, not the profile's own: 2g and 1g with double memory cover the same and report much the same, and a
    request for memory alone should not cost a compute slice. The profile's place in the table tells variants apart.
    """
    covered = model.memory_bytes * units // model.memory_slices
    return (covered, profile.compute_slices, sum(engines), model.profiles.index(profile))


def _fpga_cuts(shell: Shell) -> Iterator[Cut]:
    slots = len(shell.slots)
    runs = [Placement(start, size) for start in range(slots) for size in range(1, slots - start + 1)]
    for placement in runs:
        yield _fpga_cut(shell, placement, None)
    for function in shell.functions:
        for placement in function.placements:
            yield _fpga_cut(shell, placement, function)
    yield Cut(kind=DeviceKind.FPGA, mask=(1 << slots) - 1, size=_fpga_size(shell, Placement(0, slots), None))


def _fpga_cut(shell: Shell, placement: Placement, function: Function | None) -> Cut:
    return Cut(
        kind=DeviceKind.FPGA,
        function=function,
        placement=placement,
        mask=mask_of(placement),
        size=_fpga_size(shell, placement, function),
    )


def _fpga_size(shell: Shell, placement: Placement, function: Function | None) -> tuple[int, ...]:
    """Logic before the number of slots: two little slots may be smaller than one big one. Functions stand apart."""
    logic = shell.logic(placement)
    which = 0 if function is None else 1 + shell.functions.index(function)
    return (logic.lut, placement.size, logic.dsp, logic.bram, logic.ff, which)
