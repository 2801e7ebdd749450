"""Plans one PodSchedulingContext: reports unsuitable nodes, and allocates on the selected one. Pure.

The negotiation is KEP-3063's. The scheduler writes potential nodes, and later a selected node, to the context's spec;
each driver answers in the status with the nodes that are unsuitable for its claims; once the selected node is suitable,
it allocates its claims there and reserves them for the pod. The states, as rules: nothing to negotiate (S-1 to S-6), a
claim or class that cannot be resolved yet (S-7 to S-10), no claim of ours to allocate (S-11), potential nodes only
(S-17), an unsuitable selected node (S-14), an allocation (S-15).

Invariant: all pending claims of the pod are allocated in one plan, on the selected node, or none is.

Example: selected node n1, potential nodes n1 and n2, one claim of 1g.10gb, n1 full: S-14 reports n1 as unsuitable, a
Warning event says why; the scheduler then selects n2, and S-15 allocates there.

Upstream's Go library (kubernetes/dynamic-resource-allocation ``controller``, release-1.31) is corrected in these
points:

- the selected node is checked although it is not a potential one, and nodes reported before are checked again;
- claims that are allocated, otherwise in use, or about to end are left out;
- a pod that has finished gets nothing: its claim, deallocated when it ended, would be allocated for it once more;
- reports are sorted and limited in length before they are compared, so that nothing is written twice;
- two contexts that share a claim never both allocate it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kerf_dra.api.core.v1 import Pod, PodResourceClaim
from kerf_dra.api.model.classic import MAX_NODES, ClassicClaim, PodSchedulingContext, UnsuitableNodes
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.controller.classic.allocator import (
    ClaimAllocation,
    PendingClaim,
    allocate_on_node,
    unsuitable_reason,
)
from kerf_dra.driver.controller.classic.reconcile_result import EventSubject, ReconcileResult, Requeue, WarningEvent
from kerf_dra.driver.controller.classic.requirements import (
    InvalidRequirementsError,
    Ownership,
    ownership_of,
    resolve_requirements,
)
from kerf_dra.driver.controller.classic.state import ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPlan(ReconcileResult):
    """The writes to a context: first the allocations, all together, then the status."""

    allocations: tuple[ClaimAllocation, ...] = ()
    resource_claims: tuple[UnsuitableNodes, ...] | None = None
    """The new ``status.resourceClaims``, with the entries of all drivers; None: it stays as it is."""


@dataclass(frozen=True, slots=True)
class _PodClaim:
    """One entry of the pod's ``resourceClaims`` whose claim this controller allocates."""

    name: str
    """The entry's name."""
    pending: PendingClaim


class _UnresolvedError(Exception):
    """A claim of the pod cannot be resolved; ``plan`` is the context's plan in this case."""

    def __init__(self, rule: str, warnings: Iterable[WarningEvent], requeue: Requeue) -> None:
        self.plan = ContextPlan(rule=rule, warnings=tuple(warnings), requeue=requeue)
        super().__init__(rule)


def has_nodes(context: PodSchedulingContext | None) -> bool:
    """Whether the scheduler has named nodes: before, the pod is not worth a request to the API server."""
    return (
        context is not None
        and not context.is_terminating
        and bool(context.spec.selected_node or context.spec.potential_nodes)
    )


def plan_context(context: PodSchedulingContext | None, pod: Pod, view: ClusterView) -> ContextPlan:
    """Plan ``context`` for ``pod``, the present pod of the same name."""
    if context is None:
        return ContextPlan(rule="S-1")
    if context.is_terminating:
        return ContextPlan(rule="S-2")
    if not context.spec.selected_node and not context.spec.potential_nodes:
        return ContextPlan(rule="S-3")
    if pod.is_terminating or pod.is_finished:
        return ContextPlan(rule="S-5")
    if not _is_controlled_by(context, pod):
        return ContextPlan(rule="S-6")
    try:
        pod_claims = list(_pod_claims(pod, view))
    except _UnresolvedError as error:
        return error.plan
    if not pod_claims:
        return ContextPlan(rule="S-11", requeue=Requeue.PERIODIC)
    return _negotiate(context, pod, pod_claims, view)


