"""Whether a pod may go to a node at all, with what differs: the kube-scheduler's filters that come before devices.

The verdict is ``driver.local.filtering``'s, the same as the embedded scheduler's; this adds the details.
"""

from collections.abc import Iterator, Sequence

from api.core.v1 import Node, Pod, Taint
from api.model.claims import ResourceClaim
from driver.allocation import node_matches
from driver.local.filtering import obstacle, view


def node_obstacle(pod: Pod | None, claims: Sequence[ResourceClaim], node: Node) -> str | None:
    """Why the pod cannot run on the node, whatever devices are free there; None when it can.

    ``claims`` are the pod's: those that are allocated bind it to where they can be used. Without a pod only the node's
    readiness counts.
    """
    reason = obstacle(pod or Pod(), node)
    if reason is not None:
        details = "; ".join(_details(pod or Pod(), node))
        text = reason.removeprefix("node(s) ").replace("didn't", "does not").replace("were", "is").replace("had", "has")
        return f"the node {text}" + (f": {details}" if details else "")
    for claim in claims:
        selector = claim.status.allocation and claim.status.allocation.node_selector
        if selector and not node_matches(view(node), None, None, selector):
            return f"claim {claim.ref} is allocated already, and cannot be used on this node"
    return None


def _details(pod: Pod, node: Node) -> Iterator[str]:
    labels = node.metadata.labels
    for key, value in sorted(pod.spec.node_selector.items()):
        if labels.get(key) != value:
            yield f"the pod wants {key}={value}, " + (
                f"it has {labels[key]}" if key in labels else "it has no such label"
            )
    for taint in node.spec.taints:
        if taint.effect in {"NoSchedule", "NoExecute"} and _is_untolerated(pod, node, taint):
            yield f"{taint.key}={taint.value}:{taint.effect}"


def _is_untolerated(pod: Pod, node: Node, taint: Taint) -> bool:
    """Whether the taint alone keeps the pod away."""
    only = Node(metadata=node.metadata, status=node.status, spec=type(node.spec)(taints=(taint,)))
    return obstacle(Pod(metadata=pod.metadata, spec=type(pod.spec)(tolerations=pod.spec.tolerations)), only) is not None
