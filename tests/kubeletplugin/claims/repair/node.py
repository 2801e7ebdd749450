"""A node on the virtual clock: the whole plugin without its sockets, over two GPUs and an FPGA that are tables."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from kerf_dra.api.model.allocations import DeviceRequestAllocationResult
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint, open_checkpoint
from kerf_dra.driver.kubeletplugin.plugin import NodePlugin
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.worker_threads import Work
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import FAMILY, NODE, claim
from tests.fakes.cluster import FakeCluster
from tests.fakes.hardware import FakeBackend, Made
from tests.kubeletplugin.plugin_builder import build_parts, running_parts
from tests.kubeletplugin.records import BOOT

SURVEYS_S = 10.0
FIRST, SECOND = "gpu-0-1g-1gb-at-0", "gpu-1-1g-1gb-at-1"
"""Devices on two cards."""


@dataclass
class Node:
    """What outlives the plugin, and the plugin that runs."""

    root: Path
    cluster: FakeCluster = field(default_factory=FakeCluster)
    backend: Any = field(default_factory=lambda: FakeBackend([gpu(0), gpu(1), fpga(0)]))
    plugin: NodePlugin | None = None
    checkpoint: Checkpoint | None = None
    configs: Sequence[Any] = ()
    """Of the claims that are added."""

    @property
    def settings(self) -> Settings:
        return Settings(
            node_name=NODE,
            family=FAMILY,
            backends=(),
            kubelet_root=self.root / "kubelet",
            cdi_dir=self.root / "cdi",
            survey_interval_s=SURVEYS_S,
            publish_min_interval_s=0.05,
        )

    def cdi_file(self, name: str) -> Path:
        """The CDI file of the claim of this name."""
        return self.settings.cdi_dir / f"k8s.gpu.kerf.dev-claim_uid-of-{name}.json"

    def metadata_file(self, name: str) -> Path:
        return self.settings.plugin_dir / f"dra-device-metadata/uid-of-{name}/accelerator.json"

    def record(self, name: str) -> PreparedClaim | None:
        assert self.checkpoint is not None
        return self.checkpoint.get(f"uid-of-{name}")

    def made(self, device: str) -> Made | None:
        """What is in the place of a device."""
        found: Mapping[str, Made] = self.backend.made
        return found.get(device)

    def events(self, reason: str) -> list[str]:
        """The messages of the events about the node that have this reason."""
        return [message for kind, _, name, message in self.cluster.reported if (kind, name) == ("Node", reason)]

    def taints(self, device: str) -> list[tuple[str, str, str]]:
        """Key, value and effect of the taints with which a device is published."""
        slices = (content for pool in self.cluster.published[-1] for content in pool.slices)
        [found] = [each for content in slices for each in content.devices if each.name == device]
        return [(taint.key, taint.value or "", taint.effect) for taint in found.taints]

    async def prepare(self, name: str, *devices: str | DeviceRequestAllocationResult) -> ClaimRef:
        assert self.plugin is not None
        ref = self.cluster.add(claim(name, *devices, configs=self.configs))
        await self.plugin.preparer.prepare_claim(ref)
        return ref

    @asynccontextmanager
    async def running(self, boot_id: str = BOOT) -> AsyncIterator[NodePlugin]:
        """The plugin runs inside."""
        self.settings.state.mkdir(parents=True, exist_ok=True)
        with open_checkpoint(self.settings.state, boot_id=boot_id, fdatasync=lambda _: None) as checkpoint:
            async with anyio.create_task_group() as tasks:
                self.checkpoint = checkpoint
                self.plugin = build_parts(
                    self.settings,
                    self.cluster,
                    self.backend,
                    checkpoint,
                    tasks,
                    boot_id=boot_id,
                    start_call=_start_call,
                )
                async with running_parts(self.plugin) as plugin:
                    yield plugin
                tasks.cancel_scope.cancel()


def _start_call(work: Work) -> None:
    """Do the work in the event loop, at once; a wait for events ends with the test."""
    assert isinstance(work, partial)
    _, _, function, args, _ = work.args
    name = getattr(args[0] if function.__name__ == "run_in_thread" else function, "__name__", "")
    if name != "wait_for_events":
        asyncio.get_running_loop().call_soon(lambda: work()())
