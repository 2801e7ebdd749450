"""Plans one claim by itself: deallocation, and allocation in ``Immediate`` mode. Pure.

The states of a claim are the sixteen combinations of four facts; the table is KEP-3063's. R: a pod uses it (reserved).
E: its allocation is to end (deletionTimestamp, or deallocationRequested). F: the claim is ours, by our finalizer or by
an allocation that we wrote (upstream checks the finalizer alone: a claim whose finalizer was removed would never be
deallocated). A: it is allocated.

| R | E | F | A | then | rule |
|---|---|---|---|---|---|
| yes | any | any | any | nothing: it is in use | C-2 |
| no | yes | no | any | nothing: it is not ours, or done | C-3 |
| no | yes | yes | yes | clear the allocation, then remove the finalizer | C-4 |
| no | yes | yes | no | clear a remaining request, then remove the finalizer | C-8 |
| no | no | any | yes | nothing | C-10 |
| no | no | any | no | allocate in Immediate mode; else its pod's scheduling context decides | C-11 to C-18 |

Invariant: the finalizer is written before an allocation and removed after it is cleared, so that a claim is not deleted
while it is allocated, unless a user removes the finalizer. Deallocation needs the claim alone, neither class
nor parameters nor node: its devices are free as soon as its status does not name them. An allocation of another driver
is left to that driver.

Example: a pod ends, the claim controller removes it from reservedFor and sets deallocationRequested: R no, E yes, F
yes, A yes. C-4 clears allocation and request in one write, and the finalizer in a second.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from kerf_dra.api.model.classic import ClassicClaim
from kerf_dra.driver.controller.classic.allocator import ClaimAllocation, PendingClaim, allocate_anywhere
from kerf_dra.driver.controller.classic.reconcile_result import EventSubject, ReconcileResult, Requeue, WarningEvent
from kerf_dra.driver.controller.classic.requirements import (
    InvalidRequirementsError,
    Ownership,
    ownership_of,
    resolve_requirements,
)
from kerf_dra.driver.controller.classic.state import FINALIZER, ClusterView
from kerf_dra.driver.controller.classic.usage import nodes_of, usage_of_claim
from kerf_dra.driver.families.registry import BUILT_IN_BY_DRIVER


class ClaimAction(Enum):
    """The action of a row of the table."""

    NONE = auto()
    DEALLOCATE = auto()
    REMOVE_FINALIZER = auto()
    ALLOCATE = auto()


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """The facts R, E, F and A of the table."""

    reserved: bool
    ending: bool
    ours: bool
    allocated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPlan(ReconcileResult):
    """The writes to a claim, in the order of the fields."""

    allocation: ClaimAllocation | None = None
    deallocate: bool = False
    """Whether to clear allocation and request in one write: the server accepts neither alone."""
    remove_finalizer: bool = False


def plan_claim(claim: ClassicClaim | None, view: ClusterView) -> ClaimPlan:
    """Return the plan for ``claim``; None: the claim does not exist."""
    if claim is None:
        return ClaimPlan(rule="C-1")
    rule, action = table_row(_facts_of(claim))
    match action:
        case ClaimAction.NONE:
            return ClaimPlan(rule=rule, warnings=tuple(_warning(found) for found in _contradictions(claim, view)))
        case ClaimAction.REMOVE_FINALIZER:
            return ClaimPlan(rule=rule, deallocate=claim.status.deallocation_requested, remove_finalizer=True)
        case ClaimAction.DEALLOCATE if claim.status.driver_name not in BUILT_IN_BY_DRIVER:
            message = f"allocated by {claim.status.driver_name}, which has to deallocate it, though {FINALIZER} is set"
            return ClaimPlan(rule=rule, warnings=(_warning(message),))
        case ClaimAction.DEALLOCATE:
            return ClaimPlan(rule=rule, deallocate=True, remove_finalizer=FINALIZER in claim.metadata.finalizers)
    return _plan_allocation(claim, view)


def table_row(facts: ClaimFacts) -> tuple[str, ClaimAction]:
    """The rule and the action of the table's row for ``facts``."""
    if facts.reserved:
        return "C-2", ClaimAction.NONE
    if facts.ending and not facts.ours:
        return "C-3", ClaimAction.NONE
    if facts.ending:
        return ("C-4", ClaimAction.DEALLOCATE) if facts.allocated else ("C-8", ClaimAction.REMOVE_FINALIZER)
    return ("C-10", ClaimAction.NONE) if facts.allocated else ("C-11", ClaimAction.ALLOCATE)


