"""``allocate``: devices on one node for all claims of one pod, or the reasons why they do not fit.

The claims become a constraint satisfaction problem over the node's devices, a depth-first search finds its first
solution, and that becomes one ``AllocationResult`` for each claim (``k8s.io/dynamic-resource-allocation/structured``,
``Allocate``). A failure is explained only by ``allocate``, because an explanation costs more than the search.
"""

from collections.abc import Callable, Mapping, Sequence

from kerf_dra.api.model.claims import DeviceClass, ResourceClaim
from kerf_dra.driver.allocation.explain.obstacles import explain_failure
from kerf_dra.driver.allocation.pools.index import PoolIndex
from kerf_dra.driver.allocation.pools.node_devices import NodeDevices
from kerf_dra.driver.allocation.search.backtracking import BudgetSpentError, DepthFirstSearch
from kerf_dra.driver.allocation.search.problem import AllocationProblem, UnanswerableError
from kerf_dra.driver.allocation.search.problem_builder import build_problem
from kerf_dra.driver.allocation.search.results import build_results
from kerf_dra.driver.allocation.semantics.allocated_state import AllocatedDevices
from kerf_dra.driver.allocation.semantics.matching import InvalidNodeSelectorError
from kerf_dra.driver.allocation.semantics.outcomes import (
    Budget,
    DoesNotFit,
    Failed,
    Features,
    Fits,
    NodeView,
    Outcome,
    Undecided,
)


def allocate(
    pool_index: PoolIndex,
    claims: Sequence[ResourceClaim],
    node: NodeView,
    classes: Mapping[str, DeviceClass],
    allocated: AllocatedDevices,
    features: Features,
    *,
    share_id: Callable[[], str],
    budget: Budget,
) -> Outcome:
    """Allocate devices on ``node`` for all ``claims`` of one pod, or explain why they do not fit.

    ``classes`` are by name. ``share_id`` gives a new UUID for every share of a shareable device. The outcome depends on
    the arguments alone, except for the share ids.
    """
    try:
        node_devices = NodeDevices.build(pool_index, node, allocated, features)
    except InvalidNodeSelectorError as error:
        return Failed("fatal", str(error))
    outcome = try_allocate(node_devices, claims, classes, share_id=share_id, budget=budget)
    return DoesNotFit(explain_failure(outcome)) if isinstance(outcome, AllocationProblem) else outcome


def try_allocate(
    node_devices: NodeDevices,
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    *,
    share_id: Callable[[], str],
    budget: Budget,
) -> Fits | Failed | Undecided | AllocationProblem:
    """Allocate as ``allocate`` does, on devices gathered before; return a problem that has no solution unexplained."""
    try:
        problem = build_problem(node_devices, claims, classes)
        solution = DepthFirstSearch(problem, budget).run()
    except (UnanswerableError, InvalidNodeSelectorError) as error:
        return Failed("fatal", str(error))
    except BudgetSpentError as error:
        return error.outcome
    if solution is not None:
        return Fits(build_results(problem, solution, share_id))
    for view in node_devices.views:
        if view.fault is not None and view.fault.kind == "invalid":
            return Failed("node", view.fault.message)
    return problem
