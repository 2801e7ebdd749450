"""What users ask for: claims, templates, classes (``resource.k8s.io/v1``)."""

from typing import TypeAlias

from api.model.allocations import ResourceClaimStatus
from api.model.base import JsonObject, Value
from api.model.devices import DeviceToleration
from api.model.metadata import Object, ObjectMeta
from api.model.quantity import Quantity

AllocationMode: TypeAlias = str
"""``ExactCount`` or ``All``; a later Kubernetes may know more, which only who allocates must refuse."""


class CelSelector(Value):
    """A CEL expression over ``device``; it must be a boolean."""

    expression: str


class DeviceSelector(Value):
    """Exactly one way to select devices; today that is CEL."""

    cel: CelSelector | None = None


class CapacityRequirements(Value):
    """How much of each capacity a request wants (KEP-5075; for exclusive devices: at least)."""

    requests: dict[str, Quantity] = {}


class DerivedAttribute(Value):
    """An attribute computed by CEL, usable in constraints only (KEP-6080, alpha in 1.37)."""

    name: str
    expression: str


class ExactDeviceRequest(Value):
    """Devices of one class. ``count`` is meant for ExactCount only; unset means 1."""

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
    """One named request of a claim: ``exactly`` or ``first_available``, never both."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Value):
    """A rule over the devices of several requests; empty ``requests``: of all."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueDeviceConfiguration(Value):
    """Parameters for one driver, as JSON: only that driver may judge them."""

    driver: str
    parameters: JsonObject


class DeviceClassConfiguration(Value):
    """Configuration that a class gives to every device allocated by it."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaimConfiguration(Value):
    """Configuration that a claim gives to the devices of ``requests``; empty: of all."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Value):
    """The requests of a claim, the rules between them, and the drivers' parameters."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Value):
    """What is asked for. Immutable once created."""

    devices: DeviceClaim = DeviceClaim()


class ResourceClaim(Object):
    """A user's request for devices and, in its status, what it got."""

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class AllocatedClaim(Object):
    """A claim without what was asked for: who follows all claims of a cluster holds less."""

    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Value):
    """``metadata`` carries labels and annotations for the claims made from the template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Object):
    """From which the cluster makes one claim for each pod that names it."""

    spec: ResourceClaimTemplateSpec


class DeviceClassSpec(Value):
    """``extended_resource_name`` lets pods ask for the class in ``limits`` (KEP-5004)."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Object):
    """An administrator's name for a selection of devices (cluster-scoped)."""

    spec: DeviceClassSpec = DeviceClassSpec()
