"""``resource.k8s.io/v1alpha3`` of Kubernetes 1.31: ``spec.controller`` says which driver allocates a claim.

Source: ``k8s.io/api/resource/v1alpha3`` types.go (gate DRAControlPlaneController). Kubernetes 1.32 and later serve the
version with other content, without controllers: it counts only where PodSchedulingContext is served, too.

The number of pods that may use a claim is an entry of the allocation's configuration that only
``deploy/classic/sharing-policy.yaml`` reads; no other module of Kerf sees it.
"""

from collections.abc import Iterator
from typing import Final

from kerf_dra.api.model.allocations import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    OpaqueAllocationConfiguration,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.claims import (
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceClassConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.classic import (
    MAX_CONSUMERS,
    ClassicAllocation,
    ClassicClaim,
    ClassicClaimSpec,
    ClassicClaimStatus,
    ClassicClass,
    ClassicRequest,
    ClassicTemplate,
    ClassicTemplateSpec,
)
from kerf_dra.api.model.metadata import NodeSelector, Object, ObjectMeta
from kerf_dra.api.resource.classic import build_kinds
from kerf_dra.api.resource.resource_handle import API_VERSION
from kerf_dra.api.wire import to_builtins

VERSION: Final = "v1alpha3"
_SHARING: Final = "ClaimSharing"
"""The kind of the opaque parameters with the number of pods that may use the claim."""


class WireRequest(Value):
    """One request: a class, and fields that only the scheduler's own allocator supports."""

    name: str
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool = False


class WireDeviceClaim(Value):
    """``spec.devices``."""

    requests: tuple[WireRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class WireClaimSpec(Value):
    """A claim's ``spec``; without a controller the claim is the scheduler's."""

    devices: WireDeviceClaim = WireDeviceClaim()
    controller: str = ""


class WireAllocation(Value):
    """``status.allocation``; with a controller the allocation is that driver's."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    controller: str = ""


class WireClaimStatus(Value):
    """A claim's ``status``."""

    allocation: WireAllocation | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    deallocation_requested: bool = False


class WireClaim(Object):
    """ResourceClaim in the form of v1alpha3 of 1.31."""

    spec: WireClaimSpec = WireClaimSpec()
    status: WireClaimStatus = WireClaimStatus()


class WireTemplateSpec(Value):
    """A template's ``spec``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WireClaimSpec = WireClaimSpec()


class WireTemplate(Object):
    """ResourceClaimTemplate in the form of v1alpha3."""

    spec: WireTemplateSpec


class WireClassSpec(Value):
    """A class's ``spec``."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    suitable_nodes: NodeSelector | None = None


class WireClass(Object):
    """DeviceClass in the form of v1alpha3 of 1.31."""

    spec: WireClassSpec = WireClassSpec()


def _unsupported(request: WireRequest, claim: WireDeviceClaim) -> Iterator[str]:
    if request.selectors:
        yield "selectors"
    if request.allocation_mode not in {"", "ExactCount"}:
        yield f"allocationMode: {request.allocation_mode}"
    if request.admin_access:
        yield "adminAccess"
    if any(not constraint.requests or request.name in constraint.requests for constraint in claim.constraints):
        yield "constraints"


def _spec_to_model(wire: WireClaimSpec) -> ClassicClaimSpec:
    def parameters(request: str) -> tuple[JsonObject, ...]:
        entries = [entry for entry in wire.devices.config if not entry.requests or request in entry.requests]
        return tuple(
            entry.opaque.parameters
            for entry in entries
            if entry.opaque is not None and entry.opaque.driver == wire.controller
        )

    requests = tuple(
        ClassicRequest(
            name=request.name,
            class_name=request.device_class_name,
            parameters=parameters(request.name),
            count=request.count or 1,
            unsupported=tuple(_unsupported(request, wire.devices)),
        )
        for request in wire.devices.requests
    )
    return ClassicClaimSpec(requests=requests, controller=wire.controller or None)


def _spec_from_model(model: ClassicClaimSpec) -> WireClaimSpec:
    requests, config = [], []
    for request in model.requests:
        requests.append(
            WireRequest(
                name=request.name,
                device_class_name=request.class_name,
                allocation_mode="ExactCount",
                count=request.count,
            )
        )
        for parameters in request.parameters:
            opaque = OpaqueDeviceConfiguration(driver=model.controller or "", parameters=parameters)
            config.append(DeviceClaimConfiguration(requests=(request.name,), opaque=opaque))
    devices = WireDeviceClaim(requests=tuple(requests), config=tuple(config))
    return WireClaimSpec(devices=devices, controller=model.controller or "")


def _parameters(entry: DeviceAllocationConfiguration) -> JsonObject:
    return entry.opaque.parameters if entry.opaque else {}


def _is_sharing(entry: DeviceAllocationConfiguration) -> bool:
    return _parameters(entry).get("kind") == _SHARING


def _sharing(driver: str, max_pods: int) -> DeviceAllocationConfiguration:
    parameters: JsonObject = {"apiVersion": API_VERSION, "kind": _SHARING, "maxPods": max_pods}
    opaque = OpaqueAllocationConfiguration(driver=driver, parameters=parameters)
    return DeviceAllocationConfiguration(source="FromClass", opaque=opaque)


def _devices(wire: WireAllocation) -> DeviceAllocationResult:
    """The devices with the configuration that is for them."""
    config = tuple(entry for entry in wire.devices.config if not _is_sharing(entry))
    return DeviceAllocationResult(results=wire.devices.results, config=config)


def _max_pods(wire: WireAllocation) -> int:
    """The number of pods that may use the claim: the API's limit, unless Kerf has written another number."""
    numbers = (_parameters(entry).get("maxPods") for entry in wire.devices.config if _is_sharing(entry))
    return min((number for number in numbers if isinstance(number, int)), default=MAX_CONSUMERS)


def _claim_to_model(wire: WireClaim) -> ClassicClaim:
    found, allocation = wire.status.allocation, None
    if found is not None:
        allocation = ClassicAllocation(
            devices=_devices(found),
            node_selector=found.node_selector,
            max_pods=_max_pods(found),
            drivers=tuple(dict.fromkeys(result.driver for result in found.devices.results)),
        )
    status = ClassicClaimStatus(
        driver_name=found.controller if found else "",
        allocation=allocation,
        reserved_for=wire.status.reserved_for,
        deallocation_requested=wire.status.deallocation_requested,
    )
    return ClassicClaim(metadata=wire.metadata, spec=_spec_to_model(wire.spec), status=status)


def _claim_from_model(model: ClassicClaim) -> WireClaim:
    found = model.status.allocation
    status = WireClaimStatus(
        allocation=None if found is None else _allocation_from_model(found, model.status.driver_name),
        reserved_for=model.status.reserved_for,
        deallocation_requested=model.status.deallocation_requested,
    )
    return WireClaim(metadata=model.metadata, spec=_spec_from_model(model.spec), status=status)


def _allocation_from_model(model: ClassicAllocation, driver: str) -> WireAllocation:
    config = (*model.devices.config, _sharing(driver, model.max_pods))
    devices = DeviceAllocationResult(results=model.devices.results, config=config)
    return WireAllocation(devices=devices, node_selector=model.node_selector, controller=driver)


def _template_to_model(wire: WireTemplate) -> ClassicTemplate:
    spec = ClassicTemplateSpec(metadata=wire.spec.metadata, spec=_spec_to_model(wire.spec.spec))
    return ClassicTemplate(metadata=wire.metadata, spec=spec)


def _template_from_model(model: ClassicTemplate) -> WireTemplate:
    spec = WireTemplateSpec(metadata=model.spec.metadata, spec=_spec_from_model(model.spec.spec))
    return WireTemplate(metadata=model.metadata, spec=spec)


def _class_to_model(wire: WireClass) -> ClassicClass:
    opaque = (entry.opaque for entry in wire.spec.config if entry.opaque is not None)
    return ClassicClass(
        metadata=wire.metadata,
        parameters={entry.driver: entry.parameters for entry in opaque},
        suitable_nodes=wire.spec.suitable_nodes,
    )


def _class_from_model(model: ClassicClass) -> WireClass:
    config = tuple(
        DeviceClassConfiguration(opaque=OpaqueDeviceConfiguration(driver=driver, parameters=parameters))
        for driver, parameters in model.parameters.items()
    )
    spec = WireClassSpec(config=config, suitable_nodes=model.suitable_nodes)
    return WireClass(metadata=model.metadata, spec=spec)


def _resource_claim_to_model(wire: WireClaim) -> ResourceClaim:
    found = wire.status.allocation
    status = ResourceClaimStatus(
        allocation=None
        if found is None
        else AllocationResult(devices=_devices(found), node_selector=found.node_selector),
        reserved_for=wire.status.reserved_for,
    )
    requests = tuple(DeviceRequest(name=request.name) for request in wire.spec.devices.requests)
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=requests))
    return ResourceClaim(metadata=wire.metadata, spec=spec, status=status)


def _allocated(allocation: ClassicAllocation, driver: str) -> JsonObject:
    fields: JsonObject = to_builtins(WireClaimStatus(allocation=_allocation_from_model(allocation, driver)))
    return fields


KINDS: Final = build_kinds(
    VERSION,
    claims=(WireClaim, _claim_to_model, _claim_from_model),
    templates=(WireTemplate, _template_to_model, _template_from_model),
    classes=(WireClass, _class_to_model, _class_from_model),
    class_kind="DeviceClass",
    to_resource_claim=_resource_claim_to_model,
    allocated=_allocated,
    released={"allocation": None, "deallocationRequested": None},
)
