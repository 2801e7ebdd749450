"""The publish order of partitions, which decides placement although the scheduler chooses.

kube-scheduler takes the first device that matches, in the order slices and devices are published
(kubernetes/dynamic-resource-allocation ``structured``, Kubernetes 1.36). So the order is the placement policy:

1. from small to large, so that "at least 18 Gi" matches the smallest partition that has it first; whole cards last;
2. inside one size available partitions before the others;
3. functions: where the function is loaded already, then where nothing is, then where a load replaces another function;
4. KEEP: the placement whose loss is least. A card's placement value (``UnitMap.placement_value``) is the sum over its
   profiles of their weight times how many more of that profile still fit; the loss is the decrease of that value;
5. the fullest card, so that empty cards stay whole;
6. the order of the cards, then the first unit.

On one node with eight H100 at 85 to 100 % load this order accepts 0.7 to 2.0 in a hundred more requests than the order
of names, and never fewer in any measured mix (``tests/partitions/test_publish_order.py`` has the table). Across
nodes it orders nothing (``docs/placement.md``).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from driver.partitions.geometry import Card, Partition, PartitionSpec
from driver.partitions.unit_map import FreeUnits, UnitMap, get_unit_map


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOrder:
    """All partitions of some cards, in the order in which they should be published."""

    partitions: tuple[Partition, ...]
    available: frozenset[Partition]
    """The partitions that were free when the order was computed."""


def publish_order(cards: Sequence[Card], taken: Collection[Partition]) -> PublishOrder:
    """Compute the order for ``cards`` (stable order, distinct UUIDs) while ``taken`` are in use by any claims.

    It is deterministic. Partitions of one size that are not available keep their order among each other, so that the
    order changes only where this can change what is allocated.
    """
    held: dict[str, list[Partition]] = {}
    for partition in taken:
        held.setdefault(partition.card_uuid, []).append(partition)
    entries: list[tuple[tuple[object, ...], Partition, bool]] = []
    for position, card in enumerate(cards):
        unit_map = get_unit_map(card)
        free = unit_map.free(held.get(card.uuid, ()))
        for number, spec in enumerate(unit_map.specs):
            available = unit_map.fits(spec, free)
            rank = rank_placement(card, unit_map, spec, free) if available else ()
            key = (spec.placement is None, spec.size, not available, rank, position, number)
            entries.append((key, spec.of(card.uuid), available))
    entries.sort(key=lambda entry: entry[0])
    return PublishOrder(
        partitions=tuple(partition for _, partition, _ in entries),
        available=frozenset(partition for _, partition, available in entries if available),
    )


def needs_republish(old: PublishOrder, new: PublishOrder) -> bool:
    """Whether publishing ``new`` instead of ``old`` changes what a first-fit scheduler would choose now.

    Only the order among the partitions that are available now counts.
    """
    if frozenset(old.partitions) != frozenset(new.partitions):
        return True
    return [p for p in old.partitions if p in new.available] != [p for p in new.partitions if p in new.available]


def rank_placement(card: Card, unit_map: UnitMap, spec: PartitionSpec, free: FreeUnits) -> tuple[int, int, int]:
    """The rank of ``spec`` among the available partitions of its size on all cards (rules 3 to 5); lower is better."""
    loss = unit_map.placement_value(free.mask) - unit_map.placement_value(free.mask & ~spec.mask)
    return (_reload_rank(card, spec), loss, free.units)


def _reload_rank(card: Card, spec: PartitionSpec) -> int:
    """0: the function is loaded; 1: the slots are blank; 2: a loaded function would be replaced."""
    if spec.placement is None:
        return 1
    if spec.function is not None and card.loaded.get(spec.placement) == spec.function:
        return 0
    return 2 if any(spec.placement.overlaps(placement) for placement in card.loaded) else 1
