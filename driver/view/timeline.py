"""The way of a claim from its request to a running container, by the times that the API shows.

Each moment is in the object of who has reached it, and has whole seconds. The clocks are those of the API server, of
the node and of the scheduler: one that is ahead makes a phase negative, which is shown as it is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import Condition
from kerf_dra.driver.diagnostics.times import seconds_between


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One moment of a claim's way."""

    name: str
    time: str
    """RFC 3339; empty: it has not come, or no object says when."""
    source: str
    """The field that says it."""
    seconds: float | None
    """Seconds since the latest moment before it whose time is known; None: one of both times is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The moments of a claim in the order in which they come."""

    moments: tuple[Moment, ...]
    total_s: float | None
    """Seconds from the first to the last moment; None: the last has not come."""


def build_timeline(claim: ResourceClaim, pod: Pod | None) -> Timeline:
    """Return the way of ``claim`` with the first pod that uses it, if there is one."""
    moments: list[Moment] = []
    latest = ""
    for name, time, source in _list_moments(claim, pod):
        seconds = seconds_between(latest or None, time or None)
        moments.append(Moment(name=name, time=time, source=source, seconds=seconds))
        latest = time or latest
    total = seconds_between(moments[0].time or None, moments[-1].time or None)
    return Timeline(moments=tuple(moments), total_s=total)


def _list_moments(claim: ResourceClaim, pod: Pod | None) -> Iterator[tuple[str, str, str]]:
    begin = [("claim created", claim.metadata.creation_timestamp or "", "claim metadata.creationTimestamp")]
    if pod is not None:  # for which the claim may have been created, in the same second
        begin.insert(0, ("pod created", pod.metadata.creation_timestamp or "", "pod metadata.creationTimestamp"))
    yield from sorted(begin, key=itemgetter(1))
    allocation = claim.status.allocation
    time = (allocation.allocation_timestamp or "") if allocation else ""
    yield "devices allocated", time, "claim status.allocation.allocationTimestamp"
    conditions = pod.status.conditions if pod is not None else ()
    if pod is not None:
        yield "pod bound to its node", _find_true(conditions, "PodScheduled"), "pod condition PodScheduled"
    yield "devices prepared", _find_prepared(claim), "claim status.devices, condition Ready"
    if pod is not None:
        sandbox = _find_true(conditions, "PodReadyToStartContainers")
        yield "ready to start containers", sandbox, "pod condition PodReadyToStartContainers"
        yield "running", _find_true(conditions, "Ready"), "pod condition Ready"


def _find_true(conditions: Sequence[Condition], type_: str) -> str:
    return next(
        (each.last_transition_time or "" for each in conditions if (each.type, each.status) == (type_, "True")), ""
    )


def _find_prepared(claim: ResourceClaim) -> str:
    """Return when the last device became ready; empty: one is not, or its driver does not report it."""
    allocation = claim.status.allocation
    ready = {
        (each.driver, each.pool, each.device, each.share_id): _find_true(each.conditions, "Ready")
        for each in claim.status.devices
    }
    results = allocation.devices.results if allocation else ()
    times = [ready.get((*each.id, each.share_id), "") for each in results]
    return max(times) if times and all(times) else ""
