"""The data types of a CDI spec: devices and their container edits.

Values are frozen and built with keyword arguments. They are not checked when built: ``validate`` reports mistakes, and
an invalid spec cannot be encoded. An absent string is "", an absent number that may also be 0 is None.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kerf_dra.cdi.names import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device node of the container. Absent fields are taken from the host's node when a container is created.

    With ``type`` and ``major`` the node is fully specified and need not exist on the host.
    """

    path: str
    """The path in the container."""
    host_path: str = ""
    """The path on the host; empty: the same as ``path``. Readers do not follow a symbolic link."""
    type: str = ""
    """The type: b (block), c or u (character) or p (FIFO); empty: as on the host."""
    major: int = 0
    """The major number; 0: this and ``minor`` are as on the host, because readers take 0 for an absent number."""
    minor: int = 0
    file_mode: int | None = None
    """The permission bits; None: as on the host."""
    permissions: str = ""
    """The access that the container's cgroup allows: any of r, w and m (mknod); empty: rwm."""
    uid: int | None = None
    """The owner in the container; None: the user of the container's process."""
    gid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetDevice:
    """A network interface of the host that is moved into the container (CDI 1.1.0, OCI 1.3)."""

    host_interface_name: str
    name: str
    """The name of the interface in the container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mount of the container. A bind mount needs ``bind`` or ``rbind`` among its options."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A program that the runtime runs at one stage of a container's lifecycle (OCI runtime-spec, "Hooks")."""

    hook_name: str
    """The stage: one of ``HOOK_STAGES``."""
    path: str
    """The absolute path on the host, even if the driver runs in a container."""
    args: tuple[str, ...] = ()
    """The whole argument vector, with the program's name first."""
    env: tuple[str, ...] = ()
    timeout: int | None = None
    """The seconds after which the runtime aborts the hook; None: no limit."""


HOOK_STAGES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntelRdt:
    """Cache and memory bandwidth control (resctrl). If all fields are empty, the container gets a class of its own."""

    clos_id: str = ""
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    schemata: tuple[str, ...] | None = None
    """The lines of the schemata file (CDI 1.1.0); None: absent. Readers require that version for an empty list, too."""
    enable_monitoring: bool = False
    """Whether the container gets a monitoring group (CDI 1.1.0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEdits:
    """The changes to a container; empty: no changes."""

    env: tuple[str, ...] = ()
    """Environment variables as ``NAME=value``."""
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[int, ...] = ()
    """The supplementary groups of the container's process; readers ignore 0."""

    def __add__(self, other: "ContainerEdits") -> "ContainerEdits":
        """Return these edits followed by ``other``; of two ``intel_rdt`` the later one counts, as in readers."""
        return ContainerEdits(
            env=self.env + other.env,
            device_nodes=self.device_nodes + other.device_nodes,
            net_devices=self.net_devices + other.net_devices,
            hooks=self.hooks + other.hooks,
            mounts=self.mounts + other.mounts,
            intel_rdt=self.intel_rdt if other.intel_rdt is None else other.intel_rdt,
            additional_gids=self.additional_gids + other.additional_gids,
        )

    def __bool__(self) -> bool:
        """Whether there is any change; a device without changes is invalid."""
        return self != ContainerEdits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device that a container can request."""

    name: str
    """The name, unique in the spec. A leading digit needs CDI 0.5.0."""
    container_edits: ContainerEdits
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Remarks on the device, never passed to a container (CDI 0.6.0). The mapping must not be changed afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The content of one spec file: devices of one kind."""

    kind: Kind
    devices: tuple[Device, ...]
    container_edits: ContainerEdits = ContainerEdits()
    """The edits for every container with a device of this spec, applied once, before those of the device."""
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    version: str | None = None
    """The declared ``cdiVersion``; None: the lowest that the content needs, computed by the encoder."""
