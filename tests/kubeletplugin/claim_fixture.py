"""The part of the plugin that changes durable state, without its sockets, to be interrupted at any effect."""

import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import anyio
import msgspec
from msgspec.structs import replace

from kerf_dra import cdi
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.allocations import AllocatedDeviceStatus
from kerf_dra.api.model.claims import AllocatedClaim, ResourceClaim
from kerf_dra.api.model.names import ClaimRef, DeviceId, ObjectRef, ShareId
from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.cdi.store import Filesystem
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import AllocatedDevice, Backend, FoundPartition, Handle, Journal
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint, DeviceJournal, open_checkpoint
from kerf_dra.driver.kubeletplugin.claims.claim_users import ClaimUsers
from kerf_dra.driver.kubeletplugin.claims.device_metadata import MetadataFiles
from kerf_dra.driver.kubeletplugin.claims.garbage_collection import ClaimGarbageCollector
from kerf_dra.driver.kubeletplugin.claims.hardware import HardwareExecutor
from kerf_dra.driver.kubeletplugin.claims.preparer import ClaimPreparer
from kerf_dra.driver.kubeletplugin.claims.record_lifecycle import RecordLifecycle
from kerf_dra.driver.kubeletplugin.claims.status_writer import DeviceStatusWriter
from kerf_dra.driver.kubeletplugin.claims.steps import StepExecutor
from kerf_dra.driver.kubeletplugin.cluster.base import NodeReporter
from kerf_dra.driver.kubeletplugin.cluster.claim_end import SeenClaims
from kerf_dra.driver.kubeletplugin.grpc.pod_resources import PodResourcesError
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.metrics.claim_metrics import ClaimMetrics
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.kubeletplugin.inventory.publisher import DevicePublisher
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.kubeletplugin.inventory.state.restrictions import OrphanedDevices
from kerf_dra.driver.kubeletplugin.inventory.state.surveys import SurveyTracker
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.concurrency import UnansweredCalls
from kerf_dra.driver.runtime.worker_threads import Work
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import CONFIGURATIONS, DRIVER, NODE
from tests.fakes.cluster import FakeCluster
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.observed_state import ObservedState
from tests.kubeletplugin.wait import until

CARDS = (gpu(0), gpu(1), fpga(0))
NODE_DEVICES = build_device_set(
    FakeCluster().target, {"fake": CARDS}, (), DeviceHealthTracker(driver=DRIVER, now=lambda: 0), DeviceSet()
)
SETTINGS = Settings(node_name=NODE, family=GPU, backends=())
GRACE_S = SETTINGS.gone_grace_s


def build_publisher(state: NodeState, cluster: FakeCluster, card_executor: CardExecutor) -> DevicePublisher:
    """A publisher of the devices of ``state``, until it discovers its hardware."""
    return DevicePublisher(
        cluster=cluster, card_executor=card_executor, state=state, settings=SETTINGS, events=NodeReporter(cluster)
    )


@dataclass
class Effects:
    """Every change of something durable, in order; ``strike`` is called right before number ``at`` (from 1).

    It is called before all later ones, too: a process that is dead changes nothing in its other threads either.
    """

    at: int = 0
    strike: Callable[[], None] = lambda: None
    seen: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def has_struck(self) -> bool:
        return 0 < self.at <= len(self.seen)

    def before(self, effect: str) -> None:
        with self._lock:
            self.seen.append(effect)
            is_struck = self.has_struck
        if is_struck:
            self.strike()


class WatchedCheckpoint:
    """A checkpoint whose writes are effects."""

    def __init__(self, checkpoint: Checkpoint, effects: Effects) -> None:
        self._checkpoint = checkpoint
        self._effects = effects
        self.records = checkpoint.records
        self.get = checkpoint.get
        self.list_set_aside = checkpoint.list_set_aside
        self.take_back = checkpoint.take_back
        self.read_notes = checkpoint.read_notes
        self.write_notes = checkpoint.write_notes
        self.drop_notes = checkpoint.drop_notes

    def journal(self, uid: str, share: ShareId, boot_id: str) -> DeviceJournal:
        return self._watched(self._checkpoint.journal(uid, share, boot_id), boot_id)

    def journals_of(self, device: DeviceId, boot_id: str) -> list[DeviceJournal]:
        return [self._watched(journal, boot_id) for journal in self._checkpoint.journals_of(device, boot_id)]

    def _watched(self, journal: DeviceJournal, boot_id: str) -> DeviceJournal:
        watched = WatchedJournal(self._checkpoint, journal.uid, journal.share, boot_id)
        watched.effects = self._effects
        return watched

    def put(self, record: PreparedClaim) -> None:
        self._effects.before(f"record {record.state}")
        self._checkpoint.put(record)

    def sync(self, uid: str) -> None:
        self._effects.before("sync records")
        self._checkpoint.sync(uid)

    def set_aside(self, uid: str) -> PreparedClaim:
        self._effects.before("set record aside")
        return self._checkpoint.set_aside(uid)

    def drop(self, uid: str) -> None:
        self._effects.before("drop record")
        self._checkpoint.drop(uid)


