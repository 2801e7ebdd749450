"""The geometry of cards whose units are all equal, such as the cores of an NPU."""

from collections.abc import Mapping

from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.partitions.geometry import Amounts, Geometry, PartitionSpec, Placement, order_specs, unit_mask


def build_uniform_geometry(
    kind: str,
    model: str,
    *,
    unit: str,
    units: int,
    profiles: Mapping[str, int],
    capacity: Mapping[str, Quantity],
) -> Geometry:
    """Build the geometry of cards of ``units`` equal units; ``capacity`` is what one unit has.

    ``profiles`` are the numbers of units by name. A profile of n units can be placed at every multiple of n, as buddy
    allocators do, so that partitions of one size leave no gaps that none of them fills.

    Raises InvalidGeometryError when a profile has more units than the card.
    """
    specs = [
        _spec(kind, profile, Placement(start, size), capacity)
        for profile, size in profiles.items()
        for start in range(0, max(units - size, 0) + 1, size)
    ]
    specs.append(_spec(kind, None, Placement(0, units), capacity))
    return Geometry(kind=kind, model=model, unit=unit, units=units, specs=order_specs(specs))


def _spec(kind: str, profile: str | None, units: Placement, capacity: Mapping[str, Quantity]) -> PartitionSpec:
    amounts: Amounts = tuple(
        (name, Quantity.of_nano(amount.nano * units.size, amount.family)) for name, amount in capacity.items()
    )
    return PartitionSpec(
        kind=kind,
        profile=profile,
        placement=None if profile is None else units,
        mask=unit_mask(units),
        size=(units.size,),
        weight=units.size,
        capacity=amounts,
    )
