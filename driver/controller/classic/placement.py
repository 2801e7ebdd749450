"""Places the devices that a pod's claims request on one node: all of them or none. Pure.

Each requested device is a variable whose domain is the partitions of the node's cards that meet its requirements and
are free. The search is depth-first backtracking: large requests choose first, and each tries its candidates in the
order of ``kerf_dra.driver.partitions.publish_order``: the smallest partition that meets the requirements, loaded
functions first, then the KEEP placement (the one that leaves the highest placement value). Nogoods are positions in the
list with the free units that failed there; they are not tried again. At most ``_STEPS`` candidates are tried, then the
node counts as full.

Example: two requests of 3g.40gb on an empty H100 get its two halves; a third request of 1g.10gb makes the search
backtrack through both and fail, so the pod gets no device of this node.

Interchangeable nodes (Freuder 1991; equal ``NodeSignature``) have equal results, computed once for all of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.controller.classic.node_model import NodeCard, NodeHardware
from kerf_dra.driver.partitions.geometry import PartitionSpec
from kerf_dra.driver.partitions.publish_order import get_load_state, rank_placement
from kerf_dra.driver.partitions.unit_map import FreeUnits, UnitMap

_STEPS: Final = 5_000
"""The most candidates tried on one node: tens of milliseconds. One claim needs one; a pod with eight claims on a node
that is almost full was measured to need hundreds."""
_ANSWERS: Final = 2**18
"""The most results kept: 64 sets of requests (pods of one workload request the same) on 4,096 signatures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequirements:
    """The requirements for one device. Hashable, so that one cached result serves all nodes of one signature."""

    kind: str
    """The name of the family."""
    models: tuple[str, ...] = ()
    """The accepted models, as cards spell them; empty: all."""
    partition: bool = True
    """Whether a partition is accepted."""
    whole: bool = False
    """Whether a whole card is accepted; a partition, if accepted too, is preferred."""
    profile: str | None = None
    """The exact profile; None: any."""
    profile_names: tuple[str, ...] = ()
    """The names that it has in other releases of its driver, too."""
    memory_bytes: int = 0
    """The least memory, in bytes."""
    compute_slices: int = 0
    """The least number of compute slices."""
    function: str | None = None
    """The function of an FPGA partition; None for GPUs and whole cards."""
    monitor: bool = False
    """Whether all cards are accessible for monitoring, without allocating any."""
    driver_version: tuple[int, ...] = ()
    """The oldest accepted driver on the host; empty: any."""
    abilities: frozenset[str] = frozenset()
    """The boolean attributes that are true of the card."""

    @property
    def minimum(self) -> Mapping[str, Quantity]:
        """The minimums that are set, by capacity."""
        amounts = {
            v.CAPACITY_MEMORY: Quantity.of_bytes(self.memory_bytes),
            v.CAPACITY_COMPUTE_SLICES: Quantity(self.compute_slices),
        }
        return {capacity: amount for capacity, amount in amounts.items() if amount}


class NodeSignature(NamedTuple):
    """Everything that decides whether a request fits on a node: nodes with equal signatures are interchangeable."""

    hardware: NodeHardware
    free: tuple[FreeUnits, ...]
    """The free units of each card."""
    tainted: frozenset[str]
    """The names of devices that may not be allocated although they are free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCardState:
    """The cards of a node with their free units. States of interchangeable nodes are equal."""

    signature: NodeSignature
    cards: tuple[NodeCard, ...] = field(compare=False)
    contradictions: tuple[str, ...] = field(default=(), compare=False)
    """Messages about contradictions of claims and inventory, which make more count as used than the claims say."""


class RequestedDevice(NamedTuple):
    """One device for one request of one claim: a variable of the search."""

    claim: str
    """The claim's UID."""
    request: str
    number: int
    """The device's number among those of its request."""
    requirements: DeviceRequirements


class PlacedDevice(NamedTuple):
    """A requested device and the partition or whole card that it gets."""

    requested: RequestedDevice
    card: NodeCard
    spec: PartitionSpec

    @property
    def device(self) -> str:
        """The device's name."""
        return self.card.device(self.spec)


class PlacementCost(NamedTuple):
    """The rank of a node that could serve one claim: the least cost is best."""

    sizes: tuple[tuple[int, ...], ...]
    """The sizes of the devices, ascending: the smallest that meet the requirements."""
    free: int
    """The free units of the node: the fullest node first, so that empty ones stay whole."""


def place_devices(state: NodeCardState, requested: Sequence[RequestedDevice]) -> tuple[PlacedDevice, ...] | None:
    """Place all ``requested`` devices, in their order; None: they do not all fit. Monitoring gets every card."""
    taking = [one for one in requested if not one.requirements.monitor]
    largest_first = sorted(taking, key=lambda one: -_least_units(state, one.requirements))
    found = _Search(state).run(largest_first)
    if found is None:
        return None
    monitored = [
        PlacedDevice(one, card, card.unit_map.specs[-1])
        for one in requested
        if one.requirements.monitor
        for card in state.cards
        if card.card.kind == one.requirements.kind
        and _is_model(card.model, one.requirements)
        and has_recent_driver(card, one.requirements)
        and has_abilities(card, one.requirements)
    ]
    if len(taking) < len(requested) and not monitored:
        return None
    return tuple(sorted([*found, *monitored], key=lambda placed: requested.index(placed.requested)))


