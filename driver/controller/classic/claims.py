"""What becomes of one claim without a pod: deallocation, and allocation at once. Pure: KEP-3063's table.

R: somebody uses it. E: it is to end (deletionTimestamp, or deallocationRequested). F: it has our finalizer, or an
allocation that we wrote (upstream asks for the finalizer alone: where somebody has taken it off, the claim is never
deallocated). A: it is allocated.

| R | E | F | A | then | rule |
|---|---|---|---|---|---|
| yes | any | any | any | nothing: it is in use | C-2 |
| no | yes | no | any | nothing: it is not ours, or done | C-3 |
| no | yes | yes | yes | clear the allocation, then take the finalizer off | C-4 |
| no | yes | yes | no | clear a request that is left, then take the finalizer off | C-8 |
| no | no | any | yes | nothing | C-10 |
| no | no | any | no | allocate if it is to be allocated at once; else a pod's context drives it | C-11 to C-18 |

Deallocation asks nobody: neither class nor parameters nor node have to be there. What the claim had is free as soon as
the allocation is gone from it, because that is where it was written. It is left to whoever wrote it when another driver
did.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from api.model.classic import ClassicClaim
from driver.controller.classic.allocator import Grant, Pending, grant_anywhere
from driver.controller.classic.outcomes import About, Complaint, Outcome
from driver.controller.classic.requests import BadRequestError, Ownership, owner_of, requests_of
from driver.controller.classic.state import World
from driver.controller.classic.usage import holdings_of, nodes_of


class Verdict(Enum):
    """What the table says."""

    NOTHING = auto()
    RELEASE = auto()
    UNPROTECT = auto()
    ALLOCATE = auto()


@dataclass(frozen=True, slots=True)
class Facts:
    """What of a claim the table looks at: R, E, F and A."""

    reserved: bool
    ending: bool
    protected: bool
    allocated: bool


def facts_of(claim: ClassicClaim, world: World) -> Facts:
    return Facts(
        reserved=bool(claim.status.reserved_for),
        ending=claim.is_terminating or claim.status.deallocation_requested,
        protected=world.finalizer in claim.metadata.finalizers or _is_by_us(claim, world),
        allocated=claim.status.allocation is not None,
    )


def _is_by_us(claim: ClassicClaim, world: World) -> bool:
    """Whether the allocation is of our making, not the scheduler's for our driver (1.30, structured parameters)."""
    allocation = claim.status.allocation
    return allocation is not None and claim.status.driver_name == world.driver and world.driver in allocation.drivers


def _table() -> Mapping[Facts, tuple[str, Verdict]]:
    rows: dict[Facts, tuple[str, Verdict]] = {}
    for number in range(16):
        reserved, ending, protected, allocated = (bool(number >> bit & 1) for bit in range(4))
        if reserved:
            row = ("C-2", Verdict.NOTHING)
        elif ending and not protected:
            row = ("C-3", Verdict.NOTHING)
        elif ending:
            row = ("C-4", Verdict.RELEASE) if allocated else ("C-8", Verdict.UNPROTECT)
        else:
            row = ("C-10", Verdict.NOTHING) if allocated else ("C-11", Verdict.ALLOCATE)
        rows[Facts(reserved, ending, protected, allocated)] = row
    return MappingProxyType(rows)


TABLE: Final = _table()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPlan:
    """What to do about a claim, in the order of the fields."""

    rule: str
    grant: Grant | None = None
    release: bool = False
    """Clear allocation and request in one write: the server takes neither alone."""
    unprotect: bool = False
    """Take our finalizer off."""
    complaints: tuple[Complaint, ...] = ()
    outcome: Outcome = Outcome.FORGET


def plan_claim(claim: ClassicClaim | None, world: World) -> ClaimPlan:
    """What to do about ``claim`` now; None: it is gone."""
    if claim is None:
        return ClaimPlan(rule="C-1")
    rule, verdict = TABLE[facts_of(claim, world)]
    match verdict:
        case Verdict.NOTHING:
            return ClaimPlan(rule=rule, complaints=tuple(_about_claim(doubt) for doubt in _doubts(claim, world)))
        case Verdict.UNPROTECT:
            return ClaimPlan(rule=rule, release=claim.status.deallocation_requested, unprotect=True)
        case Verdict.RELEASE if claim.status.driver_name != world.driver:
            message = (
                f"allocated by {claim.status.driver_name}, which has to deallocate it, though {world.finalizer} is set"
            )
            return ClaimPlan(rule=rule, complaints=(_about_claim(message),))
        case Verdict.RELEASE:
            return ClaimPlan(rule=rule, release=True, unprotect=world.finalizer in claim.metadata.finalizers)
    return _plan_immediate(claim, world)


def _plan_immediate(claim: ClassicClaim, world: World) -> ClaimPlan:
    if not claim.spec.immediate:
        return ClaimPlan(rule="C-11")
    ownership = owner_of(claim, world)
    if ownership is Ownership.UNKNOWN:
        return ClaimPlan(rule="C-12")  # the class's arrival wakes it; whose fault it is, nobody knows yet
    if ownership is Ownership.OTHERS:
        return ClaimPlan(rule="C-13")
    if world.holdings.is_reserved(claim.metadata.uid):
        return ClaimPlan(rule="C-18", outcome=Outcome.REQUEUE)
    try:
        pending = Pending(claim, requests_of(claim, world))
    except BadRequestError as error:
        about = About.CLASS if error.about == "class" else About.CLAIM
        rule = "C-14" if about is About.CLASS else "C-15"
        complaints = tuple(dict.fromkeys([Complaint(about, str(error)), _about_claim(str(error))]))
        return ClaimPlan(rule=rule, complaints=complaints)
    found = grant_anywhere(pending, world)
    if found is None:
        message = "no node has what the claim asks for free; it is allocated as soon as one has"
        return ClaimPlan(rule="C-17", complaints=(_about_claim(message),), outcome=Outcome.PERIODIC)
    return ClaimPlan(rule="C-18", grant=found)


def _doubts(claim: ClassicClaim, world: World) -> Iterator[str]:
    """What is wrong with an allocation, whoever wrote it: somebody has to look."""
    allocation = claim.status.allocation
    if allocation is None:
        return
    if world.driver in allocation.unreadable:
        reason = allocation.unreadable[world.driver]
        nodes = ", ".join(nodes_of(allocation)) or "no node"
        yield f"its resource handle cannot be read: {reason}; nobody else gets anything of {nodes}"
    for holding in holdings_of(claim, world.driver):
        stock = world.stock(holding.node)
        unknown = [device for device in holding.devices or () if stock is not None and not stock.has(device)]
        if unknown:
            names = ", ".join(unknown)
            yield f"it has {names}, which NodeInventory {holding.node} does not have: nobody else gets that card"
    users = len(claim.status.reserved_for)
    if claim.status.driver_name == world.driver and users > allocation.max_pods:
        yield f"{users} pods use it, and its class lets {allocation.max_pods} (maxPods): is deploy/classic applied?"


def _about_claim(message: str) -> Complaint:
    return Complaint(About.CLAIM, message)
