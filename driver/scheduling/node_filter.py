"""The node filter: whether a pod may run on a node regardless of devices, after kube-scheduler's Filter plugins."""

from collections.abc import Iterable, Iterator, Sequence

from kerf_dra.api.core.v1 import Node, Pod, Taint, Toleration
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.allocation import NodeView, node_matches


def node_view(node: Node) -> NodeView:
    """Return the properties of ``node`` that node selectors read."""
    return NodeView(node.metadata.name, node.metadata.labels, frozenset(node.status.declared_features))


def filter_node(pod: Pod, node: Node) -> str | None:
    """Return why the pod cannot run on the node, in kube-scheduler's words; None when it can."""
    if not node.is_ready:
        return "node(s) were not ready"
    if node.spec.unschedulable and not _tolerates_all(pod.spec.tolerations, [_UNSCHEDULABLE]):
        return "node(s) were unschedulable"
    if not _tolerates_all(pod.spec.tolerations, _blocking_taints(node)):
        return "node(s) had untolerated taint(s)"
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return "node(s) didn't match Pod's node affinity/selector"
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    if required and not node_matches(node_view(node), None, None, required):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


def find_claim_elsewhere(claims: Iterable[ResourceClaim], node: Node) -> ResourceClaim | None:
    """Return the first of a pod's claims that is allocated and cannot be used on the node."""
    for claim in claims:
        selector = claim.status.allocation and claim.status.allocation.node_selector
        if selector and not node_matches(node_view(node), None, None, selector):
            return claim
    return None


def explain_filter(pod: Pod | None, claims: Sequence[ResourceClaim], node: Node) -> str | None:
    """Return a message on why the pod cannot run on the node regardless of free devices; None when it can.

    ``claims`` are the pod's: allocated ones restrict it to nodes where they can be used. Without a pod, only the
    readiness of the node and its taints count.
    """
    reason = filter_node(pod or Pod(), node)
    if reason is not None:
        details = "; ".join(_details(pod or Pod(), node))
        text = reason.removeprefix("node(s) ").replace("didn't", "does not").replace("were", "is").replace("had", "has")
        return f"the node {text}" + (f": {details}" if details else "")
    if claim := find_claim_elsewhere(claims, node):
        return f"claim {claim.ref} is allocated already, and cannot be used on this node"
    return None


_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint that stands for ``spec.unschedulable`` when tolerations are evaluated."""


def _blocking_taints(node: Node) -> list[Taint]:
    return [taint for taint in node.spec.taints if taint.effect in {"NoSchedule", "NoExecute"}]


def _tolerates_all(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> bool:
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    return (
        (not toleration.effect or toleration.effect == taint.effect)
        and (not toleration.key or toleration.key == taint.key)
        and (toleration.operator == "Exists" or toleration.value == taint.value)
    )


def _details(pod: Pod, node: Node) -> Iterator[str]:
    labels = node.metadata.labels
    for key, value in sorted(pod.spec.node_selector.items()):
        if labels.get(key) != value:
            yield f"the pod wants {key}={value}, " + (
                f"it has {labels[key]}" if key in labels else "it has no such label"
            )
    for taint in _blocking_taints(node):
        if not _tolerates_all(pod.spec.tolerations, [taint]):
            yield f"{taint.key}={taint.value}:{taint.effect}"