def _negotiate(
    context: PodSchedulingContext, pod: Pod, pod_claims: Sequence[_PodClaim], view: ClusterView
) -> ContextPlan:
    """Report the unsuitable nodes and allocate on the selected one (S-12 to S-18)."""
    selected, potential = context.spec.selected_node, context.spec.potential_nodes
    pending = list({one.pending.claim.metadata.uid: one.pending for one in pod_claims}.values())
    full = _full_claim(pod, view)
    unsuitable = _unsuitable_nodes(context, pending, view, full) if potential else {}
    in_flight = any(view.usage.is_reserved(one.claim.metadata.uid) for one in pending)
    allocations: tuple[ClaimAllocation, ...] = ()
    warnings = tuple(_no_node_warning(potential, unsuitable))
    if selected and not in_flight:
        reason = full or unsuitable_reason(pending, selected, view)
        allocations = () if reason else allocate_on_node(pending, selected, view, pod)
        if reason:
            warnings = (WarningEvent(EventSubject.CONTEXT, f"node {selected}: {reason}"), *warnings)
            unsuitable[selected] = reason
    resource_claims = _build_resource_claims(context, pod_claims, unsuitable.keys())
    return ContextPlan(
        rule="S-15" if allocations else "S-14" if selected else "S-17",
        allocations=allocations,
        resource_claims=None if resource_claims == context.status.resource_claims else resource_claims,
        warnings=warnings,
        requeue=Requeue.BACKOFF if in_flight else Requeue.PERIODIC,
    )


def claim_name(pod: Pod, entry: PodResourceClaim, view: ClusterView) -> str | None:
    """The name of an entry's claim; None: none is needed. Raises LookupError when the claim is not created yet."""
    if entry.claim_name is not None:
        return entry.claim_name
    if not view.names_are_generated:
        return f"{pod.metadata.name}-{entry.name}"
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name
    raise LookupError("the claim has not been created yet")


def _is_controlled_by(owned: PodSchedulingContext | ClassicClaim, pod: Pod) -> bool:
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in owned.metadata.owner_references)


def _pod_claims(pod: Pod, view: ClusterView) -> Iterator[_PodClaim]:
    """Yield the entries whose claims this controller allocates. Raises _UnresolvedError."""
    for entry in pod.spec.resource_claims:
        claim = _claim(pod, entry, view)
        if claim is None or not _is_pending(claim):
            continue
        ownership = ownership_of(claim, view)
        if ownership is Ownership.OTHERS:
            continue
        if ownership is Ownership.UNKNOWN:
            names = ", ".join(request.class_name for request in claim.spec.requests)
            event = WarningEvent(EventSubject.CONTEXT, f"pod claim {entry.name}: class {names} does not exist")
            raise _UnresolvedError("S-9", [event], Requeue.PERIODIC)
        try:
            yield _PodClaim(entry.name, PendingClaim(claim, resolve_requirements(claim, view)))
        except InvalidRequirementsError as error:
            raise _UnresolvedError("S-10", _parameter_warnings(entry, claim, error), Requeue.PERIODIC) from error


def _claim(pod: Pod, entry: PodResourceClaim, view: ClusterView) -> ClassicClaim | None:
    """The claim of an entry; None: none is needed, or it does not exist. Raises _UnresolvedError."""
    try:
        name = claim_name(pod, entry, view)
    except LookupError as error:
        event = WarningEvent(EventSubject.CONTEXT, f"pod claim {entry.name}: {error}")
        raise _UnresolvedError("S-7", [event], Requeue.BACKOFF) from error
    claim = None if name is None else view.claim(ObjectRef(pod.metadata.namespace, name))
    if claim is not None and entry.claim_name is None and not _is_controlled_by(claim, pod):
        message = f"pod claim {entry.name}: ResourceClaim {claim.metadata.name} was not created for this pod"
        raise _UnresolvedError("S-7", [WarningEvent(EventSubject.CONTEXT, message)], Requeue.PERIODIC)
    return claim


