"""Watches: a cursor in the history of one kind, and a notification that there is more.

A watch has no queue of its own: it reads the shared history at its own pace, and one that falls behind the horizon is
expired (410) like any other. So a slow client costs nothing but its connection.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import anyio

from kerf_dra.driver.local.apiserver.http.query_options import ListOptions
from kerf_dra.driver.local.apiserver.http.serializer import ObjectEncoder
from kerf_dra.driver.local.apiserver.meta.label_selectors import ObjectSelector
from kerf_dra.driver.local.apiserver.meta.status_errors import expired
from kerf_dra.driver.local.apiserver.storage import (
    ExpiredRevisionError,
    GroupResource,
    Storage,
    StorageEvent,
    StoredObject,
)

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark that follows the initial events (KEP-3157)."""


class WatchNotifier:
    """Wakes the watches of a kind when it has changed, and all watches when the server closes."""

    def __init__(self) -> None:
        self._signals: dict[GroupResource, anyio.Event] = {}
        self.closed = False

    def notify(self, resource: GroupResource) -> None:
        signal = self._signals.pop(resource, None)
        if signal:
            signal.set()

    def close(self) -> None:
        self.closed = True
        for resource in list(self._signals):
            self.notify(resource)

    async def wait_changed(self, resource: GroupResource) -> None:
        """Return at the next change of the kind after the call, or when the server closes."""
        if self.closed:
            return
        await self._signals.setdefault(resource, anyio.Event()).wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One watch request."""

    storage: Storage
    watch_notifier: WatchNotifier
    encoder: ObjectEncoder
    namespace: str
    selector: ObjectSelector
    options: ListOptions
    clock: Callable[[], datetime]
    bookmark_interval_s: float
    max_s: float
    """How long a watch without ``timeoutSeconds`` lasts."""

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines, until the watch's time is over, the server closes, or the cursor is behind the horizon."""
        resource = self.encoder.type.store
        deadline = anyio.current_time() + (self.options.timeout_s or self.max_s)
        cursor, initial = self._start()
        for line in initial:
            yield line
        bookmark_due = False
        while True:
            try:
                events = self.storage.events_after(resource, cursor)
            except ExpiredRevisionError as error:
                yield self.encoder.error(expired(str(error)).status)
                return
            cursor = max(cursor, self.storage.revision)
            for line in filter(None, map(self._line, events)):
                yield line
            left = deadline - anyio.current_time()
            over = left <= 0 or self.watch_notifier.closed
            if self.options.bookmarks and (over or bookmark_due):
                yield self.encoder.bookmark(cursor)
            if over:
                return
            if self.storage.revision <= cursor:  # nothing came while those lines were sent
                bookmark_due = await self._wait_changed(min(left, self.bookmark_interval_s))

    async def _wait_changed(self, time_s: float) -> bool:
        """Wait for a change; True when there was none in that time."""
        with anyio.move_on_after(time_s) as scope:
            await self.watch_notifier.wait_changed(self.encoder.type.store)
        return scope.cancelled_caught

    def _start(self) -> tuple[int, Iterator[bytes]]:
        """Return the revision after which events are sent, and the lines before them."""
        requested = self.options.revision
        if requested and not self.options.send_initial_events:
            return requested, iter(())
        current = self.storage.revision
        return current, iter(self._initial(current))

    def _initial(self, revision: int) -> list[bytes]:
        stored = self.storage.items(self.encoder.type.store, self.namespace)
        lines = [self.encoder.event("ADDED", each, self.clock()) for each in stored if self._matches(each)]
        if self.options.send_initial_events and self.options.bookmarks:
            lines.append(self.encoder.bookmark(revision, {INITIAL_EVENTS_END: "true"}))
        return lines

    def _line(self, event: StorageEvent) -> bytes | None:
        """Return a change's line; for the client, an object that begins or ceases to match is added or deleted."""
        was = event.old is not None and self._matches(event.old)
        now = event.new is not None and self._matches(event.new)
        if now:
            return self.encoder.event("MODIFIED" if was else "ADDED", event.last, self.clock())
        if not was or event.old is None:
            return None
        if event.new is None:
            return self.encoder.event("DELETED", event.last, self.clock())
        # The object as the client knows it, at the revision at which it ceased to match.
        return self.encoder.event("DELETED", event.old.at_revision(event.revision), self.clock())

    def _matches(self, stored: StoredObject) -> bool:
        return (not self.namespace or stored.key.namespace == self.namespace) and self.selector.matches(stored.body)
