"""Gives devices of a node to claims, all of a pod's together or none, and says why a node cannot. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from api.core.v1 import Pod
from api.model.allocations import DeviceAllocationResult, DeviceRequestAllocationResult
from api.model.classic import ClassicAllocation, ClassicClaim
from api.model.device_attributes import pool_name
from api.model.metadata import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from driver.allocation import NodeView, node_matches
from driver.controller.classic.placement import Cost, NodeState, Placed, Want, is_recent, place
from driver.controller.classic.requirements import Ask, Asked
from driver.controller.classic.state import World
from driver.controller.classic.usage import Holding, holdings_in
from driver.controller.structured.node_choice import chosen

ONLY_REQUEST: Final = "claim"
"""What the one request of a claim is called where the version has no name for it."""


class Pending(NamedTuple):
    """A claim that is to be allocated, and what it asks for."""

    claim: ClassicClaim
    requests: tuple[Asked, ...]


class Grant(NamedTuple):
    """What a claim gets."""

    claim: ClassicClaim
    allocation: ClassicAllocation
    pod: Pod | None
    """For whom it is reserved at once."""

    @property
    def holdings(self) -> tuple[Holding, ...]:
        """What it takes of which node."""
        return holdings_in(self.allocation.devices.results)


def obstacle(pending: Sequence[Pending], node: str, world: World) -> str | None:
    """Why ``node`` cannot give all of ``pending`` what they ask for; None: it can."""
    if problem := world.problem_of(node):
        return problem
    found = [value for value in (world.node(node),) if value is not None]
    for request in (request for one in pending for request in one.requests):
        if request.nodes is not None and node not in chosen(request.nodes, found):
            return "the class's parameters do not choose it"
    state, asks = world.state(node), _asks(pending)
    if world.has_room(state, asks):
        return None
    outdated = next((reason for ask in asks if (reason := _outdated(state, ask))), None)
    return outdated or "; ".join(["not enough is free", *state.doubts])


def _outdated(state: NodeState, ask: Ask) -> str | None:
    """Whether the drivers of all cards that could do are too old, or not known."""
    cards = [held for held in state.cards if held.card.kind is ask.kind]
    if not cards or any(is_recent(held, ask) for held in cards):
        return None
    found = ", ".join(sorted({held.card.driver_version or "not known" for held in cards}))
    return f"the driver on the host is {found}, and the class asks for {'.'.join(map(str, ask.driver_version))}"


def grant(pending: Sequence[Pending], node: str, world: World, pod: Pod | None) -> tuple[Grant, ...]:
    """Devices of ``node``, which has no obstacle, for all of ``pending``."""
    placed = place(world.state(node), _wants(pending))
    assert placed is not None, "a node without obstacle has room"
    of_claim: dict[str, list[Placed]] = {}
    for one in placed:
        of_claim.setdefault(one.want.claim, []).append(one)
    return tuple(_grant(one, node, of_claim[one.claim.metadata.uid], world, pod) for one in pending)


def grant_anywhere(pending: Pending, world: World) -> Grant | None:
    """Devices for one claim without a pod: of all nodes that can, the one that loses least; None: none can."""
    asks = _asks([pending])
    alike: dict[Cost, list[Sequence[str]]] = {}
    for nodes in world.alike().values():
        cost = world.cost(world.state(nodes[0]), asks)
        if cost is not None:
            alike.setdefault(cost, []).append(nodes)
    for cost in sorted(alike):
        firsts = (next((node for node in nodes if _may_get(pending, node, world)), None) for nodes in alike[cost])
        node = min((node for node in firsts if node is not None), default=None)
        if node is not None:
            return grant([pending], node, world, None)[0]
    return None


def _may_get(pending: Pending, node: str, world: World) -> bool:
    return _is_suitable(pending, node, world) and obstacle([pending], node, world) is None


def _is_suitable(pending: Pending, node: str, world: World) -> bool:
    """Whether the class lets the scheduler consider the node at all (ResourceClass ``suitableNodes``)."""
    found = world.node(node)
    if found is None:
        return False
    view = NodeView(node, found.metadata.labels, frozenset())
    classes = [world.class_named(request.class_name) for request in pending.claim.spec.requests]
    return all(
        class_ is None
        or class_.suitable_nodes is None
        or node_matches(view, None, all_nodes=False, selector=class_.suitable_nodes)
        for class_ in classes
    )


def _wants(pending: Sequence[Pending]) -> list[Want]:
    return [
        Want(one.claim.metadata.uid, request.request, number, request.ask)
        for one in pending
        for request in one.requests
        for number in range(request.count)
    ]


def _asks(pending: Sequence[Pending]) -> tuple[Ask, ...]:
    return tuple(request.ask for one in pending for request in one.requests for _ in range(request.count))


def _grant(pending: Pending, node: str, placed: Sequence[Placed], world: World, pod: Pod | None) -> Grant:
    results = tuple(
        DeviceRequestAllocationResult(
            request=one.want.request or ONLY_REQUEST,
            driver=world.driver,
            pool=pool_name(node, one.spec.kind),
            device=one.device,
            admin_access=one.want.ask.monitor or None,
        )
        for one in placed
    )
    config = tuple(entry for request in pending.requests for entry in request.config)
    allocation = ClassicAllocation(
        devices=DeviceAllocationResult(results=results, config=config),
        node_selector=only_node(node),
        max_pods=min(request.max_pods for request in pending.requests),
        drivers=(world.driver,),
    )
    return Grant(pending.claim, allocation, pod)


def only_node(node: str) -> NodeSelector:
    """Chooses one node by its name."""
    field = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(field,)),))
