"""A whole plugin around fakes: fake cluster, fake hardware, fake kubelet; real files, sockets and gRPC."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from kerf_dra import cdi
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice
from kerf_dra.driver.kubeletplugin.grpc.server import check_path
from kerf_dra.driver.kubeletplugin.handover import LOCK
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.file_lock import is_held
from kerf_dra.driver.runtime.probes import Check
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import FAMILY, NODE
from tests.fakes.cluster import FakeCluster
from tests.fakes.hardware import FakeBackend
from tests.fakes.kubelet import FakeKubelet
from tests.kubeletplugin.plugin_builder import build_instance, run_instance

BOOT = "boot-1"
LONGEST_S = 120.0
"""Of one plugin's life in a test, which takes tenths of a second on an idle machine, and many times that on a loaded
one: waits are for conditions, so that only a test that fails takes longer with a longer limit."""


@contextmanager
def short_directory() -> Iterator[Path]:
    """Socket paths have a limit that pytest's ``tmp_path`` comes near to."""
    with TemporaryDirectory(prefix="kerf-") as directory:
        yield Path(directory)


@dataclass
class Machine:
    """A node: everything outside of the plugin that outlives it."""

    root: Path
    cluster: FakeCluster
    backend: FakeBackend
    kubelet: FakeKubelet
    settings: Settings
    boot_id: str = BOOT
    checks: Mapping[str, Check] = field(default_factory=dict)
    """The readiness checks of the plugin that runs."""
    ended_with_lock_held: list[bool] = field(default_factory=list)
    """For each time that the process would have ended because of a call that hangs: whether it had its lock then."""

    @property
    def store(self) -> cdi.Store:
        return cdi.Store(self.settings.cdi_dir)

    @property
    def cdi_files(self) -> list[str]:
        return self.store.names()

    def cdi_spec(self, claim_uid: str) -> Any:
        return self.store.path(f"k8s.gpu.kerf.dev-claim_{claim_uid}").read_text()

    @asynccontextmanager
    async def plugin(self, *, register: bool = True) -> AsyncIterator[None]:
        """The plugin runs inside, registered. A test that waits for what never comes fails after LONGEST_S."""
        with anyio.fail_after(LONGEST_S):
            async with anyio.create_task_group() as group:
                await group.start(self._run)
                if register:
                    await self.kubelet.register()
                yield
                group.cancel_scope.cancel()

    async def _run(self, *, task_status: Any) -> None:
        check_path(self.settings.dra_socket)
        instance = build_instance(
            self.settings,
            self.cluster,
            self.backend,
            boot_id=self.boot_id,
            end_process=lambda: self.ended_with_lock_held.append(is_held(self.settings.state / LOCK)),
        )
        self.checks = instance.checks
        await run_instance(instance, self.settings, boot_id=self.boot_id, task_status=task_status)


@contextmanager
def machine(**settings: Any) -> Iterator[Machine]:
    """A node with two GPUs and one FPGA."""
    with short_directory() as root:
        defaults = Settings(
            node_name=NODE,
            family=FAMILY,
            backends=(BackendChoice(name="fake"),),
            kubelet_root=root / "kubelet",
            device_plugins_dir=root / "kubelet" / "device-plugins",
            cdi_dir=root / "cdi",
            socket_poll_s=0.02,
            rpc_grace_s=0.1,
            shutdown_grace_s=0.5,
            publish_min_interval_s=0.05,
        )
        yield Machine(
            root=root,
            cluster=FakeCluster(),
            backend=FakeBackend([gpu(0), gpu(1), fpga(0)], root / "hardware.json"),
            kubelet=FakeKubelet(root / "kubelet"),
            settings=replace(defaults, **settings),
        )
