"""Which optional parts of DRA a cluster has switched on, as far as its version and its objects tell.

Nothing tells the feature gates of a scheduler. But an API server drops the fields of a feature that is off, so what an
object has is on; what no object has is taken to be as it is by default in that version (Kubernetes'
``pkg/features/kube_features.go``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from api.model.claims import DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from api.model.devices import Device, ResourceSlice
from driver.allocation import Features
from driver.diagnostics.cluster_state import ClusterState

_Ask: TypeAlias = ExactDeviceRequest | DeviceSubRequest


def _no_slice(_: ResourceSlice) -> bool:
    return False


def _no_request(_: _Ask) -> bool:
    return False


def _some(uses: Callable[[Device], object]) -> Callable[[ResourceSlice], bool]:
    return lambda slice_: any(uses(device) for device in slice_.spec.devices)


class _Gate(NamedTuple):
    """A feature gate, and how its feature shows in objects."""

    name: str
    since: int | None
    """The minor version from which it is on by default; None: not yet."""
    in_slice: Callable[[ResourceSlice], object] = _no_slice
    in_request: Callable[[_Ask], object] = _no_request
    what: str = ""
    """What a request has of it, for people."""


_GATES: Final[Mapping[str, _Gate]] = {
    "admin_access": _Gate(
        "DRAAdminAccess",
        34,
        in_request=lambda ask: isinstance(ask, ExactDeviceRequest) and ask.admin_access,
        what="admin access",
    ),
    "prioritized_list": _Gate(
        "DRAPrioritizedList", 34, in_request=lambda ask: isinstance(ask, DeviceSubRequest), what="alternatives"
    ),
    "partitionable_devices": _Gate("DRAPartitionableDevices", 36, _some(lambda device: device.consumes_counters)),
    "device_taints": _Gate(
        "DRADeviceTaints", 36, _some(lambda device: device.taints), lambda ask: ask.tolerations, "tolerations"
    ),
    "device_binding_and_status": _Gate(
        "DRADeviceBindingConditions", 36, _some(lambda device: device.binding_conditions)
    ),
    "consumable_capacity": _Gate(
        "DRAConsumableCapacity",
        36,
        _some(lambda device: device.allow_multiple_allocations is not None),
        lambda ask: ask.capacity,
        "capacity requests",
    ),
    "fractional_capacity_range": _Gate("DRAFractionalCapacityRange", 37),
    "list_type_attributes": _Gate(
        "DRAListTypeAttributes",
        None,
        _some(lambda device: any(isinstance(each.value, tuple) for each in device.attributes.values())),
    ),
    "derived_attributes": _Gate(
        "DRADerivedAttributes", None, in_request=lambda ask: ask.derived_attributes, what="derived attributes"
    ),
    "compatibility_groups": _Gate(
        "DRADeviceCompatibilityGroups",
        None,
        _some(lambda device: any(use.compatibility_groups for use in device.consumes_counters)),
    ),
    "optional_node_operations": _Gate(
        "DRAOptionalNodeOperations", None, lambda slice_: slice_.spec.skip_node_operations
    ),
}
"""By the fields of ``Features``."""


def features_of(state: ClusterState) -> Features:
    """What is on in the cluster; where its version is not known, as in the newest."""
    minor = _minor(state)
    return Features(**{field: _is_on(gate, minor, state) for field, gate in _GATES.items()})


def unheeded(claims: Iterable[ResourceClaim], features: Features) -> tuple[str, ...]:
    """What ``claims`` have that a cluster with ``features`` does not heed, with the feature gate that it takes."""
    asks = list(_asks(claims))
    return tuple(
        f"{gate.what} ({gate.name})"
        for field, gate in _GATES.items()
        if not getattr(features, field) and any(gate.in_request(ask) for ask in asks)
    )


def _minor(state: ClusterState) -> float:
    minor = state.kubernetes.partition(".")[2]
    return int(minor) if minor.isdecimal() else float("inf")


def _is_on(gate: _Gate, minor: float, state: ClusterState) -> bool:
    if gate.since is not None and minor >= gate.since:
        return True
    return any(map(gate.in_slice, state.slices)) or any(map(gate.in_request, _asks(state.claims)))


def _asks(claims: Iterable[ResourceClaim]) -> Iterator[_Ask]:
    for request in chain.from_iterable(claim.spec.devices.requests for claim in claims):
        yield from request.first_available
        if request.exactly is not None:
            yield request.exactly
