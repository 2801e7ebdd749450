"""The settings of the kubelet plugin. The command line and its environment build them; nothing else reads those.

A process hosts the plugins of one or more families: ``ProcessSettings`` are those of the process, ``Settings`` those of
one family, which has sockets, a folder and a checkpoint of its own.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kerf_dra.api.model.names import DriverName
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice
from kerf_dra.driver.runtime.backoff import Backoff

KUBELET_ROOT: Final = Path("/var/lib/kubelet")
"""The kubelet's own default of ``--root-dir``."""
DEVICE_PLUGINS_DIR: Final = Path("/var/lib/kubelet/device-plugins")
"""The folder of the device plugin interface, which is part of it: a kubelet with another ``--root-dir`` has it, too."""
NAME: Final = "kerf-kubelet-plugin"
"""The program's name: the user agent of its calls, and the beginning of its field managers."""
CDI_DIR: Final = Path("/var/run/cdi")
"""The directory of generated specs (CDI SPEC.md); on a tmpfs, so that they go at a reboot, as the hardware's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one family's plugin; names of durations end in their unit."""

    node_name: str
    """This node's name in the cluster."""
    family: Family
    """The family whose devices the plugin publishes and prepares."""
    backends: tuple[BackendChoice, ...]
    """The family's backends to open. There is no default: a node without hardware needs no plugin."""

    kubelet_root: Path = KUBELET_ROOT
    """The kubelet's ``--root-dir``; the plugin must see it under the same path as the kubelet."""
    state_dir: Path | None = None
    """The directory in which each family has a folder for its checkpoint and locks, on a disk; None: ``plugin_dir``."""
    device_plugins_dir: Path = DEVICE_PLUGINS_DIR
    """The directory of the kubelet's socket of the device plugin interface, and of those of extended resources."""
    host_root: Path = Path("/")
    """The directory below which the node has ``sys`` and ``run/udev``, for the discovery of devices by udev."""
    cdi_dir: Path = CDI_DIR
    """The directory where the container runtime looks for generated CDI specs."""
    features_dir: Path | None = None
    """Node Feature Discovery's directory of local features; None: no labels of the node are made."""
    maintenance_hooks_dir: Path | None = None
    """The folder of the programs that may be run for free cards in maintenance, which only root may write; None: none
    is."""
    profile: str = ""
    """The name of this node's hardware and rights among those of the cluster (docs/install.md): the plugin of another
    profile neither takes over from this one nor hands over to it. Empty: there is one."""
    instance: str = ""
    """Part of the socket names, for example the pod's UID: with one, an instance may start while another is active, and
    takes over from it (docs/rolling-update.md)."""

    retry: Backoff = Backoff(first_s=0.5, factor=2, limit_s=60, jitter=0.2)  # noqa: RUF009  (frozen)
    """Back-off for an unreachable API server, a family that fails beside others, a kubelet that does not register the
    plugin and backends whose health watch ends: soon at first, at most a minute apart, and jitter keeps nodes from
    retrying at the same time."""
    publish_min_interval_s: float = 2.0
    """Least time between two changes of the slices: each is a write and an event for every scheduler."""
    list_attributes: bool = False
    """Whether PCIe root and NUMA node are published as lists (KEP-5491) where the API server takes them. Off: selectors
    for the scalars that other drivers publish would not evaluate."""
    early_load_s: float | None = 10.0
    """Functions that take at least this long to load are loaded before the pod is bound; None: none is. kube-scheduler
    checks every 5 s whether the load is done, so shorter loads are quicker at the pod's start."""
    load_retry_s: float = 15.0
    """Time for retries of a load that fails before the pod is bound: at least three, with back-off."""
    load_hold_s: float = 300.0
    """Time for which a card gets no claims for a function that it could not load: a few attempts of the scheduler,
    whose back-off ends at 10 s, and time for a person to react."""
    claims_sync_timeout_s: float = 2.0
    """Longest wait for the list of claims before the first publication, so that slices are not written twice."""
    discovery_interval_s: float = 300.0
    """Time between two discoveries of cards that came or went unannounced; each costs the hardware's driver calls."""
    survey_interval_s: float = 10.0
    """Time between two surveys of what is on the cards: where the hardware reports no change, as NVML does for what
    others cut, a pod that is sent to a placement they took waits so long at most; and each survey is a few calls of
    milliseconds."""
    discovery_timeout_s: float = 120.0
    """Limit of one discovery: the first with eight GPUs was seen to take more than 30 s (dra-driver-nvidia-gpu#774)."""
    health_interval_s: float = 10.0
    """Longest time between two health reports: three before the kubelet lets a report expire (30 s, KEP-4680)."""
    usage_interval_s: float = 15.0
    """Time between two questions to the kubelet which claims its pods use: a local call of milliseconds, and a claim
    that it has forgotten should be looked up within a minute of its end."""
    usage_retry_s: float = 1.0
    """Time until a kubelet that did not answer is asked again which pods have devices of extended resources: what no
    answer has had is kept for ``unlisted_grace_s``, and a pod may run for seconds only."""
    sample_interval_s: float | None = 15.0
    """Time between two samples of what prepared devices are used for; None: none is taken. A sample of a card and its
    instances is some ten calls of milliseconds, and Prometheus mostly asks every 15 to 60 s."""
    idle_after_s: float = 600.0
    """Time without any use after which a prepared device counts as idle: longer than a program loads data between two
    pieces of work, and each change between idle and busy is a write to the API server."""
    collect_interval_s: float = 600.0
    """Time between two checks whether a claim that pods use still exists: one GET for each, on thousands of nodes."""
    collect_unused_interval_s: float = 60.0
    """The same for a claim that the kubelet does not list as used: it was forgotten, its pod has not started yet, or
    the kubelet lists no claims (before Kubernetes 1.34)."""
    classes_poll_s: float = 60.0
    """Time between two checks whether ResourceClasses can be watched, where they could not be: one GET, on thousands of
    nodes, and a person who has installed their definition waits."""
    gone_grace_s: float = 60.0
    """Time for which a prepared claim must be gone, or reserved for no pod, before its devices are released: the
    kubelet unprepares before it reports a pod's end, and again every minute what it missed, and should come first."""
    unused_grace_s: float = 30.0
    """Time for which the kubelet must not list a device of an extended resource for any pod before it is released:
    two more answers at least after the first, in which a kubelet that starts may leave out pods."""
    unstarted_grace_s: float = 300.0
    """The same for a device that the kubelet has allocated, never listed for a pod, and begun no container with: its
    pod was rejected. It may also be an init container's whose image is being pulled or whose volumes are mounted, which
    the kubelet gives two minutes a try; if that takes longer, its start prepares the device again."""
    unlisted_grace_s: float = 3600.0
    """The same for a device that the kubelet has never listed for a pod, and with which a container may have begun: an
    init container with it may run for so long, which the kubelet does not list."""
    reservation_retry_s: float = 30.0
    """Time between two checks whether placements that extended resources lack have become free, each a list of all
    claims: only where a class wants more than a node can give."""
    device_plugin_poll_s: float = 1.0
    """Time between two checks that a resource's socket and the kubelet's own are still those of the registration: a
    kubelet that starts removes the first and makes the second again, and pods wait for the resource meanwhile."""
    status_removal_s: float = 10.0
    """Time from an unprepare to the removal of what the claim shows in its status. The pod has ended: within seconds
    most claims are deleted or deallocated, and to find that takes one read, where the removal takes a write, too."""
    maintenance_retry_s: float = 5.0
    """Time between two looks at a card in maintenance that is not free yet for a reset or the like. An administrator
    who has ended what uses it waits this long at most; a look is a survey and a list of the node's slices."""
    verification_interval_s: float = 10.0
    """Time between two verifications of a card after a reset or the like, and the longest wait for its health in each:
    a driver reports it some seconds after the card is back."""
    shutdown_grace_s: float = 20.0
    """Time for hardware work in flight when the process ends: below the 30 s after which Kubernetes kills a pod."""
    handover_grace_s: float = 3700.0
    """Time for hardware work in flight when another instance takes over: as the longest ``Family.call_timeout_s``,
    because the old instance is in no hurry, and a load that is cut off is a prepare that fails."""
    handler_grace_s: float = 30.0
    """Time for which devices stay whose discovery handler does not say what there is: a handler that is updated is back
    by then, and one that failed has been tried several times."""
    rpc_grace_s: float = 1.0
    """Time for calls in flight when a socket closes: they wait for the work above, so a longer time gains nothing."""
    hanging_grace_s: float = 60.0
    """Time from the limit of a call to the hardware until the process ends because it has not returned: the taint and
    event of its card are out by then, and a call that is only slow has come back."""
    registration_silence_s: float = 30.0
    """Time for the kubelet to answer before a new socket is made: it checks for new ones every second."""
    socket_poll_s: float = 5.0
    """Time between two checks that the sockets are still there."""

    @property
    def driver_name(self) -> DriverName:
        """The name in ResourceSlices, claims and sockets."""
        return self.family.driver

    @property
    def field_manager(self) -> str:
        """The field manager of the plugin's writes (server-side apply).

        Each driver has its own: an apply removes what the same manager has applied before, such as another driver's
        entries in the status of a claim over two families.
        """
        return f"{NAME}-{self.driver_name}"

    @property
    def plugin_dir(self) -> Path:
        """The directory where the kubelet expects a driver's own files."""
        return self.kubelet_root / "plugins" / self.driver_name

    @property
    def state(self) -> Path:
        """The directory of this family's checkpoint and locks."""
        return self.plugin_dir if self.state_dir is None else self.state_dir / self.driver_name

    @property
    def discovery_dir(self) -> Path:
        """The directory of the sockets of discovery handlers, and of the plugin's own for them."""
        return self.plugin_dir / "discovery"

    @property
    def pod_resources_socket(self) -> Path:
        """The kubelet's own socket at which it lists what its pods use."""
        return self.kubelet_root / "pod-resources" / "kubelet.sock"

    @property
    def dra_socket(self) -> Path:
        return self.plugin_dir / (f"dra-{self.instance}.sock" if self.instance else "dra.sock")

    @property
    def registration_socket(self) -> Path:
        instance = f"-{self.instance}" if self.instance else ""
        return self.kubelet_root / "plugins_registry" / f"{self.driver_name}{instance}-reg.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """The settings of one process."""

    node_name: str
    """This node's name in the cluster."""
    plugins: tuple[Settings, ...]
    """The settings of each hosted family."""
    kubeconfig: Path | None = None
    """How to reach the API server; None: as the pod's service account."""
    probes_address: str = "0.0.0.0:8080"
    """The address of ``/healthz``, ``/readyz`` and ``/metrics``: in the pod's own network, where the kubelet probes."""
