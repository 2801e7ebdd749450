"""The parts that work on one node, wired together: who is given what, and how it ends.

They live for one turn (``turns``); the sockets, which live as long as the process, are those of ``instance``. At the
end work in flight ends; slices stay, for a successor.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

import anyio
from anyio.abc import TaskGroup

import cdi
from api.dra.health import DeviceHealth
from driver.kubeletplugin.backends.base import Backend
from driver.kubeletplugin.claims.checkpoint import Checkpoint
from driver.kubeletplugin.claims.early_preparation import Preloading
from driver.kubeletplugin.claims.garbage_collection import Collecting
from driver.kubeletplugin.claims.hardware import Lanes
from driver.kubeletplugin.claims.metadata_files import FOLDER, MetadataFiles
from driver.kubeletplugin.claims.preparer import Preparing
from driver.kubeletplugin.claims.steps import Stepping
from driver.kubeletplugin.cluster.base import Cluster
from driver.kubeletplugin.inventory.devices import Place
from driver.kubeletplugin.inventory.health import HealthBoard
from driver.kubeletplugin.inventory.publisher import Inventorying
from driver.kubeletplugin.settings import Settings


class Node:
    """One node at work."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        backends: Mapping[str, Backend],
        checkpoint: Checkpoint,
        *,
        boot_id: str,
        works: TaskGroup,
        on_health: Callable[[], None],
    ) -> None:
        """``backends`` by name. ``works`` outlives the calls: the work is done there; ``on_health`` is called when the
        health of a device in use may have changed.
        """
        self._settings = settings
        self._cluster = cluster
        self._backends = backends
        self._checkpoint = checkpoint
        self._boot_id = boot_id
        # A power cut ends the boot, and records of an earlier boot are *started*: their files are written anew.
        self._store = cdi.Store(settings.cdi_dir, cdi.VolatileFilesystem())
        # In the kubelet's directory: the container runtime must find the files under the path that the plugin has.
        self._metadata = MetadataFiles(settings.plugin_dir / FOLDER)
        self._board = HealthBoard(driver=settings.driver_name, now=time.time)
        self._on_health = on_health
        self.inventorying = self._make_inventorying()
        self.preparing = self._make_preparing(works)
        self._collecting = self._make_collecting()
        self._preloading = self._make_preloading()

    def health(self) -> Sequence[DeviceHealth]:
        return self._board.reports(self._checkpoint.records.values())

    async def look(self) -> None:
        """See what cards there are, and remove files that nobody has a record of: then claims can be prepared."""
        await self.inventorying.refresh()
        self._collecting.sweep_files()

    async def run(self) -> None:
        """Publish the devices, watch their health, take back what nobody will unprepare: for ever."""
        async with anyio.create_task_group() as services:
            if self.inventorying.inventory.loads_slowly(self._settings.early_load_s):
                services.start_soon(self._preloading.run)
                with anyio.move_on_after(self._settings.follow_patience_s):
                    await self._preloading.followed.wait()
            services.start_soon(self._cluster.run, self.inventorying.changed)
            services.start_soon(self.inventorying.run)
            services.start_soon(self._collecting.run)
            for name in self._backends:
                services.start_soon(self.inventorying.watch_health, name)

    def _make_inventorying(self) -> Inventorying:
        return Inventorying(
            place=self._place,
            backends=self._backends,
            records=self._checkpoint.records,
            publish=self._cluster.publish,
            board=self._board,
            on_health=self._on_health,
            interval_s=self._settings.discovery_interval_s,
            rest_s=self._settings.publish_min_interval_s,
            timeout_s=self._settings.discovery_timeout_s,
            backoff=self._settings.retry,
            random=Random(),  # noqa: S311  (jitter, not a secret)
        )

    def _make_preparing(self, works: TaskGroup) -> Preparing:
        driver = self._settings.driver_name
        stepping = Stepping(
            driver=driver,
            boot_id=self._boot_id,
            checkpoint=self._checkpoint,
            lanes=Lanes(self._backends, timeout_s=self._settings.hardware_timeout_s),
            store=self._store,
            metadata=self._metadata,
            on_change=self._claims_changed,
        )
        return Preparing(
            driver=driver,
            boot_id=self._boot_id,
            checkpoint=self._checkpoint,
            stepping=stepping,
            cluster=self._cluster,
            inventorying=self.inventorying,
            tasks=works,
        )

    def _place(self) -> Place:
        """Conditions are published only while somebody sees to them."""
        early_load_s = self._settings.early_load_s if self._preloading.is_on else None
        return replace(self._cluster.place, early_load_s=early_load_s)

    def _make_preloading(self) -> Preloading:
        return Preloading(
            driver=self._settings.driver_name,
            inventorying=self.inventorying,
            cluster=self._cluster,
            preparing=self.preparing,
            checkpoint=self._checkpoint,
            board=self._board,
            now=time.time,
            patience_s=self._settings.load_patience_s,
            setback_s=self._settings.load_setback_s,
        )

    def _make_collecting(self) -> Collecting:
        return Collecting(
            driver=self._settings.driver_name,
            boot_id=self._boot_id,
            preparing=self.preparing,
            checkpoint=self._checkpoint,
            store=self._store,
            metadata=self._metadata,
            cluster=self._cluster,
            interval_s=self._settings.collect_interval_s,
            grace_s=self._settings.gone_grace_s,
            clock=time.monotonic,
        )

    def _claims_changed(self) -> None:
        self.inventorying.changed()
        self._on_health()
