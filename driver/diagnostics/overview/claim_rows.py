"""The claims of a cluster as rows: what each has, who uses it, whether it waits, and whether its devices are idle.

A row is a claim, or a pod that waits for devices and has no claim yet. Why a row waits is the report of ``kerf why``.

A node writes ``idleSince`` into ``status.devices[].data`` of a device that has not been used for some minutes, and
removes it at the next use; ``sampled`` says that it does so for the device. A device without either is not idle: it is
unknown whether it is used (docs/what-a-claim-uses.md).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.kerf.device_status import IDLE_SINCE, SAMPLED
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.allocation.explain.holders import PoolKey
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex, pods_of
from kerf_dra.driver.diagnostics.explain.pod_claims import describe_claim
from kerf_dra.driver.diagnostics.explain.pod_status import is_in_order
from kerf_dra.driver.diagnostics.explain.report import Cause, Subject, WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_claim, explain_pod
from kerf_dra.driver.diagnostics.times import format_seconds, seconds_between


@dataclass(frozen=True, slots=True, kw_only=True)
class Idleness:
    """The devices of one claim that are idle."""

    devices: tuple[str, ...]
    """The idle ones, each as ``driver/pool/device``."""
    is_whole: bool
    """Whether these are all devices of the claim."""
    since: str
    """The time from which on all of them have been idle, in RFC 3339."""
    seconds: int
    """The time since then, never less than 0, whatever clocks do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """One claim, or one pod that waits for devices and has no claim."""

    subject: Subject
    """What it is, as ``kerf why`` names it."""
    pods: tuple[str, ...]
    """The pods that use the claim or wait for it; they are in its namespace."""
    nodes: tuple[str, ...]
    state: str
    """``allocated``, ``pending`` or ``deleting``."""
    waits: bool
    """Whether it has not got its devices, is to end, or a pod of it is not in order."""
    age_s: int | None
    """Seconds since it was created, never less than 0, whatever clocks do; None: it is unknown."""
    devices: tuple[str, ...]
    """The devices, each as ``driver/pool/device``."""
    is_sampled: bool = False
    """Whether its node says of any of its devices when that is idle."""
    idle: Idleness | None = None
    """Its idle devices; None: there is none, or that is unknown."""
    why: WhyReport | None = None
    """Why it waits; None: it does not, or it has not been found out yet."""

    @property
    def cause(self) -> Cause | None:
        """The most important cause why it waits; None where ``why`` has none."""
        return self.why.causes[0] if self.why is not None and self.why.causes else None

    @property
    def shown_state(self) -> str:
        """The state, with the time for which its devices are idle in place of ``allocated``, such as ``idle 3 h``."""
        if self.idle is None or self.state != "allocated":
            return self.state
        return f"{'' if self.idle.is_whole else 'part '}idle {format_seconds(self.idle.seconds)}"


def find_rows(cluster: ClusterIndex) -> list[ClaimRow]:
    """Return a row for each claim, and for each pod that waits without one: those that wait first, then by name."""
    users = _find_users(cluster)
    node_of = find_pool_nodes(cluster)
    rows = [_describe_claim_row(cluster, claim, users[claim.ref], node_of) for claim in cluster.claims.values()]
    with_claims = {pod.ref for ref, pods in users.items() if ref in cluster.claims for pod in pods}
    rows += [
        _describe_pod_row(cluster, pod)
        for ref, pod in cluster.pods.items()
        if ref not in with_claims and not is_in_order(pod)
    ]
    return sort_rows(rows, "waiting")


def find_pool_nodes(cluster: ClusterIndex) -> dict[PoolKey, str]:
    """Return the node of each pool; empty: several nodes can use it."""
    return {each.pool_id: each.published.node_name or "" for each in cluster.slices.compact}


def choose_explained(rows: Iterable[ClaimRow], explained: Mapping[Subject, int], most: int) -> list[ClaimRow]:
    """Return at most ``most`` rows that wait, to explain them next: without a report first, then with the oldest.

    ``explained`` has the number of the reading of which the report of a row is.
    """
    waiting = [row for row in rows if row.waits]
    return sorted(waiting, key=lambda row: explained.get(row.subject, -1))[:most]


def explain_row(cluster: ClusterIndex, subject: Subject) -> WhyReport:
    """Return the report of ``kerf why`` on the subject of a row. Raises QueryError when it does not exist any more."""
    ref = ObjectRef(subject.namespace, subject.name)
    if subject.kind == "Pod":
        return explain_pod(cluster, ref, with_preference=False)
    return explain_claim(cluster, ref)


