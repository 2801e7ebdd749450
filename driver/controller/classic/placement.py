"""Which devices of a node a pod's claims get, all of them together or none. Pure.

The order is that of ``driver.partitions.publish_order``: the smallest that will do, loaded functions first, then KEEP,
the placement whose loss is least. Large wants choose first; where that leads nowhere, the search goes back.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeVar

from driver.controller.classic.node_model import CardModel, Kit
from driver.controller.classic.requirements import Ask
from driver.partitions.geometry import DeviceKind
from driver.partitions.partition_specs import PartitionSpec
from driver.partitions.publish_order import rank_placement
from driver.partitions.unit_map import FreeUnits, UnitMap

AnswerT = TypeVar("AnswerT")

_STEPS: Final = 5_000
"""Placements tried for one node before it counts as full: tens of milliseconds. One claim needs one; a pod with eight
claims on a node that is almost full was seen to need hundreds."""
_SETS: Final = 256
"""Sets of wants remembered: pods of one workload ask the same."""
_ANSWERS: Final = 4096
"""Looks of nodes remembered for one set of wants: a cluster's nodes are alike, or a few thousand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node's cards and what of each is free."""

    cards: tuple[CardModel, ...]
    look: "Look"
    doubts: tuple[str, ...] = ()
    """Where claims and inventory contradict each other: more counts as taken than is said to be."""

    @property
    def free(self) -> tuple[FreeUnits, ...]:
        return self.look.free

    @property
    def barred(self) -> frozenset[str]:
        return self.look.barred


class Look(NamedTuple):
    """What decides whether something fits: nodes that look alike can have the same."""

    kit: Kit
    free: tuple[FreeUnits, ...]
    """Of each card."""
    barred: frozenset[str]
    """Devices that may not be used although they are free."""


class Want(NamedTuple):
    """One device for one request of one claim."""

    claim: str
    """The claim's UID."""
    request: str
    number: int
    """Of the devices of one request."""
    ask: Ask


class Placed(NamedTuple):
    """A want and what it gets."""

    want: Want
    card: CardModel
    spec: PartitionSpec

    @property
    def device(self) -> str:
        return self.card.device(self.spec)


class Cost(NamedTuple):
    """Compares nodes that could serve the same claim: less is better."""

    sizes: tuple[tuple[int, ...], ...]
    """Of the devices: the smallest that will do."""
    free: int
    """Units of the node: the fullest, so that empty ones stay whole."""


def place(state: NodeState, wants: Sequence[Want]) -> tuple[Placed, ...] | None:
    """A device for every want, in their order; None when they do not all fit. Wants to monitor get every card."""
    taking = [want for want in wants if not want.ask.monitor]
    largest_first = sorted(taking, key=lambda want: -_least_units(state, want.ask))
    found = _Search(state).run(largest_first)
    if found is None:
        return None
    monitored = [
        Placed(want, held, held.unit_map.specs[-1])
        for want in wants
        if want.ask.monitor
        for held in state.cards
        if held.card.kind is want.ask.kind and _is_model(held.model, want.ask) and is_recent(held, want.ask)
    ]
    if any(want.ask.monitor for want in wants) and not monitored:
        return None
    order = {want: number for number, want in reversed(list(enumerate(wants)))}
    return tuple(sorted([*found, *monitored], key=lambda placed: order[placed.want]))


class ByLook(Generic[AnswerT]):
    """What ``answer`` says of nodes that are asked for something, worked out once for all that look alike."""

    def __init__(self, answer: Callable[[NodeState, tuple[Ask, ...]], AnswerT]) -> None:
        self._answer = answer
        self._known: dict[tuple[Ask, ...], dict[Look, AnswerT]] = {}

    def __call__(self, state: NodeState, asks: tuple[Ask, ...]) -> AnswerT:
        known = self._known.get(asks)
        if known is None:
            if len(self._known) >= _SETS:
                self._known.clear()
            known = self._known[asks] = {}
        try:
            return known[state.look]
        except KeyError:
            if len(known) >= _ANSWERS:
                known.clear()
            answer = known[state.look] = self._answer(state, asks)
            return answer


def has_room(state: NodeState, asks: tuple[Ask, ...]) -> bool:
    """Whether ``place`` would find a device for each of ``asks``."""
    if len(asks) == 1 and not asks[0].monitor:  # which device is best makes no difference
        return next(_usable(state, asks[0], state.free), None) is not None
    return _place(state, asks) is not None


