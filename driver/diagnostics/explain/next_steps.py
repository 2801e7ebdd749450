"""What to do about a cause: a step for each obstacle of allocation, and steps that several causes share."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.device_attributes import CUT_MONITOR
from kerf_dra.api.model.names import ObjectRef, list_names
from kerf_dra.driver.allocation import Obstacle
from kerf_dra.driver.diagnostics.drain.maintenances import DrainedCard
from kerf_dra.driver.diagnostics.explain.report import Cause, CauseCode, NodeGroup, NodeReason, ReasonCode, Victims

_STEPS: Final[Mapping[ReasonCode, str]] = {
    CauseCode.NODE_FILTER: "change the pod's node selector, affinity or tolerations, or the node's labels or taints",
    Obstacle.NO_POOL: "install a DRA driver for the node's devices, or start its plugin there: kubectl get "
    "resourceslices shows who publishes",
    Obstacle.POOL_INCOMPLETE: "the driver is publishing, which takes some seconds; if nothing changes, restart its "
    "plugin",
    Obstacle.POOL_INVALID: "restart the driver's plugin of the node, and report the message to the driver's authors",
    Obstacle.CLASS: "name another class in the request (kubectl get deviceclasses), or add a node with such devices",
    Obstacle.SELECTOR: "change the request's selectors in the claim or its template; near misses show what differs",
    Obstacle.NODE: "let the pod run on the nodes that the devices are for, or ask for other devices",
    Obstacle.CAPACITY: "ask for less, wait until what is held is given back, or add a node with larger devices",
    Obstacle.TAINTED: "have the devices repaired, or add a toleration for the taint to the claim's request",
    Obstacle.IN_USE: "wait until a claim gives its devices back, delete the pod of one, or add a node",
    Obstacle.COUNTERS: "wait until a claim gives its devices back, delete the pod of one, or add a node",
    Obstacle.CONSTRAINT: "relax the constraint in the claim, or wait until the claims end that hold the other devices",
    Obstacle.TOO_FEW: "ask for fewer devices in one claim, or add a node that has more; those in use come back when "
    "their claims end",
    Obstacle.COMBINATION: "ask for less in one pod, or wait until a claim gives its devices back",
    CauseCode.EXTENDED_RESOURCE: "wait until a pod that has some ends, or raise devicePlugin.perNode of the "
    "ResourceClass that offers it; the events ResourceNotOffered of a node say why it has fewer",
    CauseCode.INSUFFICIENT_RESOURCE: "have the pod request less, wait until pods of the node end, or add a node",
    CauseCode.NODE_TOO_SMALL: "have the pod request less, or add a node that has as much",
    CauseCode.RESOURCE_NOT_OFFERED: "correct the name in limits, or have the pod name a claim instead: `kerf claim` "
    "writes one, and `kerf migrate -f` converts limits of the device plugins of NVIDIA, Intel and Akri",
    CauseCode.DISCOVERED_DEVICE_UNSEEN: "let the pod run on a node that sees one, or correct the name: kubectl get "
    "discovereddevices lists them with their nodes; if none sees it, read the log of the plugin on one that should",
    CauseCode.DISCOVERED_DEVICE_FULL: "wait until a pod that has one ends, whose user is removed some 30 seconds "
    "later, delete such a pod, or raise capacity of the DiscoveryConfiguration",
    CauseCode.DISCOVERED_DEVICE_UNLISTED: "wait 10 seconds; if nothing changes, check that the plugin of the node has "
    "devicePlugin: true in its profile and runs, and read its log",
    CauseCode.NODE_ERROR: "report the message to the authors of the driver that publishes the node's devices",
    CauseCode.UNDECIDED: "ask again with a longer --deadline, or ask for fewer devices and constraints in one pod",
}

_HOPELESS: Final[Mapping[ReasonCode, str]] = {
    Obstacle.CAPACITY: "ask for less, or add a node with larger devices",
    Obstacle.IN_USE: "add a node, or ask for devices that other claims do not keep",
    Obstacle.COUNTERS: "ask for smaller devices, or for fewer at once, or add a node",
    Obstacle.CONSTRAINT: "relax the constraint in the claim, or add a node with devices that meet it",
    Obstacle.TOO_FEW: "ask for fewer devices in one claim, or add a node that has more",
    Obstacle.COMBINATION: "ask for less in one pod, divide it among several, or add a node that has more",
}
"""What to do where it would not fit either if running claims ended: nothing to wait for is in it."""
_NO_AMOUNT: Final = "no amount is requested"
"""What the condition of an amount says that a request does not name (``allocation.explain.amounts``)."""
_NAME_AMOUNTS: Final = (
    "name the amounts in capacity.requests of the claim's request: without them it takes the default, or all"
)

_MONITOR_STEP: Final = (
    "a monitor device is for requests with adminAccess: true and a toleration of the taint, in a namespace with the "
    'label resource.kubernetes.io/admin-access: "true" (docs/admin-access.md); for any other use name another class'
)

_PLUGIN_TAINTS: Final[Mapping[str, str]] = {
    "held": "end what holds the hardware on {node} (a partition made by hand, or a process on the card): the taint "
    "goes by itself, and the kubelet tries again; the events of node {node} name it",
    "quarantined": "see the events of node {node} (CardInQuarantine): the card contradicts itself or does not answer; "
    "reset or replace it, and the taint goes by itself",
    "kept-out": "an administrator keeps the card out (--exclude-card, excludeCards of the chart), so it gets no new "
    "claims: a new pod gets other devices, unless the card is let in again",
    "maintenance": "an administrator has drained the card on {node}, which gets no new claims: a new pod gets other "
    "devices until `kerf undrain` ends that (kubectl get cardmaintenances)",
    "repair": "the card on {node} is to be repaired, which the taint's value names (reset, reset-when-free or boot): "
    "the reclaimer does it in mode Act, else drain the card (docs/one-card.md); a new pod gets other devices",
    "refused": "a new pod gets other devices, and the taint goes after two minutes: the hardware has refused the "
    "device three times, and the events DeviceRefused of claim and pod say why",
    "load-failed": "the device is free again by itself after the back-off; the log of the plugin on {node} has the "
    "reason",
}
"""What to do about the taints that Kerf's plugins set, by the name after ``<driver>/`` (docs/held-hardware.md)."""


