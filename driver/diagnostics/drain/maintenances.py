"""Which cards CardMaintenances withhold, since when and why."""

from collections.abc import Iterator
from typing import NamedTuple

from kerf_dra.api.kerf.card_maintenance import is_named_card
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.reclaim.cards import DrainableCard, find_cards


class DrainedCard(NamedTuple):
    """A card that its node withholds because of a CardMaintenance."""

    card: DrainableCard
    maintenance: str
    """The name of the object."""
    since: str
    """The time of its creation in RFC 3339."""
    reason: str
    phase: str = ""
    """Its phase; empty: none is known."""
    then: str = "None"
    """What its node does with the free card."""

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        then = "" if self.then == "None" else f", then {self.then}"
        how = f" (CardMaintenance {self.maintenance}, {self.phase}{then})" if self.phase else ""
        return f"card {self.card.name} of node {self.card.node} is drained since {self.since}{why}{how}"


def find_drained_cards(cluster: ClusterIndex) -> Iterator[DrainedCard]:
    """Yield the cards that are published and withheld, each with each maintenance that names it."""
    for held in cluster.state.card_maintenances:
        for card in find_cards(cluster.slices, held.node):
            if card.is_withheld and is_named_card(held.card, card.uuid, card.pci_bus_id):
                yield DrainedCard(
                    card=card,
                    maintenance=held.name,
                    since=held.since,
                    reason=held.reason,
                    phase=held.phase,
                    then=held.then,
                )
