"""Claims, claim templates and device classes (``resource.k8s.io/v1``)."""

from typing import Final, TypeAlias

from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.devices import DeviceToleration
from kerf_dra.api.model.json_limits import check_levels
from kerf_dra.api.model.metadata import Object, ObjectMeta
from kerf_dra.api.model.quantity import Quantity

POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""Annotation on a claim that was made from a template: the entry of the pod's ``resourceClaims`` that it is for."""

AllocationMode: TypeAlias = str
"""``ExactCount`` or ``All``; modes of later versions are decoded, too, and only the allocator rejects them."""


class CelSelector(Value):
    """A CEL expression over ``device``; it must be a boolean."""

    expression: str


class DeviceSelector(Value):
    """A selector with exactly one field set; CEL is the only kind."""

    cel: CelSelector | None = None


class CapacityRequirements(Value):
    """The requested amount of each capacity (KEP-5075); of an exclusive device it is a minimum."""

    requests: dict[str, Quantity] = {}


class DerivedAttribute(Value):
    """An attribute computed by CEL, usable in constraints only (KEP-6080, alpha in 1.37)."""

    name: str
    expression: str


class ExactDeviceRequest(Value):
    """A request for devices of one class. ``count`` is for ExactCount only; None means 1."""

    device_class_name: str
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: AllocationMode = "ExactCount"
    count: int | None = None
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class DeviceSubRequest(Value):
    """One alternative of a firstAvailable request (KEP-4816)."""

    name: str
    device_class_name: str
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: AllocationMode = "ExactCount"
    count: int | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class DeviceRequest(Value):
    """One named request of a claim, with either ``exactly`` or ``first_available``."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Value):
    """A constraint on the devices of ``requests``; empty: of all requests."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueDeviceConfiguration(Value):
    """Parameters for one driver, as JSON that only this driver interprets."""

    driver: str
    parameters: JsonObject

    def __post_init__(self) -> None:
        check_levels(self.parameters)


class DeviceClassConfiguration(Value):
    """The configuration, from a class, of every device that is allocated for it."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaimConfiguration(Value):
    """The configuration, from a claim, of the devices of ``requests``; empty: of all requests."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Value):
    """The requests of a claim, the constraints on them, and the configuration of devices."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Value):
    """The specification of a claim, immutable once created."""

    devices: DeviceClaim = DeviceClaim()


class ResourceClaim(Object):
    """A user's request for devices and, in its status, its allocation."""

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class AllocatedClaim(Object):
    """A claim without its spec, which saves memory where all claims of a cluster are cached."""

    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Value):
    """A claim's spec, with ``metadata`` of labels and annotations for the claims made from the template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Object):
    """The template from which the cluster creates one claim for each pod that names it."""

    spec: ResourceClaimTemplateSpec


class DeviceClassSpec(Value):
    """A class's specification. Pods can request ``extended_resource_name`` in ``limits`` (KEP-5004)."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Object):
    """An administrator's selection of devices under a name (cluster-scoped)."""

    spec: DeviceClassSpec = DeviceClassSpec()