def _plan_allocation(claim: ClassicClaim, view: ClusterView) -> ClaimPlan:
    if not claim.spec.immediate:
        return ClaimPlan(rule="C-11")
    ownership = ownership_of(claim, view)
    if ownership is Ownership.UNKNOWN:
        return ClaimPlan(rule="C-12")  # the class, once created, requeues it; until then the claim's driver is unknown
    if ownership is Ownership.OTHERS:
        return ClaimPlan(rule="C-13")
    if view.usage.is_reserved(claim.metadata.uid):
        return ClaimPlan(rule="C-18", requeue=Requeue.BACKOFF)
    try:
        pending = PendingClaim(claim, resolve_requirements(claim, view))
    except InvalidRequirementsError as error:
        warning = _warning(str(error))
        if error.about == "claim":
            return ClaimPlan(rule="C-15", warnings=(warning,))
        of_class = WarningEvent(EventSubject.CLASS, str(error), claim.spec.requests[0].class_name)
        return ClaimPlan(rule="C-14", warnings=(of_class, warning))
    allocation = allocate_anywhere(pending, view)
    if allocation is None:
        message = "no node has free devices for the claim; it is allocated as soon as one has"
        return ClaimPlan(rule="C-17", warnings=(_warning(message),), requeue=Requeue.PERIODIC)
    return ClaimPlan(rule="C-18", allocation=allocation)


def _facts_of(claim: ClassicClaim) -> ClaimFacts:
    return ClaimFacts(
        reserved=bool(claim.status.reserved_for),
        ending=claim.is_terminating or claim.status.deallocation_requested,
        ours=FINALIZER in claim.metadata.finalizers or _is_allocated_by_us(claim),
        allocated=claim.status.allocation is not None,
    )


def _is_allocated_by_us(claim: ClassicClaim) -> bool:
    """Whether this controller wrote the allocation, not the scheduler (1.30, structured parameters)."""
    allocation = claim.status.allocation
    ours = BUILT_IN_BY_DRIVER.keys()
    return allocation is not None and claim.status.driver_name in ours and not ours.isdisjoint(allocation.drivers)


def _contradictions(claim: ClassicClaim, view: ClusterView) -> Iterator[str]:
    """Yield the faults of an allocation, by any writer, that a person has to correct."""
    allocation = claim.status.allocation
    if allocation is None:
        return
    for driver in sorted(BUILT_IN_BY_DRIVER.keys() & allocation.unreadable.keys()):
        reason = allocation.unreadable[driver]
        nodes = ", ".join(nodes_of(allocation)) or "no node"
        yield f"its resource handle cannot be read: {reason}; no other claim gets devices of {nodes}"
    for usage in usage_of_claim(claim):
        model = view.node_model(usage.node)
        unknown = [device for device in usage.devices or () if model is not None and not model.has(device)]
        if unknown:
            names = ", ".join(unknown)
            yield f"it has {names}, which no NodeInventory of {usage.node} has: no other claim gets that card"
    users = len(claim.status.reserved_for)
    if claim.status.driver_name in BUILT_IN_BY_DRIVER and users > allocation.max_pods:
        yield f"{users} pods use it, and its class lets {allocation.max_pods} (maxPods): is deploy/classic applied?"


def _warning(message: str) -> WarningEvent:
    return WarningEvent(EventSubject.CLAIM, message)
