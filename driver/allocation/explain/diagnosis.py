"""The full diagnosis of claims that do not fit on a node: obstacles with near misses and with the blocking claims.

``obstacles.py`` finds the obstacles; this module adds the devices, taints and claims with which a user can remove them.
A diagnosis costs more than an allocation, so it is made only on demand.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

from kerf_dra.api.model.claims import DeviceClass, ResourceClaim
from kerf_dra.api.model.devices import DeviceTaint
from kerf_dra.api.model.names import DeviceId, ObjectRef
from kerf_dra.driver.allocation.explain.amounts import find_short_devices
from kerf_dra.driver.allocation.explain.holders import Blocker, HolderIndex
from kerf_dra.driver.allocation.explain.near_misses import (
    NearMissGroup,
    SourcedSelector,
    near_misses,
)
from kerf_dra.driver.allocation.explain.obstacles import COUNTERS_TAKEN, Finding, find_obstacles
from kerf_dra.driver.allocation.pools.index import PoolIndex
from kerf_dra.driver.allocation.pools.node_devices import NodeDevices
from kerf_dra.driver.allocation.search.problem import AllocationProblem, RequestAlternative
from kerf_dra.driver.allocation.search.problem_builder import build_problem
from kerf_dra.driver.allocation.semantics.bitset import iter_bits
from kerf_dra.driver.allocation.semantics.matching import selector_expressions
from kerf_dra.driver.allocation.semantics.outcomes import Features, NodeView, Obstacle

_OF_AMOUNT: Final = (Obstacle.IN_USE, Obstacle.COUNTERS, Obstacle.CAPACITY, Obstacle.TOO_FEW)
RELEASABLE: Final = frozenset((*_OF_AMOUNT, Obstacle.CONSTRAINT, Obstacle.COMBINATION))
"""The obstacles that may go away when other claims end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One obstacle of one request on one node; on equal nodes only ``blockers`` and names of devices differ."""

    claim: ObjectRef
    request: str
    """The request as in ``Reason``; several names, joined by commas, if a constraint over them is the obstacle."""
    obstacle: Obstacle
    message: str
    """The description of the obstacle, without names of devices and claims."""
    misses: tuple[NearMissGroup, ...] = ()
    """The nearest devices, if the obstacle is CLASS, SELECTOR or CAPACITY: what they are, or have free."""
    blockers: tuple[Blocker, ...] = ()
    """The blocking hardware and the claims that hold it, if the obstacle is in RELEASABLE."""
    taints: tuple[DeviceTaint, ...] = ()
    """The taints that the request does not tolerate, if the obstacle is TAINTED."""


def diagnose(
    pool_index: PoolIndex,
    claims: Sequence[ResourceClaim],
    node: NodeView,
    classes: Mapping[str, DeviceClass],
    holder_index: HolderIndex,
    features: Features,
) -> tuple[Diagnosis, ...]:
    """Return the obstacles of ``claims`` on ``node`` after ``allocate`` returned ``DoesNotFit``; never empty.

    ``holder_index`` must cover at least all pools that the node can use. Raises UnanswerableError and
    InvalidNodeSelectorError where the outcome of ``allocate`` is ``Failed``.
    """
    problem = build_problem(NodeDevices.build(pool_index, node, holder_index.allocated, features), claims, classes)
    return tuple(_diagnosis(problem, holder_index, finding) for finding in find_obstacles(problem))


def _diagnosis(problem: AllocationProblem, holder_index: HolderIndex, finding: Finding) -> Diagnosis:
    is_releasable = finding.obstacle in RELEASABLE
    blockers = _blockers(problem, holder_index, finding) if is_releasable else ()
    is_hopeless = blockers and not any(blocker.claims for blocker in blockers)
    return Diagnosis(
        claim=problem.claims[finding.claim].ref,
        request=finding.request,
        obstacle=finding.obstacle,
        message=finding.message.replace(COUNTERS_TAKEN, "is more than there is") if is_hopeless else finding.message,
        misses=tuple(_misses(problem, finding)),
        blockers=blockers,
        taints=_taints(problem, finding) if finding.obstacle is Obstacle.TAINTED else (),
    )


def _blockers(problem: AllocationProblem, holder_index: HolderIndex, finding: Finding) -> tuple[Blocker, ...]:
    """Return what is not free of the devices of ``finding``: a device with shares is not in use, but partly taken.

    Where a constraint is the obstacle, a device that can be shared and has room for the request does not count.
    """
    shared = finding.devices & problem.node_devices.shared & problem.node_devices.shareable
    is_constraint = finding.obstacle is Obstacle.CONSTRAINT
    roomy = reduce(or_, (each.usable for each in finding.alternatives), 0) if is_constraint else 0
    by_share = (
        holder_index.share_blocker(problem.node_devices.device(index).id, problem.node_devices.consumed.get(index, {}))
        for index in iter_bits(shared & ~roomy)
    )
    return (*holder_index.blockers(_ids(problem, finding.devices & ~shared)), *by_share)


def _ids(problem: AllocationProblem, devices: int) -> Iterator[DeviceId]:
    return (problem.node_devices.device(index).id for index in iter_bits(devices))


def _taints(problem: AllocationProblem, finding: Finding) -> tuple[DeviceTaint, ...]:
    tolerations = finding.alternatives[0].spec.tolerations
    taints = (taint for index in iter_bits(finding.devices) for taint in problem.node_devices.device(index).taints)
    strong = (taint for taint in taints if taint.effect in {"NoSchedule", "NoExecute"})
    return tuple(dict.fromkeys(taint for taint in strong if not any(each.tolerates(taint) for each in tolerations)))


def _misses(problem: AllocationProblem, finding: Finding) -> Sequence[NearMissGroup]:
    if not finding.alternatives:
        return ()
    alternative = finding.alternatives[0]
    if finding.obstacle in {Obstacle.CLASS, Obstacle.SELECTOR}:
        devices = iter_bits(finding.devices) if finding.devices else range(problem.node_devices.count)
        published = (problem.node_devices.device(index) for index in devices)
        return near_misses(_selectors(alternative), ((each.id, each.device) for each in published))
    if finding.obstacle is Obstacle.CAPACITY:
        return find_short_devices(problem, alternative, finding.devices)
    return ()


def _selectors(alternative: RequestAlternative) -> list[SourcedSelector]:
    class_ = alternative.class_
    source, expressions = f"class {class_.metadata.name}", selector_expressions(class_.spec.selectors)
    of_class = [SourcedSelector(source, expression) for expression in expressions]
    of_request = enumerate(selector_expressions(alternative.spec.selectors))
    return [*of_class, *(SourcedSelector(f"selector {index}", expression) for index, expression in of_request)]
