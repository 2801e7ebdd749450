"""From "at least this much" to the smallest legal partition of a model, and to why there is none."""

from dataclasses import dataclass, fields

from driver.partitions.geometry import GpuModel, Placement, Profile, Shell
from driver.partitions.partition_specs import Cut
from driver.partitions.unit_map import grid_of_geometry


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """What a partition has, or must have at least. 0 asks for nothing."""

    memory_bytes: int = 0
    compute_slices: int = 0
    slots: int = 0
    lut: int = 0
    dsp: int = 0

    def covers(self, minimum: "Amounts") -> bool:
        return not shortfalls(self, minimum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """One amount of which too little can be had."""

    name: str
    """The field of Amounts."""
    wanted: int
    largest: int
    """The most that one partition has."""


def smallest_profile(model: GpuModel, minimum: Amounts) -> Profile | None:
    """The smallest profile of ``model`` that has ``minimum``, the one that a claim gets from an empty card."""
    cut = _smallest(model, minimum)
    return cut.profile if cut else None


def smallest_run(shell: Shell, minimum: Amounts) -> Placement | None:
    """The smallest run of slots of ``shell`` that has ``minimum``; of equal ones the first."""
    cut = _smallest(shell, minimum)
    return cut.placement if cut else None


def largest(geometry: GpuModel | Shell) -> Amounts:
    """The most that any one partition of a card has, of each amount."""
    have = [_amounts(geometry, cut) for cut in _partitions(geometry)]
    return Amounts(**{field.name: max(getattr(amounts, field.name) for amounts in have) for field in fields(Amounts)})


def shortfalls(have: Amounts, minimum: Amounts) -> tuple[Shortfall, ...]:
    """Where ``have`` falls short of ``minimum``. With ``largest``: why no partition is big enough.

    The largest partition of every geometry has the most of everything, so there is always a shortfall to tell when
    ``smallest_profile`` or ``smallest_run`` finds none.
    """
    pairs = [(field.name, getattr(minimum, field.name), getattr(have, field.name)) for field in fields(Amounts)]
    return tuple(
        Shortfall(name=name, wanted=wanted, largest=amount) for name, wanted, amount in pairs if wanted > amount
    )


def _smallest(geometry: GpuModel | Shell, minimum: Amounts) -> Cut | None:
    fitting = (cut for cut in _partitions(geometry) if _amounts(geometry, cut).covers(minimum))
    return next(fitting, None)


def _partitions(geometry: GpuModel | Shell) -> list[Cut]:
    """Smallest first, without the whole card."""
    return [cut for cut in grid_of_geometry(geometry).cuts if cut.placement is not None]


def _amounts(geometry: GpuModel | Shell, cut: Cut) -> Amounts:
    assert cut.placement is not None
    if isinstance(geometry, Shell):
        logic = geometry.logic(cut.placement)
        return Amounts(slots=cut.placement.size, lut=logic.lut, dsp=logic.dsp)
    assert cut.profile is not None
    return Amounts(memory_bytes=cut.profile.memory_bytes, compute_slices=cut.profile.compute_slices)
