"""The controller process: informers feed a queue of classes, whoever leads works on it.

Where drivers allocate (Kubernetes 1.27 to 1.31, as discovery tells), ``classic.app`` does its own work instead.

::

    ResourceClass  DeviceClass  ResourceSlice  Node      informers, in every candidate: a new leader starts warm
          └────────────┴──────┬──────┴───────────┘
                          triggering                     which classes need a pass
                           WorkQueue                     merged, one pass per class at a time
                          reconciling                    in the leader only
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

import anyio

from api.core.v1 import NODES
from api.kerf.v1alpha1 import RESOURCE_CLASSES
from driver.controller.settings import LISTING_HINT, Settings
from driver.controller.structured.event_handlers import Triggers
from driver.controller.structured.match_counts import Matches
from driver.controller.structured.matching_devices import Published
from driver.controller.structured.orphaned_slices import Sweeping
from driver.controller.structured.reconciler import Caches, Reconciler
from driver.kube.assume_cache import AssumeCache
from driver.kube.discovery import ApiFeatures, discover, discover_classic
from driver.kube.events import EventReporter
from driver.kube.http.client import Client
from driver.kube.http.config import load_access
from driver.kube.informer import AnyInformer, Informer, start_informers
from driver.kube.leader_election import run_as_leader
from driver.runtime.metrics import REGISTRY
from driver.runtime.probes import Probes
from driver.runtime.work_queue import WorkQueue

NAME: Final = "kerf-controller"


async def run(settings: Settings) -> None:
    """Run until cancelled.

    Raises AccessError when there is no way to the API server, UnsupportedError when it has no usable DRA, and ApiError
    when it cannot be asked at the start.
    """
    access = await load_access(settings.kubeconfig, settings.context)
    async with Client(access, user_agent=f"{NAME}/{version('kerf')}") as client:
        classic = await discover_classic(client)
        if classic is not None:
            from driver.controller.classic.app import ClassicController  # not needed by clusters of today

            await ClassicController(client, classic, settings).run()
        else:
            await _Controller(client, await discover(client), settings).run()


class _Controller:
    """The parts of the process and how they are connected."""

    def __init__(self, client: Client, features: ApiFeatures, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._queue: WorkQueue[str] = WorkQueue()
        self._events = EventReporter(client, component=NAME, instance=settings.identity)
        self._probes = Probes(REGISTRY)
        published = Published()
        self._resource_classes = Informer(
            client, RESOURCE_CLASSES, on_change=lambda change: self._triggers.on_resource_class(change)
        )
        self._device_classes = Informer(
            client,
            features.resource.device_classes,
            on_change=lambda change: self._triggers.on_device_class(change),
        )
        self._slices = Informer(
            client,
            features.resource.resource_slices,
            field_selector=f"spec.driver={settings.driver}",
            on_change=lambda change: self._triggers.on_slice(change),
        )
        self._nodes = Informer(client, NODES, on_change=lambda change: self._triggers.on_node(change))
        caches = Caches(
            resource_classes=AssumeCache(self._resource_classes.store),
            device_classes=AssumeCache(self._device_classes.store),
            nodes=self._nodes.store,
            published=published,
        )
        self._triggers = Triggers(
            self._queue,
            published,
            caches.resource_classes,
            caches.device_classes,
            recount_s=settings.recount_s,
            settle_s=settings.settle_s,
        )
        self._reconciler = Reconciler(
            client,
            features.resource.device_classes,
            caches,
            driver=settings.driver,
            compile_selector=_compile_selector,
            events=self._events,
            now=lambda: datetime.now(UTC),
            monotonic=time.monotonic,
        )
        self._sweeping = Sweeping(
            client,
            features.resource.resource_slices,
            self._slices.store.values,
            self._nodes.store.values,
            interval_s=settings.sweep_s,
        )

    async def run(self) -> None:
        informers: Mapping[str, AnyInformer] = {
            "resourceclasses": self._resource_classes,
            "deviceclasses": self._device_classes,
            "resourceslices": self._slices,
            "nodes": self._nodes,
        }
        settings = self._settings
        async with anyio.create_task_group() as group:
            await group.start(self._probes.serve, settings.probes)
            group.start_soon(self._events.run)
            await start_informers(
                group, informers, add_check=self._probes.add_check, within_s=settings.startup_s, hint=LISTING_HINT
            )
            await run_as_leader(self._client, settings.lease, settings.identity, settings.leading, self._work)
            group.cancel_scope.cancel()

    async def _work(self) -> None:
        """What the leader does, for ever."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._resync)
            group.start_soon(self._sweeping.run)
            await self._queue.run(self._reconciler.reconcile, workers=self._settings.workers)

    async def _resync(self) -> None:
        while True:
            self._triggers.all_classes()
            await anyio.sleep(self._settings.resync_s)


def _compile_selector(expression: str) -> Matches:
    from driver.cel.compile import compile_selector  # 40 MB that a candidate need not hold while it waits

    return compile_selector(expression).matches
