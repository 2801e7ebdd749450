"""What can be set for the kubelet plugin. The command line and its environment build this; nothing else reads them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from api.model.names import KERF_DRIVER, DriverName
from driver.kubeletplugin.backends.registry import BackendChoice
from driver.runtime.backoff import Backoff

KUBELET_ROOT: Final = Path("/var/lib/kubelet")
"""The kubelet's own default of ``--root-dir``."""
FIELD_MANAGER: Final = "kerf-kubelet-plugin"
"""Whose fields are those that the plugin writes; also the user agent of its calls."""
CDI_DIR: Final = Path("/var/run/cdi")
"""For generated specs (CDI SPEC.md); on a tmpfs, so they go when the node boots, as the hardware's state does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Frozen. Names end in their unit."""

    node_name: str
    """This node's name in the cluster."""
    driver_name: DriverName = KERF_DRIVER
    """Name in ResourceSlices, claims and sockets: two drivers on one node need two."""
    backends: tuple[BackendChoice, ...]
    """What hardware there is. No default: a node without hardware needs no plugin."""
    kubeconfig: Path | None = None
    """How to reach the API server; None: as the pod's service account."""

    kubelet_root: Path = KUBELET_ROOT
    """The kubelet's ``--root-dir``; the plugin must see it under the same path as the kubelet."""
    state_dir: Path | None = None
    """Where the checkpoint and the lock live, on a disk; None: ``plugin_dir``."""
    cdi_dir: Path = CDI_DIR
    """Where the container runtime looks for generated CDI specs."""
    instance: str = ""
    """Part of the socket names, for example the pod's UID: with one, an instance may start while another works, and
    takes over from it (docs/rolling-update.md)."""

    probes_address: str = "0.0.0.0:8080"
    """Where ``/healthz``, ``/readyz`` and ``/metrics`` are served: in the pod's own network, where the kubelet asks."""

    retry: Backoff = Backoff(first_s=0.5, factor=2, limit_s=60, jitter=0.2)  # noqa: RUF009  (frozen)
    """For an API server that is away, a kubelet that does not register the plugin and backends whose health watch ends:
    soon at first, at most a minute apart, nodes not in step."""
    publish_min_interval_s: float = 2.0
    """At most one change of the slices in this time: each is a write and an event for every scheduler."""
    early_load_s: float | None = 10.0
    """Functions that take at least so long to load are loaded before the pod is bound; None: none is. kube-scheduler
    looks every 5 s whether that is done, so shorter loads are quicker at the pod's start."""
    load_patience_s: float = 15.0
    """How long a load that fails before the pod is bound is tried again: three times at least, with back-off."""
    load_setback_s: float = 300.0
    """How long a card gets no claims for a function that it could not load: a few attempts of the scheduler, whose
    back-off ends at 10 s, and time for a person to look."""
    follow_patience_s: float = 2.0
    """How long the first publishing waits for the claims to be listed, so that slices are not written twice."""
    discovery_interval_s: float = 300.0
    """How often to look for cards that came or went unannounced. It costs the hardware's drivers some calls."""
    discovery_timeout_s: float = 120.0
    """For one look: the first at eight GPUs was seen to take more than 30 s (dra-driver-nvidia-gpu#774)."""
    health_interval_s: float = 10.0
    """How often the kubelet is told how devices are: three times before it lets a report expire (30 s, KEP-4680)."""
    collect_interval_s: float = 600.0
    """How often to ask whether prepared claims still exist: one GET for each, on thousands of nodes."""
    classes_poll_s: float = 60.0
    """How often to see whether ResourceClasses can be followed, where they could not be: one GET, on thousands of
    nodes, and a person who has installed their definition waits."""
    gone_grace_s: float = 90.0
    """How long a prepared claim has to be gone before its devices are taken back: the kubelet looks for claims to
    unprepare every 60 s, and is to come first."""
    hardware_timeout_s: float = 3700.0
    """Last resort against a backend call that hangs: above the 3600 s that a FpgaConfig may allow for one load."""
    shutdown_grace_s: float = 20.0
    """For hardware work in flight at the end: below the 30 s after which Kubernetes kills a pod."""
    handover_grace_s: float = 3700.0
    """For hardware work in flight when another instance takes over: as ``hardware_timeout_s``, for who hands over has
    time, and a load that is broken off is a prepare that fails."""
    rpc_grace_s: float = 1.0
    """For calls in flight when a socket closes: they wait for the work above, so nothing is gained by more."""
    registration_silence_s: float = 30.0
    """How long to wait for the kubelet before offering a new socket: it looks for new ones every second."""
    socket_poll_s: float = 5.0
    """How often to see whether the sockets are still there."""

    @property
    def plugin_dir(self) -> Path:
        """Where the kubelet expects a driver's own files."""
        return self.kubelet_root / "plugins" / self.driver_name

    @property
    def state(self) -> Path:
        return self.state_dir or self.plugin_dir

    @property
    def dra_socket(self) -> Path:
        return self.plugin_dir / (f"dra-{self.instance}.sock" if self.instance else "dra.sock")

    @property
    def registration_socket(self) -> Path:
        instance = f"-{self.instance}" if self.instance else ""
        return self.kubelet_root / "plugins_registry" / f"{self.driver_name}{instance}-reg.sock"
