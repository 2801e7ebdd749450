"""What becomes of one PodSchedulingContext: which nodes cannot be had, and allocation for the selected one. Pure.

The rules are KEP-3063's, in the order of S-1 to S-18; upstream's Go library (kubernetes/dynamic-resource-allocation
``controller``, release-1.31) is corrected where it was known to go wrong:

- the selected node is looked at although it is no potential one, and nodes reported before are looked at again;
- claims that are allocated, in use otherwise, or about to end are left out;
- reports are sorted and cut to their limit before they are compared, so that nothing is written twice;
- two contexts that share a claim never both allocate it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from api.core.v1 import Pod, PodResourceClaim
from api.model.classic import MAX_NODES, ClassicClaim, PodSchedulingContext, UnsuitableNodes
from api.model.names import ObjectRef
from driver.controller.classic.allocator import Grant, Pending, grant, obstacle
from driver.controller.classic.outcomes import About, Complaint, Outcome
from driver.controller.classic.requests import BadRequestError, Ownership, owner_of, requests_of
from driver.controller.classic.state import World


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPlan:
    """What to do about a context: first the grants, all at once, then the report."""

    rule: str
    grants: tuple[Grant, ...] = ()
    report: tuple[UnsuitableNodes, ...] | None = None
    """All entries of the status, ours and others'; None: it says what it should."""
    complaints: tuple[Complaint, ...] = ()
    outcome: Outcome = Outcome.FORGET


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of the pod's ``resourceClaims`` that is ours to serve."""

    name: str
    pending: Pending


class _UnresolvedError(Exception):
    """The context cannot be worked on as long as this holds."""

    def __init__(self, rule: str, complaints: Iterable[Complaint], outcome: Outcome) -> None:
        self.plan = ContextPlan(rule=rule, complaints=tuple(complaints), outcome=outcome)
        super().__init__(rule)


def concerns(context: PodSchedulingContext | None) -> bool:
    """Whether the pod is worth asking for."""
    return (
        context is not None
        and not context.is_terminating
        and bool(context.spec.selected_node or context.spec.potential_nodes)
    )


def plan_context(context: PodSchedulingContext | None, pod: Pod, world: World) -> ContextPlan:
    """What to do about ``context`` for ``pod``, the one of its name that is there now."""
    if context is None:
        return ContextPlan(rule="S-1")
    if context.is_terminating:
        return ContextPlan(rule="S-2")
    if not context.spec.selected_node and not context.spec.potential_nodes:
        return ContextPlan(rule="S-3")
    if pod.is_terminating:
        return ContextPlan(rule="S-5")
    if not _is_controlled_by(context, pod):
        return ContextPlan(rule="S-6")
    try:
        entries = list(_entries(pod, world))
    except _UnresolvedError as error:
        return error.plan
    if not entries:
        return ContextPlan(rule="S-11", outcome=Outcome.PERIODIC)
    return _negotiate(context, pod, entries, world)


def _negotiate(context: PodSchedulingContext, pod: Pod, entries: Sequence[_Entry], world: World) -> ContextPlan:
    """Which nodes cannot be had, and what the selected one gives (S-12 to S-18)."""
    selected, potential = context.spec.selected_node, context.spec.potential_nodes
    pending = list({entry.pending.claim.metadata.uid: entry.pending for entry in entries}.values())
    full = _full_claim(pod, world)
    obstacles = _obstacles(context, pending, world, full) if potential else {}
    busy = any(world.holdings.is_reserved(one.claim.metadata.uid) for one in pending)
    grants: tuple[Grant, ...] = ()
    complaints = tuple(_despair(potential, obstacles))
    if selected and not busy:
        reason = full or obstacle(pending, selected, world)
        grants = () if reason else grant(pending, selected, world, pod)
        if reason:
            complaints = (Complaint(About.CONTEXT, f"node {selected}: {reason}"), *complaints)
            obstacles[selected] = reason
    report = _report(context, entries, obstacles.keys())
    rule = "S-15" if grants else "S-14" if selected else "S-17"
    return ContextPlan(
        rule=rule,
        grants=grants,
        report=None if report == context.status.resource_claims else report,
        complaints=complaints,
        outcome=Outcome.REQUEUE if busy else Outcome.PERIODIC,
    )


def claim_name(pod: Pod, entry: PodResourceClaim, world: World) -> str | None:
    """The claim of an entry; None: it needs none. Raises LookupError when it is not made yet."""
    if entry.claim_name is not None:
        return entry.claim_name
    if not world.names_are_generated:
        return f"{pod.metadata.name}-{entry.name}"
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name
    raise LookupError("the claim is not made yet")


def _is_controlled_by(owned: PodSchedulingContext | ClassicClaim, pod: Pod) -> bool:
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in owned.metadata.owner_references)


