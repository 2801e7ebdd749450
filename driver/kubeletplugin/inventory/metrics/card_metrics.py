"""The metrics of a node's cards: what they are, what is on them, what still fits, and what is stranded."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from prometheus_client import Gauge

from kerf_dra.driver.kubeletplugin.inventory.state.restrictions import KeptOutCards
from kerf_dra.driver.partitions.device_names import card_name
from kerf_dra.driver.partitions.fragmentation import Fragmentation, fragmentation
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.runtime import metrics

_CARD: Final = metrics.gauge(
    "kerf_card_info", "1 for each card of this node.", ["driver", "node", "card", "uuid", "model"]
)
_UNITS: Final = metrics.gauge(
    "kerf_card_units", "Units of a card, such as memory slices, in use or free.", ["driver", "node", "card"]
)
_FREE_UNITS: Final = metrics.gauge(
    "kerf_free_units",
    "Units of a card that are free, and not kept for extended resources.",
    ["driver", "node", "card"],
)
_RESERVED_UNITS: Final = metrics.gauge(
    "kerf_reserved_units",
    "Units of a card that are kept for extended resources, and that no container has yet.",
    ["driver", "node", "card"],
)
_STRANDED: Final = metrics.gauge(
    "kerf_stranded_units", "Free units of a card that no partition can use.", ["driver", "node", "card"]
)
_PARTITIONS: Final = metrics.gauge(
    "kerf_partitions",
    "Partitions and whole cards in use, by who has them: claims, containers (by extended resources) or others.",
    ["driver", "node", "card", "cut", "holder"],
)
_CAPACITY: Final = metrics.gauge(
    "kerf_card_partitions",
    "Partitions that fit on the card while it is empty, if all are of this kind.",
    ["driver", "node", "card", "cut"],
)
_FREE: Final = metrics.gauge(
    "kerf_free_partitions",
    "Partitions that fit beside what is in use and what is kept for extended resources, if all were of this kind.",
    ["driver", "node", "card", "cut"],
)
_KEPT_OUT: Final = metrics.gauge(
    "kerf_kept_out_cards",
    "1 for each card that an administrator keeps out: drained while claims have some of it, else unpublished.",
    ["driver", "node", "card", "uuid", "state"],
)
WHOLE: Final = "whole"
"""The ``cut`` of a whole card."""
_BARE: Final = "units"
"""The ``cut`` of a run of units whose function the claim's configuration names."""

_Values: TypeAlias = Mapping[tuple[str, ...], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardUse:
    """What claims and others cannot have of a node's cards, each partition once."""

    claims: Collection[Partition] = ()
    """What claims have."""
    containers: Collection[Partition] = ()
    """What containers have by extended resources."""
    foreign: Collection[Partition] = ()
    """What others have."""
    reserved: Collection[Partition] = ()
    """What is kept for extended resources, and no container has."""
    kept_out: KeptOutCards | None = None
    """The cards that an administrator keeps out; nothing of those that are drained is free."""


class CardMetrics:
    """The metrics of one family's cards on one node."""

    def __init__(self, driver: str, node: str) -> None:
        self._driver = driver
        self._node = node
        self._set: dict[Gauge, _Values] = {}
        self._cards: Mapping[str, Card] = {}

    def update(self, cards: Iterable[Card], use: CardUse) -> None:
        """Set the metrics."""
        named = {card_name(card): card for card in cards}
        names = {card.uuid: name for name, card in named.items()}
        if named != self._cards:
            self._cards = named
            self._replace(_CARD, {(name, card.uuid, card.geometry.model): 1 for name, card in named.items()})
            empty = {name: fragmentation(card, ()) for name, card in named.items()}
            self._replace(_UNITS, {(name,): figures.units for name, figures in empty.items()})
            self._replace(_CAPACITY, _count_partitions(empty))
        held = {"claims": use.claims, "containers": use.containers, "others": use.foreign}
        in_use: Counter[tuple[str, ...]] = Counter(
            (names.get(one.card_uuid, one.card_uuid), name_cut(one), holder)
            for holder, partitions in held.items()
            for one in partitions
        )
        self._replace(_PARTITIONS, in_use)
        drained = use.kept_out.drained if use.kept_out else ()
        self._replace(_KEPT_OUT, _count_kept_out(use.kept_out))
        withheld = (card.geometry.whole.of(card.uuid) for card in drained)
        taken = [*use.claims, *use.containers, *use.foreign, *withheld]
        unreserved = {name: fragmentation(card, taken).free_units for name, card in named.items()}
        now = {name: fragmentation(card, [*taken, *use.reserved]) for name, card in named.items()}
        self._replace(_FREE, _count_partitions(now))
        self._replace(_FREE_UNITS, {(name,): figures.free_units for name, figures in now.items()})
        reserved: _Values = {(name,): unreserved[name] - figures.free_units for name, figures in now.items()}
        self._replace(_RESERVED_UNITS, reserved)
        self._replace(_STRANDED, {(name,): figures.stranded_units for name, figures in now.items()})

    def _replace(self, gauge: Gauge, values: _Values) -> None:
        """Set ``values`` by their labels, and remove those that there are no more."""
        for labels in self._set.get(gauge, {}).keys() - values.keys():
            gauge.remove(self._driver, self._node, *labels)
        for labels, value in values.items():
            gauge.labels(self._driver, self._node, *labels).set(value)
        self._set[gauge] = values


def _count_partitions(figures_by_card: Mapping[str, Fragmentation]) -> _Values:
    """Return how many partitions of each kind fit, by card and kind."""
    found: dict[tuple[str, ...], int] = {}
    for name, figures in figures_by_card.items():
        found |= {(name, cut or _BARE): count for cut, count in figures.free_instances.items()}
        found[name, WHOLE] = int(figures.free_units == figures.units)
    return found


def _count_kept_out(kept_out: KeptOutCards | None) -> _Values:
    if kept_out is None:
        return {}
    states = {"drained": kept_out.drained, "unpublished": [card for cards in kept_out.cards.values() for card in cards]}
    return {(card_name(card), card.uuid, state): 1 for state, cards in states.items() for card in cards}


def name_cut(partition: Partition) -> str:
    """Return the profile or function of a partition; ``whole`` for a card, ``units`` for a bare run of them."""
    if partition.is_whole:
        return WHOLE
    return partition.profile or partition.function or _BARE
