"""The usage of each node by claims, indexed by claim and by node while claims are created and deleted. Pure.

The index is derived from the claims' status and from reservations for writes in flight; rebuilding it gives the same
index (tested in ``tests/controller/classic``).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from kerf_dra.api.model.allocations import DeviceRequestAllocationResult
from kerf_dra.api.model.classic import ClassicAllocation, ClassicClaim
from kerf_dra.driver.controller.classic.node_model import WHOLE, NodeInventoryModel
from kerf_dra.driver.controller.classic.placement import NodeCardState, NodeSignature
from kerf_dra.driver.families.registry import BUILT_IN_BY_DRIVER
from kerf_dra.driver.partitions.device_names import parse_device_name

_HOSTNAME_FIELD: Final = "metadata.name"


class ClaimUsage(NamedTuple):
    """The usage of one node by one claim."""

    node: str
    devices: tuple[str, ...] | None
    """The names of the devices; None: they cannot be read."""


def usage_of_claim(claim: ClassicClaim) -> tuple[ClaimUsage, ...]:
    """Return the usage of each node by ``claim`` through our drivers; monitoring devices do not count as used."""
    allocation = claim.status.allocation
    if allocation is None:
        return ()
    if not BUILT_IN_BY_DRIVER.keys().isdisjoint(allocation.unreadable):
        return tuple(ClaimUsage(node, None) for node in nodes_of(allocation))
    return usage_of_results(result for result in allocation.devices.results if result.driver in BUILT_IN_BY_DRIVER)


def usage_of_results(results: Iterable[DeviceRequestAllocationResult]) -> tuple[ClaimUsage, ...]:
    """Return the usage of each node by ``results``, all of one claim and of our drivers."""
    devices: dict[str, list[str]] = {}
    for result in results:
        if not result.admin_access:
            node = result.pool.rpartition("/")[0]  # ``kerf_dra.api.model.device_attributes.pool_name``
            devices.setdefault(node, []).append(result.device)
    return tuple(ClaimUsage(node, tuple(names)) for node, names in devices.items())


def nodes_of(allocation: ClassicAllocation) -> tuple[str, ...]:
    """The names of the nodes that an allocation's node selector chooses by name."""
    terms = allocation.node_selector.node_selector_terms if allocation.node_selector else ()
    fields = (field for term in terms for field in term.match_fields)
    return tuple(name for field in fields if field.key == _HOSTNAME_FIELD for name in field.values)


class UsageIndex:
    """The usage of each claim, as written and as reserved; ``changed`` is called with each node whose usage changes."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._written: dict[str, tuple[ClaimUsage, ...]] = {}
        self._reserved: dict[str, tuple[ClaimUsage, ...]] = {}
        self._nodes: dict[str, dict[str, tuple[ClaimUsage, ...]]] = {}

    def put(self, uid: str, usage: tuple[ClaimUsage, ...]) -> None:
        """Record the usage in the status of the claim ``uid``; empty: it uses nothing, or does not exist."""
        self._replace(self._written, uid, usage)

    def reserve(self, uid: str, usage: tuple[ClaimUsage, ...]) -> None:
        """Count ``usage`` for the claim ``uid`` until it is known whether its write took effect."""
        self._replace(self._reserved, uid, usage)

    def unreserve(self, uid: str) -> None:
        self._replace(self._reserved, uid, ())

    def is_reserved(self, uid: str) -> bool:
        return uid in self._reserved

    def on(self, node: str) -> Mapping[str, tuple[ClaimUsage, ...]]:
        """Return the present usage of ``node``, by claim UID."""
        return self._nodes.get(node, {})

    def _replace(self, layer: dict[str, tuple[ClaimUsage, ...]], uid: str, usage: tuple[ClaimUsage, ...]) -> None:
        before = layer.pop(uid, ())
        if usage:
            layer[uid] = usage
        if before == usage:
            return
        counted = dict.fromkeys((*self._written.get(uid, ()), *self._reserved.get(uid, ())))
        for node in {one.node for one in (*before, *usage)}:
            self._count(node, uid, tuple(one for one in counted if one.node == node))

    def _count(self, node: str, uid: str, usage: tuple[ClaimUsage, ...]) -> None:
        """Update a node's usage; a write that was reserved before changes nothing, so the node's state stays valid."""
        on_node = self._nodes.setdefault(node, {})
        if on_node.get(uid) == usage:
            return
        if usage:
            on_node[uid] = usage
        else:
            del on_node[uid]
            if not on_node:
                del self._nodes[node]
        self._changed(node)


def build_node_state(model: NodeInventoryModel, usage: Iterable[ClaimUsage]) -> NodeCardState:
    """Build the state of a node while claims have ``usage`` of it.

    A device that its card does not have takes the whole card: inventory and claim contradict each other, and no other
    claim gets the card until that is corrected. A claim whose devices cannot be read takes the whole node.
    """
    used: dict[str, list[str]] = {}
    contradictions: dict[str, None] = {}
    for one in usage:
        if one.devices is None:
            contradictions["the devices of a claim cannot be read"] = None
        for device in one.devices or ():
            parsed = parse_device_name(device)
            card, suffix = (parsed.card, parsed.suffix) if parsed else (device, WHOLE)
            used.setdefault(card, []).append(suffix)
    takes_all = bool(contradictions)
    cards = [card.availability(used.pop(card.name, ())) for card in model.cards]
    unknown = [name + suffix for name, suffixes in used.items() for suffix in suffixes]
    unknown += [card.name + suffix for card, found in zip(model.cards, cards, strict=True) for suffix in found.unknown]
    contradictions |= {f"a claim has {device}, which the node lacks": None for device in unknown}
    free = [card.availability([WHOLE]).free for card in model.cards] if takes_all else [found.free for found in cards]
    signature = NodeSignature(hardware=model.hardware, free=tuple(free), tainted=model.tainted)
    return NodeCardState(cards=model.cards, signature=signature, contradictions=tuple(contradictions))
