"""``resource.k8s.io/v1alpha2``, Kubernetes 1.27 to 1.30: claims of one class, allocated by the class's driver.

Source: ``k8s.io/api/resource/v1alpha2`` types.go. The devices are recorded in ``resourceHandles[].data``
(``kerf_dra.api.resource.resource_handle``). The structured kinds of 1.30 are the scheduler's; Kerf ignores them.
"""

from typing import Final, Literal

from kerf_dra.api.model.allocations import (
    AllocationResult,
    DeviceAllocationResult,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.claims import DeviceClaim, DeviceRequest, ResourceClaim, ResourceClaimSpec
from kerf_dra.api.model.classic import (
    MAX_CONSUMERS,
    ONLY_REQUEST,
    ClassicAllocation,
    ClassicClaim,
    ClassicClaimSpec,
    ClassicClaimStatus,
    ClassicClass,
    ClassicRequest,
    ClassicTemplate,
    ClassicTemplateSpec,
    ParametersReference,
)
from kerf_dra.api.model.metadata import NodeSelector, Object, ObjectMeta
from kerf_dra.api.resource.classic import build_kinds
from kerf_dra.api.resource.resource_handle import UnreadableHandleError, decode_handle, encode_handle
from kerf_dra.api.wire import to_builtins

VERSION: Final = "v1alpha2"
_ONE_REQUEST: Final = ResourceClaimSpec(devices=DeviceClaim(requests=(DeviceRequest(name=ONLY_REQUEST),)))
"""The spec of a claim, as far as its allocation names it."""


class WireClaimSpec(Value):
    """A claim's ``spec``: one class, one reference to parameters."""

    resource_class_name: str
    parameters_ref: ParametersReference | None = None
    allocation_mode: Literal["WaitForFirstConsumer", "Immediate"] = "WaitForFirstConsumer"


class WireHandle(Value):
    """The data for one driver's node plugin; ``structuredData`` instead of ``data`` is the scheduler's (1.30)."""

    driver_name: str = ""
    data: str = ""
    structured_data: JsonObject | None = None


class WireAllocation(Value):
    """``status.allocation``; without a handle the kubelet calls ``status.driverName``."""

    resource_handles: tuple[WireHandle, ...] = ()
    available_on_nodes: NodeSelector | None = None
    shareable: bool = False


class WireClaimStatus(Value):
    """A claim's ``status``."""

    driver_name: str = ""
    allocation: WireAllocation | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    deallocation_requested: bool = False


class WireClaim(Object):
    """ResourceClaim in the form of v1alpha2."""

    spec: WireClaimSpec
    status: WireClaimStatus = WireClaimStatus()


class WireTemplateSpec(Value):
    """A template's ``spec``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WireClaimSpec


class WireTemplate(Object):
    """ResourceClaimTemplate in the form of v1alpha2."""

    spec: WireTemplateSpec


class WireClass(Object):
    """ResourceClass, whose fields are at the top, without a ``spec``."""

    driver_name: str
    parameters_ref: ParametersReference | None = None
    suitable_nodes: NodeSelector | None = None
    structured_parameters: bool | None = None


def _spec_to_model(wire: WireClaimSpec) -> ClassicClaimSpec:
    request = ClassicRequest(class_name=wire.resource_class_name, parameters_ref=wire.parameters_ref)
    return ClassicClaimSpec(requests=(request,), immediate=wire.allocation_mode == "Immediate")


def _spec_from_model(model: ClassicClaimSpec) -> WireClaimSpec:
    (request,) = model.requests
    return WireClaimSpec(
        resource_class_name=request.class_name,
        parameters_ref=request.parameters_ref,
        allocation_mode="Immediate" if model.immediate else "WaitForFirstConsumer",
    )


def _allocation_to_model(wire: WireAllocation, driver_name: str) -> ClassicAllocation:
    """Convert an allocation; ``unreadable`` gets the reason for each handle that cannot be read."""
    devices, unreadable, limits = DeviceAllocationResult(), {}, [MAX_CONSUMERS if wire.shareable else 1]
    handles = [handle for handle in wire.resource_handles if handle.structured_data is None]
    for handle in handles:
        try:
            found = decode_handle(handle.driver_name, handle.data)
        except UnreadableHandleError as error:
            unreadable[handle.driver_name] = str(error)
        else:
            devices = DeviceAllocationResult(
                results=devices.results + found.devices.results, config=devices.config + found.devices.config
            )
            limits += () if found.max_pods is None else (found.max_pods,)
    if not wire.resource_handles:
        unreadable[driver_name] = "there is none"
    return ClassicAllocation(
        devices=devices,
        node_selector=wire.available_on_nodes,
        max_pods=min(limits),
        drivers=tuple(handle.driver_name for handle in handles) if wire.resource_handles else (driver_name,),
        unreadable=unreadable,
    )


def _allocation_from_model(model: ClassicAllocation) -> WireAllocation:
    handles = []
    for driver in model.drivers:
        results = tuple(result for result in model.devices.results if result.driver == driver)
        config = tuple(entry for entry in model.devices.config if entry.opaque and entry.opaque.driver == driver)
        data = encode_handle(DeviceAllocationResult(results=results, config=config), model.max_pods)
        handles.append(WireHandle(driver_name=driver, data=data))
    return WireAllocation(
        resource_handles=tuple(handles), available_on_nodes=model.node_selector, shareable=model.shareable
    )


def _claim_to_model(wire: WireClaim) -> ClassicClaim:
    allocation = wire.status.allocation
    status = ClassicClaimStatus(
        driver_name=wire.status.driver_name,
        allocation=None if allocation is None else _allocation_to_model(allocation, wire.status.driver_name),
        reserved_for=wire.status.reserved_for,
        deallocation_requested=wire.status.deallocation_requested,
    )
    return ClassicClaim(metadata=wire.metadata, spec=_spec_to_model(wire.spec), status=status)


def _claim_from_model(model: ClassicClaim) -> WireClaim:
    allocation = model.status.allocation
    status = WireClaimStatus(
        driver_name=model.status.driver_name,
        allocation=None if allocation is None else _allocation_from_model(allocation),
        reserved_for=model.status.reserved_for,
        deallocation_requested=model.status.deallocation_requested,
    )
    return WireClaim(metadata=model.metadata, spec=_spec_from_model(model.spec), status=status)


def _template_to_model(wire: WireTemplate) -> ClassicTemplate:
    spec = ClassicTemplateSpec(metadata=wire.spec.metadata, spec=_spec_to_model(wire.spec.spec))
    return ClassicTemplate(metadata=wire.metadata, spec=spec)


def _template_from_model(model: ClassicTemplate) -> WireTemplate:
    spec = WireTemplateSpec(metadata=model.spec.metadata, spec=_spec_from_model(model.spec.spec))
    return WireTemplate(metadata=model.metadata, spec=spec)


def _class_to_model(wire: WireClass) -> ClassicClass:
    return ClassicClass(
        metadata=wire.metadata,
        driver_name=wire.driver_name,
        parameters_ref=wire.parameters_ref,
        suitable_nodes=wire.suitable_nodes,
        structured=wire.structured_parameters or False,
    )


def _class_from_model(model: ClassicClass) -> WireClass:
    return WireClass(
        metadata=model.metadata,
        driver_name=model.driver_name,
        parameters_ref=model.parameters_ref,
        suitable_nodes=model.suitable_nodes,
        structured_parameters=model.structured or None,
    )


def _resource_claim_to_model(wire: WireClaim) -> ResourceClaim:
    """Convert a claim with its devices. Raises UnreadableHandleError when no handle can be read."""
    found = wire.status.allocation
    if found is None:
        status = ResourceClaimStatus(reserved_for=wire.status.reserved_for)
        return ResourceClaim(metadata=wire.metadata, spec=_ONE_REQUEST, status=status)
    allocation = _allocation_to_model(found, wire.status.driver_name)
    if allocation.unreadable and not allocation.devices.results:
        reasons = (f"resource handle of {driver}: {reason}" for driver, reason in allocation.unreadable.items())
        raise UnreadableHandleError("; ".join(reasons))
    status = ResourceClaimStatus(
        allocation=AllocationResult(devices=allocation.devices, node_selector=allocation.node_selector),
        reserved_for=wire.status.reserved_for,
    )
    return ResourceClaim(metadata=wire.metadata, spec=_ONE_REQUEST, status=status)


def _allocated(allocation: ClassicAllocation, driver: str) -> JsonObject:
    status = WireClaimStatus(driver_name=driver, allocation=_allocation_from_model(allocation))
    fields: JsonObject = to_builtins(status)
    return fields


KINDS: Final = build_kinds(
    VERSION,
    claims=(WireClaim, _claim_to_model, _claim_from_model),
    templates=(WireTemplate, _template_to_model, _template_from_model),
    classes=(WireClass, _class_to_model, _class_from_model),
    class_kind="ResourceClass",
    to_resource_claim=_resource_claim_to_model,
    allocated=_allocated,
    released={"allocation": None, "driverName": None, "deallocationRequested": None},
)
