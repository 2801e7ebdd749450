"""``resource.k8s.io/v1beta1``, Kubernetes 1.32: requests are flat, devices are wrapped in ``basic``.

Differences from the model (``k8s.io/api/resource/v1beta1`` types.go): a request has the fields of ``exactly`` itself;
``devices[].basic`` has the fields of a v1 device except ``name``; an empty ``nodeName`` and a false ``allNodes`` mean
unset. DeviceClass and the status of claims are the same.
"""

from dataclasses import replace
from typing import Any, Final

from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.base import Value
from kerf_dra.api.model.claims import (
    AllocationMode,
    CapacityRequirements,
    DerivedAttribute,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from kerf_dra.api.model.devices import (
    Attribute,
    Capacity,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    DeviceToleration,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kerf_dra.api.model.metadata import NodeSelector, Object, ObjectMeta
from kerf_dra.api.resource.kinds import GROUP, ResourceKinds, kinds_of_model_shape
from kerf_dra.api.wire import converted_kind

VERSION: Final = "v1beta1"


class FlatDeviceRequest(Value):
    """A request with the fields of ``exactly`` beside ``firstAvailable``."""

    name: str
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: AllocationMode | None = None
    count: int | None = None
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()
    first_available: tuple[DeviceSubRequest, ...] = ()


class FlatDeviceClaim(Value):
    """``spec.devices`` with flat requests."""

    requests: tuple[FlatDeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class FlatResourceClaimSpec(Value):
    """A claim's ``spec`` with flat requests."""

    devices: FlatDeviceClaim = FlatDeviceClaim()


class FlatResourceClaim(Object):
    """ResourceClaim in the form of v1beta1."""

    spec: FlatResourceClaimSpec = FlatResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class FlatResourceClaimTemplateSpec(Value):
    """A template's ``spec`` with flat requests."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FlatResourceClaimSpec = FlatResourceClaimSpec()


class FlatResourceClaimTemplate(Object):
    """ResourceClaimTemplate in the form of v1beta1."""

    spec: FlatResourceClaimTemplateSpec


class BasicDevice(Value):
    """The fields of a device that v1 has in the device itself."""

    attributes: dict[str, Attribute] = {}
    capacity: dict[str, Capacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None


class WrappedDevice(Value):
    """A named device whose content is in ``basic``."""

    name: str
    basic: BasicDevice | None = None


class WrappedResourceSliceSpec(Value):
    """A slice's ``spec`` with wrapped devices; empty ``nodeName`` and false ``allNodes`` mean unset."""

    driver: str
    pool: ResourcePool
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool | None = None
    devices: tuple[WrappedDevice, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class WrappedResourceSlice(Object):
    """ResourceSlice in the form of v1beta1."""

    spec: WrappedResourceSliceSpec


def _request_to_model(wire: FlatDeviceRequest) -> DeviceRequest:
    if wire.first_available:
        return DeviceRequest(name=wire.name, first_available=wire.first_available)
    fields = _fields(wire, ExactDeviceRequest)
    if wire.allocation_mode is None:
        del fields["allocation_mode"]  # the model's default, as in the other versions
    return DeviceRequest(name=wire.name, exactly=ExactDeviceRequest(**fields))


def _request_from_model(model: DeviceRequest) -> FlatDeviceRequest:
    if model.exactly is None:
        return FlatDeviceRequest(name=model.name, first_available=model.first_available)
    return FlatDeviceRequest(name=model.name, **_fields(model.exactly, ExactDeviceRequest))


def _fields(source: Value, type_: type[Value]) -> dict[str, Any]:
    """Return the values of ``source`` for the fields of ``type_``."""
    return {field: getattr(source, field) for field in type_.__struct_fields__}


def _spec_to_model(wire: FlatResourceClaimSpec) -> ResourceClaimSpec:
    return ResourceClaimSpec(
        devices=DeviceClaim(
            requests=tuple(map(_request_to_model, wire.devices.requests)),
            constraints=wire.devices.constraints,
            config=wire.devices.config,
        )
    )


def _spec_from_model(model: ResourceClaimSpec) -> FlatResourceClaimSpec:
    return FlatResourceClaimSpec(
        devices=FlatDeviceClaim(
            requests=tuple(map(_request_from_model, model.devices.requests)),
            constraints=model.devices.constraints,
            config=model.devices.config,
        )
    )


def _claim_to_model(wire: FlatResourceClaim) -> ResourceClaim:
    return ResourceClaim(metadata=wire.metadata, spec=_spec_to_model(wire.spec), status=wire.status)


def _claim_from_model(model: ResourceClaim) -> FlatResourceClaim:
    return FlatResourceClaim(metadata=model.metadata, spec=_spec_from_model(model.spec), status=model.status)


def _template_to_model(wire: FlatResourceClaimTemplate) -> ResourceClaimTemplate:
    spec = ResourceClaimTemplateSpec(metadata=wire.spec.metadata, spec=_spec_to_model(wire.spec.spec))
    return ResourceClaimTemplate(metadata=wire.metadata, spec=spec)


def _template_from_model(model: ResourceClaimTemplate) -> FlatResourceClaimTemplate:
    spec = FlatResourceClaimTemplateSpec(metadata=model.spec.metadata, spec=_spec_from_model(model.spec.spec))
    return FlatResourceClaimTemplate(metadata=model.metadata, spec=spec)


def _device_to_model(wire: WrappedDevice) -> Device:
    return Device(name=wire.name, **_fields(wire.basic or BasicDevice(), BasicDevice))


def _device_from_model(model: Device) -> WrappedDevice:
    return WrappedDevice(name=model.name, basic=BasicDevice(**_fields(model, BasicDevice)))


def _slice_to_model(wire: WrappedResourceSlice) -> ResourceSlice:
    spec = ResourceSliceSpec(
        driver=wire.spec.driver,
        pool=wire.spec.pool,
        node_name=wire.spec.node_name or None,
        node_selector=wire.spec.node_selector,
        all_nodes=wire.spec.all_nodes or None,
        per_device_node_selection=wire.spec.per_device_node_selection,
        devices=tuple(map(_device_to_model, wire.spec.devices)),
        shared_counters=wire.spec.shared_counters,
    )
    return ResourceSlice(metadata=wire.metadata, spec=spec)


def _slice_from_model(model: ResourceSlice) -> WrappedResourceSlice:
    spec = WrappedResourceSliceSpec(
        driver=model.spec.driver,
        pool=model.spec.pool,
        node_name=model.spec.node_name or "",
        node_selector=model.spec.node_selector,
        all_nodes=bool(model.spec.all_nodes),
        per_device_node_selection=model.spec.per_device_node_selection,
        devices=tuple(map(_device_from_model, model.spec.devices)),
        shared_counters=model.spec.shared_counters,
    )
    return WrappedResourceSlice(metadata=model.metadata, spec=spec)


KINDS: Final[ResourceKinds] = replace(
    kinds_of_model_shape(VERSION),
    resource_claims=converted_kind(
        ResourceClaim,
        FlatResourceClaim,
        _claim_to_model,
        _claim_from_model,
        group=GROUP,
        version=VERSION,
        plural="resourceclaims",
        namespaced=True,
    ),
    resource_claim_templates=converted_kind(
        ResourceClaimTemplate,
        FlatResourceClaimTemplate,
        _template_to_model,
        _template_from_model,
        group=GROUP,
        version=VERSION,
        plural="resourceclaimtemplates",
        namespaced=True,
    ),
    resource_slices=converted_kind(
        ResourceSlice,
        WrappedResourceSlice,
        _slice_to_model,
        _slice_from_model,
        group=GROUP,
        version=VERSION,
        plural="resourceslices",
        namespaced=False,
    ),
)
