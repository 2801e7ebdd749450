"""An informer: a store that follows the API server by list and watch, as client-go's reflector does.

::

    list ──> watch ──event──> store, on_change
      ^        │ ended by the server, or broken:  watch again where it stopped
      └────────┴ resource version not there:      list again; the differences are delivered as changes

Every failure is retried for ever, after a back-off that only progress (an event, or a watch that lasted) resets: a
server that fails every call gets less than a request a second after the first few.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from functools import partial
from random import Random
from typing import Final, Generic, Protocol

import anyio
from anyio.abc import TaskGroup

from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.metadata import ObjectT, version_number
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.wire import Kind
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import (
    AccessError,
    AnswerTooLargeError,
    ApiError,
    ExpiredError,
    StatusError,
    UnexpectedAnswerError,
)
from kerf_dra.driver.kube.store import Indexer, ObjectChange, Store
from kerf_dra.driver.kube.watch_decoder import EventType, WatchEvent
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.backoff import Backoff

RETRIES: Final = Backoff(first_s=0.8, factor=2, limit_s=30, jitter=1.0)
"""client-go's reflector: 0.8 s to 30 s, each up to doubled."""

_LONGEST_WAIT_S: Final = 60.0
"""The longest time that a server can ask for, in seconds: nothing that it says may silence an informer for hours."""
_LASTED_S: Final = 10.0
"""Seconds after which a watch counts as a success, even without an event."""

_log = logging.getLogger(__name__)

_events: Final = metrics.counter("kerf_informer_events_total", "Watch events received.", ("resource", "type"))
_lists: Final = metrics.counter(
    "kerf_informer_lists_total", "Complete lists read: one at start, more where a watch could not go on.", ("resource",)
)
_failures: Final = metrics.counter("kerf_informer_failures_total", "Lists and watches that failed.", ("resource",))


