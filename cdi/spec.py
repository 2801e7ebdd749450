"""The values of a CDI spec, as plain data: what devices there are, and what each does to a container.

Values are frozen; build them with every field named. Nothing is checked here: ``validate`` reports what is wrong, and
nothing invalid can be encoded. Absent text is "", an absent number that may also be 0 is None.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdi.names import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device node the container gets. What is left out is taken from the host's node when a container starts.

    With ``type`` and ``major`` the node is fully specified and need not exist on the host.
    """

    path: str
    """In the container."""
    host_path: str = ""
    """On the host; empty: the same as ``path``. Never a symbolic link, which is no device node to a reader."""
    type: str = ""
    """b block, c or u character, p FIFO; empty: as on the host."""
    major: int = 0
    """0: this and ``minor`` as on the host. A reader cannot tell an absent number from 0."""
    minor: int = 0
    file_mode: int | None = None
    """Permission bits; None: as on the host."""
    permissions: str = ""
    """What the container's cgroup may do: any of r, w and m (mknod); empty: rwm."""
    uid: int | None = None
    """Owner in the container; None: the user of the container's process."""
    gid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetDevice:
    """A network interface of the host that moves into the container (CDI 1.1.0, OCI 1.3)."""

    host_interface_name: str
    name: str
    """In the container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mount the container gets. A bind mount needs ``bind`` or ``rbind`` among its options."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A program the runtime runs at one stage of a container's life (OCI runtime-spec, "Hooks")."""

    hook_name: str
    """One of ``HOOK_STAGES``."""
    path: str
    """On the host, absolute, whatever container the driver runs in."""
    args: tuple[str, ...] = ()
    """The whole argument vector: the first is the program's name."""
    env: tuple[str, ...] = ()
    timeout: int | None = None
    """Seconds until the runtime gives up on it."""


HOOK_STAGES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntelRdt:
    """Cache and memory bandwidth control (resctrl). An empty one still means something: a class of its own."""

    clos_id: str = ""
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    schemata: tuple[str, ...] | None = None
    """CDI 1.1.0. Readers demand that version for an empty list too."""
    enable_monitoring: bool = False
    """CDI 1.1.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEdits:
    """What is changed in a container: nothing, until fields say otherwise."""

    env: tuple[str, ...] = ()
    """``NAME=value``."""
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[int, ...] = ()
    """Supplementary groups of the container's process; 0 is ignored by readers."""

    def __add__(self, other: "ContainerEdits") -> "ContainerEdits":
        """These edits and then ``other``; of two ``intel_rdt`` the later one wins, as in readers."""
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
        """Whether anything is changed. A device that changes nothing is invalid."""
        return self != ContainerEdits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device that a container can ask for."""

    name: str
    """Unique in the spec. A digit in front needs CDI 0.5.0."""
    container_edits: ContainerEdits
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    """About the device, never passed to a container (CDI 0.6.0). Not to be changed once given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One spec file: devices of one kind."""

    kind: Kind
    devices: tuple[Device, ...]
    container_edits: ContainerEdits = ContainerEdits()
    """Applied once per container that gets any device of this spec, before the device's own."""
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    version: str | None = None
    """The ``cdiVersion`` the document declares; None: the lowest its content needs, worked out on writing."""
