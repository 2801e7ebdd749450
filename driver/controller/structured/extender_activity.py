"""When a scheduler last asked the extender, in any replica of the controller.

The replica that is asked need not lead, and only the leader writes the status of classes. So a replica that is asked
writes the time, at most once in ``_REPORT``, into an annotation of the Lease that all replicas know, and each reads it
there. A write is a PUT at the version that was read: it never changes who leads, and if the leader renews the Lease
meanwhile, the next round tries again.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Protocol

from msgspec.structs import replace

from kerf_dra.api.core.v1 import LEASES, Lease
from kerf_dra.api.model.metadata import ObjectT
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.times import format_time
from kerf_dra.api.wire import Kind
from kerf_dra.driver.controller.structured.placement_verdict import ExtenderState, judge_extender
from kerf_dra.driver.kube.http.errors import ConflictError, NotFoundError

ASKED_AT: Final = "kerf.dev/extender-asked-at"
"""The annotation of the Lease: the time in RFC 3339 at which a scheduler asked a replica."""
_REPORT: Final = timedelta(minutes=10)
"""The time between two reports: each is one write, and candidates see the Lease change once more; still well below the
time for which a request counts."""


class LeaseClient(Protocol):
    """The calls of ``kerf_dra.driver.kube.http.client.Client``, with its errors."""

    async def get(self, kind: Kind[ObjectT], name: str, namespace: str = "") -> ObjectT: ...

    async def update(self, kind: Kind[ObjectT], value: ObjectT, *, subresource: str = "") -> ObjectT: ...


class ExtenderActivity:
    """Whether schedulers ask the extender, as one replica knows it."""

    def __init__(self, client: LeaseClient, lease: ObjectRef, *, now: Callable[[], datetime]) -> None:
        self._client = client
        self._lease = lease
        self._now = now
        self._asked_at: datetime | None = None
        """The last request to this replica."""
        self._reported_at: datetime | None = None
        """The last request to any replica, as the Lease says."""
        self._last_state = ExtenderState.NOT_ASKED

    def note_asked(self) -> None:
        """Note that a scheduler asks this replica now."""
        self._asked_at = self._now()

    @property
    def state(self) -> ExtenderState:
        """Whether schedulers ask the extender, by all that is known."""
        known = [each for each in (self._asked_at, self._reported_at) if each is not None]
        return judge_extender(max(known, default=None), self._now())

    async def exchange(self) -> bool:
        """Read what the replicas have reported, report for this one, and return whether the state has changed.

        The state counts as changed since the last exchange. Raises ApiError.
        """
        await self._read_and_report()
        before, self._last_state = self._last_state, self.state
        return self._last_state != before

    async def _read_and_report(self) -> None:
        try:
            lease = await self._client.get(LEASES, self._lease.name, self._lease.namespace)
        except NotFoundError:
            return  # no replica has led yet
        self._reported_at = _read_time(lease, self._now())
        if self._asked_at is None or (self._reported_at and self._asked_at - self._reported_at < _REPORT):
            return
        annotations = {**lease.metadata.annotations, ASKED_AT: format_time(self._asked_at)}
        try:
            await self._client.update(LEASES, replace(lease, metadata=replace(lease.metadata, annotations=annotations)))
        except (ConflictError, NotFoundError):
            return  # the leader has renewed it meanwhile
        self._reported_at = self._asked_at


def _read_time(lease: Lease, now: datetime) -> datetime | None:
    """Return the reported time; None: there is none, or one that no clock of a healthy cluster would have written."""
    try:
        found = datetime.fromisoformat(lease.metadata.annotations.get(ASKED_AT, ""))
    except ValueError:
        return None
    if found.tzinfo is None or found > now + _REPORT:
        return None
    return min(found, now)
