"""Reconciles a ResourceClass: plan, write its DeviceClass, count matching devices, write the status, record events."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Protocol

from kerf_dra.api.core.v1 import ObjectReference
from kerf_dra.api.errors import KerfError
from kerf_dra.api.kerf.v1alpha1 import API_VERSION, ResourceClassObject
from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.wire import Kind
from kerf_dra.driver.controller.device_types import DeviceType, known_device_types
from kerf_dra.driver.controller.structured.class_compiler import CompiledClass
from kerf_dra.driver.controller.structured.event_handlers import ClassCaches
from kerf_dra.driver.controller.structured.extender_activity import ExtenderActivity
from kerf_dra.driver.controller.structured.graded_placement import GradedPlacement
from kerf_dra.driver.controller.structured.matching_devices import (
    SelectorCompiler,
    count_matching_devices,
    explain_mismatch,
    find_unsupported,
)
from kerf_dra.driver.controller.structured.placement_verdict import ExtenderState
from kerf_dra.driver.controller.structured.plan import ClassSnapshot, WriteRecord, plan_class
from kerf_dra.driver.controller.structured.resource_names import ResourceNames, collect_resource_names, resource_of
from kerf_dra.driver.controller.structured.status import (
    ClassEvent,
    MatchCount,
    build_status,
    events_of_change,
    is_ready,
    needs_update,
)
from kerf_dra.driver.controller.structured.writer import WriteClient, execute_action, write_status
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.kube.events import EventKind
from kerf_dra.driver.kube.http.errors import NotFoundError
from kerf_dra.driver.runtime import metrics

_BUCKETS_S: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
"""The buckets range from a pass without a write (about 1 ms) to one that waits for a busy API server."""
_WRITE_AGAIN_S: Final = 600.0
"""The time for which the server is assumed to drop a field again: feature gates change only with a restart."""

_passes: Final = metrics.histogram("kerf_controller_pass_seconds", "Time of one pass over one class.", (), _BUCKETS_S)
_writes: Final = metrics.counter("kerf_controller_writes_total", "Writes to the API server.", ("object",))
_classes: Final = metrics.gauge("kerf_controller_classes", "ResourceClasses by their condition Ready.", ("ready",))

_log = logging.getLogger(__name__)


class EventRecorder(Protocol):
    """Records events (``kerf_dra.driver.kube.events``); it returns at once and never raises."""

    def report(self, about: ObjectReference, *, type: EventKind, reason: str, message: str) -> None: ...  # noqa: A002


class ClassReconciler:
    """Reconciles classes by name. Its only state is its recent writes, which a restart may lose."""

    def __init__(
        self,
        client: WriteClient,
        device_classes: Kind[DeviceClass],
        caches: ClassCaches,
        *,
        families: Mapping[str, Family],
        compile_selector: SelectorCompiler,
        described_types: Callable[[], frozenset[DeviceType]] = frozenset,
        grading: GradedPlacement,
        extender: ExtenderActivity | None = None,
        events: EventRecorder,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        """``described_types`` returns the types of devices that administrators have described; ``grading`` is whether
        graded placement is enabled; ``extender`` is whether schedulers ask the extender, None: it is disabled.
        """
        self._described_types = described_types
        self._grading = grading
        self._extender = extender
        self._client = client
        self._device_classes = device_classes
        self._caches = caches
        self._families = families
        self._compile_selector = compile_selector
        self._events = events
        self._now = now
        self._monotonic = monotonic
        self._written: dict[str, WriteRecord] = {}
        self._ready: dict[str, bool] = {}

    async def reconcile(self, name: str) -> None:
        """Make the DeviceClass and the status of one class what its spec requires.

        Raises TransientError when the API server cannot be reached or the caches are outdated: try again.
        """
        ref = ObjectRef("", name)
        held = self._caches.resource_classes.get(ref)
        if held is None or held.is_terminating:  # its DeviceClass is garbage-collected
            self._written.pop(name, None)
            self._count_ready(name, None)
            return
        snapshot = ClassSnapshot(
            resource_class=held,
            device_class=self._caches.device_classes.get(ref),
            written=self._recent_write(name),
            nodes=tuple(self._caches.nodes.values()),
            device_types=known_device_types(self._caches.published.device_types() | self._described_types()),
            resource_names=collect_resource_names(
                self._caches.resource_classes.values(), self._caches.device_classes.values()
            )
            if resource_of(held.spec)
            else ResourceNames(),
            extender=self._extender.state if self._extender else ExtenderState.DISABLED,
            is_grading_enabled=self._grading.is_enabled,
        )
        with _passes.time():
            await self._reconcile(snapshot)

    def _recent_write(self, name: str) -> WriteRecord | None:
        written = self._written.get(name)
        return written if written is not None and self._monotonic() - written.at < _WRITE_AGAIN_S else None

    async def _reconcile(self, snapshot: ClassSnapshot) -> None:
        held = snapshot.resource_class
        plan = plan_class(snapshot, self._families)
        result, answer = await execute_action(plan.action, self._client, self._device_classes)
        if answer is not None and plan.compiled is not None:
            _writes.labels("DeviceClass").inc()
            self._caches.device_classes.assume(answer)
            self._written[held.metadata.name] = WriteRecord(
                desired=plan.compiled.device_class, answer=answer, at=self._monotonic()
            )
        status = build_status(held, plan, result, self._count_matches(plan.compiled), now=self._now())
        self._count_ready(held.metadata.name, is_ready(status))
        if not needs_update(held.status, status):
            return
        try:
            written = await write_status(self._client, held, status)
        except NotFoundError:
            return  # the class was deleted meanwhile
        _writes.labels("ResourceClass").inc()
        self._caches.resource_classes.assume(written)
        for event in events_of_change(held.status, status):
            self._record_event(held, event)

    def _count_ready(self, name: str, ready: bool | None) -> None:
        """Update the metric; None: the class no longer exists."""
        if ready is None:
            self._ready.pop(name, None)
        else:
            self._ready[name] = ready
        for value in (True, False):
            _classes.labels(str(value).lower()).set(sum(one is value for one in self._ready.values()))

    def _count_matches(self, compiled: CompiledClass | None) -> MatchCount:
        if compiled is None:
            return MatchCount(devices=None, reason="the class is not accepted")
        published = self._caches.published
        try:
            devices = count_matching_devices(compiled, published.groups(), self._compile_selector)
            if devices.total:
                return MatchCount(devices=devices)
            mismatch = explain_mismatch(compiled, published.groups(), self._compile_selector)
            unsupported = find_unsupported(compiled, published.groups(), self._compile_selector)
        except KerfError as error:
            return MatchCount(devices=None, reason=str(error))
        is_awaited = compiled.is_awaited(mismatch.field) and not mismatch.is_final
        return MatchCount(devices=devices, reason=mismatch.message, unsupported=unsupported, is_awaited=is_awaited)

    def _record_event(self, held: ResourceClassObject, event: ClassEvent) -> None:
        name, uid = held.metadata.name, held.metadata.uid
        about = ObjectReference(api_version=API_VERSION, kind="ResourceClass", name=name, uid=uid)
        log = _log.warning if event.type == "Warning" else _log.info
        log("ResourceClass %s: %s: %s", name, event.reason, event.message)
        self._events.report(about, type=event.type, reason=event.reason, message=event.message)
