"""Allocates devices of one node to all claims of a pod or to none, and explains why a node is unsuitable. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.allocations import DeviceAllocationResult, DeviceRequestAllocationResult
from kerf_dra.api.model.classic import ONLY_REQUEST, ClassicAllocation, ClassicClaim
from kerf_dra.api.model.device_attributes import pool_name
from kerf_dra.api.model.metadata import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kerf_dra.driver.allocation import NodeView, node_matches
from kerf_dra.driver.controller.classic.placement import (
    DeviceRequirements,
    NodeCardState,
    PlacedDevice,
    PlacementCost,
    RequestedDevice,
    can_place,
    has_abilities,
    has_recent_driver,
    place_devices,
    placement_cost,
)
from kerf_dra.driver.controller.classic.requirements import RequestRequirements
from kerf_dra.driver.controller.classic.state import ClusterView
from kerf_dra.driver.controller.classic.usage import ClaimUsage, usage_of_results
from kerf_dra.driver.controller.node_choice import choose_nodes
from kerf_dra.driver.families.registry import BUILT_IN_BY_NAME


class PendingClaim(NamedTuple):
    """A claim that is to be allocated, with the requirements of its requests."""

    claim: ClassicClaim
    requests: tuple[RequestRequirements, ...]


class ClaimAllocation(NamedTuple):
    """The allocation that will be written to a claim."""

    claim: ClassicClaim
    allocation: ClassicAllocation
    pod: Pod | None
    """The pod for which the claim is reserved in the same write; None: the claim is not reserved."""

    @property
    def driver(self) -> str:
        """The driver that the claim names, from Kubernetes 1.31; before, that of its devices."""
        return self.claim.spec.controller or self.allocation.drivers[0]

    @property
    def usage(self) -> tuple[ClaimUsage, ...]:
        """The usage of each node by the claim."""
        return usage_of_results(self.allocation.devices.results)


def unsuitable_reason(pending: Sequence[PendingClaim], node: str, view: ClusterView) -> str | None:
    """Return why ``node`` cannot serve all of ``pending``; None: it can."""
    if problem := view.problem_of(node, _drivers(request.device for one in pending for request in one.requests)):
        return problem
    found = [value for value in (view.node(node),) if value is not None]
    for request in (request for one in pending for request in one.requests):
        if request.nodes is not None and node not in choose_nodes(request.nodes, found):
            return "the class's parameters do not select it"
    state, requirements = view.state(node), _requirements(pending)
    if can_place(state, requirements):
        return None
    unable = next((reason for one in requirements if (reason := _unable_cards(state, one))), None)
    return unable or "; ".join(["too few devices are free", *state.contradictions])


def _drivers(requirements: Iterable[DeviceRequirements]) -> tuple[str, ...]:
    """Return the drivers of the required devices, each once."""
    return tuple(dict.fromkeys(BUILT_IN_BY_NAME[one.kind].driver for one in requirements))


def _unable_cards(state: NodeCardState, requirements: DeviceRequirements) -> str | None:
    """Return a message if no card of the required kind has a driver that is known to be recent enough, or none can do
    what the configuration says.
    """
    cards = [card for card in state.cards if card.card.kind == requirements.kind]
    if cards and not any(has_abilities(card, requirements) for card in cards):
        wanted = ", ".join(sorted(requirements.abilities))
        return f"no card can do what the parameters say: the attribute {wanted} is not true"
    if not cards or any(has_recent_driver(card, requirements) for card in cards):
        return None
    found = ", ".join(sorted({card.card.driver_version or "not known" for card in cards}))
    return (
        f"the driver on the host is {found}, and the class requires {'.'.join(map(str, requirements.driver_version))}"
    )


def allocate_on_node(
    pending: Sequence[PendingClaim], node: str, view: ClusterView, pod: Pod | None
) -> tuple[ClaimAllocation, ...]:
    """Allocate devices of ``node`` to all of ``pending``. ``unsuitable_reason`` has to be None for them."""
    placed = place_devices(view.state(node), _requested_devices(pending))
    assert placed is not None, "a suitable node has room"
    of_claim: dict[str, list[PlacedDevice]] = {}
    for one in placed:
        of_claim.setdefault(one.requested.claim, []).append(one)
    return tuple(_allocation(one, node, of_claim[one.claim.metadata.uid], pod) for one in pending)


def allocate_anywhere(pending: PendingClaim, view: ClusterView) -> ClaimAllocation | None:
    """Allocate for one claim without a pod on the suitable node of least placement cost; None: no node is suitable."""
    requirements = _requirements([pending])
    by_cost: dict[PlacementCost, list[Sequence[str]]] = {}
    for nodes in view.nodes_by_signature().values():
        cost = placement_cost(view.state(nodes[0]), requirements)
        if cost is not None:
            by_cost.setdefault(cost, []).append(nodes)
    for cost in sorted(by_cost):
        firsts = (next((node for node in nodes if _may_use(pending, node, view)), None) for nodes in by_cost[cost])
        node = min((node for node in firsts if node is not None), default=None)
        if node is not None:
            return allocate_on_node([pending], node, view, None)[0]
    return None


def _may_use(pending: PendingClaim, node: str, view: ClusterView) -> bool:
    return _is_suitable_node(pending, node, view) and unsuitable_reason([pending], node, view) is None


def _is_suitable_node(pending: PendingClaim, node: str, view: ClusterView) -> bool:
    """Whether the claim's classes let the scheduler consider the node at all (ResourceClass ``suitableNodes``)."""
    found = view.node(node)
    if found is None:
        return False
    node_view = NodeView(node, found.metadata.labels, frozenset())
    classes = (view.class_named(request.class_name) for request in pending.claim.spec.requests)
    selectors = (class_.suitable_nodes for class_ in classes if class_ is not None)
    return all(one is None or node_matches(node_view, None, all_nodes=False, selector=one) for one in selectors)


def _requested_devices(pending: Sequence[PendingClaim]) -> list[RequestedDevice]:
    return [
        RequestedDevice(one.claim.metadata.uid, request.name, number, request.device)
        for one in pending
        for request in one.requests
        for number in range(request.count)
    ]


def _requirements(pending: Sequence[PendingClaim]) -> tuple[DeviceRequirements, ...]:
    return tuple(one.requirements for one in _requested_devices(pending))


def _allocation(pending: PendingClaim, node: str, placed: Sequence[PlacedDevice], pod: Pod | None) -> ClaimAllocation:
    results = tuple(
        DeviceRequestAllocationResult(
            request=one.requested.request or ONLY_REQUEST,
            driver=BUILT_IN_BY_NAME[one.spec.kind].driver,
            pool=pool_name(node, one.spec.kind),
            device=one.device,
            admin_access=one.requested.requirements.monitor or None,
        )
        for one in placed
    )
    config = tuple(entry for request in pending.requests for entry in request.config)
    allocation = ClassicAllocation(
        devices=DeviceAllocationResult(results=results, config=config),
        node_selector=only_node(node),
        max_pods=min(request.max_pods for request in pending.requests),
        drivers=_drivers(request.device for request in pending.requests),
    )
    return ClaimAllocation(pending.claim, allocation, pod)


def only_node(node: str) -> NodeSelector:
    """A node selector that chooses one node by its name."""
    field = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(field,)),))
