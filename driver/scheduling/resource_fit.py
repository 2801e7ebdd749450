"""Whether a node has room for a pod's CPU, memory and other counted resources, as kube-scheduler decides.

What a pod requests is the sum of its containers and sidecars, or what one of its init containers needs if that is more,
plus its overhead; requests of the pod as a whole replace those of its containers (``PodRequests`` of
``k8s.io/component-helpers/resource``). It fits if each amount is at most what the node's pods leave of the node's
allocatable amount, and if the node may have one pod more (plugin ``NodeResourcesFit``). An extended resource that a
node lacks and a DeviceClass backs is left to the allocation of devices (KEP-5004). Requests default to limits, as the
API server fills them in.

A pod with containers of 1 and 2 CPUs and an init container of 4 requests 4 CPUs: it does not fit on a node with 8 CPUs
whose pods request 5.
"""

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kerf_dra.api.core.v1 import Pod, ResourceRequirements
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.quantity import NANO, Quantity

PODS: Final = "pods"
"""The resource by which a node's allocatable amounts limit the number of its pods."""
_POD_LEVEL: Final = ("cpu", "memory")
"""The resources that a pod can request as a whole, beside huge pages (KEP-2837)."""
_HUGE_PAGES: Final = "hugepages-"
"""How the names of huge pages begin; the page's size follows."""
_BYTES: Final = ("memory", "ephemeral-storage")
"""The resources that are counted in bytes, beside huge pages: they are printed with binary suffixes."""
_SIDECAR: Final = "Always"
"""The restart policy of an init container that keeps running beside the containers (KEP-753)."""
_NONE: Final = Quantity(0)
"""The amount of a resource that a node does not list."""

Amounts: TypeAlias = Mapping[str, Quantity]
"""Amounts by resource, such as ``cpu`` or ``nvidia.com/gpu``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """A resource of which a node has too little left for a pod."""

    resource: str
    requested: Quantity
    allocatable: Quantity

    def __str__(self) -> str:
        """Return kube-scheduler's words for it."""
        return "Too many pods" if self.resource == PODS else f"Insufficient {self.resource}"


@dataclass(slots=True)
class NodeRequests:
    """What the pods of one node request together, and how many pods they are."""

    pods: int = 0
    nano: Counter[str] = field(default_factory=Counter)
    """The sums by resource, in units of 1e-9."""

    def add(self, requests: Amounts, pods: int = 1) -> None:
        """Add ``requests`` for each of ``pods`` pods; less than no pods takes them away."""
        self.pods += pods
        for name, amount in requests.items():
            self.nano[name] += pods * amount.nano


def pod_requests(pod: Pod) -> dict[str, Quantity]:
    """Return what kube-scheduler reserves on a node for ``pod``, by resource."""
    together: Counter[str] = Counter()
    for container in pod.spec.containers:
        together.update(_requests(container.resources))
    sidecars: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for container in pod.spec.init_containers:
        requests = Counter(_requests(container.resources))
        if container.restart_policy == _SIDECAR:
            sidecars += requests
            together += requests
            peak |= sidecars
        else:
            peak |= sidecars + requests
    total = together | peak
    total = Counter({**total, **_pod_level_requests(pod.spec.resources, total)})
    for name, amount in pod.spec.overhead.items():
        total[name] += amount.nano
    return {name: _quantity(name, nano) for name, nano in sorted(total.items()) if nano > 0}


def find_shortages(
    requests: Amounts, allocatable: Amounts, used: NodeRequests, backed: Container[str] = frozenset()
) -> list[Shortage]:
    """Return of which resources a node has too little left for one more pod with ``requests``.

    ``backed`` are the extended resources that DeviceClasses back: the allocation of devices judges those that the node
    does not list itself.
    """
    short: list[Shortage] = []
    for name, requested in ((PODS, Quantity(1)), *requests.items()):
        total = allocatable.get(name, _NONE)
        if name in backed and not total:
            continue
        taken = used.pods * NANO if name == PODS else used.nano[name]
        if requested.nano > total.nano - taken:
            short.append(Shortage(resource=name, requested=requested, allocatable=total))
    return short


class _CountedPod(NamedTuple):
    uid: str
    node: str
    requests: Amounts


class RequestLedger:
    """What the pods of each node request, while pods come and go."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeRequests] = {}
        self._pods: dict[ObjectRef, _CountedPod] = {}

    def set_pod(self, pod: Pod, node: str = "") -> None:
        """Count ``pod`` on its node, or on ``node``, to which it has just been bound; a finished one not at all.

        What was counted on ``node`` stays counted while the pod is seen as it was before.
        """
        before = self._pods.get(pod.ref)
        if before is not None and before.uid == pod.metadata.uid:
            node = node or before.node
        self.remove_pod(pod.ref)
        name = pod.spec.node_name or node
        if name and not pod.is_finished:
            requests = pod_requests(pod)
            self._pods[pod.ref] = _CountedPod(pod.metadata.uid, name, requests)
            self._nodes.setdefault(name, NodeRequests()).add(requests)

    def remove_pod(self, ref: ObjectRef) -> None:
        """Count a pod no more, if it is counted."""
        counted = self._pods.pop(ref, None)
        if counted is not None:
            self._nodes[counted.node].add(counted.requests, -1)

    def of_node(self, name: str) -> NodeRequests:
        """Return what the pods of a node request."""
        return self._nodes.get(name) or NodeRequests()


def _requests(resources: ResourceRequirements) -> dict[str, int]:
    """Return the requests, which default to the limits, in units of 1e-9."""
    return {name: amount.nano for name, amount in (resources.limits | resources.requests).items()}


def _quantity(name: str, nano: int) -> Quantity:
    return Quantity.of_nano(nano, "binary" if name in _BYTES or name.startswith(_HUGE_PAGES) else "decimal")


def _pod_level_requests(resources: ResourceRequirements, containers: Mapping[str, int]) -> dict[str, int]:
    """Return what a pod requests as a whole: its own requests, else those of its ``containers``, else its limits."""
    limits = {name: containers.get(name) or amount.nano for name, amount in resources.limits.items()}
    wanted = limits | {name: amount.nano for name, amount in resources.requests.items()}
    return {name: nano for name, nano in wanted.items() if name in _POD_LEVEL or name.startswith(_HUGE_PAGES)}