def misfit_causes(
    groups: Sequence[NodeGroup], remedies: Sequence[Victims], drivers: Collection[str]
) -> tuple[Cause, ...]:
    """Return one cause for each reason of ``groups``, the one of most nodes first; ``drivers`` publish the devices."""
    causes: dict[tuple[str, str, str, str], tuple[NodeReason, list[str]]] = {}
    for group in groups:
        for reason in group.reasons:
            key = reason.claim, reason.request, reason.obstacle, reason.message
            causes.setdefault(key, (reason, []))[1].extend(group.nodes)
    return tuple(_misfit_cause(reason, nodes, remedies, drivers) for reason, nodes in causes.values())


def _misfit_cause(
    reason: NodeReason, nodes: Sequence[str], remedies: Sequence[Victims], drivers: Collection[str]
) -> Cause:
    where = f"claim {reason.claim}, request {reason.request}: " if reason.claim else ""
    keys = (taint.partition("=")[0] for taint in reason.taints)
    own = (plugin_taint_step(key, drivers, list_names(nodes)) for key in keys)
    general = _STEPS if remedies else {**_STEPS, **_HOPELESS}
    step = "; ".join(dict.fromkeys(each for each in own if each)) or general[reason.obstacle]
    if _is_monitor_only(reason):
        step = _MONITOR_STEP
    ending = [remedy for remedy in remedies if remedy.node in nodes]
    if ending:
        claims = ", ".join(claim.claim for claim in ending[0].claims)
        step = f"wait until {claims} on {ending[0].node} ends, or delete its pod; or add a node"
    if any(_NO_AMOUNT in unmet.condition for miss in reason.near_misses for unmet in miss.unmet):
        step = f"{_NAME_AMOUNTS}; or {step}"
    objects = [f"claim {reason.claim}"] if reason.claim else []
    return Cause(
        code=reason.obstacle,
        message=f"on {list_names(nodes)}: {where}{reason.message}",
        next_step=step,
        objects=(*objects, *(f"node {node}" for node in nodes)),
    )


def _is_monitor_only(reason: NodeReason) -> bool:
    """Whether all devices that match are monitor devices, which their taint keeps from claims."""
    keys = [taint.partition("=")[0] for taint in reason.taints]
    return reason.obstacle == Obstacle.TAINTED and bool(keys) and all(key.endswith(f"/{CUT_MONITOR}") for key in keys)


def plugin_taint_step(key: str, drivers: Collection[str], node: str) -> str:
    """Return what to do about a taint that a plugin of ``drivers`` on ``node`` has set; empty for another's."""
    domain, _, name = key.rpartition("/")
    return _PLUGIN_TAINTS[name].format(node=node) if domain in drivers and name in _PLUGIN_TAINTS else ""


def build_drain_cause(drained: DrainedCard, what: str) -> Cause:
    """Return the cause that a card is drained; ``what`` is what becomes of pods until that ends."""
    node, card = drained.card.node, drained.card.name
    return Cause(
        code=CauseCode.CARD_UNAVAILABLE,
        message=str(drained),
        next_step=f"wait until the maintenance of the card ends (kerf undrain {node}/{card}): {what}",
        objects=(f"node {node}", f"cardmaintenance {drained.maintenance}"),
        is_fault=False,
    )


def delete_command(pod: ObjectRef) -> str:
    """Return the command that deletes a pod."""
    return f"kubectl delete pod {pod.name} -n {pod.namespace}"


def recreate_step(pod: Pod, alternatives: Sequence[str] = ()) -> str:
    """Return how ``pod`` gets other devices; ``alternatives`` are nodes that have free devices for it."""
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    then = f"its {owner.kind} makes a new one" if owner else "then create it again: nothing makes a new one"
    free = f"; devices for it are free on {list_names(alternatives)}" if alternatives else ""
    return f"{delete_command(pod.ref)} ({then}{free})"


def merge_causes(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Return ``causes`` without repetitions, faults first."""
    return tuple(sorted(dict.fromkeys(causes), key=lambda cause: not cause.is_fault))
