"""How fragmented a cluster's cards are: what is free, of what use it is, and what to recreate for a large partition.

Figures follow from geometry alone (``driver.partitions``); the advice has been tried with the allocator.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from driver.diagnostics.card_usage import CardUse
from driver.diagnostics.cluster_index import Cluster
from driver.diagnostics.defragmentation import SLOTS, WHOLE, Advice, advise
from driver.diagnostics.errors import QuestionError
from driver.diagnostics.progress import Track, unwatched
from driver.partitions.fragmentation import Fragmentation, fragmentation


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFigures:
    """One card. Units are memory slices of GPUs, slots of FPGAs."""

    node: str
    card: str
    model: str
    units: int
    free_units: int
    largest_free_run: int
    stranded_units: int
    """Free units that no choice of partitions can use."""
    claims: int
    free: Mapping[str, int]
    """How many of each size can be had at once, each size taken alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeFigures:
    """One size of one model, over all cards."""

    model: str
    size: str
    """A profile, a function, ``slots`` for FPGA slots without a function, or ``whole``."""
    free: int
    """How many can be had at once, if nothing else is asked for."""
    possible: int
    """How many could be had if all cards were empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FragAnswer:
    """How fragmented the cards are."""

    cards: tuple[CardFigures, ...]
    sizes: tuple[SizeFigures, ...]
    """By model; small before large."""
    advice: tuple[Advice, ...]
    """For sizes of which none is free: the largest first."""
    no_advice: tuple[SizeFigures, ...]
    """Sizes that advice was sought for, but what is in the way would find no room elsewhere."""
    unknown_cards: tuple[str, ...]
    """``node/card: model`` of cards whose geometry is in no table."""


def frag(
    cluster: Cluster, *, nodes: Collection[str] = (), size: str | None = None, track: Track = unwatched
) -> FragAnswer:
    """Of the cards of ``nodes``; empty: of all.

    Advice is given for ``size``; None: for every size of which none is free. Raises QuestionError when no card can be
    cut to ``size``.
    """
    cards = cluster.cards_in_use(nodes)
    figures = [(card, _figures(card)) for card in track(cards, "looking at cards")]
    sizes = _sizes(figures)
    known = {each.size for each in sizes}
    if size is not None and size not in known:
        raise QuestionError(f"no card can be cut to {size!r}; there is {', '.join(sorted(known)) or 'no card'}")
    wanted = [each for each in reversed(sizes) if (each.size == size if size else not each.free)]
    room = sum(of_card.usable_units for _, of_card in figures)
    advice = {
        each: advise(cluster, cards, each.model, each.size, room) for each in track(wanted, "trying to make room")
    }
    return FragAnswer(
        cards=tuple(_card(card, of_card) for card, of_card in figures),
        sizes=sizes,
        advice=tuple(each for each in advice.values() if each is not None),
        no_advice=tuple(each for each, found_way in advice.items() if found_way is None),
        unknown_cards=cluster.cards.unknown,
    )


def sizes_left(cluster: Cluster, nodes: Collection[str] = ()) -> tuple[SizeFigures, ...]:
    """Which sizes can still be had on ``nodes``; empty: on all."""
    return _sizes([(card, _figures(card)) for card in cluster.cards_in_use(nodes)])


def _figures(card: CardUse) -> Fragmentation:
    return fragmentation(card.site.card, card.taken.values())


def _card(card: CardUse, figures: Fragmentation) -> CardFigures:
    return CardFigures(
        node=card.site.node,
        card=card.site.name,
        model=card.site.model,
        units=figures.units,
        free_units=figures.free_units,
        largest_free_run=figures.largest_free_run,
        stranded_units=figures.stranded_units,
        claims=len({ref for refs in card.holders.values() for ref in refs}),
        free=_free(figures),
    )


def _free(figures: Fragmentation) -> dict[str, int]:
    """How many of each size, the whole card last."""
    free = {name or SLOTS: count for name, count in figures.free_instances.items()}
    return free | {WHOLE: int(figures.free_units == figures.units)}


def _sizes(figures: Sequence[tuple[CardUse, Fragmentation]]) -> tuple[SizeFigures, ...]:
    free: Counter[tuple[str, str]] = Counter()
    possible: Counter[tuple[str, str]] = Counter()
    of_empty: dict[str, dict[str, int]] = {}
    for card, of_card in figures:
        model = card.site.model
        if model not in of_empty:
            of_empty[model] = _free(fragmentation(card.site.card, ()))
        free.update({(model, size): count for size, count in _free(of_card).items()})
        possible.update({(model, size): count for size, count in of_empty[model].items()})
    return tuple(
        SizeFigures(model=model, size=size, free=free[model, size], possible=possible[model, size])
        for model, size in sorted(possible, key=lambda key: key[0])
    )
