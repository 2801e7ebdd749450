"""The part of the plugin that changes things, without its sockets, to be struck down at any effect."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

import anyio

import cdi
from api.kerf.v1alpha1 import DeviceConfig
from api.model.prepared import PreparedClaim
from driver.kubeletplugin.backends.base import AllocatedDevice, Backend, Handle
from driver.kubeletplugin.claims.checkpoint import Checkpoint, open_checkpoint
from driver.kubeletplugin.claims.garbage_collection import Collecting
from driver.kubeletplugin.claims.hardware import Lanes
from driver.kubeletplugin.claims.metadata_files import MetadataFiles
from driver.kubeletplugin.claims.preparer import Preparing
from driver.kubeletplugin.claims.steps import Stepping
from driver.kubeletplugin.inventory.devices import Inventory, take_stock
from driver.kubeletplugin.inventory.health import HealthBoard
from driver.kubeletplugin.inventory.publisher import Inventorying
from driver.runtime.backoff import Backoff
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import DRIVER
from tests.fakes.cluster import FakeCluster
from tests.fakes.hardware import FakeBackend

CARDS = (gpu(0), gpu(1), fpga(0))
INVENTORY = take_stock(FakeCluster().place, {"fake": CARDS}, (), HealthBoard(driver=DRIVER, now=lambda: 0), Inventory())
GRACE_S = 90.0


def offering(inventory: Inventory, cluster: FakeCluster, backends: Mapping[str, Backend]) -> Inventorying:
    """What the node offers: ``inventory``, until it looks at its hardware."""
    inventorying = Inventorying(
        place=lambda: cluster.place,
        backends=backends,
        records={},
        publish=cluster.publish,
        board=HealthBoard(driver=DRIVER, now=lambda: 0),
        on_health=lambda: None,
        interval_s=60,
        rest_s=0,
        timeout_s=60,
        backoff=Backoff(first_s=0.001, factor=1, limit_s=0.001, jitter=0),
        random=Random(0),
    )
    inventorying.inventory = inventory
    return inventorying


@dataclass
class Effects:
    """Every change of something durable, in order; ``strike`` is called right before number ``at`` (from 1)."""

    at: int = 0
    strike: Callable[[], None] = lambda: None
    seen: list[str] = field(default_factory=list)

    @property
    def has_struck(self) -> bool:
        return 0 < self.at <= len(self.seen)

    def before(self, effect: str) -> None:
        self.seen.append(effect)
        if len(self.seen) == self.at:
            self.strike()


class WatchedCheckpoint:
    """A checkpoint whose writes are effects."""

    def __init__(self, checkpoint: Checkpoint, effects: Effects) -> None:
        self._checkpoint = checkpoint
        self._effects = effects
        self.records = checkpoint.records
        self.get = checkpoint.get

    def put(self, record: PreparedClaim) -> None:
        self._effects.before(f"record {record.state}")
        self._checkpoint.put(record)

    async def sync(self) -> None:
        self._effects.before("sync records")
        await self._checkpoint.sync()

    def drop(self, uid: str) -> None:
        self._effects.before("drop record")
        self._checkpoint.drop(uid)


class WatchedStore(cdi.Store):
    """A store whose changes are effects."""

    def __init__(self, directory: Path, effects: Effects) -> None:
        super().__init__(directory)
        self._effects = effects

    def write(self, name: str, spec: cdi.Spec) -> bool:
        self._effects.before("write CDI file")
        return super().write(name, spec)

    def remove(self, name: str) -> bool:
        self._effects.before("remove CDI file")
        return super().remove(name)


class WatchedBackend(FakeBackend):
    """Hardware whose changes are effects."""

    effects = Effects()

    async def prepare(self, device: AllocatedDevice, config: DeviceConfig | None) -> Handle:
        self.effects.before("prepare hardware")
        return await super().prepare(device, config)

    async def unprepare(self, handle: Handle) -> None:
        self.effects.before("release hardware")
        await super().unprepare(handle)

    async def abandon(self, device: AllocatedDevice) -> None:
        self.effects.before("release hardware")
        await super().abandon(device)


@dataclass
class Workshop:
    """A started plugin core."""

    cluster: FakeCluster
    backend: WatchedBackend
    checkpoint: Checkpoint
    store: cdi.Store
    inventorying: Inventorying
    preparing: Preparing
    collecting: Collecting
    clock: list[float]
    """One entry: monotonic seconds."""


@asynccontextmanager
async def workshop(
    root: Path,
    cluster: FakeCluster,
    effects: Effects | None = None,
    *,
    boot_id: str = "boot-1",
    other_backend: Backend | None = None,
) -> AsyncIterator[Workshop]:
    """A plugin core over the state below ``root``, which earlier ones have left; on fake hardware if on no other."""
    effects = effects or Effects()
    backend = WatchedBackend(CARDS, root / "hardware.json")
    backend.effects = effects
    backends: dict[str, Backend] = {"fake": backend}
    inventory = INVENTORY
    if other_backend is not None:
        backends = {other_backend.name: other_backend}
        cards = {other_backend.name: await other_backend.discover()}
        inventory = take_stock(cluster.place, cards, (), HealthBoard(driver=DRIVER, now=lambda: 0), Inventory())
    inventorying = offering(inventory, cluster, backends)
    store = WatchedStore(root / "cdi", effects)
    clock = [0.0]
    with open_checkpoint(root) as opened:
        checkpoint = cast("Checkpoint", WatchedCheckpoint(opened, effects))
        async with anyio.create_task_group() as works:
            shared: dict[str, Any] = {
                "driver": DRIVER,
                "boot_id": boot_id,
                "checkpoint": checkpoint,
                "metadata": MetadataFiles(root / "metadata"),
            }
            stepping = Stepping(
                **shared,
                lanes=Lanes(backends, timeout_s=60),
                store=store,
                on_change=lambda: None,
            )
            preparing = Preparing(
                driver=DRIVER,
                boot_id=boot_id,
                checkpoint=checkpoint,
                stepping=stepping,
                cluster=cluster,
                inventorying=inventorying,
                tasks=works,
            )
            collecting = Collecting(
                **shared,
                preparing=preparing,
                store=store,
                cluster=cluster,
                interval_s=600,
                grace_s=GRACE_S,
                clock=lambda: clock[0],
            )
            yield Workshop(cluster, backend, opened, store, inventorying, preparing, collecting, clock)
            await preparing.drain(0)