def _entries(pod: Pod, world: World) -> Iterator[_Entry]:
    for entry in pod.spec.resource_claims:
        claim = _claim(pod, entry, world)
        if claim is None or not _is_open(claim):
            continue
        ownership = owner_of(claim, world)
        if ownership is Ownership.OTHERS:
            continue
        if ownership is Ownership.UNKNOWN:
            names = ", ".join(request.class_name for request in claim.spec.requests)
            complaint = Complaint(About.CONTEXT, f"pod claim {entry.name}: class {names} does not exist")
            raise _UnresolvedError("S-9", [complaint], Outcome.PERIODIC)
        try:
            yield _Entry(entry.name, Pending(claim, requests_of(claim, world)))
        except BadRequestError as error:
            raise _UnresolvedError("S-10", _complaints(entry, claim, error), Outcome.PERIODIC) from error


def _claim(pod: Pod, entry: PodResourceClaim, world: World) -> ClassicClaim | None:
    """The claim of an entry; None: it needs none, or it is not there. Raises _UnresolvedError."""
    try:
        name = claim_name(pod, entry, world)
    except LookupError as error:
        complaint = Complaint(About.CONTEXT, f"pod claim {entry.name}: {error}")
        raise _UnresolvedError("S-7", [complaint], Outcome.REQUEUE) from error
    claim = None if name is None else world.claim(ObjectRef(pod.metadata.namespace, name))
    if claim is not None and entry.claim_name is None and not _is_controlled_by(claim, pod):
        message = f"pod claim {entry.name}: ResourceClaim {claim.metadata.name} was not made for this pod"
        raise _UnresolvedError("S-7", [Complaint(About.CONTEXT, message)], Outcome.PERIODIC)
    return claim


def _is_open(claim: ClassicClaim) -> bool:
    """Whether it may be allocated for a pod now; one that is about to end would be refused by the server."""
    return not (
        claim.spec.immediate
        or claim.status.allocation is not None
        or claim.is_terminating
        or claim.status.deallocation_requested
    )


def _complaints(entry: PodResourceClaim, claim: ClassicClaim, error: BadRequestError) -> Iterator[Complaint]:
    yield Complaint(About.CONTEXT, f"pod claim {entry.name}: {error}")
    yield Complaint(About.POD, f"pod claim {entry.name}: {error}")
    yield Complaint(About.CLAIM, str(error), claim.metadata.name)
    if error.about == "class":
        yield from (Complaint(About.CLASS, str(error), request.class_name) for request in claim.spec.requests)


def _full_claim(pod: Pod, world: World) -> str | None:
    """Why the pod can start nowhere, so that it need not hold anything: as many pods as may use one of its claims."""
    for entry in pod.spec.resource_claims:
        claim = _claim(pod, entry, world)
        users = {consumer.uid for consumer in claim.status.reserved_for} if claim else set()
        if claim is not None and claim.is_full and pod.metadata.uid not in users:
            return f"pod claim {entry.name}: ResourceClaim {claim.metadata.name} is full: {len(users)} pods use it"
    return None


def _obstacles(
    context: PodSchedulingContext, pending: Sequence[Pending], world: World, full: str | None
) -> dict[str, str]:
    """Why nodes cannot serve all of the pod's claims of ours: of those that the scheduler or we have named."""
    before = (node for entry in context.status.resource_claims for node in entry.unsuitable_nodes)
    nodes = {context.spec.selected_node, *context.spec.potential_nodes, *before} - {""}
    reasons = {node: full or obstacle(pending, node, world) for node in nodes}
    return {node: reason for node, reason in reasons.items() if reason is not None}


def _despair(potential: Sequence[str], obstacles: Mapping[str, str]) -> Iterator[Complaint]:
    """Tells the pod's author why it waits, where no node of the scheduler's can be had."""
    if potential and obstacles.keys() >= set(potential):
        counts = Counter(obstacles[node] for node in potential)
        reasons = "; ".join(f"{reason} ({count})" for reason, count in sorted(counts.items()))
        yield Complaint(About.POD, f"none of {len(potential)} nodes can be had: {reasons}")


def _report(
    context: PodSchedulingContext, entries: Sequence[_Entry], unsuitable: Collection[str]
) -> tuple[UnsuitableNodes, ...]:
    """The status with our entries in it, each of them although it may be empty; others' stay as they are."""
    nodes = _cut(unsuitable, context)
    ours = {entry.name: UnsuitableNodes(name=entry.name, unsuitable_nodes=nodes) for entry in entries}
    kept = [ours.pop(entry.name, entry) for entry in context.status.resource_claims]
    return (*kept, *ours.values())


def _cut(nodes: Collection[str], context: PodSchedulingContext) -> tuple[str, ...]:
    """At most as many as the server takes: the selected node first, then those that the scheduler asks about."""
    asked = set(context.spec.potential_nodes)
    by_need = sorted(nodes, key=lambda node: (node != context.spec.selected_node, node not in asked, node))
    return tuple(sorted(by_need[:MAX_NODES]))
