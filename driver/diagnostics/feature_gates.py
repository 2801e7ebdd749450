"""The DRA feature gates of a cluster, inferred from its version and its objects.

No API reports the feature gates of a scheduler. But an API server drops the fields of a disabled feature, so a feature
whose fields some object has is enabled; every other feature is assumed to have the default of the cluster's version
(Kubernetes' ``pkg/features/kube_features.go``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from kerf_dra.api.model.claims import DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from kerf_dra.api.model.devices import Device, ResourceSliceSpec
from kerf_dra.driver.allocation import Features
from kerf_dra.driver.allocation.pools.interned_slices import InternedSlices
from kerf_dra.driver.diagnostics.cluster_state import ClusterState

_RequestSpec: TypeAlias = ExactDeviceRequest | DeviceSubRequest
_InSlice: TypeAlias = Callable[[ResourceSliceSpec], object]


def _any_device(uses: Callable[[Device], object]) -> _InSlice:
    return lambda spec: any(uses(device) for device in spec.devices)


class _Gate(NamedTuple):
    """A feature gate, and the use of its feature in objects."""

    name: str
    since: int | None
    """The minor version from which it is enabled by default; None when it is in none."""
    in_slice: _InSlice = lambda _: False
    """Whether a slice uses the feature."""
    in_request: Callable[[_RequestSpec], object] = lambda _: False
    """Whether a request uses the feature."""
    description: str = ""
    """The part of a request that needs the feature, for messages."""


_GATES: Final[Mapping[str, _Gate]] = {
    "admin_access": _Gate(
        "DRAAdminAccess",
        34,
        in_request=lambda spec: isinstance(spec, ExactDeviceRequest) and spec.admin_access,
        description="admin access",
    ),
    "prioritized_list": _Gate(
        "DRAPrioritizedList", 34, in_request=lambda spec: isinstance(spec, DeviceSubRequest), description="alternatives"
    ),
    "partitionable_devices": _Gate("DRAPartitionableDevices", 36, _any_device(lambda device: device.consumes_counters)),
    "device_taints": _Gate(
        "DRADeviceTaints", 36, _any_device(lambda device: device.taints), lambda spec: spec.tolerations, "tolerations"
    ),
    "device_binding_and_status": _Gate(
        "DRADeviceBindingConditions", 36, _any_device(lambda device: device.binding_conditions)
    ),
    "consumable_capacity": _Gate(
        "DRAConsumableCapacity",
        36,
        _any_device(lambda device: device.allow_multiple_allocations is not None),
        lambda spec: spec.capacity,
        "capacity requests",
    ),
    "fractional_capacity_range": _Gate("DRAFractionalCapacityRange", 37),
    "list_type_attributes": _Gate(
        "DRAListTypeAttributes",
        None,
        _any_device(lambda device: any(isinstance(each.value, tuple) for each in device.attributes.values())),
    ),
    "derived_attributes": _Gate(
        "DRADerivedAttributes", None, in_request=lambda spec: spec.derived_attributes, description="derived attributes"
    ),
    "compatibility_groups": _Gate(
        "DRADeviceCompatibilityGroups",
        None,
        _any_device(lambda device: any(use.compatibility_groups for use in device.consumes_counters)),
    ),
    "optional_node_operations": _Gate("DRAOptionalNodeOperations", None, lambda spec: spec.skip_node_operations),
}
"""The gates by the field of ``Features``."""


def detect_features(state: ClusterState) -> Features:
    """Return the features that are enabled in the cluster; an unknown version counts as the newest."""
    minor = _minor_version(state)
    specs = InternedSlices.of(state.slices).contents
    return Features(**{field: _is_on(gate, minor, specs, state.claims) for field, gate in _GATES.items()})


def find_unsupported(claims: Iterable[ResourceClaim], features: Features) -> tuple[str, ...]:
    """Return what ``claims`` use that is not in ``features``, each with its feature gate."""
    specs = list(_request_specs(claims))
    return tuple(
        f"{gate.description} ({gate.name})"
        for field, gate in _GATES.items()
        if not getattr(features, field) and any(gate.in_request(spec) for spec in specs)
    )


def _minor_version(state: ClusterState) -> float:
    minor = state.kubernetes.partition(".")[2]
    return int(minor) if minor.isdecimal() else float("inf")


def _is_on(gate: _Gate, minor: float, published: Iterable[ResourceSliceSpec], claims: Iterable[ResourceClaim]) -> bool:
    if gate.since is not None and minor >= gate.since:
        return True
    return any(map(gate.in_slice, published)) or any(map(gate.in_request, _request_specs(claims)))


def _request_specs(claims: Iterable[ResourceClaim]) -> Iterator[_RequestSpec]:
    for request in chain.from_iterable(claim.spec.devices.requests for claim in claims):
        yield from request.first_available
        if request.exactly is not None:
            yield request.exactly
