"""The claims whose devices are idle, those first that have been so the longest, with what to do about each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.explain.workload_pods import find_owner
from kerf_dra.driver.diagnostics.overview.claim_rows import ClaimRow, Idleness, find_rows

_EXPLAIN_UNKNOWN: Final = (
    "Kerf's kubelet plugins report it in the status of claims (feature gate DRAResourceClaimDeviceStatus) for cards "
    "that they can sample, unless --sample-interval is 0; other drivers do not: docs/what-a-claim-uses.md"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleClaim:
    """A claim of which devices are idle."""

    namespace: str
    name: str
    pods: tuple[str, ...]
    """The pods that use it; they are in its namespace."""
    owner: str
    """The workload that owns the first of them, such as ``deployment/web``; empty: none does."""
    nodes: tuple[str, ...]
    idle: Idleness
    next_step: str
    """What to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleReport:
    """The document that ``kerf why --idle --output json`` prints; its field names are the format."""

    namespace: str
    """The namespace of the claims; empty: those of all."""
    gathered_at: str
    """When the cluster was read, in RFC 3339."""
    message: str
    """How many claims are idle, in one sentence."""
    next_step: str
    """What to do where the use of claims is not known; empty: it is known of each."""
    claims: tuple[IdleClaim, ...]
    """Those that have been idle the longest first."""
    not_idle: int
    """The number of claims that are sampled, and of which no device is idle."""
    unknown: int
    """The number of claims with devices of which no node says whether they are used."""

    @property
    def is_known(self) -> bool:
        """Whether a node says of any claim whether it is used, or there is no claim with devices."""
        return bool(self.claims or self.not_idle or not self.unknown)


def find_idle_claims(cluster: ClusterIndex, namespace: str) -> IdleReport:
    """Return which claims of ``namespace``, empty: of all namespaces, have idle devices."""
    rows = [row for row in find_rows(cluster) if row.devices and namespace in ("", row.subject.namespace)]
    idle = [_describe(cluster, row, row.idle) for row in rows if row.idle is not None]
    unknown = sum(not row.is_sampled for row in rows)
    return IdleReport(
        namespace=namespace,
        gathered_at=cluster.state.gathered_at,
        message=_summarize(len(idle), len(rows), unknown),
        next_step=_EXPLAIN_UNKNOWN if unknown else "",
        claims=tuple(sorted(idle, key=lambda claim: -claim.idle.seconds)),
        not_idle=len(rows) - len(idle) - unknown,
        unknown=unknown,
    )


def _summarize(idle: int, claims: int, unknown: int) -> str:
    if not claims:
        return "no claim has devices"
    if unknown == claims:
        return f"no node reports use: whether any of the {claims} claims with devices is idle is not known"
    known = claims - unknown
    rest = f"; of {unknown} more it is not known" if unknown else ""
    return f"{idle or 'none'} of {known} sampled claims {'have' if idle > 1 else 'has'} idle devices{rest}"


def _describe(cluster: ClusterIndex, row: ClaimRow, idle: Idleness) -> IdleClaim:
    ref = ObjectRef(row.subject.namespace, row.subject.name)
    pod = cluster.pods.get(ObjectRef(ref.namespace, row.pods[0])) if row.pods else None
    owner = find_owner(pod) if pod is not None else ""
    return IdleClaim(
        namespace=ref.namespace,
        name=ref.name,
        pods=row.pods,
        owner=owner,
        nodes=row.nodes,
        idle=idle,
        next_step=_advise(ref, row.pods, owner),
    )


def _advise(claim: ObjectRef, pods: Sequence[str], owner: str) -> str:
    if not pods:
        return f"no pod uses it: kubectl delete resourceclaim {claim.name} -n {claim.namespace}"
    pod = f"{pods[0]} -n {claim.namespace}"
    end = f"end {owner}, which owns the pod" if owner else f"kubectl delete pod {pod}"
    return f"kubectl logs {pod} says what it does; if it is not needed any more, {end}"
