"""Finds what contradicts itself in the allocation of one claim. Pure.

kube-scheduler and Kerf's classic controller write none of this. What was checked is that

- results and configuration name requests of the claim, and admin access is that of the request (KEP-4381, KEP-5018);
- each result is a device, or a share of one, of its own;
- what the results hold can exist at once: partitions of a card that exclude each other consume counters that the card
  has but once (KEP-4815);
- share IDs and amounts are those of shares (``shares``).

Results of other drivers, and those of devices that this node does not have, are left alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from kerf_dra.api.errors import Problem
from kerf_dra.api.model.allocations import AllocationResult
from kerf_dra.api.model.claims import DeviceRequest, ResourceClaim
from kerf_dra.api.model.names import RequestName, ShareId
from kerf_dra.driver.kubeletplugin.claims.validation.shares import (
    AllocatedResult,
    ShareDemand,
    check_share,
    check_totals,
    list_demands,
)
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.partitions.unit_map import get_unit_map

_DEVICES = "status.allocation.devices"


def find_contradictions(claim: ResourceClaim, driver: str, node_devices: DeviceSet) -> Sequence[Problem]:
    """Return what the allocation of ``claim`` says of devices of ``driver`` that cannot all be true."""
    allocation = claim.status.allocation
    if allocation is None:
        return ()
    results = _find_devices(allocation, driver, node_devices)
    return (
        *_check_requests(claim, allocation, driver),
        *_check_unique(results),
        *chain.from_iterable(check_share(one) for one in results),
        *check_totals(results),
        *_check_cards(results, node_devices),
    )


def list_share_demands(claim: ResourceClaim, driver: str, node_devices: DeviceSet) -> Sequence[ShareDemand]:
    """Return what ``claim`` needs of devices of ``driver`` that other claims may share, in the order of its results."""
    allocation = claim.status.allocation
    return tuple(list_demands(_find_devices(allocation, driver, node_devices))) if allocation is not None else ()


def _find_devices(allocation: AllocationResult, driver: str, node_devices: DeviceSet) -> list[AllocatedResult]:
    return [
        AllocatedResult(f"{_DEVICES}.results[{index}]", result, device)
        for index, result in enumerate(allocation.devices.results)
        if result.driver == driver and (device := node_devices.find(result.id)) is not None
    ]


def _check_requests(claim: ResourceClaim, allocation: AllocationResult, driver: str) -> Iterator[Problem]:
    requests = {request.name: request for request in claim.spec.devices.requests}
    for index, result in enumerate(allocation.devices.results):
        if result.driver != driver:
            continue
        path = f"{_DEVICES}.results[{index}]"
        request = requests.get(result.request_name.request)
        if not _has_request(request, result.request_name):
            yield Problem(f"{path}.request", f"{result.request!r:.80} is no request of the claim")
        elif request is not None and _has_other_access(request, bool(result.admin_access)):
            said = "has" if result.admin_access else "lacks"
            yield Problem(f"{path}.adminAccess", f"the result {said} admin access, unlike request {result.request}")
    for index, entry in enumerate(allocation.devices.config):
        for place, name in enumerate(entry.requests if entry.opaque and entry.opaque.driver == driver else ()):
            parsed = RequestName.parse(name)
            if not _has_request(requests.get(parsed.request), parsed):
                path = f"{_DEVICES}.config[{index}].requests[{place}]"
                yield Problem(path, f"{name!r:.80} is no request of the claim")


def _has_request(request: DeviceRequest | None, name: RequestName) -> bool:
    """Whether ``name`` is ``request``, or one of its alternatives; those of a form that is not known may be any."""
    if request is None or name.subrequest is None:
        return request is not None
    is_known = request.exactly is not None or bool(request.first_available)
    return not is_known or any(one.name == name.subrequest for one in request.first_available)


def _has_other_access(request: DeviceRequest, has_admin: bool) -> bool:
    """Whether ``request`` says otherwise than ``has_admin`` whether it has admin access; no alternative can have it."""
    if request.exactly is None:
        return has_admin and bool(request.first_available)
    return bool(request.exactly.admin_access) != has_admin


def _check_unique(results: Sequence[AllocatedResult]) -> Iterator[Problem]:
    first: dict[ShareId, str] = {}
    for one in results:
        if (path := first.setdefault(one.result.share, one.path)) != one.path:
            what = "device" if one.result.share_id is None else f"share {one.result.share_id!r:.80} of device"
            yield Problem(one.path, f"{what} {one.result.device} is that of {path}")


def _check_cards(results: Sequence[AllocatedResult], node_devices: DeviceSet) -> Iterator[Problem]:
    holding: dict[str, list[AllocatedResult]] = {}
    for one in results:
        of_card = holding.setdefault(one.device.partition.card_uuid, [])
        if one.holds_device and all(one.result.id != other.result.id for other in of_card):
            of_card.append(one)
    for card in (card for inputs in node_devices.inputs for card in inputs.cards):
        yield from _check_card(card, holding.get(card.uuid, ()))


def _check_card(card: Card, results: Sequence[AllocatedResult]) -> Iterator[Problem]:
    """Yield a problem for each device that cannot exist beside those before it."""
    unit_map = get_unit_map(card)
    free, held = unit_map.all, list[AllocatedResult]()
    for one in results:
        partition = one.device.partition
        spec = unit_map.find(replace(partition, shared=False))
        other = next((other for other in held if other.device.partition.overlaps(partition)), None)
        if other is not None:
            message = f"it excludes device {other.result.device} of {other.path}, which is on the same card"
            yield Problem(f"{one.path}.device", f"device {one.result.device} cannot be allocated: {message}")
        elif spec is not None and not unit_map.fits(spec, free):
            engines = ", ".join(name for name, _ in card.geometry.engines)
            message = f"the devices before it on card {card.uuid} leave too few of its engines ({engines})"
            yield Problem(f"{one.path}.device", f"device {one.result.device} cannot be allocated: {message}")
        elif spec is not None:
            free = unit_map.without(spec, free)
            held.append(one)
