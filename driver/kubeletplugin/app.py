"""The kubelet plugin as a process: what it needs before it connects, the connection, then one instance."""

import logging
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio

from api.core.v1 import NODES
from api.errors import TransientError
from driver.kube.discovery import discover_classic
from driver.kube.http.client import Client
from driver.kube.http.config import load_access
from driver.kubeletplugin.backends.registry import load_backends
from driver.kubeletplugin.cluster.base import Cluster
from driver.kubeletplugin.cluster.structured import StructuredCluster
from driver.kubeletplugin.grpc.server import check_path
from driver.kubeletplugin.handover import InstanceLock
from driver.kubeletplugin.instance import Instance, acquire_free_lock
from driver.kubeletplugin.settings import FIELD_MANAGER, Settings
from driver.runtime import logs

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""The kernel's own identity of this boot (random(4)); the same in every container."""

_log = logging.getLogger(__name__)


async def run(settings: Settings) -> None:
    """Run the kubelet plugin until cancelled. Raises the KerfError that a person has to resolve."""
    boot_id = (await anyio.Path(BOOT_ID).read_text()).strip()
    with logs.context(node=settings.node_name, driver=settings.driver_name):
        check_path(settings.dra_socket)
        check_path(settings.registration_socket)
        instance_lock = InstanceLock(settings.state)
        with acquire_free_lock(settings, instance_lock) or nullcontext() as lock:
            backends = load_backends(settings.backends)
            access = await load_access(settings.kubeconfig)
            async with Client(access, user_agent=FIELD_MANAGER) as client:
                cluster = await connect(client, settings)
                await Instance(settings, cluster, backends, instance_lock, boot_id=boot_id).run(lock)


async def connect(client: Client, settings: Settings) -> Cluster:
    """Return the cluster as soon as its API server answers. Raises KerfError for what waiting does not resolve."""
    for delay_s in settings.retry.delays():
        try:
            return await _connect(client, settings)
        except TransientError as error:
            _log.warning("cannot reach the API server yet: %s", error)
            await anyio.sleep(delay_s)
    raise AssertionError("delays never end")


async def _connect(client: Client, settings: Settings) -> Cluster:
    """Choose the way of publishing by what the API server serves."""
    classic = await discover_classic(client)
    if classic is None:
        return await StructuredCluster.connect(client, settings)
    from driver.kubeletplugin.cluster.classic import ClassicCluster  # needed only before Kubernetes 1.32

    node = await client.get(NODES, settings.node_name)
    return ClassicCluster(client, classic, node, settings, now=lambda: datetime.now(UTC))