@lru_cache(maxsize=_ANSWERS)
def can_place(state: NodeCardState, requirements: tuple[DeviceRequirements, ...]) -> bool:
    """Whether ``place_devices`` would find a device for each of ``requirements``."""
    if len(requirements) == 1 and not requirements[0].monitor:  # which candidate is best makes no difference
        return next(_candidates(state, requirements[0], state.signature.free), None) is not None
    return _place(state, requirements) is not None


@lru_cache(maxsize=_ANSWERS)
def placement_cost(state: NodeCardState, requirements: tuple[DeviceRequirements, ...]) -> PlacementCost | None:
    """Return the cost of the devices that ``place_devices`` finds for ``requirements``; None: they do not fit."""
    placed = _place(state, requirements)
    if placed is None:
        return None
    sizes = tuple(sorted(one.spec.size for one in placed))
    return PlacementCost(sizes, sum(free.units for free in state.signature.free))


def _place(state: NodeCardState, requirements: tuple[DeviceRequirements, ...]) -> tuple[PlacedDevice, ...] | None:
    return place_devices(state, [RequestedDevice("", "", number, one) for number, one in enumerate(requirements)])


def _candidates(
    state: NodeCardState, requirements: DeviceRequirements, free: Sequence[FreeUnits]
) -> Iterator[tuple[int, NodeCard, PartitionSpec]]:
    """Yield the domain of a requested device: card number, card and partition spec.

    Cards of one model and the same abilities with equal free units are interchangeable: the first of them stands for
    all, unless taints or loaded functions distinguish them.
    """
    tainted = state.signature.tainted
    seen: set[tuple[str, frozenset[str], FreeUnits]] = set()
    for number, (card, left) in enumerate(zip(state.cards, free, strict=True)):
        is_plain = not tainted and not card.card.loaded
        is_interchangeable = is_plain and (card.model, card.abilities, left) in seen
        is_able = has_recent_driver(card, requirements) and has_abilities(card, requirements)
        if is_able and not is_interchangeable:
            if is_plain:
                seen.add((card.model, card.abilities, left))
            for spec in matching_specs(card.unit_map, card.model, requirements):
                if card.unit_map.fits(spec, left) and not (tainted and card.device(spec) in tainted):
                    yield number, card, spec


@lru_cache(maxsize=4096)
def matching_specs(unit_map: UnitMap, model: str, requirements: DeviceRequirements) -> tuple[PartitionSpec, ...]:
    """Return the partitions of a card, and the whole card, that meet ``requirements``, smallest first."""
    if not _is_model(model, requirements):
        return ()
    return tuple(spec for spec in unit_map.specs if spec.kind == requirements.kind and _meets(spec, requirements))


def has_recent_driver(card: NodeCard, requirements: DeviceRequirements) -> bool:
    """Whether the driver on the card's host is recent enough."""
    return card.driver_version >= requirements.driver_version


def has_abilities(card: NodeCard, requirements: DeviceRequirements) -> bool:
    """Whether the card can do what the configuration of its devices says."""
    return requirements.abilities <= card.abilities


def _is_model(model: str, requirements: DeviceRequirements) -> bool:
    return not requirements.models or model in requirements.models


def _meets(spec: PartitionSpec, requirements: DeviceRequirements) -> bool:
    if not (requirements.whole if spec.placement is None else requirements.partition):
        return False
    if requirements.function is not None:
        return spec.function == requirements.function
    if requirements.profile is not None:
        return spec.profile in (requirements.profile, *requirements.profile_names)
    return all(spec.amount(capacity) >= least for capacity, least in requirements.minimum.items())


def _least_units(state: NodeCardState, requirements: DeviceRequirements) -> int:
    smallest = (spec for card in state.cards for spec in matching_specs(card.unit_map, card.model, requirements)[:1])
    return min((spec.mask.bit_count() for spec in smallest), default=0)


@dataclass(slots=True)
class _Search:
    """Depth-first backtracking over the requested devices of one node, as the module docstring describes."""

    state: NodeCardState
    _steps: int = 0
    _failed: set[tuple[int, tuple[FreeUnits, ...]]] = field(default_factory=set)
    """The nogoods: positions in the list with the free units from which no solution exists."""

    def run(self, requested: Sequence[RequestedDevice]) -> tuple[PlacedDevice, ...] | None:
        return self._from(requested, 0, self.state.signature.free)

    def _from(
        self, requested: Sequence[RequestedDevice], at: int, free: tuple[FreeUnits, ...]
    ) -> tuple[PlacedDevice, ...] | None:
        if at == len(requested):
            return ()
        if (at, free) in self._failed:
            return None
        for number, spec in self._ordered_candidates(requested[at].requirements, free):
            self._steps += 1
            if self._steps > _STEPS:
                return None
            card = self.state.cards[number]
            left = (*free[:number], card.unit_map.without(spec, free[number]), *free[number + 1 :])
            rest = self._from(requested, at + 1, left)
            if rest is not None:
                return (PlacedDevice(requested[at], card, spec), *rest)
        self._failed.add((at, free))
        return None

    def _ordered_candidates(
        self, requirements: DeviceRequirements, free: Sequence[FreeUnits]
    ) -> list[tuple[int, PartitionSpec]]:
        """Card number and partition spec of each candidate, the best first."""
        found = []
        for number, card, spec in _candidates(self.state, requirements, free):
            rank = (
                spec.placement is None,
                spec.size,
                rank_placement(card.unit_map, spec, free[number], get_load_state(card.card)),
                number,
            )
            found.append((rank, number, spec))
        found.sort(key=lambda candidate: candidate[0])
        return [(number, spec) for _, number, spec in found]
