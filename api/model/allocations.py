"""The status of claims: allocation results, and what drivers report (``ResourceClaim.status``)."""

from typing import Literal, TypeAlias

import msgspec

from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.devices import DeviceToleration
from kerf_dra.api.model.json_limits import check_levels
from kerf_dra.api.model.metadata import Condition, NodeSelector
from kerf_dra.api.model.names import DeviceId, RequestName, ShareId
from kerf_dra.api.model.quantity import Quantity

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

    def __post_init__(self) -> None:
        check_levels(self.parameters)


class DeviceAllocationConfiguration(Value):
    """A configuration entry of a class or claim for ``requests``; empty: for all. Entries of classes come first."""

    source: ConfigSource
    requests: tuple[str, ...] = ()
    opaque: OpaqueAllocationConfiguration | None = None


class DeviceAllocationResult(Value):
    """The allocated devices, in the order of the requests, and their configuration."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Value):
    """The allocated devices of a claim, and the nodes on which they can be used (None: all)."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(Value):
    """A consumer of a claim: a pod, or a PodGroup (KEP-5729)."""

    api_group: str = ""
    resource: str
    name: str
    uid: str


class NetworkDeviceData(Value):
    """The report of a network driver; Kerf keeps it unchanged and writes none."""

    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(Value):
    """The driver's report about one allocated device (KEP-4817)."""

    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Condition, ...] = ()
    data: JsonObject | None = None
    network_data: NetworkDeviceData | None = None

    def __post_init__(self) -> None:
        check_levels(self.data)


class ResourceClaimStatus(Value):
    """A claim's allocation, consumers and device reports. An allocation is never changed, only cleared."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()
