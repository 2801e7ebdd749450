"""Whether a pod may go to a node at all, before devices are looked at: pure, after kube-scheduler's filter plugins."""

from collections.abc import Iterable

from api.core.v1 import Node, Pod, Taint, Toleration
from driver.allocation import NodeView, node_matches


def view(node: Node) -> NodeView:
    """The node as selectors see it."""
    return NodeView(node.metadata.name, node.metadata.labels, frozenset(node.status.declared_features))


def obstacle(pod: Pod, node: Node) -> str | None:
    """Why the pod cannot run on the node, as kube-scheduler words it; None when it can."""
    if not node.is_ready:
        return "node(s) were not ready"
    if node.spec.unschedulable and not _tolerates_all(pod.spec.tolerations, [_UNSCHEDULABLE]):
        return "node(s) were unschedulable"
    blocking = [taint for taint in node.spec.taints if taint.effect in {"NoSchedule", "NoExecute"}]
    if not _tolerates_all(pod.spec.tolerations, blocking):
        return "node(s) had untolerated taint(s)"
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return "node(s) didn't match Pod's node affinity/selector"
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    if required and not node_matches(view(node), None, None, required):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What stands for ``spec.unschedulable`` when tolerations are compared."""


def _tolerates_all(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    tolerations = tuple(tolerations)
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    return (
        (not toleration.effect or toleration.effect == taint.effect)
        and (not toleration.key or toleration.key == taint.key)
        and (toleration.operator == "Exists" or toleration.value == taint.value)
    )
