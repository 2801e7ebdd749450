"""One pass over one class: look, decide, write what is needed, count, say what became of it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from api.core.v1 import Node, ObjectReference
from api.errors import KerfError
from api.kerf.v1alpha1 import API_VERSION, ResourceClassObject
from api.model.claims import DeviceClass
from api.model.names import ObjectRef
from api.wire import Kind
from driver.controller.device_types import known_device_types
from driver.controller.structured.class_compiler import CompiledClass
from driver.controller.structured.match_counts import CompileSelector, blame, count
from driver.controller.structured.matching_devices import Published
from driver.controller.structured.plan import InPlace, plan
from driver.controller.structured.snapshot import Snapshot, Written
from driver.controller.structured.status import Announcement, Matched, announcements, differ, status_of
from driver.controller.structured.writer import Writing, carry_out, write_status
from driver.kube.assume_cache import AssumeCache
from driver.kube.events import EventKind
from driver.kube.http.errors import NotFoundError
from driver.kube.store import Store
from driver.runtime import metrics

_PASS_BUCKETS_S: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
"""From a pass that finds nothing to do (about 1 ms) to one that waits for a busy API server."""
_ASK_AGAIN_S: Final = 600.0
"""How long the server is taken to drop a field again that it dropped once: feature gates change with a restart."""

_passes: Final = metrics.histogram(
    "kerf_controller_pass_seconds", "Time of one pass over one class.", (), _PASS_BUCKETS_S
)
_writes: Final = metrics.counter("kerf_controller_writes_total", "Writes to the API server.", ("object",))
_classes: Final = metrics.gauge("kerf_controller_classes", "ResourceClasses by their condition Ready.", ("ready",))

_log = logging.getLogger(__name__)


class Announcing(Protocol):
    """What a pass needs of the event reporter; it returns at once and never raises."""

    def report(self, about: ObjectReference, *, type: EventKind, reason: str, message: str) -> None: ...  # noqa: A002


@dataclass(frozen=True, slots=True, kw_only=True)
class Caches:
    """What the informers know, with own writes."""

    resource_classes: AssumeCache[ResourceClassObject]
    device_classes: AssumeCache[DeviceClass]
    nodes: Store[Node]
    published: Published


class Reconciler:
    """Works on classes by name. Keeps nothing that a restart would miss: only what it wrote not long ago."""

    def __init__(
        self,
        client: Writing,
        device_classes: Kind[DeviceClass],
        caches: Caches,
        *,
        driver: str,
        compile_selector: CompileSelector,
        events: Announcing,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._client = client
        self._device_classes = device_classes
        self._caches = caches
        self._driver = driver
        self._compile_selector = compile_selector
        self._events = events
        self._now = now
        self._monotonic = monotonic
        self._written: dict[str, Written] = {}
        self._ready: dict[str, bool] = {}

    async def reconcile(self, name: str) -> None:
        """Bring the DeviceClass and the status of one class to what they should be.

        Raises TransientError when it should be tried again.
        """
        ref = ObjectRef("", name)
        held = self._caches.resource_classes.get(ref)
        if held is None or held.is_terminating:  # what was compiled from it is garbage-collected
            self._written.pop(name, None)
            self._tell_ready(name, None)
            return
        snapshot = Snapshot(
            resource_class=held,
            device_class=self._caches.device_classes.get(ref),
            written=self._recently_written(name),
            nodes=tuple(self._caches.nodes.values()),
            device_types=known_device_types(self._caches.published.device_types()),
        )
        with _passes.time():
            await self._pass(snapshot)

    def _recently_written(self, name: str) -> Written | None:
        written = self._written.get(name)
        return written if written is not None and self._monotonic() - written.at < _ASK_AGAIN_S else None

    async def _pass(self, snapshot: Snapshot) -> None:
        held = snapshot.resource_class
        decided = plan(snapshot, driver=self._driver)
        standing, answer = await carry_out(decided.step, self._client, self._device_classes)
        if answer is not None and decided.compiled is not None:
            _writes.labels("DeviceClass").inc()
            self._caches.device_classes.assume(answer)
            self._written[held.metadata.name] = Written(
                desired=decided.compiled.device_class, answer=answer, at=self._monotonic()
            )
        status = status_of(held, decided, standing, self._match(decided.compiled), now=self._now())
        self._tell_ready(held.metadata.name, isinstance(standing, InPlace) and not standing.dropped)
        if not differ(held.status, status):
            return
        try:
            written = await write_status(self._client, held, status)
        except NotFoundError:
            return  # the class went while we looked at it
        _writes.labels("ResourceClass").inc()
        self._caches.resource_classes.assume(written)
        for announcement in announcements(held.status, status):
            self._announce(held, announcement)

    def _tell_ready(self, name: str, ready: bool | None) -> None:
        """For the metric; None: the class is gone."""
        if ready is None:
            self._ready.pop(name, None)
        else:
            self._ready[name] = ready
        for value in (True, False):
            _classes.labels(str(value).lower()).set(sum(one is value for one in self._ready.values()))

    def _match(self, compiled: CompiledClass | None) -> Matched:
        if compiled is None:
            return Matched(devices=None, reason="the class is not accepted")
        try:
            devices = count(compiled, self._caches.published.groups(), self._compile_selector)
            if devices.total:
                return Matched(devices=devices)
            why = blame(compiled, self._caches.published.groups(), self._compile_selector)
            return Matched(devices=devices, reason=why.message, is_awaited=compiled.is_awaited(why.field))
        except KerfError as error:
            return Matched(devices=None, reason=str(error))

    def _announce(self, held: ResourceClassObject, announcement: Announcement) -> None:
        metadata = held.metadata
        about = ObjectReference(
            api_version=API_VERSION,
            kind="ResourceClass",
            name=metadata.name,
            uid=metadata.uid,
        )
        log = _log.warning if announcement.type == "Warning" else _log.info
        log("ResourceClass %s: %s: %s", metadata.name, announcement.reason, announcement.message)
        self._events.report(about, type=announcement.type, reason=announcement.reason, message=announcement.message)
