"""``kerf.dev/v1alpha1`` DiscoveryConfiguration and DiscoveredDevice: devices that nodes find by discovery.

A configuration says what to look for, and how many containers may use each device that is found (its capacity). Each
device is one object, whichever nodes see it: their kubelet plugins write it, the controller publishes it in
ResourceSlices of the driver ``shared.kerf.dev`` (docs/discovered-devices.md). Both kinds are cluster-scoped.

Names are those of Akri (``akri.sh/v0``, Configuration and Instance), so that its users' extended resources keep theirs.
"""

import hashlib
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kerf_dra.api.kerf.scalar_types import IDENTIFIER, DeviceWord, NodeName, Seconds
from kerf_dra.api.kerf.v1alpha1 import GROUP, VERSION, Strict
from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.json_limits import check_levels
from kerf_dra.api.model.metadata import Condition, Object
from kerf_dra.api.wire import Kind, identity_kind

DIGEST_BYTES: Final = 3
"""The bytes of the digest in a device's name: Akri's, so that names stay. Two ids of a configuration with the same
digest are one in 16 million; the second one is refused by its ``deviceID``."""
MAX_CONFIGURATION_NAME: Final = 56
"""The most characters of a configuration's name: names of devices in slices, DNS labels of at most 63 characters, have
it with a dash and the digest's six digits."""
CONFIGURATION_NAME: Final = f"^[a-z0-9]([-a-z0-9]{{0,{MAX_CONFIGURATION_NAME - 2}}}[a-z0-9])?$"

VariableName: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=IDENTIFIER,
        max_length=128,  # longer than the names that discovery handlers make of a device's id
        title="name of an environment variable (a C identifier; at most 128 characters)",
    ),
]
VariableValue: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[^\x00-\x1f\x7f]*$",
        max_length=1024,  # a URL with its query
        title="value of a variable (text of one line)",
    ),
]
Variables: TypeAlias = Annotated[dict[VariableName, VariableValue], msgspec.Meta(max_length=64)]
"""At most 64 variables: several times what a device needs to be reached."""
HandlerDetails: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[^\x00]*$",
        max_length=16384,  # hundreds of match rules
        title="text",
    ),
]
DeviceIdentity: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[^\x00-\x1f\x7f]+$",
        max_length=512,  # a path in sysfs, a URL
        title="id of a device (text of one line, not empty)",
    ),
]
HostPath: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        # without "." and "..": what a path names is what it says
        pattern=r"^(/([^/\x00-\x1f\x7f.][^/\x00-\x1f\x7f]*|\.[^/\x00-\x1f\x7f.][^/\x00-\x1f\x7f]*))+$",
        max_length=255,  # far longer than paths of devices
        title="absolute path such as /dev/video0, without '.' and '..'",
    ),
]
ConfigurationName: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=CONFIGURATION_NAME,
        max_length=MAX_CONFIGURATION_NAME,
        title=f"name of a DiscoveryConfiguration (a DNS label of at most {MAX_CONFIGURATION_NAME} characters)",
    ),
]
ResourceDomain: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$",
        max_length=244,  # quotas put "requests." before it, in 253
        title="domain such as akri.sh",
    ),
]
DeviceCapacity: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1000)]
"""At most 1,000 containers: ten times the pods of a node (the kubelet's ``maxPods``)."""
Permissions: TypeAlias = Literal["rwm", "rw", "r", "w", "m", "rm", "wm"]
DeviceNodeNames: TypeAlias = Annotated[
    tuple[NodeName, ...],
    msgspec.Meta(
        max_length=512,  # about as many as fit into a slice with its device
        extra_json_schema={"x-kubernetes-list-type": "set"},  # each node owns its own entry
    ),
]


class DiscoveryHandler(Strict):
    """What finds the devices on each node."""

    name: DeviceWord
    """The name of the handler: ``udev``, ``static``, ``debugEcho``, or one that has registered with the plugin."""
    details: HandlerDetails = ""
    """What to look for, in the handler's own words, such as rules of udev."""
    properties: Annotated[dict[VariableName, VariableValue], msgspec.Meta(max_length=64)] = {}
    """Further values for the handler."""


class DeviceMount(Strict):
    """A file or folder of the node, in the containers."""

    host_path: HostPath
    """The path on the node."""
    container_path: HostPath
    """The path in containers."""
    read_only: bool = False
    """Whether containers may only read it."""


class DeviceNode(Strict):
    """A device node of the node, in the containers."""

    host_path: HostPath
    """The path on the node, such as ``/dev/video0``."""
    container_path: HostPath | None = None
    """The path in containers; unset: that on the node."""
    permissions: Permissions = "rwm"
    """What containers may do: read, write, make nodes (mknod)."""


Mounts: TypeAlias = Annotated[tuple[DeviceMount, ...], msgspec.Meta(max_length=32)]
DeviceNodes: TypeAlias = Annotated[tuple[DeviceNode, ...], msgspec.Meta(max_length=32)]


class DiscoveryConfigurationSpec(Strict):
    """What to look for, and how containers may use what is found."""

    discovery_handler: DiscoveryHandler
    """What finds the devices."""
    capacity: DeviceCapacity = 1
    """The containers that may use a device at a time, on all nodes together."""
    unique_devices: bool = True
    """Whether a claim with several devices of the configuration must have them all different."""
    broker_properties: Variables = {}
    """Variables of every container that uses a device; those of the device go before."""
    mounts: Mounts = ()
    """Mounts of every container that uses a device."""
    extended_resource_domain: ResourceDomain | None = None
    """The domain of extended resources for pods without claims: ``<domain>/<configuration>`` for any device and
    ``<domain>/<configuration>-<digest>`` for one (Kubernetes 1.34, DRAExtendedResource; also 1.29 to 1.31); unset:
    none. With ``akri.sh`` they are those of Akri."""
    offline_grace_seconds: Seconds = 300
    """How long a device that no node sees any more is kept, as the same device if it comes back."""


