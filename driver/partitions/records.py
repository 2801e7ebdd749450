"""Conversion between partitions and their records in the checkpoint."""

from kerf_dra.api.model.prepared import CardPart
from kerf_dra.driver.partitions.geometry import Partition, Placement


def to_card_part(partition: Partition) -> CardPart:
    placement = partition.placement
    return CardPart(
        kind=partition.kind,
        card_uuid=partition.card_uuid,
        profile=partition.profile,
        start=None if placement is None else placement.start,
        size=None if placement is None else placement.size,
        gaps=0 if placement is None else placement.gaps,
        layout="" if placement is None else placement.layout,
        function=partition.function,
        shared=partition.shared,
    )


def from_card_part(part: CardPart) -> Partition:
    whole = part.start is None or part.size is None
    return Partition(
        kind=part.kind,
        card_uuid=part.card_uuid,
        profile=part.profile,
        placement=None if whole else Placement(part.start or 0, part.size or 0, part.gaps, part.layout),
        function=part.function,
        shared=part.shared,
    )
