"""The parts that work on one node while its instance is active, wired together.

They live as long as the instance holds the lock; its sockets live as long as the process. At the end work in flight
ends; slices stay published for a successor.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

import cdi
from api.dra.health import DeviceHealth
from driver.kubeletplugin.backends.base import Backend
from driver.kubeletplugin.backends.card_executor import CardExecutor
from driver.kubeletplugin.claims.checkpoint import Checkpoint
from driver.kubeletplugin.claims.device_metadata import FOLDER, MetadataFiles
from driver.kubeletplugin.claims.early_preparation import EarlyPreparer
from driver.kubeletplugin.claims.garbage_collection import ClaimGarbageCollector
from driver.kubeletplugin.claims.hardware import HardwareExecutor
from driver.kubeletplugin.claims.preparer import ClaimPreparer
from driver.kubeletplugin.claims.steps import StepExecutor
from driver.kubeletplugin.cluster.base import Cluster
from driver.kubeletplugin.inventory.devices import PublishTarget
from driver.kubeletplugin.inventory.health import DeviceHealthTracker
from driver.kubeletplugin.inventory.publisher import DevicePublisher
from driver.kubeletplugin.settings import Settings


class NodePlugin:
    """The active plugin of one node."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        backends: Mapping[str, Backend],
        checkpoint: Checkpoint,
        *,
        boot_id: str,
        tasks: TaskGroup,
        on_health_change: Callable[[], None],
    ) -> None:
        """``backends`` are by name. Claims are worked on in ``tasks``, which outlives the kubelet's calls;
        ``on_health_change`` is called when the health of a device in use may have changed.
        """
        self._settings = settings
        self._cluster = cluster
        self._backends = backends
        self._checkpoint = checkpoint
        self._boot_id = boot_id
        # A power cut ends the boot, and records of an earlier boot count as *started*: their files are written anew.
        self._store = cdi.Store(settings.cdi_dir, cdi.VolatileFilesystem())
        # In the kubelet's directory: the container runtime must find the files under the path that the plugin has.
        self._metadata = MetadataFiles(settings.plugin_dir / FOLDER)
        self._health_tracker = DeviceHealthTracker(driver=settings.driver_name, now=time.time)
        self._on_health_change = on_health_change
        self.card_executor = CardExecutor(
            backends,
            call_timeout_s=settings.hardware_timeout_s,
            discovery_timeout_s=settings.discovery_timeout_s,
            on_change=self._records_changed,
        )
        self.publisher = self._make_publisher()
        self.preparer = self._make_preparer(tasks)
        self._garbage_collector = self._make_garbage_collector()
        self._early_preparer = self._make_early_preparer()

    def report_health(self) -> Sequence[DeviceHealth]:
        """Return the health of every device in use."""
        return self._health_tracker.build_reports(self._checkpoint.records.values())

    async def initialize(self) -> None:
        """Discover the cards, and remove files of claims without a record: then claims can be prepared."""
        await self.publisher.refresh()
        self._garbage_collector.remove_stray_files()

    async def run(self) -> None:
        """Publish the devices, watch their health and collect garbage, until cancelled."""
        async with anyio.create_task_group() as services:
            if self.publisher.devices.has_slow_loads(self._settings.early_load_s):
                services.start_soon(self._early_preparer.run)
                with anyio.move_on_after(self._settings.claims_sync_timeout_s):
                    await self._early_preparer.synced.wait()
            services.start_soon(self._cluster.run, self.publisher.request_refresh)
            services.start_soon(self.publisher.run)
            services.start_soon(self._garbage_collector.run)
            for name in self._backends:
                services.start_soon(self.publisher.watch_health, name)

    def _make_publisher(self) -> DevicePublisher:
        return DevicePublisher(
            target=self._find_target,
            card_executor=self.card_executor,
            records=self._checkpoint.records,
            publish=self._cluster.publish,
            health_tracker=self._health_tracker,
            on_health_change=self._on_health_change,
            settings=self._settings,
        )

    def _find_target(self) -> PublishTarget:
        """Return the target, with binding conditions only while the early preparer sets them."""
        early_load_s = self._settings.early_load_s if self._early_preparer.is_active else None
        return replace(self._cluster.target, early_load_s=early_load_s)

    def _make_preparer(self, tasks: TaskGroup) -> ClaimPreparer:
        executor = StepExecutor(
            driver=self._settings.driver_name,
            boot_id=self._boot_id,
            checkpoint=self._checkpoint,
            hardware=HardwareExecutor(
                self.card_executor, self._checkpoint, self._settings.family.configurations, boot_id=self._boot_id
            ),
            store=self._store,
            metadata=self._metadata,
            on_change=self._records_changed,
        )
        return ClaimPreparer(
            driver=self._settings.driver_name,
            configurations=self._settings.family.configurations,
            boot_id=self._boot_id,
            checkpoint=self._checkpoint,
            executor=executor,
            cluster=self._cluster,
            publisher=self.publisher,
            tasks=tasks,
        )

    def _make_early_preparer(self) -> EarlyPreparer:
        return EarlyPreparer(
            settings=self._settings,
            publisher=self.publisher,
            cluster=self._cluster,
            preparer=self.preparer,
            checkpoint=self._checkpoint,
            health_tracker=self._health_tracker,
            now=time.time,
        )

    def _make_garbage_collector(self) -> ClaimGarbageCollector:
        return ClaimGarbageCollector(
            settings=self._settings,
            boot_id=self._boot_id,
            preparer=self.preparer,
            checkpoint=self._checkpoint,
            store=self._store,
            metadata=self._metadata,
            cluster=self._cluster,
            clock=time.monotonic,
        )

    def _records_changed(self) -> None:
        self.publisher.request_refresh()
        self._on_health_change()