class DiscoveredDevices(Value):
    """The number of devices of a configuration."""

    total: int
    """The number of devices that nodes have found."""
    online: int = 0
    """Of those, the number of devices that nodes see at present."""


class DiscoveryConfigurationStatus(Value):
    """The controller's report on the configuration."""

    observed_generation: int | None = None
    """The generation of the spec from which the status was computed."""
    conditions: tuple[Condition, ...] = ()
    """Accepted: the spec is valid. Ready: its DeviceClass exists."""
    device_class_name: str | None = None
    """The DeviceClass by which claims get any device of the configuration."""
    devices: DiscoveredDevices | None = None
    """The devices that nodes have found."""


class DiscoveryConfiguration(Object, forbid_unknown_fields=True):
    """Devices to look for, and how containers may use them (cluster-scoped)."""

    spec: DiscoveryConfigurationSpec
    """What to look for."""
    status: DiscoveryConfigurationStatus = DiscoveryConfigurationStatus()
    """The controller's report."""


class DiscoveredDeviceSpec(Strict):
    """A device as nodes have found it."""

    configuration_name: ConfigurationName
    """The DiscoveryConfiguration by which it was found."""
    device_id: DeviceIdentity = msgspec.field(name="deviceID")
    """The id that the discovery handler gives it; the object's name has its digest."""
    shared: bool
    """Whether several nodes may reach the device; one that is not shared has the node in its digest, too."""
    nodes: DeviceNodeNames = ()
    """The nodes whose plugins see it at present: each adds and removes its own name at once. Empty: it is offline."""
    found_by: NodeName | None = None
    """The node whose plugin has made the object. What it said of a shared device holds for all nodes, until an
    administrator changes it; in the digest of a device that is not shared is this node. Unset: an administrator has
    made the object."""
    capacity: DeviceCapacity | None = None
    """The containers that may use it at a time; unset: as its configuration says."""
    properties: Variables = {}
    """Variables of containers that use it, such as its address."""
    mounts: Mounts = ()
    """Mounts of containers that use it; a shared device has none."""
    device_nodes: DeviceNodes = ()
    """Device nodes of containers that use it; a shared device has none."""


class DeviceUser(Value):
    """A container that uses a device by an extended resource, as its node has entered it (Kubernetes 1.29 to 1.31)."""

    node: Annotated[str, msgspec.Meta(max_length=253)]
    """The node of the container."""
    resource: Annotated[str, msgspec.Meta(max_length=317)]
    """The extended resource: that of the configuration, or that of the device."""
    id: Annotated[str, msgspec.Meta(max_length=63)]
    """The id by which the node's kubelet knows what the container has of the resource."""


class DiscoveredDeviceStatus(Value):
    """The controller's report on the device, and its users where nodes count them."""

    observed_generation: int | None = None
    """The generation of the spec from which the status was computed."""
    conditions: tuple[Condition, ...] = ()
    """Published: claims can get it."""
    offline_since: str | None = None
    """Since when no node has seen it (RFC 3339); unset: some node sees it."""
    users: Annotated[tuple[DeviceUser, ...], msgspec.Meta(max_length=1000)] = ()
    """Who uses it by extended resources on Kubernetes 1.29 to 1.31, at most as many as its capacity. Plugins enter and
    remove users of their own nodes, on condition that the object is unchanged."""


class DiscoveredDevice(Object, forbid_unknown_fields=True):
    """A device that nodes have found by a DiscoveryConfiguration (cluster-scoped); ``device_name`` is its name."""

    spec: DiscoveredDeviceSpec
    """Written by the plugins of the nodes that see it."""
    status: DiscoveredDeviceStatus = DiscoveredDeviceStatus()
    """The controller's report."""


class DiscoveryConfigurationObject(Object):
    """A DiscoveryConfiguration with an undecoded spec, so that an invalid one does not make its list unreadable."""

    spec: JsonObject = {}
    status: DiscoveryConfigurationStatus = DiscoveryConfigurationStatus()

    def __post_init__(self) -> None:
        check_levels(self.spec)


class DiscoveredDeviceObject(Object):
    """A DiscoveredDevice with an undecoded spec, so that an invalid one does not make its list unreadable."""

    spec: JsonObject = {}
    status: DiscoveredDeviceStatus = DiscoveredDeviceStatus()

    def __post_init__(self) -> None:
        check_levels(self.spec)


DISCOVERY_CONFIGURATIONS: Final[Kind[DiscoveryConfigurationObject]] = identity_kind(
    DiscoveryConfigurationObject,
    group=GROUP,
    version=VERSION,
    plural="discoveryconfigurations",
    namespaced=False,
    kind="DiscoveryConfiguration",
)
DISCOVERED_DEVICES: Final[Kind[DiscoveredDeviceObject]] = identity_kind(
    DiscoveredDeviceObject,
    group=GROUP,
    version=VERSION,
    plural="discovereddevices",
    namespaced=False,
    kind="DiscoveredDevice",
)


def device_name(configuration: str, device_id: str, *, node: str | None) -> str:
    """Return the name of a DiscoveredDevice; ``node`` is the node of a device that is not shared, else None.

    The digest is Akri's ``generate_instance_digest``: BLAKE2b of three bytes over the id, with the node's name behind
    it if the device is not shared.

    >>> device_name("cameras", "rtsp://10.0.0.7", node=None)
    'cameras-3f850a'
    """
    digest = hashlib.blake2b(f"{device_id}{node or ''}".encode(), digest_size=DIGEST_BYTES).hexdigest()
    return f"{configuration}-{digest}"
