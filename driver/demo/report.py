"""The report of a demo, one document (``kerf demo --output json``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.wire import to_builtins


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """One allocated device. ``profile``: GPU profile, FPGA function or number of slots; None for a whole card."""

    request: str
    driver: str
    pool: str
    device: str
    profile: str | None
    memory_bytes: int | None
    """The device's memory, or the share's part of it; None where it has none."""
    card: str
    """The UUID of its card."""
    is_share: bool = False
    """Whether other claims may have parts of the same device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReport:
    """One claim of a pod, and its devices."""

    name: str
    uid: str
    devices: tuple[DeviceReport, ...]
    cdi_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerReport:
    """What a container sees, from the OCI runtime spec after the CDI edits."""

    name: str
    env: Mapping[str, str]
    device_nodes: tuple[str, ...]
    mounts: tuple[str, ...]
    """``destination`` of each mount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReport:
    """One pod as it was when it ran."""

    namespace: str
    name: str
    node: str
    phase: str
    claims: tuple[ClaimReport, ...] = ()
    extended_devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What it has by the device plugin interface: device IDs by extended resource."""
    containers: tuple[ContainerReport, ...] = ()

    @property
    def ref(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def devices(self) -> tuple[DeviceReport, ...]:
        return tuple(device for claim in self.claims for device in claim.devices)

    @property
    def holdings(self) -> tuple[tuple[str, str, str, str], ...]:
        """Claim UID, driver, pool and device of each device: what stays while a driver publishes something else."""
        return tuple(
            (claim.uid, each.driver, each.pool, each.device) for claim in self.claims for each in claim.devices
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReport:
    """A card of a node."""

    index: int
    kind: str
    model: str
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """A node and its cards."""

    name: str
    cards: tuple[CardReport, ...]
    devices: int
    """The number of published devices: whole cards and every possible partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredDeviceReport:
    """A device that nodes have found by discovery, and the pods that have it."""

    name: str
    nodes: tuple[str, ...]
    """The nodes that see it."""
    capacity: int
    """The number of users that it may have at a time."""
    users: tuple[str, ...]
    """The pods that have it, ``namespace/name``; one with two shares of it is there twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeReport:
    """The profiles that were allocated together on one card, before and after."""

    node: str
    card: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """One FPGA function and the device that it was loaded into."""

    node: str
    card: str
    function: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverReport:
    """The resources that are left after every pod is deleted; all zero when nothing leaks."""

    partitions: int
    cdi_files: int
    checkpoint_records: int
    claims: int

    @property
    def is_clean(self) -> bool:
        return not (self.partitions or self.cdi_files or self.checkpoint_records or self.claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingReport:
    """A pod that does not run, and will not until a person acts."""

    pod: str
    """``namespace/name``."""
    why: tuple[str, ...]
    """The answer of ``kerf why``, in lines."""


@dataclass(slots=True, kw_only=True)
class Report:
    """The report, filled during the scenario."""

    nodes: Sequence[NodeReport] = ()
    pods: list[PodReport] = field(default_factory=list)
    waiting: list[WaitingReport] = field(default_factory=list)
    discovered_devices: Sequence[DiscoveredDeviceReport] = ()
    """The devices that nodes have found by discovery, as they were when the user's pods ran."""
    refused_classes: dict[str, str] = field(default_factory=dict)
    """Of the user's ResourceClasses those that are not ready: the controller's message by name."""
    warnings: list[str] = field(default_factory=list)
    """What the user's manifests have that is legal and has no effect."""
    notes: list[str] = field(default_factory=list)
    """The sizes that pods get and that are hardly meant."""
    resized: ResizeReport | None = None
    loaded: list[LoadReport] = field(default_factory=list)
    left: LeftoverReport | None = None
    timings_s: dict[str, float] = field(default_factory=dict)


def to_document(report: Report) -> JsonObject:
    """Return the report as plain data. ``container`` of a pod is its first one."""
    document: JsonObject = to_builtins(report)
    for pod in document["pods"]:
        pod["container"] = pod["containers"][0] if pod["containers"] else {}
    document["resized"] = document["resized"] or {}
    document["left"] = document["left"] or {}
    document["timings_s"] = {name: round(seconds, 3) for name, seconds in report.timings_s.items()}
    return document