def matches(row: ClaimRow, text: str) -> bool:
    """Whether ``text`` is in what a row says, in any case of letters."""
    cause = (row.cause.code, row.cause.message) if row.cause else ()
    words = (
        f"{row.subject.namespace}/{row.subject.name}",
        *row.pods,
        *row.nodes,
        row.shown_state,
        *row.devices,
        *cause,
    )
    return any(text.casefold() in word.casefold() for word in words)


SORT_KEYS: Final[Mapping[str, Callable[[ClaimRow], Any]]] = MappingProxyType(
    {
        "waiting": lambda row: not row.waits,
        "name": lambda row: (row.subject.namespace, row.subject.name),
        "age": lambda row: row.age_s if row.age_s is not None else float("inf"),
        "node": lambda row: (not row.nodes, row.nodes),
        "state": lambda row: row.state,
        "idle": lambda row: -row.idle.seconds if row.idle is not None else 1,
    }
)
"""What rows can be sorted by; rows that are the same in it are in the order of their names."""


def sort_rows(rows: Iterable[ClaimRow], key: str, *, is_reverse: bool = False) -> list[ClaimRow]:
    """Return ``rows`` sorted by ``key`` of SORT_KEYS."""
    return sorted(sorted(rows, key=SORT_KEYS["name"]), key=SORT_KEYS[key], reverse=is_reverse)


def find_idleness(claim: ResourceClaim, now: str) -> Idleness | None:
    """Return the idle devices of ``claim``; ``now`` is in RFC 3339. A time that cannot be read counts as none."""
    reports = _list_reports(claim)
    times = [(device, data.get(IDLE_SINCE)) for device, data in reports]
    idle = [
        (seconds, since, device)
        for device, since in times
        if isinstance(since, str) and (seconds := seconds_between(since, now)) is not None
    ]
    if not idle:
        return None
    seconds, since, _ = min(idle)
    return Idleness(
        devices=tuple(dict.fromkeys(device for _, _, device in idle)),
        is_whole=len(idle) == len(reports),
        since=since,
        seconds=max(0, int(seconds)),
    )


def _list_reports(claim: ResourceClaim) -> Sequence[tuple[str, JsonObject]]:
    """Return each device of ``claim`` with what its node reports of it."""
    reported = {(each.driver, each.pool, each.device, each.share_id): each.data or {} for each in claim.status.devices}
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    return [(str(each.id), reported.get((*each.id, each.share_id), {})) for each in results]


def _find_users(cluster: ClusterIndex) -> Mapping[ObjectRef, Sequence[Pod]]:
    """Return the pods that name each claim."""
    found: dict[ObjectRef, list[Pod]] = defaultdict(list)
    for ref, pod in sorted(cluster.pods.items()):
        for name in dict.fromkeys(pod.all_claim_names):
            found[ObjectRef(ref.namespace, name)].append(pod)
    return found


def _describe_claim_row(
    cluster: ClusterIndex, claim: ResourceClaim, users: Sequence[Pod], node_of: Mapping[PoolKey, str]
) -> ClaimRow:
    state = describe_claim(claim)
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    of_devices = [node_of.get((each.driver, each.pool), "") for each in results]
    nodes = dict.fromkeys(node for node in (*of_devices, *(pod.spec.node_name for pod in users)) if node)
    names = dict.fromkeys((*(ref.name for ref in sorted(pods_of(claim))), *(pod.metadata.name for pod in users)))
    return ClaimRow(
        subject=Subject(kind="ResourceClaim", namespace=claim.metadata.namespace, name=claim.metadata.name),
        pods=tuple(names),
        nodes=tuple(nodes),
        state="deleting" if claim.is_terminating else state.state,
        waits=state.state != "allocated" or claim.is_terminating or not all(map(is_in_order, users)),
        age_s=_find_age(claim.metadata.creation_timestamp, cluster.state.gathered_at),
        devices=state.devices,
        is_sampled=any(data.get(SAMPLED) is True or IDLE_SINCE in data for _, data in _list_reports(claim)),
        idle=find_idleness(claim, cluster.state.gathered_at),
    )


def _describe_pod_row(cluster: ClusterIndex, pod: Pod) -> ClaimRow:
    return ClaimRow(
        subject=Subject(kind="Pod", namespace=pod.metadata.namespace, name=pod.metadata.name),
        pods=(pod.metadata.name,),
        nodes=(pod.spec.node_name,) if pod.spec.node_name else (),
        state="deleting" if pod.is_terminating else "pending",
        waits=True,
        age_s=_find_age(pod.metadata.creation_timestamp, cluster.state.gathered_at),
        devices=(),
    )


def _find_age(created_at: str | None, now: str) -> int | None:
    """Return an age; the clocks of the API server and of this machine differ, and may be set back."""
    seconds = seconds_between(created_at, now)
    return None if seconds is None else max(0, int(seconds))
