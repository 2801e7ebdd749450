"""Kubernetes Events, which ``kubectl describe`` shows.

Reporting never blocks, never raises, and never delays other calls. Repeats of an event about an object increase the
count of one Event object, as in client-go's recorder; an event that cannot be sent is dropped and counted.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, Never, TypeAlias
from uuid import uuid4

import anyio

from kerf_dra.api.core.v1 import EVENTS, Event, EventSource, ObjectReference
from kerf_dra.api.errors import KerfError, TransientError
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import MAX_SUBDOMAIN, ObjectRef
from kerf_dra.api.model.times import format_time
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.errors import AlreadyExistsError, NotFoundError
from kerf_dra.driver.kube.http.write_history import WriteHistory
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.work_queue import WorkQueue

EventKind: TypeAlias = Literal["Normal", "Warning"]

MAX_MESSAGE: Final = 1024
"""The longest message of an Event, in characters (core/v1 validation)."""
_MAX_PENDING: Final = 256
"""Distinct events that may wait: more of them means that the server is unreachable."""
_MAX_SENT: Final = 1024
"""Distinct events whose Event objects are known, for their counts; a few hundred bytes each."""
_INTERVAL_S: Final = 10.0
"""Seconds between two writes of one event: its count need not be exact at every moment."""

_log = logging.getLogger(__name__)

_dropped: Final = metrics.counter("kerf_events_dropped_total", "Kubernetes Events that could not be sent.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _EventKey:
    """The identity of an event: reports with equal keys are repeats of it."""

    about: ObjectReference
    type: EventKind
    reason: str
    message: str

    def __str__(self) -> str:
        return f"event {self.reason} about {self.about.kind} {ObjectRef(self.about.namespace, self.about.name)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _SentEvent:
    """The Event object of a key, as it was last written."""

    name: str
    count: int
    at: float


class EventReporter:
    """Reports events of ``component`` (``kerf-controller``) that runs as ``instance`` (the pod or the node)."""

    def __init__(
        self,
        client: Client,
        *,
        component: str,
        instance: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._component = component
        self._instance = instance
        self._now = now
        self._pending: OrderedDict[_EventKey, int] = OrderedDict()
        self._waiting: Counter[str] = Counter()
        """How many of the pending events are about objects of each namespace."""
        self._sent: OrderedDict[_EventKey, _SentEvent] = OrderedDict()
        self._names: dict[_EventKey, str] = {}
        """The names of the Event objects of pending events: a creation without an answer may have happened."""
        self._queue = WorkQueue[_EventKey]()

    def report(self, about: ObjectReference, *, type: EventKind, reason: str, message: str) -> None:  # noqa: A002
        """Report an event about an object. ``reason`` is one CamelCase word, ``message`` is for people."""
        if len(message) > MAX_MESSAGE:
            message = f"{message[: MAX_MESSAGE - 2]} …"
        key = _EventKey(about=about, type=type, reason=reason, message=message)
        if key not in self._pending and len(self._pending) >= _MAX_PENDING:
            self._drop(self._find_displaced())
        if key not in self._pending:
            self._waiting[key.about.namespace] += 1
        self._pending[key] = self._pending.get(key, 0) + 1
        sent = self._sent.get(key)
        self._queue.add(key, after_s=max(0.0, sent.at + _INTERVAL_S - anyio.current_time()) if sent else 0.0)

    async def run(self) -> None:
        """Write events until cancelled."""
        await self._queue.run(self._write, workers=1)

    async def _write(self, key: _EventKey) -> None:
        count = self._pending.get(key, 0)
        if not count:
            return  # dropped in the meantime
        try:
            await self._send(key, count)
        except TransientError:
            raise  # the queue retries it
        except KerfError as error:  # forbidden, or the namespace is going away
            _log.info("%s: %s", key, error)
            self._drop(key)
            return
        if key in self._pending:  # else it was dropped in the meantime
            self._pending[key] -= count
            if self._pending[key] == 0:
                self._forget(key)

    async def _send(self, key: _EventKey, count: int) -> None:
        sent = self._sent.pop(key, None)
        if sent is not None:
            with suppress(NotFoundError):  # Events are deleted after an hour
                await self._raise_count(key, sent.name, sent.count + count)
                return
        event = self._event(key, count)
        try:
            await self._client.create(EVENTS, event)
        except AlreadyExistsError:  # by a try whose answer was lost
            await self._raise_count(key, event.metadata.name, count)
        else:
            self._remember(key, _SentEvent(name=event.metadata.name, count=count, at=anyio.current_time()))

    async def _raise_count(self, key: _EventKey, name: str, count: int) -> None:
        patch = {"count": count, "lastTimestamp": self._timestamp()}
        await self._client.patch(EVENTS, name, patch, type=PatchType.MERGE, namespace=_namespace(key.about))
        self._remember(key, _SentEvent(name=name, count=count, at=anyio.current_time()))

    def _remember(self, key: _EventKey, sent: _SentEvent) -> None:
        self._sent[key] = sent
        if len(self._sent) > _MAX_SENT:
            self._sent.popitem(last=False)

    def _find_displaced(self) -> _EventKey:
        """Return the oldest event of the namespace with most of them: a flood about one displaces no other's."""
        crowded = max(self._waiting, key=self._waiting.__getitem__)
        return next(key for key in self._pending if key.about.namespace == crowded)

    def _drop(self, key: _EventKey) -> None:
        _dropped.inc(self._forget(key))

    def _forget(self, key: _EventKey) -> int:
        """Return how often an event was reported that no longer waits; 0: it did not wait."""
        self._names.pop(key, None)
        if key not in self._pending:
            return 0
        namespace = key.about.namespace
        self._waiting[namespace] -= 1
        if not self._waiting[namespace]:
            del self._waiting[namespace]
        return self._pending.pop(key)

    def _event(self, key: _EventKey, count: int) -> Event:
        suffix = f".{uuid4().hex[:16]}"
        name = key.about.name[: MAX_SUBDOMAIN - len(suffix)].rstrip("-.") + suffix
        name = self._names.setdefault(key, name)
        now = self._timestamp()
        return Event(
            metadata=ObjectMeta(name=name, namespace=_namespace(key.about)),
            involved_object=key.about,
            type=key.type,
            reason=key.reason,
            message=key.message,
            count=count,
            first_timestamp=now,
            last_timestamp=now,
            source=EventSource(component=self._component),
            reporting_component=self._component,
            reporting_instance=self._instance,
        )

    def _timestamp(self) -> str:
        return format_time(self._now())


def _namespace(about: ObjectReference) -> str:
    """Return the namespace of events about the object: ``default`` for cluster-scoped ones, as in Kubernetes."""
    return about.namespace or "default"


async def report_undone_writes(
    history: WriteHistory, events: EventReporter, about: ObjectReference | None = None
) -> Never:
    """Report each loop of writes by an event about its object, or about ``about``, until cancelled."""
    while True:
        change = history.changed.next_event
        for loop in history.take_loops():
            events.report(about or loop.about, type="Warning", reason="WriteUndone", message=str(loop))
        await change.wait()
