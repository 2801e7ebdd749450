"""What nodes have left of CPU, memory and other counted resources beside what their pods request. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.quantity import NANO, Quantity
from kerf_dra.driver.diagnostics.cluster_state import ClusterState, RequestedResources
from kerf_dra.driver.scheduling.extended_resources import classes_by_resource
from kerf_dra.driver.scheduling.resource_fit import PODS, Amounts, NodeRequests, Shortage, find_shortages, pod_requests


class NodeFit:
    """The nodes of a cluster whose amounts and pods are known; on any other node every pod has room."""

    def __init__(self, state: ClusterState) -> None:
        self._allocatable = {
            node.metadata.name: node.status.allocatable
            for node in state.nodes
            if node.status.allocatable and state.requested is not None
        }
        self._used = {each.node: _restore(each) for each in state.requested or ()}
        self._backed = classes_by_resource(state.classes)
        self.listed = frozenset(name for amounts in self._allocatable.values() for name in amounts)
        """The resources that nodes list."""
        self._largest: dict[str, tuple[Quantity, Quantity]] = {}

    @property
    def is_judged(self) -> bool:
        """Whether the amounts of any node are known, and what its pods request."""
        return bool(self._allocatable)

    def find_shortages(self, requests: Amounts, node: str) -> list[Shortage]:
        """Return what ``node`` has too little of for one more pod with ``requests``."""
        if node not in self._allocatable:
            return []
        return find_shortages(requests, self._allocatable[node], self._of_node(node), self._backed)

    def take(self, requests: Amounts, node: str, pods: int = 1) -> None:
        """Count ``requests`` of ``pods`` more pods on ``node``; less than no pods gives back."""
        self._largest.clear()
        self._used.setdefault(node, NodeRequests()).add(requests, pods)

    def find_largest(self, resource: str) -> tuple[Quantity, Quantity]:
        """Return the most that a node has of a resource, and the most that is left on a node."""
        if resource not in self._largest:
            self._largest[resource] = self._search_largest(resource)
        return self._largest[resource]

    def _search_largest(self, resource: str) -> tuple[Quantity, Quantity]:
        total = left = Quantity(0)
        for node, amounts in self._allocatable.items():
            amount, used = amounts.get(resource, Quantity(0)), self._of_node(node)
            taken = used.pods * NANO if resource == PODS else used.nano[resource]
            total = max(total, amount)
            left = max(left, Quantity.of_nano(amount.nano - taken, amount.family))
        return total, left

    def _of_node(self, node: str) -> NodeRequests:
        return self._used.get(node) or NodeRequests()


def sum_requests(pods: Iterable[Pod]) -> tuple[RequestedResources, ...]:
    """Return what ``pods`` request of their nodes; those that are bound to none, or have finished, request nothing."""
    found: dict[str, NodeRequests] = {}
    for pod in pods:
        if pod.spec.node_name and not pod.is_finished:
            found.setdefault(pod.spec.node_name, NodeRequests()).add(pod_requests(pod))
    return tuple(_store(found))


def add_requests(
    requested: tuple[RequestedResources, ...] | None, pods: Iterable[Pod]
) -> tuple[RequestedResources, ...] | None:
    """Return ``requested`` with what ``pods`` request, too; None: it stays unknown."""
    if requested is None:
        return None
    found = {each.node: _restore(each) for each in requested}
    for each in sum_requests(pods):
        more = _restore(each)
        have = found.setdefault(each.node, NodeRequests())
        found[each.node] = replace(have, pods=have.pods + more.pods, nano=have.nano + more.nano)
    return tuple(_store(found))


def restore_requests(requested: tuple[RequestedResources, ...] | None) -> dict[str, NodeRequests] | None:
    """Return what pods request of each node, by its name; None: it is unknown."""
    return None if requested is None else {each.node: _restore(each) for each in requested}


def _restore(stored: RequestedResources) -> NodeRequests:
    return NodeRequests(stored.pods, Counter({name: amount.nano for name, amount in stored.requests.items()}))


def _store(requested: dict[str, NodeRequests]) -> Iterator[RequestedResources]:
    for node, each in sorted(requested.items()):
        amounts = {name: Quantity.of_nano(nano) for name, nano in sorted(each.nano.items())}
        yield RequestedResources(node=node, pods=each.pods, requests=amounts)