def cost(state: NodeState, asks: tuple[Ask, ...]) -> Cost | None:
    """What ``place`` would break up for ``asks``; None: they do not fit."""
    placed = _place(state, asks)
    if placed is None:
        return None
    return Cost(tuple(sorted(one.spec.size for one in placed)), sum(left.units for left in state.free))


def _place(state: NodeState, asks: tuple[Ask, ...]) -> tuple[Placed, ...] | None:
    return place(state, [Want("", "", number, ask) for number, ask in enumerate(asks)])


def _usable(state: NodeState, ask: Ask, free: Sequence[FreeUnits]) -> Iterator[tuple[int, CardModel, PartitionSpec]]:
    """Every cut that will do for ``ask`` and can be had, with its card and that card's number.

    Of GPUs with the same left of them the first stands for all: the others have nothing else to offer.
    """
    seen: set[tuple[str, FreeUnits]] = set()
    for number, (held, left) in enumerate(zip(state.cards, free, strict=True)):
        is_like_another = (held.model, left) in seen
        if is_recent(held, ask) and not is_like_another:
            if held.card.kind is DeviceKind.GPU and not state.barred:
                seen.add((held.model, left))
            for spec in matching(held.unit_map, held.model, ask):
                if held.unit_map.fits(spec, left) and not (state.barred and held.device(spec) in state.barred):
                    yield number, held, spec


@lru_cache(maxsize=4096)
def matching(unit_map: UnitMap, model: str, ask: Ask) -> tuple[PartitionSpec, ...]:
    """The cuts of a card that will do for ``ask``, smallest first."""
    if not _is_model(model, ask):
        return ()
    return tuple(spec for spec in unit_map.specs if spec.kind is ask.kind and _will_do(spec, ask))


def is_recent(held: CardModel, ask: Ask) -> bool:
    """Whether the card's driver on the host is new enough."""
    return held.driver_version >= ask.driver_version


def _is_model(model: str, ask: Ask) -> bool:
    return not ask.models or model in ask.models


def _will_do(spec: PartitionSpec, ask: Ask) -> bool:
    if spec.placement is None:
        return ask.whole
    if not ask.partition:
        return False
    if ask.kind is DeviceKind.FPGA:
        return spec.function is not None and spec.function.name == ask.function
    assert spec.profile is not None, "every GPU partition has one"
    if ask.profile is not None:
        return spec.profile.name == ask.profile
    return spec.profile.memory_bytes >= ask.memory_bytes and spec.profile.compute_slices >= ask.compute_slices


def _least_units(state: NodeState, ask: Ask) -> int:
    sizes = [spec.mask.bit_count() for held in state.cards for spec in matching(held.unit_map, held.model, ask)[:1]]
    return min(sizes, default=0)


@dataclass(slots=True)
class _Search:
    """Depth first; a want and what is free then are tried once."""

    state: NodeState
    _steps: int = 0
    _failed: set[tuple[int, tuple[FreeUnits, ...]]] = field(default_factory=set)

    def run(self, wants: Sequence[Want]) -> tuple[Placed, ...] | None:
        return self._from(wants, 0, self.state.free)

    def _from(self, wants: Sequence[Want], at: int, free: tuple[FreeUnits, ...]) -> tuple[Placed, ...] | None:
        if at == len(wants):
            return ()
        if (at, free) in self._failed:
            return None
        for number, spec in self._candidates(wants[at].ask, free):
            self._steps += 1
            if self._steps > _STEPS:
                return None
            held = self.state.cards[number]
            left = (*free[:number], held.unit_map.without(spec, free[number]), *free[number + 1 :])
            rest = self._from(wants, at + 1, left)
            if rest is not None:
                return (Placed(wants[at], held, spec), *rest)
        self._failed.add((at, free))
        return None

    def _candidates(self, ask: Ask, free: Sequence[FreeUnits]) -> Iterator[tuple[int, PartitionSpec]]:
        """Card by number, and cut: the best first."""
        found = []
        for number, held, spec in _usable(self.state, ask, free):
            rank = (
                spec.placement is None,
                spec.size,
                rank_placement(held.card, held.unit_map, spec, free[number]),
                number,
            )
            found.append((rank, number, spec))
        found.sort(key=lambda candidate: candidate[0])
        return iter([(number, spec) for _, number, spec in found])