class WatchedStore(cdi.Store):
    """A store whose changes are effects."""

    def __init__(self, directory: Path, effects: Effects, filesystem: Filesystem | None = None) -> None:
        super().__init__(directory, filesystem)
        self._effects = effects

    def write(self, name: str, spec: cdi.Spec) -> bool:
        self._effects.before("write CDI file")
        return super().write(name, spec)

    def remove(self, name: str) -> bool:
        self._effects.before("remove CDI file")
        return super().remove(name)


class WatchedJournal(DeviceJournal):
    """A journal whose writes are effects."""

    effects = Effects()

    def write(self, **notes: object) -> None:
        self.effects.before("note")
        super().write(**notes)

    def sync_record(self) -> None:
        self.effects.before("sync records")
        super().sync_record()

    def clear(self) -> None:
        self.effects.before("clear notes")
        super().clear()


class WatchedBackend(FakeBackend):
    """Hardware whose changes are effects."""

    effects = Effects()

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> Handle:
        self.effects.before("prepare hardware")
        return super().prepare(device, config, journal, found)

    def unprepare(self, handle: Handle) -> None:
        self.effects.before("release hardware")
        super().unprepare(handle)

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        self.effects.before("release hardware")
        super().abandon(device, journal, found)


class WatchedCluster(FakeCluster):
    """A cluster whose claims' device status outlives the process, and whose writes are effects."""

    def __init__(self, root: Path, effects: Effects | None = None) -> None:
        super().__init__()
        self._file = root / "status.json"
        self._effects = effects or Effects()

    def add(self, claim: ResourceClaim) -> ClaimRef:
        """Add a claim with the device status that it had when an earlier process ended."""
        entries: tuple[AllocatedDeviceStatus, ...] = ()
        if self._file.exists():
            entries = msgspec.json.decode(self._file.read_bytes(), type=tuple[AllocatedDeviceStatus, ...])
        return super().add(replace(claim, status=replace(claim.status, devices=entries)))

    async def write_device_status(
        self, claim: AllocatedClaim | ResourceClaim, devices: Sequence[AllocatedDeviceStatus]
    ) -> AllocatedClaim:
        self._effects.before("write status")
        kept = await super().write_device_status(claim, devices)
        self._file.write_bytes(msgspec.json.encode(devices))
        self._effects.before("status written")
        return kept


_OTHER_USE = ClaimUse(claim=ObjectRef("default", "of-another-driver"), pod=ObjectRef("default", "another"))


@dataclass
class PodUses:
    """What the kubelet says about its pods."""

    uses: tuple[ClaimUse, ...] = ()
    is_silent: bool = False
    lists_claims: bool = True
    """Whether it lists claims, as kubelets do from Kubernetes 1.34 on; then it lists one of another driver, too."""

    async def list(self) -> tuple[ClaimUse, ...]:
        if self.is_silent:
            raise PodResourcesError("the kubelet does not say which claims are in use")
        return (*self.uses, _OTHER_USE) if self.lists_claims else ()


@dataclass
class PluginCore:
    """A started plugin core."""

    cluster: FakeCluster
    backend: WatchedBackend
    checkpoint: Checkpoint
    store: cdi.Store
    publisher: DevicePublisher
    lifecycle: RecordLifecycle
    preparer: ClaimPreparer
    status_writer: DeviceStatusWriter
    garbage_collector: ClaimGarbageCollector
    clock: list[float]
    """One entry: monotonic seconds."""
    uses: "PodUses"
    state: ObservedState
    """Nothing is surveyed, except by a test."""
    seen: SeenClaims

    @property
    def surveys(self) -> SurveyTracker:
        return self.state.restrictions.surveys

    @property
    def orphaned(self) -> OrphanedDevices:
        return self.state.restrictions.orphaned


