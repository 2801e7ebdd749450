"""The parts that work on one node while its instance is active, wired together.

They live as long as the instance holds the lock; its sockets live as long as the process. At the end work in flight
ends; slices stay published for a successor.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from kerf_dra import cdi
from kerf_dra.api.dra.health import DeviceHealth
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.kubeletplugin.backends.base import Backend, DescribedBackend
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint
from kerf_dra.driver.kubeletplugin.claims.checkpoint.preparation_notes import CheckpointNotes
from kerf_dra.driver.kubeletplugin.claims.claim_users import ClaimUsers
from kerf_dra.driver.kubeletplugin.claims.device_metadata import FOLDER, MetadataFiles
from kerf_dra.driver.kubeletplugin.claims.early_preparation import EarlyPreparer
from kerf_dra.driver.kubeletplugin.claims.garbage_collection import ClaimGarbageCollector
from kerf_dra.driver.kubeletplugin.claims.hardware import HardwareExecutor
from kerf_dra.driver.kubeletplugin.claims.held_claims import HeldClaims
from kerf_dra.driver.kubeletplugin.claims.preparer import ClaimPreparer
from kerf_dra.driver.kubeletplugin.claims.record_lifecycle import RecordLifecycle
from kerf_dra.driver.kubeletplugin.claims.refused_claims import RefusedClaims
from kerf_dra.driver.kubeletplugin.claims.repair.device_repairer import DeviceRepairer
from kerf_dra.driver.kubeletplugin.claims.repair.file_repairer import FileRepairer
from kerf_dra.driver.kubeletplugin.claims.repair.number_repairer import NumberRepairer
from kerf_dra.driver.kubeletplugin.claims.repair.prepared_records import PreparedRecords
from kerf_dra.driver.kubeletplugin.claims.status_writer import DeviceStatusWriter
from kerf_dra.driver.kubeletplugin.claims.steps import StepExecutor
from kerf_dra.driver.kubeletplugin.cluster.base import (
    Cluster,
    DiscoveredDeviceSource,
    NodeReporter,
    follow_publication,
)
from kerf_dra.driver.kubeletplugin.cluster.claim_end import SeenClaims
from kerf_dra.driver.kubeletplugin.deviceplugin.discovered_device_offer import DiscoveredDeviceOffer, UserKeeper
from kerf_dra.driver.kubeletplugin.deviceplugin.placements import PlacementOffer
from kerf_dra.driver.kubeletplugin.deviceplugin.reservation_keeper import ReservationKeeper
from kerf_dra.driver.kubeletplugin.deviceplugin.resource_allocator import ListDeviceUses, ResourceAllocator
from kerf_dra.driver.kubeletplugin.deviceplugin.resource_collector import ResourceCollector
from kerf_dra.driver.kubeletplugin.inventory.metrics.claim_metrics import ClaimMetrics
from kerf_dra.driver.kubeletplugin.inventory.metrics.resource_metrics import serve_resource_metrics
from kerf_dra.driver.kubeletplugin.inventory.metrics.usage_metrics import UsageMetrics
from kerf_dra.driver.kubeletplugin.inventory.node_state import build_node_state
from kerf_dra.driver.kubeletplugin.inventory.publisher import DevicePublisher
from kerf_dra.driver.kubeletplugin.inventory.surveyor import HardwareSurveyor
from kerf_dra.driver.kubeletplugin.maintenance.hooks import HookFolder
from kerf_dra.driver.kubeletplugin.maintenance.work_file import FILE_NAME, WorkFile
from kerf_dra.driver.kubeletplugin.maintenance.worker import MaintenanceWorker
from kerf_dra.driver.kubeletplugin.node_features import FeatureFile, build_node_features, follow_cards
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.kubeletplugin.usage.sampler import UsageSampler
from kerf_dra.driver.runtime.concurrency import UnansweredCalls
from kerf_dra.driver.runtime.notifier import forward
from kerf_dra.driver.runtime.worker_threads import Work


async def _nobody_says() -> None:
    """Stand for a kubelet that says nothing about device IDs."""


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
        list_uses: Callable[[], Awaitable[Sequence[ClaimUse] | None]],
        list_device_uses: ListDeviceUses = _nobody_says,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        start_call: Callable[[Work], None] | None = None,
    ) -> None:
        """``backends`` are by name. Claims are worked on in ``tasks``, which outlives the kubelet's calls;
        ``list_uses`` asks the kubelet which claims its pods use, ``list_device_uses`` which device IDs they have.

        Tests on a virtual clock give the last three: Unix time and monotonic time in seconds, and how work that blocks
        is begun: calls to hardware, and files that are written.
        """
        self._now = now
        self._clock = clock
        self._list_uses = list_uses
        self._list_device_uses = list_device_uses
        self._settings = settings
        self._cluster = cluster
        self._backends = backends
        self._checkpoint = checkpoint
        self._boot_id = boot_id
        # A power cut ends the boot, and records of an earlier boot count as *started*: their files are written again.
        self._store = cdi.Store(settings.cdi_dir, cdi.VolatileFilesystem())
        # In the kubelet's directory: the container runtime must find the files under the path that the plugin has.
        self._metadata = MetadataFiles(settings.plugin_dir / FOLDER)
        self.state = build_node_state(
            settings.driver_name,
            checkpoint.records,
            now=now,
            clock=clock,
            node=settings.node_name,
            selections={choice.name: choice.cards for choice in settings.backends},
        )
        self.card_executor = CardExecutor(
            backends,
            call_timeout_s=settings.family.call_timeout_s,
            discovery_timeout_s=settings.discovery_timeout_s,
            now=now,
            start=start_call,
        )
        self._claim_metrics = ClaimMetrics(
            driver=settings.driver_name, node=settings.node_name, state=self.state, now=now
        )
        self._usage_metrics = UsageMetrics(
            driver=settings.driver_name, node=settings.node_name, state=self.state, claims=self._claim_metrics
        )
        self._surveyor = self._make_surveyor()
        self.publisher = self._make_publisher()
        self._refused_claims = self._make_refused_claims()
        self._hardware = HardwareExecutor(
            self.card_executor, settings.family.configurations, checkpoint, boot_id=boot_id
        )
        self._seen_claims = SeenClaims()
        self._unanswered_calls = UnansweredCalls()
        self._status_writer = self._make_status_writer()
        self._usage_sampler = self._make_usage_sampler()
        self._executor = self._make_executor()
        self.lifecycle = self._make_lifecycle(tasks)
        self.preparer = self._make_preparer()
        self._discovered = self._make_discovered_offer()
        self.allocator = self._make_allocator()
        self._prepared = PreparedRecords(checkpoint=checkpoint, boot_id=boot_id, flights=self.lifecycle.flights)
        self._file_repairer = self._make_file_repairer()
        self._device_repairer = self._make_device_repairer()
        self._garbage_collector = self._make_garbage_collector()
        self._early_preparer = self._make_early_preparer()
        self._reservation_keeper = self._make_reservation_keeper()
        self._resource_collector = self._make_resource_collector()
        self._maintenance_worker = self._make_maintenance_worker()

    def report_health(self) -> Sequence[DeviceHealth]:
        """Return the health of every device in use."""
        restrictions = self.state.restrictions
        return self.state.health.build_reports(
            self._checkpoint.records.values(), restrictions.refusals.placements, restrictions.surveys.is_missing
        )

    async def initialize(self) -> None:
        """Discover and survey the cards, then repair the files of claims: then claims can be prepared.

        Files of prepared claims may have been removed while no plugin ran; a CDI file without a record is reported.
        """
        self._describe(await self._cluster.descriptions.list_now() or ())
        self._maintenance_worker.resume()
        if (maintenances := await self._cluster.maintenances.list_now()) is not None:
            self.state.note_maintenances(maintenances)
        await self.publisher.refresh()
        await self._usage_sampler.restore()
        self._garbage_collector.check_files()
        await self.preparer.restore_files()
        self._prepared.adopt_interrupted(self._file_repairer.find_cdi_file)

    async def drain(self, grace_s: float) -> None:
        """Begin no more work, wait at most ``grace_s`` seconds for the running work, and cancel the rest."""
        await self.lifecycle.drain(grace_s)

    async def close(self) -> None:
        """Close the backends. No more work may run: calls that hang would go on (``has_hanging_calls``)."""
        await self.card_executor.close_backends()
        self.card_executor.close()

    async def run(self) -> None:
        """Publish the devices, watch and survey their cards, and collect garbage, until cancelled."""
        settings, reservations = self._settings, self.state.restrictions.reservations
        served = serve_resource_metrics(driver=settings.driver_name, node=settings.node_name, reservations=reservations)
        with self._claim_metrics.served(), self._usage_metrics.served(), served:
            await self._run_services()

    async def _run_services(self) -> None:
        async with anyio.create_task_group() as services:
            services.start_soon(self._prepare_early)
            if self._needs_early_preparation():
                with anyio.move_on_after(self._settings.claims_sync_timeout_s):
                    await self._early_preparer.synced.wait()
            services.start_soon(self._cluster.run, self.state.request_publication)
            services.start_soon(follow_publication, self._cluster, self.state)
            services.start_soon(self.publisher.run)
            services.start_soon(self._garbage_collector.run)
            services.start_soon(self._surveyor.run)
            services.start_soon(self._surveyor.follow_stuck)
            services.start_soon(self._file_repairer.run)
            services.start_soon(self._device_repairer.run)
            services.start_soon(self._refused_claims.run)
            services.start_soon(self._status_writer.run)
            services.start_soon(self._usage_sampler.run)
            services.start_soon(self._cluster.descriptions.follow, self._describe_anew)
            services.start_soon(self._cluster.maintenances.follow, self.state.note_maintenances)
            services.start_soon(self._maintenance_worker.run)
            services.start_soon(self._reservation_keeper.run)
            if self._settings.features_dir is not None:
                services.start_soon(self._write_features, self._settings.features_dir)
            services.start_soon(self._resource_collector.run)
            for change in (self.state.refreshed, self.state.restrictions.reservations.changed):
                services.start_soon(forward, change, self.allocator.changed)
            if self._cluster.discovered_devices is not None and self._discovered is not None:
                services.start_soon(forward, self._cluster.discovered_devices.changed, self.allocator.changed)
                services.start_soon(self._keep_users, self._cluster.discovered_devices, self._discovered)
            for name in self._backends:
                services.start_soon(self.publisher.watch_health, name)

    async def _write_features(self, folder: Path) -> None:
        """Have the node's labels say what its cards are, until cancelled."""
        driver = self._settings.driver_name

        def build() -> Mapping[str, str] | None:
            return build_node_features(driver, self.state.cards) if self.publisher.problem is None else None

        await follow_cards(self.state.refreshed, FeatureFile(folder, driver), build)

    def _describe(self, documents: Sequence[JsonObject]) -> None:
        for backend in self._backends.values():
            if isinstance(backend, DescribedBackend):
                backend.describe(documents)

    def _describe_anew(self, documents: Sequence[JsonObject]) -> None:
        self._describe(documents)
        self.state.request_publication()

    async def _prepare_early(self) -> None:
        """Prepare claims early from the moment on when there are devices that need it: no other part watches claims."""
        while not self._needs_early_preparation():
            await self.state.refreshed.wait()
        await self._early_preparer.run()

    def _needs_early_preparation(self) -> bool:
        devices, optional_devices = self.state.devices, self._cluster.target.optional_devices
        return devices.has_slow_loads(self._settings.early_load_s) or devices.has_early_devices(optional_devices)

    def _make_publisher(self) -> DevicePublisher:
        return DevicePublisher(
            cluster=self._cluster,
            card_executor=self.card_executor,
            state=self.state,
            settings=self._settings,
            events=NodeReporter(self._cluster),
            surveyor=self._surveyor,
            recorded_cards=self._checkpoint,
            boot_id=self._boot_id,
        )

    def _make_surveyor(self) -> HardwareSurveyor:
        return HardwareSurveyor(
            card_executor=self.card_executor,
            state=self.state,
            boot_id=self._boot_id,
            notes=CheckpointNotes(self._checkpoint, self._boot_id),
            settings=self._settings,
            allocated=HeldClaims(cluster=self._cluster, driver=self._settings.driver_name, state=self.state),
            events=NodeReporter(self._cluster),
        )

    def _make_refused_claims(self) -> RefusedClaims:
        return RefusedClaims(
            cluster=self._cluster,
            checkpoint=self._checkpoint,
            state=self.state,
            driver=self._settings.driver_name,
            surveyor=self._surveyor,
        )

    def _make_executor(self) -> StepExecutor:
        return StepExecutor(
            driver=self._settings.driver_name,
            boot_id=self._boot_id,
            checkpoint=self._checkpoint,
            hardware=self._hardware,
            store=self._store,
            metadata=self._metadata,
            state=self.state,
            start=self.card_executor.start,
        )

    def _make_lifecycle(self, tasks: TaskGroup) -> RecordLifecycle:
        return RecordLifecycle(
            boot_id=self._boot_id,
            checkpoint=self._checkpoint,
            executor=self._executor,
            state=self.state,
            tasks=tasks,
            surveyor=self._surveyor,
        )

    def _make_preparer(self) -> ClaimPreparer:
        return ClaimPreparer(
            driver=self._settings.driver_name,
            configurations=self._settings.family.configurations,
            lifecycle=self.lifecycle,
            checkpoint=self._checkpoint,
            executor=self._executor,
            cluster=self._cluster,
            state=self.state,
            hardware=self._hardware,
            status_writer=self._status_writer,
            seen=self._seen_claims,
            unanswered=self._unanswered_calls,
            refused=self._refused_claims,
            claim_metrics=self._claim_metrics,
        )

    def _make_allocator(self) -> ResourceAllocator:
        return ResourceAllocator(
            lifecycle=self.lifecycle,
            checkpoint=self._checkpoint,
            executor=self._executor,
            offer=self._discovered
            or PlacementOffer(checkpoint=self._checkpoint, state=self.state, cluster=self._cluster),
            hardware=self._hardware,
            list_uses=self._list_device_uses,
        )

    def _make_discovered_offer(self) -> DiscoveredDeviceOffer | None:
        source = self._cluster.discovered_devices
        if source is None:
            return None
        target = self._cluster.target
        return DiscoveredDeviceOffer(source, driver=target.driver, node=target.node, state=self.state)

    async def _keep_users(self, source: DiscoveredDeviceSource, offer: DiscoveredDeviceOffer) -> None:
        keeper = UserKeeper(
            source,
            node=self._settings.node_name,
            offer=offer,
            allocator=self.allocator,
            checkpoint=self._checkpoint,
            interval_s=self._settings.collect_unused_interval_s,
        )
        await keeper.run()

    def _make_reservation_keeper(self) -> ReservationKeeper:
        return ReservationKeeper(settings=self._settings, cluster=self._cluster, state=self.state)

    def _make_resource_collector(self) -> ResourceCollector:
        return ResourceCollector(
            settings=self._settings,
            cluster=self._cluster,
            checkpoint=self._checkpoint,
            allocator=self.allocator,
            list_uses=self._list_device_uses,
            surveys=self.state.restrictions.surveys,
            clock=self._clock,
        )

    def _make_file_repairer(self) -> FileRepairer:
        return FileRepairer(
            settings=self._settings,
            boot_id=self._boot_id,
            records=self._prepared,
            executor=self._executor,
            store=self._store,
            metadata=self._metadata,
            cluster=self._cluster,
            start=self.card_executor.start,
        )

    def _make_number_repairer(self) -> NumberRepairer:
        return NumberRepairer(
            settings=self._settings,
            boot_id=self._boot_id,
            checkpoint=self._checkpoint,
            records=self._prepared,
            executor=self._executor,
            hardware=self._hardware,
            state=self.state,
            status_writer=self._status_writer,
            cluster=self._cluster,
        )

    def _make_device_repairer(self) -> DeviceRepairer:
        return DeviceRepairer(
            settings=self._settings,
            records=self._prepared,
            executor=self._executor,
            surveyor=self._surveyor,
            hardware=self._hardware,
            state=self.state,
            status_writer=self._status_writer,
            numbers=self._make_number_repairer(),
            cluster=self._cluster,
        )

    def _make_status_writer(self) -> DeviceStatusWriter:
        return DeviceStatusWriter(
            driver=self._settings.driver_name,
            boot_id=self._boot_id,
            cluster=self._cluster,
            state=self.state,
            hardware=self._hardware,
            now=self._now,
            removal_s=self._settings.status_removal_s,
            seen=self._seen_claims,
            unanswered=self._unanswered_calls,
            is_sampling=self._settings.sample_interval_s is not None,
        )

    def _make_usage_sampler(self) -> UsageSampler:
        return UsageSampler(
            settings=self._settings,
            boot_id=self._boot_id,
            card_executor=self.card_executor,
            state=self.state,
            status_writer=self._status_writer,
        )

    def _make_early_preparer(self) -> EarlyPreparer:
        return EarlyPreparer(
            settings=self._settings,
            state=self.state,
            cluster=self._cluster,
            preparer=self.preparer,
            status_writer=self._status_writer,
            checkpoint=self._checkpoint,
            now=self._now,
        )

    def _make_maintenance_worker(self) -> MaintenanceWorker:
        hooks = self._settings.maintenance_hooks_dir
        return MaintenanceWorker(
            cluster=self._cluster,
            card_executor=self.card_executor,
            state=self.state,
            settings=self._settings,
            surveyor=self._surveyor,
            work_file=WorkFile(self._settings.state / FILE_NAME),
            events=NodeReporter(self._cluster),
            hooks=None if hooks is None else HookFolder(path=hooks),
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
            users=ClaimUsers(
                records=self._checkpoint.records,
                surveys=self.state.restrictions.surveys,
                list_uses=self._list_and_note_uses,
                cluster=self._cluster,
                start=self.card_executor.start,
            ),
            state=self.state,
            seen=self._seen_claims,
            clock=self._clock,
        )

    async def _list_and_note_uses(self) -> Sequence[ClaimUse] | None:
        uses = await self._list_uses()
        self._claim_metrics.note_uses(uses or ())
        return uses
