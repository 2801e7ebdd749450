"""The settings of the controller that an administrator may change."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.controller.reclaim.settings import ReclaimSettings
from kerf_dra.driver.kube.leader_election import LeaseSettings

NAME: Final = "kerf-controller"
"""The name of the program: user agent, event source and field manager."""
LEASE: Final = ObjectRef("kerf-system", "kerf-controller")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderSettings:
    """Settings of the scheduler extender."""

    address: str
    """The address host:port at which kube-scheduler reaches it."""
    certificates: Path
    """The folder with ``tls.crt`` and ``tls.key``, of the server, and ``ca.crt``, the authority of its clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one controller process."""

    kubeconfig: Path | None = None
    """The path of the kubeconfig; None: the pod's service account, else $KUBECONFIG or ~/.kube/config."""
    context: str | None = None
    """The context of the kubeconfig; None: its current one."""
    identity: str
    """The unique name of this candidate in the Lease, such as the pod's name."""
    lease: ObjectRef = LEASE
    """The Lease that the leader holds."""
    leading: LeaseSettings = field(default_factory=LeaseSettings)
    """The times of leader election."""
    startup_s: float = 180.0
    """The limit for the informers' first lists: the slices of 5,000 nodes with eight GPUs, 1.2 GB of JSON, take 20 s of
    a processor; a missing CRD would take forever."""
    workers: int = 4
    """The number of classes reconciled at a time: each mostly waits for the API server, whose load stays low."""
    recount_s: float = 5.0
    """The delay of counting a class's devices again after a slice changed: nodes republish at every allocation."""
    settle_s: float = 1.0
    """The delay of reconciling classes again after new labels of nodes or new device types, which come in groups."""
    resync_s: float = 600.0
    """The period of reconciling every class, for changes without an event, such as a permission granted."""
    orphan_check_s: float = 60.0
    """The period of searching slices of deleted nodes; Kubernetes' own garbage collection takes seconds."""
    exchange_s: float = 30.0
    """The period of exchanging among replicas whether schedulers ask the extender: one read of the Lease each."""
    grading_check_s: float = 30.0
    """The period of reading whether graded placement is enabled, which is one object: conditions follow in a minute."""
    recheck_s: float = 30.0
    """The period, in classic DRA, of reconciling a scheduling context, or a claim without free devices; upstream's
    library has the same."""
    probes: str = ":8080"
    """The address host:port of /healthz, /readyz and /metrics."""
    extender: ExtenderSettings | None = None
    """The scheduler extender, in clusters where kube-scheduler allocates; None: it is disabled."""
    reclaim: ReclaimSettings | None = None
    """The eviction of pods from cards in maintenance, which the process then does and nothing else; None: it does
    not."""
