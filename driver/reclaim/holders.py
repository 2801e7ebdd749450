"""Who holds a card, and who of them may be evicted.

A pod holds a card when a claim that it uses has a device of the card in its allocation, whether the claim is the pod's
own, shared with others, one for a share of a device, or the scheduler's for extended resources (KEP-5004). Claims with
admin access hold nothing (KEP-5018), and such pods stay. A claim that is not the pod's own stays allocated while a pod
uses it, and a taint does not keep a new pod from an allocated claim: evicted pods would come back to the card for ever.
So they stay, too. What may never be evicted follows ``kubectl drain`` (mirror
pods, pods that nothing creates again) and NVIDIA's NVSentinel (system namespaces).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.allocations import DeviceRequestAllocationResult
from kerf_dra.api.model.claims import AllocatedClaim, ResourceClaim
from kerf_dra.api.model.metadata import OwnerReference
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.reclaim.cards import DrainableCard

DO_NOT_EVICT: Final = "kerf.dev/do-not-evict"
"""The label or annotation of pods that are not evicted, whatever its value but ``false``."""
SYSTEM_NAMESPACE: Final = "kube-system"
"""The namespace of the cluster's own parts, of which no pod is evicted."""
_MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of the mirror of a static pod: deleting it ends nothing (kubelet)."""

HoldingClaim: TypeAlias = AllocatedClaim | ResourceClaim


class HolderVerdict(StrEnum):
    """What is done about a holder; the values are wire format (CardMaintenance)."""

    EVICT = "Evict"
    ENDING = "Ending"
    """It is going: it is being deleted, has finished, or no pod uses the claim, which Kubernetes then deallocates."""
    ADMIN_ACCESS = "AdminAccess"
    """It only watches the card: the card counts as free beside it."""
    SYSTEM = "System"
    STATIC = "Static"
    PROTECTED = "Protected"
    TOLERATES = "Tolerates"
    """Its claim tolerates the taint of maintenance: it would get the card again."""
    SHARED_CLAIM = "SharedClaim"
    """It uses a claim that is not its own: a new pod would get the card again by the same claim."""
    BARE = "Bare"
    """Nothing creates it again."""


STAYING: Final = frozenset(HolderVerdict) - {HolderVerdict.EVICT, HolderVerdict.ENDING, HolderVerdict.ADMIN_ACCESS}
"""The verdicts of holders that keep the card from becoming free until a person acts."""
_MESSAGES: Final[Mapping[HolderVerdict, str]] = {
    HolderVerdict.SYSTEM: f"not evicted: it is in namespace {SYSTEM_NAMESPACE}",
    HolderVerdict.STATIC: "not evicted: it is a static pod; remove its manifest on the node",
    HolderVerdict.PROTECTED: f"not evicted: it is marked {DO_NOT_EVICT}; remove the mark, or end the pod",
    HolderVerdict.TOLERATES: "not evicted: its claim tolerates the taint of maintenance; end the pod",
    HolderVerdict.SHARED_CLAIM: "not evicted: its claim is not its own, and a new pod would get the card again by it; "
    "scale all users of the claim to 0, then it is deallocated",
    HolderVerdict.BARE: "not evicted: no controller creates it again; end the pod, or drain with --bare",
    HolderVerdict.ADMIN_ACCESS: "stays: it has admin access, which holds nothing",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A pod that holds some of a card, or a claim that no pod uses."""

    claims: tuple[ObjectRef, ...]
    """The claims by which it holds something of the card."""
    pod: ObjectRef | None
    """None: no pod uses the claim."""
    uid: str
    """The pod's UID."""
    devices: tuple[str, ...]
    """What it holds."""
    owner: str
    """Who creates it again, such as ``ReplicaSet web-7d9``; empty: nothing does, or it is not known."""
    verdict: HolderVerdict
    message: str


def find_holders(
    card: DrainableCard, claims: Iterable[HoldingClaim], pods: Iterable[Pod], *, evicts_bare: bool
) -> list[Holder]:
    """Return who holds something of ``card``, by pod, then by claim.

    ``pods`` are at least those of the card's node. With ``evicts_bare`` pods are evicted that nothing creates again.
    """
    known = {pod.metadata.uid: pod for pod in pods}
    held: dict[tuple[ObjectRef, str], list[tuple[HoldingClaim, list[DeviceRequestAllocationResult]]]] = {}
    unused: list[Holder] = []
    for claim in claims:
        if results := _list_results(card, claim):
            users = dict.fromkeys((*_list_reserved(claim), *_list_users(claim, card.node, known.values())))
            for user in users:
                held.setdefault(user, []).append((claim, results))
            if not users:
                unused.append(_build_unused(claim, results))
    found = [
        _build_holder(card, ref, uid, entries, known.get(uid), evicts_bare=evicts_bare)
        for (ref, uid), entries in held.items()
    ]
    return [*sorted(found, key=lambda each: (each.pod, each.uid)), *sorted(unused, key=lambda each: each.claims)]


