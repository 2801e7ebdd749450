"""An informer: a store that follows the API server by list and watch, as client-go's reflector does.

::

    list ──> watch ──event──> store, on_change
      ^        │ ended by the server, or broken:  watch again where it stopped
      └────────┴ resource version not there:      list again; the differences are delivered as changes

Every failure is retried for ever, after a back-off that only progress (the event of an object, or a watch that lasted)
resets: a server that fails every call gets less than a request a second after the first few. Resource versions of a
watch never fall, and bookmarks are rare: what is otherwise is a failure, too, after which the objects are listed again.

A watch can also be wrong without a sign, and stay silent for ever: a proxy may lose events, or a bookmark say a version
of the future. So every few hours a list is compared with the store, while the watch goes on. What differs although the
watch has had the time to show it is logged and counted, and the objects are listed again.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final, Generic, Protocol

import anyio
from anyio.abc import TaskGroup

from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.metadata import ObjectT, version_number
from kerf_dra.api.model.names import ObjectRef, list_names
from kerf_dra.api.wire import Kind
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import (
    AccessError,
    AnswerTooLargeError,
    ApiError,
    ExpiredError,
    InconsistentAnswerError,
    InvalidError,
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
_CHECK_S: Final = 4 * 3600.0
"""The least time between two lists that are compared with the store, up to doubled so that 5,000 nodes do not list at
once: a node lists a few times a day, and a watch that misses events is found out within a working day."""
_CHECK_GRACE_S: Final = 60.0
"""Time for the watch to show what a list has: healthy ones take less than a second, busy API servers some more."""
_BOOKMARKS: Final = 10
"""Bookmarks that a watch may have at once, and then one each second: servers send one about every minute (KEP-956)."""
_LASTED_S: Final = 10.0
"""Seconds after which a watch counts as a success, even without an event."""

_LIST_AGAIN: Final = (ExpiredError, InvalidError, UnexpectedAnswerError, AnswerTooLargeError, InconsistentAnswerError)
"""Failures after which the watch does not go on where it stopped: the version may be the reason."""

_log = logging.getLogger(__name__)

_events: Final = metrics.counter("kerf_informer_events_total", "Watch events received.", ("resource", "type"))
_lists: Final = metrics.counter(
    "kerf_informer_lists_total", "Complete lists read: one at start, more where a watch could not go on.", ("resource",)
)
_missed: Final = metrics.counter(
    "kerf_informer_missed_total", "Objects that a watch has shown wrong or not at all, as a list showed.", ("resource",)
)
_failures: Final = metrics.counter("kerf_informer_failures_total", "Lists and watches that failed.", ("resource",))


@dataclass(slots=True)
class _WatchCheck:
    """The comparison of one list with what the watch shows."""

    shown: int
    """The version up to which the watch had shown all changes before the list was read."""
    seen: set[ObjectRef] = field(default_factory=set)
    """The objects of which the watch has shown something since."""
    is_disturbed: bool = False
    """Whether nothing follows from it: the watch has failed since, and the objects were listed again, or will be."""


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
        self._must_list = False  # whatever the version
        self._watching: anyio.CancelScope | None = None
        self._check: _WatchCheck | None = None  # the one that goes on
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

    def relist(self) -> None:
        """List again soon: the watch has not shown what it should have."""
        self._must_list = True
        if self._watching is not None:
            self._watching.cancel()

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._check_now_and_then)
            await self._follow_for_ever()

    async def _follow_for_ever(self) -> None:
        delays, logged = RETRIES.delays(self._random), ""
        while True:
            self._progressed, began, resumed = False, anyio.current_time(), bool(self._version)
            error = await self._follow()
            lasted = anyio.current_time() - began >= _LASTED_S
            if (self._progressed or lasted) and not isinstance(error, InconsistentAnswerError):
                delays, logged = RETRIES.delays(self._random), ""
            if isinstance(error, _LIST_AGAIN):
                self._version = ""
            if error is not None and self._check is not None:  # unknown is what the watch would have shown
                self._check.is_disturbed = self._must_list = True
            if (error is None and (lasted or self._must_list)) or (resumed and isinstance(error, ExpiredError)):
                continue  # the server answers: an expired list is read again at once
            asked_s = (isinstance(error, StatusError) and error.retry_after_s) or 0.0
            delay_s = max(next(delays), min(asked_s, _LONGEST_WAIT_S))
            if error is not None:
                _failures.labels(self._kind.plural).inc()
                level = logging.DEBUG if str(error) == logged else logging.WARNING  # a missing permission may stay so
                _log.log(level, "cannot follow %s: %s; again in %.1f s", self._kind.plural, error, delay_s)
                logged = str(error)
            await anyio.sleep(delay_s)

    async def _follow(self) -> ApiError | AccessError | None:
        """List where needed, and watch until the server ends it (None) or a call fails."""
        try:
            if self._must_list or not self._version:
                await self._list()
            with anyio.CancelScope() as self._watching:
                await self._watch()
        except (ApiError, AccessError) as error:
            return error
        return None

    async def _list(self) -> None:
        self._must_list = False
        listed = await self._client.list_all(self._kind, self._namespace, **self._selectors)
        if not listed.resource_version:
            raise self._contradiction("the list has no resource version")
        _lists.labels(self._kind.plural).inc()
        if self._check is not None:
            self._check.is_disturbed = True
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
        began, bookmarks = anyio.current_time(), 0
        async with aclosing(watch) as events:
            async for event in events:
                bookmarks += event.type is EventType.BOOKMARK
                if bookmarks > _BOOKMARKS + anyio.current_time() - began:
                    raise self._contradiction(f"the watch sent {bookmarks} bookmarks and nothing that needs them")
                if 0 < (number := version_number(event.resource_version)) < self._shown:
                    raise self._contradiction(f"the watch went back from version {self._shown} to {number}")
                self._version = event.resource_version or self._version
                self._shown = version_number(self._version)
                _events.labels(self._kind.plural, event.type).inc()
                self._handle(event)

    def _contradiction(self, reason: str) -> InconsistentAnswerError:
        return InconsistentAnswerError(f"GET {self._kind.path(self._namespace)}", reason)

    async def _check_now_and_then(self) -> None:
        while True:
            await anyio.sleep(_CHECK_S * (1 + self._random.random()))
            try:
                missed = await self._find_missed()
            except (ApiError, AccessError) as error:
                _log.info("cannot compare a list of %s with what the watch has shown: %s", self._kind.plural, error)
                continue
            if missed:
                _missed.labels(self._kind.plural).inc(len(missed))
                message = "the watch of %s has missed changes, which a list shows: %s; listing again"
                _log.error(message, self._kind.plural, list_names(missed))
                self.relist()

    async def _find_missed(self) -> list[str]:
        """Return what a list has otherwise than the watch has shown by _CHECK_GRACE_S later."""
        if not self.synced:
            return []
        check = self._check = _WatchCheck(self._shown)
        try:
            listed = await self._client.list_all(self._kind, self._namespace, **self._selectors)
            await anyio.sleep(_CHECK_GRACE_S)
        finally:
            self._check = None
        if check.is_disturbed:
            return []
        at = version_number(listed.resource_version)
        present = {value.ref: value.metadata.resource_version for value in listed.items}
        known = {value.ref: value.metadata.resource_version for value in self.store.values()}
        differing = {ref for ref in present.keys() | known.keys() if present.get(ref) != known.get(ref)}
        missed = sorted(str(ref) for ref in differing - check.seen - listed.unreadable)
        is_ahead = 0 < at < check.shown
        return missed or ([f"its version {check.shown} is beyond that of the list, {at}"] if is_ahead else [])

    def _handle(self, event: WatchEvent[ObjectT]) -> None:
        if event.ref is None:
            return
        self._progressed = True
        if self._check is not None:
            self._check.seen.add(event.ref)
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

    A list that cannot be read should end the process with its name: a person who inspects the pod sees what is missing,
    and Kubernetes starts it again. ``hint`` says what may be the reason. Raises NotListedError.
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
