"""The allocator of structured DRA (KEP-4381): pure, from published slices and claims to allocation results.

The decisions are those of kube-scheduler's allocator (``k8s.io/dynamic-resource-allocation/structured``), device by
device. The package does no I/O, reads no clock, draws no random numbers, and imports ``api`` and
``kerf_dra.driver.cel`` only.

Data flow: slices -> ``pools`` (``PoolIndex``, by node ``NodeDevices``); claims and classes -> ``search`` (an
``AllocationProblem`` over these devices, then its first ``Solution``) -> allocation results; a problem without a
solution -> ``explain`` (reasons, near misses, holders). ``semantics`` has the rules of the API that all of these share.
``allocator`` does this for one node, ``cluster`` for the first node that fits.

``pools`` keeps equal slices once (``interning``) and what follows from equal pools in one ``template``; ``search`` has
domains as bitsets, ``bounds`` that prove failures by counting and ``nogoods`` that recognize failures up to
interchangeable devices. None of this changes which solution is found first, which ``tests/oracle/allocator`` asks the
Go library; a bound is there only for a recorded case from practice. A search that ends by its budget says so.

Terms of the API: claim, request, alternative (KEP-4816), pool, slice, device, counter set (KEP-4815), share (KEP-5075).
Terms of constraint solving: problem, domain, assignment, choice point, bound, nogood, interchangeable.
"""

from kerf_dra.driver.allocation.allocator import allocate
from kerf_dra.driver.allocation.cluster import ClusterAllocator, ClusterOutcome, NodeAllocation, NoFittingNode
from kerf_dra.driver.allocation.pools.index import PoolIndex
from kerf_dra.driver.allocation.semantics.allocated_state import AllocatedState
from kerf_dra.driver.allocation.semantics.matching import InvalidNodeSelectorError, node_matches
from kerf_dra.driver.allocation.semantics.outcomes import (
    Budget,
    DoesNotFit,
    Failed,
    Features,
    Fits,
    NodeView,
    Obstacle,
    Outcome,
    Reason,
    Undecided,
)

__all__ = [
    "AllocatedState",
    "Budget",
    "ClusterAllocator",
    "ClusterOutcome",
    "DoesNotFit",
    "Failed",
    "Features",
    "Fits",
    "InvalidNodeSelectorError",
    "NoFittingNode",
    "NodeAllocation",
    "NodeView",
    "Obstacle",
    "Outcome",
    "PoolIndex",
    "Reason",
    "Undecided",
    "allocate",
    "node_matches",
]