class Informer(Generic[ObjectT]):
    """Follows the objects of one kind, or those of them that the namespace and the selectors choose.

    ``on_change`` is the event handler: it is called for every change after the store has it, must be quick and must not
    raise. Changes that were missed are delivered as one, from the known state to the present one.
    """

    store: Store[ObjectT]

    def __init__(
        self,
        client: Client,
        kind: Kind[ObjectT],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, Indexer[ObjectT]] | None = None,
        on_change: Callable[[ObjectChange[ObjectT]], None] | None = None,
        random: Random | None = None,
    ) -> None:
        self._client = client
        self._kind = kind
        self._namespace = namespace
        self._selectors = {"label_selector": label_selector, "field_selector": field_selector}
        self._on_change = on_change
        self._random = random or Random()  # noqa: S311  (jitter, not a secret)
        self._version = ""  # where the next watch starts; empty: list first
        self._shown = 0  # the last one that was known, as a number
        self._progressed = False  # in this round
        self._synced = anyio.Event()
        self._unreadable: set[ObjectRef] = set()
        self.store = Store(indexers)

    @property
    def synced(self) -> bool:
        """Whether the store has held a complete list; it stays true while the server is unreachable."""
        return self._synced.is_set()

    @property
    def unknown(self) -> Collection[ObjectRef]:
        """The objects that exist and have never been readable: nothing of them is in the store."""
        return [ref for ref in self._unreadable if self.store.get(ref) is None]

    @property
    def version(self) -> int:
        """The resource version up to which the store has all changes, as a number (KEP-5504); 0: it is not known.

        An object that existed at this version or before, is readable and is not in the store has been deleted.
        """
        return self._shown

    async def wait_synced(self) -> None:
        await self._synced.wait()

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        delays, told = RETRIES.delays(self._random), ""
        while True:
            self._progressed, began, resumed = False, anyio.current_time(), bool(self._version)
            error = await self._follow()
            lasted = anyio.current_time() - began >= _LASTED_S
            if self._progressed or lasted:
                delays, told = RETRIES.delays(self._random), ""
            if isinstance(error, ExpiredError | UnexpectedAnswerError | AnswerTooLargeError):
                self._version = ""
            if (lasted and error is None) or (resumed and isinstance(error, ExpiredError)):
                continue  # the server answers: an expired list is read again at once
            asked_s = (isinstance(error, StatusError) and error.retry_after_s) or 0.0
            delay_s = max(next(delays), min(asked_s, _LONGEST_WAIT_S))
            if error is not None:
                _failures.labels(self._kind.plural).inc()
                level = logging.DEBUG if str(error) == told else logging.WARNING  # a missing permission may stay so
                _log.log(level, "cannot follow %s: %s; again in %.1f s", self._kind.plural, error, delay_s)
                told = str(error)
            await anyio.sleep(delay_s)

    async def _follow(self) -> ApiError | AccessError | None:
        """List where needed, and watch until the server ends it (None) or a call fails."""
        try:
            if not self._version:
                await self._list()
            await self._watch()
        except (ApiError, AccessError) as error:
            return error
        return None

    async def _list(self) -> None:
        listed = await self._client.list_all(self._kind, self._namespace, **self._selectors)
        _lists.labels(self._kind.plural).inc()
        present = {value.ref for value in listed.items} | listed.unreadable  # the last readable state of these stays
        for ref in self.store.refs():
            if ref not in present:
                self._remove(ref)
        for value in listed.items:
            self._put(value)
        self._unreadable = set(listed.unreadable)
        self._version = listed.resource_version
        self._shown = version_number(self._version)
        self._synced.set()

    async def _watch(self) -> None:
        watch = self._client.watch(self._kind, self._namespace, resource_version=self._version, **self._selectors)
        async with aclosing(watch) as events:
            async for event in events:
                self._progressed = True
                self._version = event.resource_version or self._version
                self._shown = version_number(self._version)
                _events.labels(self._kind.plural, event.type).inc()
                self._handle(event)

    def _handle(self, event: WatchEvent[ObjectT]) -> None:
        if event.ref is None:
            return
        self._unreadable.discard(event.ref)
        if event.type is EventType.DELETED:
            self._remove(event.ref)
        elif event.object is not None:
            self._put(event.object)
        else:
            self._unreadable.add(event.ref)

    def _put(self, value: ObjectT) -> None:
        old = self.store.get(value.ref)
        if old is not None and old.metadata.uid != value.metadata.uid:
            self._remove(value.ref)
            old = None
        if old is not None and old.metadata.resource_version == value.metadata.resource_version:
            return
        self.store.put(value)
        self._notify(ObjectChange(value.ref, old, value))

    def _remove(self, ref: ObjectRef) -> None:
        old = self.store.get(ref)
        if old is not None:
            self.store.remove(ref)
            self._notify(ObjectChange(ref, old, None))

    def _notify(self, change: ObjectChange[ObjectT]) -> None:
        if self._on_change is not None:
            self._on_change(change)


class AnyInformer(Protocol):
    """An informer, whatever its kind."""

    @property
    def synced(self) -> bool: ...
    async def run(self) -> None: ...
    async def wait_synced(self) -> None: ...


class NotListedError(TransientError):
    """Some lists were not read in time."""

    def __init__(self, names: list[str], within_s: float, hint: str) -> None:
        super().__init__(f"not listed within {within_s:g} s: {', '.join(names)}; {hint}")


async def start_informers(
    group: TaskGroup,
    informers: Mapping[str, AnyInformer],
    *,
    add_check: Callable[[str, Callable[[], str | None]], None],
    within_s: float,
    hint: str,
) -> None:
    """Run ``informers`` in ``group``, with a check for each, and wait for their lists: nothing is decided without them.

    A list that cannot be read should end the process with its name: whoever inspects the pod sees what is missing, and
    Kubernetes starts it again. ``hint`` says what may be the reason. Raises NotListedError.
    """
    for name, informer in informers.items():
        add_check(name, partial(_why_not_listed, informer, hint))
        group.start_soon(informer.run)
    with anyio.move_on_after(within_s):
        for informer in informers.values():
            await informer.wait_synced()
    if missing := [name for name, informer in informers.items() if not informer.synced]:
        raise NotListedError(missing, within_s, hint)


def _why_not_listed(informer: AnyInformer, hint: str) -> str | None:
    return None if informer.synced else f"not listed yet; {hint}"
