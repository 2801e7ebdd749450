"""One builder of plugins for tests: with sockets, as a process has one, or the parts without them.

Everything that outlives a plugin is the test's: its folders, the hardware behind ``backend``, the cluster, the kubelet.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus

from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.kubeletplugin.backends.base import Backend
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster
from kerf_dra.driver.kubeletplugin.handover import InstanceLock
from kerf_dra.driver.kubeletplugin.instance import Instance, acquire_free_lock
from kerf_dra.driver.kubeletplugin.plugin import NodePlugin
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.worker_threads import Work


async def list_no_uses() -> Sequence[ClaimUse]:
    """Stand for a kubelet without pods, or one that lists no claims."""
    return ()


def build_instance(settings: Settings, cluster: Cluster, backend: Backend, *, boot_id: str, **more: Any) -> Instance:
    """Build the plugin of a process, with its sockets."""
    return Instance(settings, cluster, [backend], InstanceLock(settings.state), boot_id=boot_id, **more)


async def run_instance(instance: Instance, settings: Settings, *, boot_id: str, task_status: TaskStatus[None]) -> None:
    """Run it as a process does, active at once if no other instance is."""
    with acquire_free_lock(settings, InstanceLock(settings.state), boot_id=boot_id) or nullcontext() as lock:
        await instance.run(lock, task_status=task_status)


def build_parts(
    settings: Settings,
    cluster: Cluster,
    backend: Backend,
    checkpoint: Checkpoint,
    tasks: TaskGroup,
    *,
    boot_id: str,
    list_uses: Callable[[], Awaitable[Sequence[ClaimUse] | None]] = list_no_uses,
    now: Callable[[], float] = time.time,
    start_call: Callable[[Work], None] | None = None,
) -> NodePlugin:
    """Build the parts of a plugin, without its sockets.

    With ``start_call``, which begins work that blocks, they run on the clock of the event loop.
    """
    return NodePlugin(
        settings,
        cluster,
        {backend.name: backend},
        checkpoint,
        boot_id=boot_id,
        tasks=tasks,
        list_uses=list_uses,
        now=now,
        clock=time.monotonic if start_call is None else asyncio.get_running_loop().time,
        start_call=start_call,
    )


@asynccontextmanager
async def running_parts(plugin: NodePlugin) -> AsyncIterator[NodePlugin]:
    """Its services run inside, and its claims can be prepared."""
    await plugin.initialize()
    async with anyio.create_task_group() as services:
        services.start_soon(plugin.run)
        yield plugin
        services.cancel_scope.cancel()