def _is_pending(claim: ClassicClaim) -> bool:
    """Whether the claim may be allocated for a pod now; the server rejects one that is about to end."""
    return not (
        claim.spec.immediate
        or claim.status.allocation is not None
        or claim.is_terminating
        or claim.status.deallocation_requested
    )


def _parameter_warnings(
    entry: PodResourceClaim, claim: ClassicClaim, error: InvalidRequirementsError
) -> Iterator[WarningEvent]:
    yield WarningEvent(EventSubject.CONTEXT, f"pod claim {entry.name}: {error}")
    yield WarningEvent(EventSubject.POD, f"pod claim {entry.name}: {error}")
    yield WarningEvent(EventSubject.CLAIM, str(error), claim.metadata.name)
    if error.about == "class":
        yield from (WarningEvent(EventSubject.CLASS, str(error), request.class_name) for request in claim.spec.requests)


def _full_claim(pod: Pod, view: ClusterView) -> str | None:
    """Return why the pod can start nowhere and need not hold devices: the pod limit of one of its claims is reached."""
    for entry in pod.spec.resource_claims:
        claim = _claim(pod, entry, view)
        users = {consumer.uid for consumer in claim.status.reserved_for} if claim else set()
        if claim is not None and claim.is_full and pod.metadata.uid not in users:
            return f"pod claim {entry.name}: ResourceClaim {claim.metadata.name} is full: {len(users)} pods use it"
    return None


def _unsuitable_nodes(
    context: PodSchedulingContext, pending: Sequence[PendingClaim], view: ClusterView, full: str | None
) -> dict[str, str]:
    """The reason of each unsuitable node, among the nodes named by the scheduler and those reported before."""
    before = (node for entry in context.status.resource_claims for node in entry.unsuitable_nodes)
    nodes = {context.spec.selected_node, *context.spec.potential_nodes, *before} - {""}
    reasons = {node: full or unsuitable_reason(pending, node, view) for node in nodes}
    return {node: reason for node, reason in reasons.items() if reason is not None}


def _no_node_warning(potential: Sequence[str], unsuitable: Mapping[str, str]) -> Iterator[WarningEvent]:
    """Report to the pod's author why the pod waits, when all potential nodes are unsuitable."""
    if potential and unsuitable.keys() >= set(potential):
        counts = Counter(unsuitable[node] for node in potential)
        reasons = "; ".join(f"{reason} ({count})" for reason, count in sorted(counts.items()))
        yield WarningEvent(EventSubject.POD, f"none of {len(potential)} nodes is suitable: {reasons}")


def _build_resource_claims(
    context: PodSchedulingContext, pod_claims: Sequence[_PodClaim], unsuitable: Collection[str]
) -> tuple[UnsuitableNodes, ...]:
    """``status.resourceClaims`` with all our entries, empty ones too; entries of other drivers stay as they are."""
    nodes = _limit_nodes(unsuitable, context)
    ours = {one.name: UnsuitableNodes(name=one.name, unsuitable_nodes=nodes) for one in pod_claims}
    kept = [ours.pop(entry.name, entry) for entry in context.status.resource_claims]
    return (*kept, *ours.values())


def _limit_nodes(nodes: Collection[str], context: PodSchedulingContext) -> tuple[str, ...]:
    """Limit the list to the length that the server accepts: the selected node first, then the potential ones."""
    potential = set(context.spec.potential_nodes)
    by_need = sorted(nodes, key=lambda node: (node != context.spec.selected_node, node not in potential, node))
    return tuple(sorted(by_need[:MAX_NODES]))
