"""Hardware that several claims hold although only one can: two schedulers, or a scheduler with a fault, gave it twice.

Four kinds are found: one device for two claims, shares of a device that sum up to more than its capacity (KEP-5075),
partitions that together consume more of a shared counter than there is (KEP-4815), and a device beside one that was cut
from it, by their UUIDs (``device_parts``). Of the claims that are involved one stays: one whose pod has started, else
the one that was allocated first.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.model.allocations import DeviceRequestAllocationResult
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import Device
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import DeviceId, ObjectRef, list_names
from kerf_dra.driver.allocation.explain.holders import PoolKey
from kerf_dra.driver.allocation.semantics.allocated_state import PoolId
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex, pods_of
from kerf_dra.driver.diagnostics.devices.device_parts import find_given_parts
from kerf_dra.driver.diagnostics.explain.device_faults import find_device
from kerf_dra.driver.diagnostics.explain.next_steps import delete_command
from kerf_dra.driver.diagnostics.explain.pod_status import has_started
from kerf_dra.driver.diagnostics.explain.report import Cause, CauseCode

_ONE_SCHEDULER: Final = "run one scheduler only for pods with such claims"
"""What prevents that one hardware is given twice."""
_SEPARATE: Final = (
    "its driver does not count what they share, so no scheduler sees it: have classes select either cards or parts of "
    "cards, and keep nodes with both apart"
)
"""What prevents it where a device and a part of it are published without shared counters."""


@dataclass(slots=True)
class _Uses:
    """What the claims of a pool take of devices, capacities and counters."""

    of_device: dict[DeviceId, list[tuple[ObjectRef, DeviceRequestAllocationResult]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    of_counter: dict[tuple[str, str], dict[DeviceId, int]] = field(default_factory=lambda: defaultdict(dict))
    """The amount that each device takes of a counter, by counter set and counter."""


def find_double_allocations(cluster: ClusterIndex, claims: Sequence[ResourceClaim]) -> Iterator[Cause]:
    """Yield a cause for each set of other claims that hold what ``claims`` hold."""
    seen: set[frozenset[ObjectRef]] = set()
    for claim in claims:
        for result in claim.status.allocation.devices.results if claim.status.allocation else ():
            if result.admin_access:
                continue
            for refs, what in _conflicts(cluster, claim, result):
                involved = frozenset(refs) | {claim.ref}
                if len(involved) > 1 and involved not in seen:
                    seen.add(involved)
                    yield _cause(cluster, claim, result, sorted(involved), what)
        yield from _given_parts(cluster, claim, seen)


def _given_parts(cluster: ClusterIndex, claim: ResourceClaim, seen: set[frozenset[ObjectRef]]) -> Iterator[Cause]:
    """Yield a cause for each set of claims with ``claim``, where one has a device and one has a part of it."""
    for pool in {(result.driver, result.pool): result for result in _results(claim)}.values():
        beside = _pools_beside(cluster, pool)
        slices = (slice_ for each in beside for slice_ in cluster.slices.newest_of_pool(PoolId(*each)))
        for given in find_given_parts(cluster.claims_by_pool.find(beside), slices):
            involved = frozenset((given.part_of, given.whole_of))
            if claim.ref in involved and involved not in seen:
                seen.add(involved)
                result = next(each for each in _results(claim) if each.id in (given.part, given.whole))
                what = f"device {given.part} is a part of device {given.whole} (parentUUID)"
                yield _cause(cluster, claim, result, sorted(involved), what, _SEPARATE)


def _results(claim: ResourceClaim) -> Sequence[DeviceRequestAllocationResult]:
    return claim.status.allocation.devices.results if claim.status.allocation else ()


def _pools_beside(cluster: ClusterIndex, result: DeviceRequestAllocationResult) -> list[PoolKey]:
    """Return the pools, of any driver, that may have the hardware of a device: those of its node."""
    own = PoolId(result.driver, result.pool)
    published = cluster.slices.newest_of_pool(own)
    node = published[0].spec.node_name if published else None
    beside = cluster.pools(Node(metadata=ObjectMeta(name=node))) if node else frozenset()
    return sorted({own, *beside})


def _conflicts(
    cluster: ClusterIndex, claim: ResourceClaim, result: DeviceRequestAllocationResult
) -> Iterator[tuple[list[ObjectRef], str]]:
    """Yield the claims that cannot all have what ``result`` gives, and what that is."""
    uses = _uses(cluster, result)
    holders = uses.of_device[result.id]
    same = [ref for ref, other in holders if result.share_id is None or other.share_id in (None, result.share_id)]
    if any(ref != claim.ref for ref in same):
        yield same, f"device {result.id}"
        return
    device, _ = find_device(cluster, result.id)
    if device is None:
        return
    for name, capacity in device.capacity.items():
        taken = sum(other.consumed_capacity[name].nano for _, other in holders if name in other.consumed_capacity)
        if taken > capacity.value.nano:
            yield [ref for ref, _ in holders], f"{name} of device {result.id}: more than its {capacity.value}"
            return
    sets = _counters(cluster, result)
    for consumption in device.consumes_counters:
        for name in consumption.counters:
            key = consumption.counter_set, name
            users = uses.of_counter[key]
            if key in sets and sum(users.values()) > sets[key]:
                refs = [ref for id_, amount in users.items() if amount for ref, _ in uses.of_device[id_]]
                yield refs, f"{name} of {consumption.counter_set} in pool {result.driver}/{result.pool}"
                return


def _uses(cluster: ClusterIndex, result: DeviceRequestAllocationResult) -> _Uses:
    uses = _Uses()
    for claim in cluster.claims_by_pool.find([(result.driver, result.pool)]):
        for each in claim.status.allocation.devices.results if claim.status.allocation else ():
            if each.admin_access or (each.driver, each.pool) != (result.driver, result.pool):
                continue
            uses.of_device[each.id].append((claim.ref, each))
            device, _ = find_device(cluster, each.id)
            for key, amount in _amounts(device):
                uses.of_counter[key][each.id] = amount
    return uses


def _amounts(device: Device | None) -> Iterator[tuple[tuple[str, str], int]]:
    for consumption in device.consumes_counters if device else ():
        for name, counter in consumption.counters.items():
            yield (consumption.counter_set, name), counter.value.nano


def _counters(cluster: ClusterIndex, result: DeviceRequestAllocationResult) -> dict[tuple[str, str], int]:
    return {
        (set_.name, name): counter.value.nano
        for slice_ in cluster.slices.of_pool(PoolId(result.driver, result.pool))
        for set_ in slice_.spec.shared_counters
        for name, counter in set_.counters.items()
    }


def _cause(
    cluster: ClusterIndex,
    claim: ResourceClaim,
    result: DeviceRequestAllocationResult,
    involved: Sequence[ObjectRef],
    what: str,
    remedy: str = _ONE_SCHEDULER,
) -> Cause:
    others = [str(ref) for ref in involved if ref != claim.ref]
    if not others:
        return Cause(
            code=CauseCode.DOUBLE_ALLOCATION,
            message=f"claim {claim.ref} has the same hardware twice: {what}",
            next_step=f"have the claim or its template ask for one of them; {remedy}",
            objects=(f"device {result.id}", f"claim {claim.ref}"),
        )
    stays = min(involved, key=lambda ref: (not _runs(cluster, ref), _allocated_at(cluster.claims[ref]), ref))
    ending = [ref for ref in involved if ref != stays]
    pods = [pod for ref in ending for pod in pods_of(cluster.claims[ref])]
    steps = " and ".join(delete_command(pod) for pod in pods) or f"delete claim {list_names(list(map(str, ending)))}"
    why = "whose pod runs" if _runs(cluster, stays) else "which was allocated first"
    return Cause(
        code=CauseCode.DOUBLE_ALLOCATION,
        message=f"claim {claim.ref} and claim {list_names(others)} have the same hardware: {what}",
        next_step=f"{steps}: claim {stays}, {why}, keeps it; {remedy}",
        objects=(f"device {result.id}", *(f"claim {ref}" for ref in involved), *(f"pod {pod}" for pod in pods)),
    )


def _runs(cluster: ClusterIndex, ref: ObjectRef) -> bool:
    pods = (cluster.pods.get(pod) for pod in pods_of(cluster.claims[ref]))
    return any(pod is not None and has_started(pod) for pod in pods)


def _allocated_at(claim: ResourceClaim) -> str:
    allocation = claim.status.allocation
    return (allocation and allocation.allocation_timestamp) or claim.metadata.creation_timestamp or ""
