"""Extended resources that ResourceClasses offer by the kubelet's device plugin interface: how many are free. Pure.

The kubelet lists how many of a resource a node has, and the scheduler subtracts what the pods of the node ask for. So
many a node keeps apart from what claims can have, in use or not.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kerf_dra.api.core.v1 import NodeSetup, Pod
from kerf_dra.api.errors import InvalidQuantityError
from kerf_dra.api.kerf.v1alpha1 import DEVICE_PLUGIN, ResourceClassObject
from kerf_dra.api.model.names import list_names
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.diagnostics.cluster_state import OfferedResource
from kerf_dra.driver.scheduling.resource_fit import pod_requests


def find_offered(classes: Iterable[ResourceClassObject], nodes: Iterable[NodeSetup]) -> Iterator[OfferedResource]:
    """Yield what ``classes`` offer, with what ``nodes`` list of it."""
    listed = list(nodes)
    for held in classes:
        offer = held.spec.get("devicePlugin")
        name = offer.get("resource") if isinstance(offer, dict) else None
        if not isinstance(offer, dict) or not isinstance(name, str):
            continue
        per_node = offer.get("perNode")
        amounts = {node.metadata.name: read_amount(node.status.allocatable.get(name)) for node in listed}
        yield OfferedResource(
            name=name,
            class_name=held.metadata.name,
            per_node=per_node if isinstance(per_node, int) else 0,
            refusal=next(
                (
                    each.message
                    for each in held.status.conditions
                    if each.type == DEVICE_PLUGIN and each.status != "True"
                ),
                "",
            ),
            allocatable={node: amount for node, amount in amounts.items() if amount},
        )


def offers_resources(classes: Iterable[ResourceClassObject]) -> bool:
    """Whether one of ``classes`` offers a resource."""
    return any(True for _ in find_offered(classes, ()))


class ResourceUse:
    """What is left of the offered resources on each node beside what ``pods`` of the node ask for."""

    def __init__(self, resources: Iterable[OfferedResource], pods: Iterable[Pod]) -> None:
        self._resources: dict[str, OfferedResource] = {}
        for each in resources:  # of several classes with one name the one that nodes offer
            if each.name not in self._resources or not each.refusal:
                self._resources[each.name] = each
        self._used: Counter[tuple[str, str]] = Counter()
        self._holders: dict[tuple[str, str], list[str]] = {}
        for pod in pods if self._resources else ():
            if pod.spec.node_name and not pod.is_finished:
                for name, amount in self.find_wanted(pod).items():
                    self.take(name, pod.spec.node_name, amount)
                    self._holders.setdefault((name, pod.spec.node_name), []).append(str(pod.ref))

    @property
    def resources(self) -> Sequence[OfferedResource]:
        """The resources, by name."""
        return [self._resources[name] for name in sorted(self._resources)]

    def find_wanted(self, pod: Pod) -> Mapping[str, int]:
        """Return how many of each offered resource ``pod`` needs at a time."""
        return count_wanted(pod, self._resources.__contains__)

    def count_free(self, name: str, node: str) -> int:
        """Return how many of a resource the next pod of a node can have."""
        return max(0, self._resources[name].allocatable.get(node, 0) - self._used[name, node])

    def take(self, name: str, node: str, amount: int) -> None:
        """Count ``amount`` more as in use; less than nothing gives back."""
        self._used[name, node] += amount

    def fits(self, pod: Pod, node: str) -> bool:
        """Whether a node has all that ``pod`` asks for."""
        return all(self.count_free(name, node) >= amount for name, amount in self.find_wanted(pod).items())

    def find_refused(self, pod: Pod) -> OfferedResource | None:
        """Return what ``pod`` asks for and no node offers, because its class may not."""
        return next((each for name in self.find_wanted(pod) if (each := self._resources[name]).refusal), None)

    def describe_shortage(self, pod: Pod, node: str) -> str:
        """Return what a node has too little of for ``pod``; empty: it has enough."""
        for name, amount in self.find_wanted(pod).items():
            if self.count_free(name, node) >= amount:
                continue
            total = self._resources[name].allocatable.get(node, 0)
            if not total:
                return f"{name}: the pod asks for {amount}, and the node has none"
            said = f"{name}: the pod asks for {amount}, and of the node's {total} pods have {self._used[name, node]}"
            holders = sorted(self._holders.get((name, node), []))
            return f"{said} ({list_names(holders)})" if holders else said
        return ""


def count_wanted(pod: Pod, is_meant: Callable[[str], bool]) -> Mapping[str, int]:
    """Return how many a pod needs at a time of each resource that ``is_meant``."""
    return {name: int(amount) for name, amount in pod_requests(pod).items() if is_meant(name)}


def read_amount(text: str | None) -> int:
    """Return the amount of an extended resource that a node lists; 0 for what is no amount."""
    try:
        return int(Quantity(text or "0"))
    except InvalidQuantityError:
        return 0