@asynccontextmanager
async def plugin_core(
    root: Path,
    cluster: FakeCluster,
    effects: Effects | None = None,
    *,
    boot_id: str = "boot-1",
    other_backend: Backend | None = None,
    fdatasync: Callable[[int], None] = os.fdatasync,
    filesystem: Filesystem | None = None,
    start: Callable[[Work], None] | None = None,
) -> AsyncIterator[PluginCore]:
    """A plugin core over the state below ``root``, which earlier ones have left; on fake hardware if on no other.

    ``fdatasync`` syncs its records, ``filesystem`` has its CDI files, ``start`` has them written.
    """
    effects = effects or Effects()
    backend = WatchedBackend(CARDS, root / "hardware.json")
    backend.effects = effects
    backends: dict[str, Backend] = {"fake": backend}
    devices = NODE_DEVICES
    if other_backend is not None:
        backends = {other_backend.name: other_backend}
        cards = {other_backend.name: other_backend.discover()}
        devices = build_device_set(
            cluster.target, cards, (), DeviceHealthTracker(driver=DRIVER, now=lambda: 0), DeviceSet()
        )
    card_executor = CardExecutor(backends, call_timeout_s=60, discovery_timeout_s=60)
    store = WatchedStore(root / "cdi", effects, filesystem)
    (root / "proc").mkdir(exist_ok=True)
    clock, seen, uses, unanswered = [0.0], SeenClaims(), PodUses(), UnansweredCalls()
    with open_checkpoint(root, boot_id=boot_id, fdatasync=fdatasync) as opened:
        checkpoint = cast("Checkpoint", WatchedCheckpoint(opened, effects))
        state = ObservedState(opened.records, devices=devices)
        publisher = build_publisher(state, cluster, card_executor)
        async with anyio.create_task_group() as tasks:
            metadata = MetadataFiles(root / "metadata")
            hardware = HardwareExecutor(card_executor, CONFIGURATIONS, checkpoint, boot_id=boot_id)
            status_writer = DeviceStatusWriter(
                driver=DRIVER,
                boot_id=boot_id,
                cluster=cluster,
                state=state,
                hardware=hardware,
                now=lambda: 1000.0,
                removal_s=0,
                seen=seen,
                is_sampling=True,
                unanswered=unanswered,
            )
            executor = StepExecutor(
                driver=DRIVER,
                boot_id=boot_id,
                checkpoint=checkpoint,
                hardware=hardware,
                store=store,
                metadata=metadata,
                state=state,
                start=start or card_executor.start,
            )
            lifecycle = RecordLifecycle(
                boot_id=boot_id, checkpoint=checkpoint, executor=executor, state=state, tasks=tasks
            )
            preparer = ClaimPreparer(
                driver=DRIVER,
                configurations=CONFIGURATIONS,
                lifecycle=lifecycle,
                checkpoint=checkpoint,
                executor=executor,
                cluster=cluster,
                state=state,
                hardware=hardware,
                status_writer=status_writer,
                seen=seen,
                claim_metrics=ClaimMetrics(driver=DRIVER, node=NODE, state=state, now=lambda: 1000.0),
                unanswered=unanswered,
            )
            garbage_collector = ClaimGarbageCollector(
                settings=SETTINGS,
                boot_id=boot_id,
                preparer=preparer,
                checkpoint=checkpoint,
                store=store,
                metadata=metadata,
                cluster=cluster,
                users=ClaimUsers(
                    records=checkpoint.records,
                    surveys=state.restrictions.surveys,
                    list_uses=uses.list,
                    cluster=cluster,
                    start=card_executor.start,
                    proc=root / "proc",
                ),
                state=state,
                seen=seen,
                clock=lambda: clock[0],
            )
            try:
                yield PluginCore(
                    cluster=cluster,
                    backend=backend,
                    checkpoint=opened,
                    store=store,
                    publisher=publisher,
                    lifecycle=lifecycle,
                    preparer=preparer,
                    status_writer=status_writer,
                    garbage_collector=garbage_collector,
                    clock=clock,
                    uses=uses,
                    state=state,
                    seen=seen,
                )
                await lifecycle.drain(0)
            finally:
                card_executor.close()
                with anyio.CancelScope(shield=True):  # threads die with their process
                    while card_executor.has_hanging_calls:
                        await anyio.lowlevel.checkpoint()


async def write_status(core: PluginCore, is_written: Callable[[], bool]) -> None:
    """Write what claims should show until ``is_written``."""
    async with anyio.create_task_group() as group:
        group.start_soon(core.status_writer.run)
        with anyio.fail_after(LONGEST_S):
            await until(is_written)
        group.cancel_scope.cancel()
