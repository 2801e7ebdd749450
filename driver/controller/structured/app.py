"""The controller where kube-scheduler allocates (Kubernetes 1.32 and later): informers feed a queue of classes.

::

    ResourceClass  DeviceClass  ResourceSlice  Node      informers
          └────────────┴──────┬──────┴───────────┘
                         event_handlers                  which classes to reconcile
                           WorkQueue                     merged, one worker per class
                           reconciler                    in the leader only
            plan, writer, matching_devices, status       plan (pure), writes, counts, report (pure)
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import anyio

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.errors import KerfError
from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES, ResourceClassObject
from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.wire import projected_kind
from kerf_dra.driver.controller.candidate import run_candidate
from kerf_dra.driver.controller.projections import LABELED_NODES, share_selected_nodes
from kerf_dra.driver.controller.repeated_writes import write_repeatedly
from kerf_dra.driver.controller.settings import NAME, ExtenderSettings, Settings
from kerf_dra.driver.controller.structured.device_groups import DeviceGroupIndex, GroupedSlice
from kerf_dra.driver.controller.structured.discovery.reconciler import DiscoveryReconciler
from kerf_dra.driver.controller.structured.event_handlers import ClassCaches, ClassEventHandlers
from kerf_dra.driver.controller.structured.extender_activity import ExtenderActivity
from kerf_dra.driver.controller.structured.fpga_objects import FpgaStatusWriter
from kerf_dra.driver.controller.structured.graded_placement import GradedPlacement
from kerf_dra.driver.controller.structured.matching_devices import DevicePredicate
from kerf_dra.driver.controller.structured.orphaned_slices import OrphanedSliceCollector
from kerf_dra.driver.controller.structured.reconciler import ClassReconciler
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.kube.assume_cache import AssumeCache
from kerf_dra.driver.kube.discovery import ApiFeatures
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.informer import AnyInformer, Informer
from kerf_dra.driver.kube.store import ObjectChange
from kerf_dra.driver.runtime.work_queue import WorkQueue

if TYPE_CHECKING:
    from kerf_dra.driver.controller.structured.placement.app import PlacementExtender

_DISCOVERY_SETTLE_S: Final = 0.2
"""Seconds from a change of discovered devices to what is written for it: nodes that see the same one write together."""


class StructuredController:
    """The parts of the controller process and their connections."""

    def __init__(
        self, client: Client, features: ApiFeatures, settings: Settings, families: Mapping[str, Family]
    ) -> None:
        """``families`` are the installed ones by name: classes of others are not accepted."""
        self._client = client
        self._settings = settings
        self._queue: WorkQueue[str] = WorkQueue(name="classes")
        self._events = EventReporter(client, component=NAME, instance=settings.identity)
        self._resource_classes = Informer(
            client, RESOURCE_CLASSES, on_change=lambda change: self._event_handlers.on_resource_class(change)
        )
        self._device_classes = Informer(
            client,
            features.resource.device_classes,
            on_change=self._on_device_class,
        )
        published = DeviceGroupIndex(families.values())
        slices = features.resource.resource_slices
        grouped_slices = projected_kind(slices, GroupedSlice, published.project)
        self._slices = {
            name: Informer(client, grouped_slices, field_selector=_select(family), on_change=self._on_slice)
            for name, family in families.items()
            if family != SHARED
        }
        self._shared_slices = Informer(  # whole, of one device each: the controller compares and writes them
            client,
            projected_kind(slices, ResourceSlice, share_selected_nodes),
            field_selector=_select(SHARED),
            on_change=self._on_shared_slice,
        )
        self._nodes = Informer(client, LABELED_NODES, on_change=self._on_node)
        caches = ClassCaches(
            resource_classes=AssumeCache(self._resource_classes.store),
            device_classes=AssumeCache(self._device_classes.store),
            nodes=self._nodes.store,
            published=published,
        )
        self._event_handlers = ClassEventHandlers(
            self._queue, caches, recount_s=settings.recount_s, settle_s=settings.settle_s
        )
        self._grading = GradedPlacement(client)
        self._activity: ExtenderActivity | None = None
        if settings.extender is not None:
            self._activity = ExtenderActivity(client, settings.lease, now=lambda: datetime.now(UTC))
        self._reconciler = ClassReconciler(
            client,
            features.resource.device_classes,
            caches,
            families=families,
            described_types=lambda: self._fpga_status.device_types,
            compile_selector=_compile_selector,
            grading=self._grading,
            extender=self._activity,
            events=self._events,
            now=lambda: datetime.now(UTC),
            monotonic=time.monotonic,
        )
        self._orphaned_slices = OrphanedSliceCollector(
            client,
            features.resource.resource_slices,
            self._all_slices,
            self._nodes.store.values,
            interval_s=settings.orphan_check_s,
        )
        self._discovery = DiscoveryReconciler(
            client,
            features.resource,
            device_classes=caches.device_classes,
            slices=self._shared_slices.store,
            nodes=self._nodes.store,
            events=self._events,
            settle_s=min(settings.settle_s, _DISCOVERY_SETTLE_S),
            retry_s=settings.recount_s,
            now=lambda: datetime.now(UTC),
        )
        self._placement: PlacementExtender | None = None
        if settings.extender is not None and self._activity is not None:
            self._placement = _make_extender(
                client,
                features,
                settings.extender,
                self._activity,
                self._nodes,
                self._device_classes,
                self._resource_classes,
            )
        fpga_slices = self._slices.get(FPGA.name)
        self._fpga_status = FpgaStatusWriter(
            client,
            fpga_slices.store.values if fpga_slices is not None else tuple,
            interval_s=settings.recount_s,
            now=lambda: datetime.now(UTC),
            on_change=self._event_handlers.requeue_all,
        )

    async def run(self) -> None:
        """Run until cancelled."""
        informers: Mapping[str, AnyInformer] = {
            "resourceclasses": self._resource_classes,
            "deviceclasses": self._device_classes,
            **{f"resourceslices of {name}": informer for name, informer in self._slices.items()},
            f"resourceslices of {SHARED.name}": self._shared_slices,
            "nodes": self._nodes,
            **(self._placement.informers if self._placement is not None else {}),
        }
        async with anyio.create_task_group() as group:
            if self._placement is not None:
                group.start_soon(self._placement.run)  # in every replica: the scheduler may ask any
                group.start_soon(self._follow_activity)
            await run_candidate(self._client, self._settings, self._events, informers, self._lead)
            group.cancel_scope.cancel()

    async def _lead(self) -> None:
        """Work as the leader, without end."""
        with suppress(KerfError):  # tried again in every round
            await self._exchange_activity()  # so that no class is reported as it was before a scheduler asked
        await self._grading.refresh()  # nor as without graded placement
        async with anyio.create_task_group() as group:
            group.start_soon(self._resync)
            group.start_soon(self._follow_grading)
            group.start_soon(self._orphaned_slices.run)
            group.start_soon(self._fpga_status.run)
            group.start_soon(self._discovery.run)
            await self._queue.run(self._reconciler.reconcile, workers=self._settings.workers)

    def _on_device_class(self, change: ObjectChange[DeviceClass]) -> None:
        self._event_handlers.on_device_class(change)
        self._discovery.on_device_class(change)

    def _all_slices(self) -> Iterator[ResourceSlice]:
        for informer in self._slices.values():
            yield from informer.store.values()
        yield from self._shared_slices.store.values()

    def _on_slice(self, change: ObjectChange[GroupedSlice]) -> None:
        self._event_handlers.on_slice(change)

    def _on_shared_slice(self, change: ObjectChange[ResourceSlice]) -> None:
        self._event_handlers.on_slice(change)
        self._discovery.on_slice(change)

    def _on_node(self, change: ObjectChange[Node]) -> None:
        self._event_handlers.on_node(change)
        self._discovery.on_node(change)
        if self._placement is not None:
            self._placement.index.on_node(change)

    async def _follow_activity(self) -> None:
        """Report and read whether schedulers ask the extender, until cancelled."""
        await write_repeatedly(
            self._exchange_activity, what="whether schedulers ask the extender", interval_s=self._settings.exchange_s
        )

    async def _exchange_activity(self) -> None:
        """Queue all classes if their placements are in effect from now on, or no longer. Raises ApiError."""
        if self._activity is not None and await self._activity.exchange():
            self._event_handlers.requeue_all()

    async def _follow_grading(self) -> None:
        """Queue all classes whenever graded placement is enabled or disabled, until cancelled."""
        while True:
            await anyio.sleep(self._settings.grading_check_s)
            if await self._grading.refresh():
                self._event_handlers.requeue_all()

    async def _resync(self) -> None:
        while True:
            self._event_handlers.requeue_all()
            await anyio.sleep(self._settings.resync_s)


def _select(family: Family) -> str:
    """Return the field selector of a family's slices: one driver at a time, because selectors know no "or"."""
    return f"spec.driver={family.driver}"


def _make_extender(
    client: Client,
    features: ApiFeatures,
    settings: ExtenderSettings,
    activity: ExtenderActivity,
    nodes: Informer[Node],
    device_classes: Informer[DeviceClass],
    resource_classes: Informer[ResourceClassObject],
) -> "PlacementExtender":
    from kerf_dra.driver.controller.structured.placement.app import PlacementExtender  # the allocator loads CEL

    return PlacementExtender(
        client,
        features,
        settings,
        activity,
        nodes=nodes,
        device_classes=device_classes,
        resource_classes=resource_classes,
    )


def _compile_selector(expression: str) -> DevicePredicate:
    from kerf_dra.driver.cel.compile import compile_selector  # 40 MB that a waiting candidate need not hold

    return compile_selector(expression).matches
