"""``kerf frag``: the fragmentation of a cluster's cards, and which claims to recreate to free a large partition.

The numbers follow from the geometry of the cards alone (``kerf_dra.driver.partitions.fragmentation``); every piece of
advice has been tried with the allocator (``defragmentation``), and what packing would gain, too (``placement``). Cards
of other drivers, and of models whose geometry is not known, are reported by their shared counters (``counter_usage``).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kerf_dra.driver.diagnostics.card_usage import CardUsage, DrawnDevices
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.counter_usage import CounterSetFigures, PoolFigures, measure_counters
from kerf_dra.driver.diagnostics.defragmentation import SLOTS, WHOLE, Advice, find_advice
from kerf_dra.driver.diagnostics.errors import QueryError
from kerf_dra.driver.diagnostics.placement.packed_cluster import PackedCluster, Packing, pack_claims
from kerf_dra.driver.diagnostics.progress import ProgressTracker, without_progress
from kerf_dra.driver.partitions.fragmentation import Fragmentation, fragmentation
from kerf_dra.driver.scheduling.node_filter import node_view


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFigures:
    """The fragmentation of one card. Units are memory slices of a GPU or slots of an FPGA."""

    node: str
    card: str
    model: str
    units: int
    free_units: int
    largest_free_run: int
    stranded_units: int
    """Free units that no combination of partitions can use."""
    claims: int
    free: Mapping[str, int]
    """For each size, how many partitions of it alone fit into the free units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeFigures:
    """The number of partitions of one size over all cards of a model."""

    model: str
    size: str
    """A profile, a function, ``slots`` for FPGA slots without a function, or ``whole``."""
    free: int
    """The number that fits into the free units if no other size is requested."""
    possible: int
    """The number that would fit if all cards were empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareFigures:
    """What is used and what is free of the published hardware; the fields are those of ``FragmentationReport``."""

    cards: tuple[CardFigures, ...]
    sizes: tuple[SizeFigures, ...]
    unknown_cards: tuple[str, ...]
    counter_sets: tuple[CounterSetFigures, ...]
    whole_devices: tuple[PoolFigures, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSize:
    """The number of partitions of one size that are free as claims are now, and if all were packed."""

    model: str
    size: str
    as_now: int
    packed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentationReport:
    """The document that ``kerf frag --output json`` prints; its field names are the format."""

    cards: tuple[CardFigures, ...]
    sizes: tuple[SizeFigures, ...]
    """The sizes by model, small before large."""
    advice: tuple[Advice, ...]
    """Advice for sizes of which none is free, the largest first."""
    no_advice: tuple[SizeFigures, ...]
    """Sizes for which advice was sought and none was found."""
    unknown_cards: tuple[str, ...]
    """Cards whose model is in no table, each as ``node/card: model``; ``counter_sets`` has what is used of them."""
    counter_sets: tuple[CounterSetFigures, ...]
    """The cards whose geometry is not known, of all drivers."""
    whole_devices: tuple[PoolFigures, ...]
    """The devices that consume no counters, of all drivers."""
    packing: Packing | None
    """What packing all claims would gain; None: it was not found out, or only some nodes are measured."""
    packed_sizes: tuple[PackedSize, ...]
    """The sizes of which more partitions would be free if all claims were packed."""


def measure_fragmentation(
    cluster: ClusterIndex,
    *,
    nodes: Collection[str] = (),
    size: str | None = None,
    track: ProgressTracker = without_progress,
) -> FragmentationReport:
    """Return the fragmentation of the cards of ``nodes``, or of all nodes if ``nodes`` is empty.

    Advice is sought for ``size``, or for every size of which none is free if ``size`` is None.

    Raises QueryError when no card has partitions of ``size``.
    """
    cards = cluster.card_usages(nodes)
    figures = [(card, _measure(card)) for card in track(cards, "measuring cards")]
    hardware = _describe_hardware(cluster, figures, nodes)
    sizes = hardware.sizes
    known = {each.size for each in sizes}
    if size is not None and size not in known:
        raise QueryError(f"no card has partitions of size {size!r}; sizes: {', '.join(sorted(known)) or 'none'}")
    wanted = [each for each in reversed(sizes) if (each.size == size if size else not each.free)]
    usable = sum(each.usable_units for _, each in figures)
    advice = [
        find_advice(cluster, cards, each.model, each.size, usable) for each in track(wanted, "searching for advice")
    ]
    packed = pack_claims(cluster, track) if not nodes else None
    return FragmentationReport(
        packing=packed.figures if packed is not None else None,
        packed_sizes=tuple(_compare_packed(packed)) if packed is not None else (),
        counter_sets=hardware.counter_sets,
        whole_devices=hardware.whole_devices,
        cards=hardware.cards,
        sizes=hardware.sizes,
        advice=tuple(each for each in advice if each is not None),
        no_advice=tuple(each for each, found in zip(wanted, advice, strict=True) if found is None),
        unknown_cards=hardware.unknown_cards,
    )


def measure_hardware(cluster: ClusterIndex, nodes: Collection[str] = ()) -> HardwareFigures:
    """Return what is used and what is free of the hardware of ``nodes``, or of all nodes if ``nodes`` is empty."""
    return _describe_hardware(cluster, [(card, _measure(card)) for card in cluster.card_usages(nodes)], nodes)


def _describe_hardware(
    cluster: ClusterIndex, figures: Sequence[tuple[CardUsage, Fragmentation]], nodes: Collection[str]
) -> HardwareFigures:
    counter_sets, whole_devices = measure_counters(
        cluster.slices,
        cluster.all_holdings.holders,
        drawn=DrawnDevices(cluster.cards.known),
        nodes={node.metadata.name: node_view(node) for node in cluster.nodes if node.metadata.name in nodes},
        consumed=cluster.all_holdings.allocated.consumed,
    )
    return HardwareFigures(
        cards=tuple(_describe_card(card, each) for card, each in figures),
        sizes=_sum_sizes(figures),
        unknown_cards=cluster.cards.unknown,
        counter_sets=counter_sets,
        whole_devices=whole_devices,
    )


def count_sizes(cluster: ClusterIndex, nodes: Collection[str] = ()) -> tuple[SizeFigures, ...]:
    """Return how many partitions of each size are free on ``nodes``, or on all nodes if ``nodes`` is empty."""
    return _sum_sizes([(card, _measure(card)) for card in cluster.card_usages(nodes)])


def _compare_packed(found: PackedCluster) -> Iterator[PackedSize]:
    """Yield the sizes of which packing would free more."""
    packed = {(each.model, each.size): each.free for each in count_sizes(found.packed)}
    for each in count_sizes(found.as_now):
        if (free := packed[each.model, each.size]) > each.free:
            yield PackedSize(model=each.model, size=each.size, as_now=each.free, packed=free)


def _measure(card: CardUsage) -> Fragmentation:
    return fragmentation(card.published.card, card.partitions.values())


def _describe_card(card: CardUsage, figures: Fragmentation) -> CardFigures:
    return CardFigures(
        node=card.published.node,
        card=card.published.name,
        model=card.published.model,
        units=figures.units,
        free_units=figures.free_units,
        largest_free_run=figures.largest_free_run,
        stranded_units=figures.stranded_units,
        claims=len({ref for refs in card.holders.values() for ref in refs}),
        free=_count_free(figures),
    )


def _count_free(figures: Fragmentation) -> dict[str, int]:
    """Return how many partitions of each size are free, the whole card last."""
    free = {name or SLOTS: count for name, count in figures.free_instances.items()}
    return free | {WHOLE: int(figures.free_units == figures.units)}


def _sum_sizes(figures: Sequence[tuple[CardUsage, Fragmentation]]) -> tuple[SizeFigures, ...]:
    free: Counter[tuple[str, str]] = Counter()
    possible: Counter[tuple[str, str]] = Counter()
    of_empty: dict[str, dict[str, int]] = {}
    for card, each in figures:
        model = card.published.model
        if model not in of_empty:
            of_empty[model] = _count_free(fragmentation(card.published.card, ()))
        free.update({(model, size): count for size, count in _count_free(each).items()})
        possible.update({(model, size): count for size, count in of_empty[model].items()})
    return tuple(
        SizeFigures(model=model, size=size, free=free[model, size], possible=possible[model, size])
        for model, size in sorted(possible, key=lambda key: key[0])
    )
