"""How many devices claims of each class hold, pool by pool, kept up to date claim by claim."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.allocation import PoolIndex
from kerf_dra.driver.allocation.semantics.allocated_state import PoolId


class ClassUse:
    """The devices that are held, by class and pool; a share of a device counts as one, admin access does not."""

    def __init__(self, claims: Iterable[ResourceClaim] = ()) -> None:
        self._of_claims: dict[ObjectRef, Counter[tuple[str, PoolId]]] = {}
        self._by_class: dict[str, Counter[PoolId]] = {}
        for claim in claims:
            self.record(claim)

    def record(self, claim: ResourceClaim) -> None:
        """Record what ``claim`` holds, in place of what it held before."""
        self.remove(claim.ref)
        held = Counter(_list_held(claim))
        if held:
            self._of_claims[claim.ref] = held
        for (name, pool), devices in held.items():
            self._by_class.setdefault(name, Counter())[pool] += devices

    def remove(self, ref: ObjectRef) -> None:
        """Forget what a claim held."""
        for (name, pool), devices in self._of_claims.pop(ref, Counter[tuple[str, PoolId]]()).items():
            of_class = self._by_class[name]
            of_class[pool] -= devices
            if not of_class[pool]:
                del of_class[pool]
            if not of_class:
                del self._by_class[name]

    def count_by_node(self, classes: Collection[str], pool_index: PoolIndex) -> Counter[str]:
        """Return how many devices claims of ``classes`` hold on each node; pools of several nodes count for none."""
        found: Counter[str] = Counter()
        for name in classes:
            for pool, devices in self._by_class.get(name, Counter[PoolId]()).items():
                nodes = pool_index.nodes_of(pool)
                if len(nodes) == 1:
                    found.update(dict.fromkeys(nodes, devices))
        return found


def _list_held(claim: ResourceClaim) -> Iterator[tuple[str, PoolId]]:
    allocation = claim.status.allocation
    if allocation is None:
        return
    classes = dict(_list_requests(claim))
    for result in allocation.devices.results:
        if not result.admin_access and (name := classes.get(result.request)):
            yield name, PoolId(result.driver, result.pool)


def _list_requests(claim: ResourceClaim) -> Iterator[tuple[str, str]]:
    """Yield the requests of a claim as allocation results name them, each with its class."""
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.name, request.exactly.device_class_name
        for alternative in request.first_available:
            yield f"{request.name}/{alternative.name}", alternative.device_class_name
