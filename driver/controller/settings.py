"""The settings of the controller that an administrator may change."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from api.model.names import KERF_DRIVER, DriverName, ObjectRef
from driver.kube.leader_election import LeaseSettings

NAME: Final = "kerf-controller"
"""The name of the program: user agent, event source and field manager."""
LEASE: Final = ObjectRef("kerf-system", "kerf-controller")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one controller process."""

    kubeconfig: Path | None = None
    """None: the pod's service account, else $KUBECONFIG or ~/.kube/config."""
    context: str | None = None
    """Context of the kubeconfig; None: its current one."""
    driver: DriverName = KERF_DRIVER
    """The driver whose devices classes select: the kubelet plugins' name."""
    identity: str
    """This candidate's name, in the Lease: unique, such as the pod's name."""
    lease: ObjectRef = LEASE
    """The Lease that the leader holds."""
    leading: LeaseSettings = field(default_factory=LeaseSettings)
    """The times of leader election."""
    startup_s: float = 60.0
    """The limit for the informers' first lists: 10,000 objects take seconds, a missing CRD for ever."""
    workers: int = 4
    """Classes reconciled at a time. Each mostly waits for the API server; few enough to be gentle to it."""
    recount_s: float = 5.0
    """The delay of counting a class's devices again after a slice changed: nodes republish at every allocation."""
    settle_s: float = 1.0
    """How long new labels of nodes and new device types are gathered before classes are reconciled again."""
    resync_s: float = 600.0
    """The period of reconciling every class: finds what no event told, such as a permission granted."""
    orphan_check_s: float = 60.0
    """The period of looking for slices of deleted nodes; Kubernetes' own garbage collection takes seconds."""
    recheck_s: float = 30.0
    """Where drivers allocate: the period of reconciling a scheduling context, or a claim that nothing is free for; as
    upstream's library."""
    probes: str = ":8080"
    """host:port of /healthz, /readyz and /metrics."""
