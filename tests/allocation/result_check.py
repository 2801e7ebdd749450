"""An independent check of allocation results: each rule by itself, on plain dictionaries."""

from collections import Counter as PartialAssignment
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from kerf_dra.api.model.allocations import AllocationResult, DeviceRequestAllocationResult
from kerf_dra.api.model.claims import DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from kerf_dra.api.model.devices import Attribute, Device, ResourceSlice
from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.allocation import AllocatedState

RequestSpec = ExactDeviceRequest | DeviceSubRequest


def faults(
    slices: Sequence[ResourceSlice],
    claims: Sequence[ResourceClaim],
    results: Sequence[AllocationResult],
    allocated: AllocatedState,
) -> list[str]:
    """Return all errors of ``results``. Selectors are not judged: cases give them a test of their own."""
    devices = {
        DeviceId(each.spec.driver, each.spec.pool.name, device.name): device
        for each in slices
        for device in each.spec.devices
    }
    given = [result for each in results for result in each.devices.results]
    found: list[str] = []
    if len(results) != len(claims):
        found.append(f"{len(results)} results for {len(claims)} claims")
    for claim, result in zip(claims, results, strict=False):
        found += _unserved(claim, result)
        found += _violated(claim, result, devices)
    return found + list(_oversold(given, devices, allocated)) + list(_overdrawn(slices, given, devices, allocated))


def _unserved(claim: ResourceClaim, result: AllocationResult) -> Iterator[str]:
    """Each request has the right number of devices, all of one alternative, in the order of the requests."""
    names = [device.request for device in result.devices.results]
    order = [request.name for request in claim.spec.devices.requests]
    if [order.index(name.partition("/")[0]) for name in names] != sorted(
        order.index(name.partition("/")[0]) for name in names
    ):
        yield f"results out of order: {names}"
    for request in claim.spec.devices.requests:
        counts = PartialAssignment(name for name in names if name.partition("/")[0] == request.name)
        wanted: list[tuple[str, RequestSpec]] = [
            (f"{request.name}/{each.name}", each) for each in request.first_available
        ]
        if request.exactly is not None:
            wanted = [(request.name, request.exactly)]
        fitting = [name for name, ask in wanted if ask.allocation_mode == "All" or counts[name] == (ask.count or 1)]
        if len(counts) != 1 or not set(counts) & set(fitting):
            yield f"{request.name} got {dict(counts)}"


def _violated(claim: ResourceClaim, result: AllocationResult, devices: Mapping[DeviceId, Device]) -> Iterator[str]:
    for constraint in claim.spec.devices.constraints:
        values: list[set[tuple[str, object]] | None] = []
        for each in result.devices.results:
            if not constraint.requests or {each.request, each.request.partition("/")[0]} & set(constraint.requests):
                name = constraint.match_attribute or constraint.distinct_attribute or ""
                values.append(attribute_values(each.id.driver, devices[each.id], name))
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            yield f"{constraint}: a device lacks the attribute"
        elif constraint.match_attribute and known and not set.intersection(*known):
            yield f"{constraint}: nothing in common: {known}"
        elif constraint.distinct_attribute and sum(map(len, known)) != len(set().union(*known)):
            yield f"{constraint}: something in common: {known}"


def attribute_values(driver: str, device: Device, name: str) -> set[tuple[str, object]] | None:
    """What a constraint compares, with types; None: the device lacks the attribute."""
    domain, _, short = name.partition("/")
    attribute: Attribute | None = device.attributes.get(name)
    if attribute is None and domain == driver:
        attribute = device.attributes.get(short)
    if attribute is None:
        return None
    value = attribute.value
    elements = value if isinstance(value, tuple) else (value,)
    kind = "version" if attribute.version or attribute.versions else type(elements[0]).__name__
    return {(kind, element) for element in elements}


def _oversold(
    given: Sequence[DeviceRequestAllocationResult], devices: Mapping[DeviceId, Device], allocated: AllocatedState
) -> Iterator[str]:
    """No exclusive device has two users, no shared one gives more than it has, every share has an identity."""
    exclusive = PartialAssignment(each.id for each in given if each.share_id is None and not each.admin_access)
    yield from (f"{id_} is given {times} times" for id_, times in exclusive.items() if times > 1)
    yield from (f"{id_} is in use" for id_ in exclusive if id_ in allocated.exclusive or id_ in allocated.consumed)
    shares = [each.share for each in given if each.share_id is not None]
    if len(set(shares)) < len(shares) or set(shares) & allocated.shares:
        yield f"shares are not unique: {shares}"
    for id_ in {each.id for each in given if each.share_id is not None}:
        if not devices[id_].allow_multiple_allocations:
            yield f"{id_} cannot be shared"
        for name, capacity in devices[id_].capacity.items():
            taken = sum(each.consumed_capacity[name].nano for each in given if each.id == id_)
            before = allocated.consumed.get(id_, {}).get(name)
            if taken + (before.nano if before else 0) > capacity.value.nano:
                yield f"{id_} gives more {name} than it has"


def _overdrawn(
    slices: Sequence[ResourceSlice],
    given: Sequence[DeviceRequestAllocationResult],
    devices: Mapping[DeviceId, Device],
    allocated: AllocatedState,
) -> Iterator[str]:
    """No counter of a pool that was drawn from gives more than it has; a shared device takes from it once."""
    left: dict[tuple[str, str, str, str], int] = {
        (each.spec.driver, each.spec.pool.name, set_.name, name): counter.value.nano
        for each in slices
        for set_ in each.spec.shared_counters
        for name, counter in set_.counters.items()
    }
    taking = {each.id for each in given} | allocated.exclusive | allocated.consumed.keys()
    groups: dict[tuple[str, str, str], list[set[str]]] = defaultdict(list)
    for id_ in taking & devices.keys():
        for use in devices[id_].consumes_counters:
            groups[id_.driver, id_.pool, use.counter_set].append(set(use.compatibility_groups))
            for name, counter in use.counters.items():
                left[id_.driver, id_.pool, use.counter_set, name] -= counter.value.nano
    drawn = {each.id[:2] for each in given if devices[each.id].consumes_counters}
    yield from (f"counter {key} is overdrawn" for key, amount in left.items() if amount < 0 and key[:2] in drawn)
    for key, sharing in groups.items():
        if any(sharing) and not set.intersection(*sharing):
            yield f"devices on {key} do not go together: {sharing}"
