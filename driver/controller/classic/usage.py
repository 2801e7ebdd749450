"""What claims have of which node, kept by claim and by node while claims come and go. Pure.

An index over what claims say of themselves and over reservations for writes in flight, never a truth of its own:
building it anew gives the same (``tests/controller/classic``).
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from api.model.allocations import DeviceRequestAllocationResult
from api.model.classic import ClassicAllocation, ClassicClaim
from driver.controller.classic.node_model import WHOLE, Stock, split_name
from driver.controller.classic.placement import Look, NodeState

_HOSTNAME_FIELD: Final = "metadata.name"


class Holding(NamedTuple):
    """What one claim has of one node."""

    node: str
    devices: tuple[str, ...] | None
    """None: it is not known which."""


def holdings_of(claim: ClassicClaim, driver: str) -> tuple[Holding, ...]:
    """What ``claim`` has of nodes through ``driver``. Devices that are only looked at are nobody's."""
    allocation = claim.status.allocation
    if allocation is None:
        return ()
    if driver in allocation.unreadable:
        return tuple(Holding(node, None) for node in nodes_of(allocation))
    return holdings_in(result for result in allocation.devices.results if result.driver == driver)


def holdings_in(results: Iterable[DeviceRequestAllocationResult]) -> tuple[Holding, ...]:
    """What ``results``, all of our driver, take of which node."""
    devices: dict[str, list[str]] = {}
    for result in results:
        if not result.admin_access:
            node = result.pool.rpartition("/")[0]  # ``api.model.device_attributes.pool_name``
            devices.setdefault(node, []).append(result.device)
    return tuple(Holding(node, tuple(names)) for node, names in devices.items())


def nodes_of(allocation: ClassicAllocation) -> tuple[str, ...]:
    """The nodes to which an allocation of ours is bound by name."""
    terms = allocation.node_selector.node_selector_terms if allocation.node_selector else ()
    fields = (field for term in terms for field in term.match_fields)
    return tuple(name for field in fields if field.key == _HOSTNAME_FIELD for name in field.values)


_NOTHING: Final[Mapping[str, tuple[Holding, ...]]] = MappingProxyType({})


class Holdings:
    """Who has what. ``changed`` is told the node whose holdings change."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._claims: dict[str, tuple[Holding, ...]] = {}
        self._reserved: dict[str, tuple[Holding, ...]] = {}
        self._nodes: dict[str, dict[str, tuple[Holding, ...]]] = {}

    def put(self, uid: str, holdings: tuple[Holding, ...]) -> None:
        """What the claim ``uid`` says it has; nothing: it has nothing or is gone."""
        self._replace(self._claims, uid, holdings)

    def reserve(self, uid: str, holdings: tuple[Holding, ...]) -> None:
        """Count ``holdings`` for the claim ``uid`` until they are written, or known not to be."""
        self._replace(self._reserved, uid, holdings)

    def unreserve(self, uid: str) -> None:
        self._replace(self._reserved, uid, ())

    def is_reserved(self, uid: str) -> bool:
        return uid in self._reserved

    def on(self, node: str) -> Mapping[str, tuple[Holding, ...]]:
        """By claim UID: what is taken of ``node``, now."""
        return self._nodes.get(node, _NOTHING)

    def _replace(self, layer: dict[str, tuple[Holding, ...]], uid: str, holdings: tuple[Holding, ...]) -> None:
        before = layer.pop(uid, ())
        if holdings:
            layer[uid] = holdings
        if before == holdings:
            return
        counted = dict.fromkeys((*self._claims.get(uid, ()), *self._reserved.get(uid, ())))
        for node in {holding.node for holding in (*before, *holdings)}:
            self._count(node, uid, tuple(holding for holding in counted if holding.node == node))

    def _count(self, node: str, uid: str, held: tuple[Holding, ...]) -> None:
        """What is written while it is still reserved counts once: that nothing is new then saves a look at the node."""
        on_node = self._nodes.setdefault(node, {})
        if on_node.get(uid) == held:
            return
        if held:
            on_node[uid] = held
        else:
            del on_node[uid]
            if not on_node:
                del self._nodes[node]
        self._changed(node)


def state_of(stock: Stock, held: Iterable[Holding]) -> NodeState:
    """What is free of ``stock`` while claims have ``held`` of it.

    A device that its card does not know takes the whole card: the inventory and the claim contradict each other, and
    until that is cleared up nobody else gets the card. A claim that does not say what it has takes everything.
    """
    taken: dict[str, list[str]] = {}
    doubts: dict[str, None] = {}
    everything = False
    for holding in held:
        if holding.devices is None:
            everything = True
            doubts["a claim does not say what it has"] = None
        for device in holding.devices or ():
            card, part = split_name(device)
            taken.setdefault(card, []).append(part)
    left = [card.left(taken.pop(card.name, ())) for card in stock.cards]
    unknown = [name + part for name, parts in taken.items() for part in parts]
    unknown += [card.name + part for card, rest in zip(stock.cards, left, strict=True) for part in rest.unknown]
    doubts |= {f"a claim has {device}, which it does not know": None for device in unknown}
    free = [card.left([WHOLE]).free for card in stock.cards] if everything else [rest.free for rest in left]
    look = Look(kit=stock.kit, free=tuple(free), barred=stock.tainted)
    return NodeState(cards=stock.cards, look=look, doubts=tuple(doubts))
