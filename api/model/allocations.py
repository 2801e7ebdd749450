"""What claims got: allocation results and what the driver says of them (``ResourceClaim.status``)."""

from typing import Literal, TypeAlias

import msgspec

from api.model.base import JsonObject, Value
from api.model.devices import DeviceToleration
from api.model.metadata import Condition, NodeSelector
from api.model.names import DeviceId, RequestName, ShareId
from api.model.quantity import Quantity

ConfigSource: TypeAlias = Literal["FromClass", "FromClaim"]


class DeviceRequestAllocationResult(Value):
    """One allocated device. ``request`` may be ``request/subrequest``."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] = {}
    skip_node_operations: tuple[str, ...] = ()

    @property
    def id(self) -> DeviceId:
        return DeviceId(self.driver, self.pool, self.device)

    @property
    def share(self) -> ShareId:
        return ShareId(self.id, self.share_id)

    @property
    def request_name(self) -> RequestName:
        return RequestName.parse(self.request)


class OpaqueAllocationConfiguration(Value):
    """Parameters for one driver, as JSON."""

    driver: str
    parameters: JsonObject


class DeviceAllocationConfiguration(Value):
    """A config entry of class or claim that applies to ``requests``; empty: to all. Class entries come first."""

    source: ConfigSource
    requests: tuple[str, ...] = ()
    opaque: OpaqueAllocationConfiguration | None = None


class DeviceAllocationResult(Value):
    """The devices, in the order of the requests, and the configuration that applies to them."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Value):
    """The devices of a claim, and on which nodes they can be used (None: on all)."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(Value):
    """Who may use a claim: a pod, or a PodGroup (KEP-5729)."""

    api_group: str = ""
    resource: str
    name: str
    uid: str


class NetworkDeviceData(Value):
    """What a network driver reports; Kerf carries it and sets none."""

    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(Value):
    """What the driver reports of one allocated device (KEP-4817)."""

    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Condition, ...] = ()
    data: JsonObject | None = None
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(Value):
    """What the claim got, who uses it, and what drivers report. An allocation is never changed, only cleared."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()
