"""All partitions of a geometry: each profile, function and run of slots at each placement, and the whole card.

A ``PartitionSpec`` is a partition before it belongs to a card. Units are bits of an int: unit i is bit i of ``mask``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from driver.partitions.geometry import DeviceKind, Engines, Function, GpuModel, Partition, Placement, Profile, Shell


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """One partition that a card of some geometry can have."""

    kind: DeviceKind
    profile: Profile | None = None
    function: Function | None = None
    placement: Placement | None = None
    """The placement; None: the whole card."""
    mask: int
    """The bitset of units that the partition covers."""
    engines: tuple[int, ...] = ()
    """The number of each of the geometry's exclusive engines that the partition takes, in the model's order."""
    size: tuple[int, ...]
    """The sort key from small to large, also across models. Partitions of one size serve a request equally."""

    def of(self, card_uuid: str) -> Partition:
        """Return this partition of one card."""
        return Partition(
            kind=self.kind,
            card_uuid=card_uuid,
            profile=self.profile.name if self.profile else None,
            placement=self.placement,
            function=self.function.name if self.function else None,
        )


def unit_mask(placement: Placement) -> int:
    """Return the bitset of units that ``placement`` covers."""
    return ((1 << placement.size) - 1) << placement.start


def list_partition_specs(geometry: GpuModel | Shell) -> tuple[PartitionSpec, ...]:
    """List every partition, smallest first, the whole card last; equal sizes are in the order of their first unit."""
    specs = _gpu_specs(geometry) if isinstance(geometry, GpuModel) else _fpga_specs(geometry)
    return tuple(sorted(specs, key=lambda spec: (spec.placement is None, spec.size, spec.placement or ())))


def exclusive_engines(model: GpuModel, engines: Engines) -> tuple[int, ...]:
    """Return the counts of ``engines`` that partitions of ``model`` compete for, in the model's order."""
    return tuple(getattr(engines, name) for name in model.exclusive_engines)


def _gpu_specs(model: GpuModel) -> Iterator[PartitionSpec]:
    for profile in model.profiles:
        engines = exclusive_engines(model, profile.engines)
        for placement in profile.placements:
            yield PartitionSpec(
                kind=DeviceKind.GPU,
                profile=profile,
                placement=placement,
                mask=unit_mask(placement),
                engines=engines,
                size=_gpu_size(model, profile, placement.size, engines),
            )
    yield PartitionSpec(
        kind=DeviceKind.GPU,
        mask=(1 << model.memory_slices) - 1,
        engines=exclusive_engines(model, model.engines),
        size=(model.memory_bytes, model.compute_slices),
    )


def _gpu_size(model: GpuModel, profile: Profile, units: int, engines: tuple[int, ...]) -> tuple[int, ...]:
    """The memory that a partition covers, then its compute slices, then the exclusive engines that it takes.

    The covered memory counts, not the profile's own: 2g and 1g with double memory cover the same and report nearly the
    same, and a request for memory alone should not cost a compute slice. The profile's position in the table
    distinguishes variants.
    """
    covered = model.memory_bytes * units // model.memory_slices
    return (covered, profile.compute_slices, sum(engines), model.profiles.index(profile))


def _fpga_specs(shell: Shell) -> Iterator[PartitionSpec]:
    slots = len(shell.slots)
    runs = [Placement(start, size) for start in range(slots) for size in range(1, slots - start + 1)]
    for placement in runs:
        yield _fpga_spec(shell, placement, None)
    for function in shell.functions:
        for placement in function.placements:
            yield _fpga_spec(shell, placement, function)
    yield PartitionSpec(kind=DeviceKind.FPGA, mask=(1 << slots) - 1, size=_fpga_size(shell, Placement(0, slots), None))


def _fpga_spec(shell: Shell, placement: Placement, function: Function | None) -> PartitionSpec:
    return PartitionSpec(
        kind=DeviceKind.FPGA,
        function=function,
        placement=placement,
        mask=unit_mask(placement),
        size=_fpga_size(shell, placement, function),
    )


def _fpga_size(shell: Shell, placement: Placement, function: Function | None) -> tuple[int, ...]:
    """The logic, then the number of slots: two small slots may have less than a big one. Each function is a size."""
    logic = shell.logic(placement)
    which = 0 if function is None else 1 + shell.functions.index(function)
    return (logic.lut, placement.size, logic.dsp, logic.bram, logic.ff, which)