def _list_results(card: DrainableCard, claim: HoldingClaim) -> list[DeviceRequestAllocationResult]:
    allocation = claim.status.allocation
    return [result for result in allocation.devices.results if card.owns(result.id)] if allocation else []


def _list_reserved(claim: HoldingClaim) -> Iterator[tuple[ObjectRef, str]]:
    for user in claim.status.reserved_for:
        if (user.api_group, user.resource) == ("", "pods"):
            yield ObjectRef(claim.metadata.namespace, user.name), user.uid


def _list_users(claim: HoldingClaim, node: str, pods: Iterable[Pod]) -> Iterator[tuple[ObjectRef, str]]:
    """Yield the pods of the node that use a claim which is reserved for their group (KEP-5729)."""
    if all(user.resource == "pods" for user in claim.status.reserved_for):
        return
    for pod in pods:
        is_user = claim.metadata.name in pod.all_claim_names and pod.metadata.namespace == claim.metadata.namespace
        if is_user and pod.spec.node_name == node:
            yield pod.ref, pod.metadata.uid


def _build_unused(claim: HoldingClaim, results: Sequence[DeviceRequestAllocationResult]) -> Holder:
    is_watching = all(result.admin_access for result in results)
    return Holder(
        claims=(claim.ref,),
        pod=None,
        uid="",
        devices=_names(results),
        owner="",
        verdict=HolderVerdict.ADMIN_ACCESS if is_watching else HolderVerdict.ENDING,
        message="no pod uses the claim, which Kubernetes deallocates then",
    )


def _build_holder(
    card: DrainableCard,
    ref: ObjectRef,
    uid: str,
    entries: Sequence[tuple[HoldingClaim, Sequence[DeviceRequestAllocationResult]]],
    pod: Pod | None,
    *,
    evicts_bare: bool,
) -> Holder:
    results = [result for _, its in entries for result in its]
    has_own_claims = all(is_own_claim(claim, uid) for claim, its in entries if not all(one.admin_access for one in its))
    verdict = _judge(card, pod, results, has_own_claims=has_own_claims, evicts_bare=evicts_bare)
    owner = None if pod is None else find_owner(pod)
    message = _MESSAGES.get(verdict, "")
    if verdict is HolderVerdict.ENDING:
        message = _describe_end(pod)
    return Holder(
        claims=tuple(claim.ref for claim, _ in entries),
        pod=ref,
        uid=uid,
        devices=_names(results),
        owner="" if owner is None else f"{owner.kind} {owner.name}",
        verdict=verdict,
        message=message,
    )


def is_own_claim(claim: HoldingClaim, uid: str) -> bool:
    """Whether a claim is deleted with the pod of this UID: it was made from a template, or for extended resources."""
    return any(owner.uid == uid for owner in claim.metadata.owner_references)


def _judge(
    card: DrainableCard,
    pod: Pod | None,
    results: Sequence[DeviceRequestAllocationResult],
    *,
    has_own_claims: bool,
    evicts_bare: bool,
) -> HolderVerdict:
    if all(result.admin_access for result in results):
        return HolderVerdict.ADMIN_ACCESS
    if pod is None or pod.is_terminating or pod.is_finished:
        return HolderVerdict.ENDING
    owner = find_owner(pod)
    checks = (
        (HolderVerdict.SYSTEM, pod.metadata.namespace == SYSTEM_NAMESPACE),
        (HolderVerdict.STATIC, _MIRROR in pod.metadata.annotations or (owner is not None and owner.kind == "Node")),
        (HolderVerdict.PROTECTED, _is_protected(pod)),
        (HolderVerdict.TOLERATES, any(_tolerates(card, result) for result in results)),
        (HolderVerdict.SHARED_CLAIM, not has_own_claims),
        (HolderVerdict.BARE, owner is None and not evicts_bare),
    )
    return next((verdict for verdict, applies in checks if applies), HolderVerdict.EVICT)


def _describe_end(pod: Pod | None) -> str:
    if pod is None:
        return "it is not on the node: it has gone, or it is about to start there"
    if not pod.is_terminating:
        return "it has finished"
    if pod.metadata.finalizers:
        return f"it is being deleted, and waits for its finalizers: {', '.join(pod.metadata.finalizers)}"
    return "it is being deleted"


def _is_protected(pod: Pod) -> bool:
    marks = (pod.metadata.labels.get(DO_NOT_EVICT), pod.metadata.annotations.get(DO_NOT_EVICT))
    return any(mark is not None and mark != "false" for mark in marks)


def _tolerates(card: DrainableCard, result: DeviceRequestAllocationResult) -> bool:
    return any(toleration.tolerates(card.taint) for toleration in result.tolerations)


def find_owner(pod: Pod) -> OwnerReference | None:
    """Return the controller that creates ``pod`` again; None: there is none."""
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def _names(results: Iterable[DeviceRequestAllocationResult]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(result.device for result in results))
