"""A process of the plugin in which a call of NVIDIA's library hangs, until the process ends itself."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import anyio

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice
from kerf_dra.driver.kubeletplugin.handover import InstanceLock
from kerf_dra.driver.kubeletplugin.instance import Instance, acquire_free_lock
from kerf_dra.driver.kubeletplugin.settings import Settings
from tests.fakes.claims import NODE, claim
from tests.fakes.cluster import FakeCluster
from tests.fakes.kubelet import ClaimError, FakeKubelet
from tests.kubeletplugin.backends.nvidia.node import hardware

BOOT = "boot-1"
CLAIM = claim("training", "gpu-0-1g-20gb-at-0")


def settings_of(root: Path) -> Settings:
    return Settings(
        node_name=NODE,
        family=replace(GPU, call_timeout_s=1.0),
        backends=(BackendChoice(name="nvidia-fake"),),
        kubelet_root=root / "kubelet",
        cdi_dir=root / "cdi",
        publish_min_interval_s=0.01,
        socket_poll_s=0.02,
        hanging_grace_s=0.1,
        shutdown_grace_s=0.01,
    )


def prepare_in_process(root: Path) -> None:
    """What the process does: it prepares a claim. While it cannot, it has no other end than its own."""
    anyio.run(_prepare, root)


async def _prepare(root: Path) -> None:
    settings, cluster = settings_of(root), FakeCluster()
    kubelet = FakeKubelet(settings.kubelet_root)
    for socket in kubelet.sockets:
        socket.unlink()  # of a process that was given no time to remove it: the kubelet would try it again and again
    held = cluster.add(CLAIM)

    async def run() -> None:
        lock = InstanceLock(settings.state)
        with acquire_free_lock(settings, lock, boot_id=BOOT) or nullcontext() as acquired:
            await Instance(settings, cluster, [hardware(root)], lock, boot_id=BOOT).run(acquired)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await kubelet.register()
        while True:  # as the kubelet does
            try:
                await kubelet.prepare(held)
                break
            except ClaimError:
                await anyio.sleep(0.05)
        group.cancel_scope.cancel()
