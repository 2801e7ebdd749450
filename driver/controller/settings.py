"""Everything about the controller that an administrator may set."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from api.model.names import KERF_DRIVER, DriverName, ObjectRef
from driver.kube.leader_election import LeaseSettings

LEASE: Final = ObjectRef("kerf-system", "kerf-controller")
LISTING_HINT: Final = "are deploy/crds installed, and may this controller list it (deploy/manifests, deploy/classic)?"
"""What an administrator should look at where a list does not come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one controller process."""

    kubeconfig: Path | None = None
    """None: the pod's service account, else $KUBECONFIG or ~/.kube/config."""
    context: str | None = None
    """Context of the kubeconfig; None: its current one."""
    driver: DriverName = KERF_DRIVER
    """Whose devices classes select; must be the kubelet plugins' name."""
    identity: str
    """Of this process among those that want to lead: unique, and telling, such as the pod's name."""
    lease: ObjectRef = LEASE
    """The Lease that the leader holds."""
    leading: LeaseSettings = field(default_factory=LeaseSettings)
    """How leadership is kept and lost."""
    startup_s: float = 60.0
    """For the first lists of all that is watched: 10,000 objects take seconds, a missing CRD for ever."""
    workers: int = 4
    """Classes worked on at a time. A pass is mostly waiting for the API server; few enough to be gentle to it."""
    recount_s: float = 5.0
    """Between two counts of what a class matches while slices change: nodes republish at every allocation."""
    settle_s: float = 1.0
    """How long new labels of nodes and new kinds of devices are gathered before classes are looked at again."""
    resync_s: float = 600.0
    """Between two passes over a class when nothing happens: finds what no event told, such as a permission granted."""
    sweep_s: float = 60.0
    """Between two looks for slices of nodes that are gone; a node's own garbage collection takes seconds."""
    recheck_s: float = 30.0
    """Where drivers allocate: between two looks at a scheduling context, or a claim without a place, when nothing
    happens; as upstream's library."""
    probes: str = ":8080"
    """host:port of /healthz, /readyz and /metrics."""
