"""The kubelet plugin as a process. What it needs alone comes first: the lock, then what it remembers."""

import logging
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final

import anyio

from api.core.v1 import NODES
from api.errors import TransientError
from driver.kube.discovery import discover_classic
from driver.kube.http.client import Client
from driver.kube.http.config import load_access
from driver.kubeletplugin.backends.registry import load_backends
from driver.kubeletplugin.cluster.base import Cluster
from driver.kubeletplugin.cluster.structured import KubeCluster
from driver.kubeletplugin.grpc.server import check_path
from driver.kubeletplugin.handover import Turns
from driver.kubeletplugin.instance import first_turn, serve_instance
from driver.kubeletplugin.settings import FIELD_MANAGER, Settings
from driver.runtime import logs

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""The kernel's own identity of this boot (random(4)); the same in every container."""

_log = logging.getLogger(__name__)


async def run(settings: Settings) -> None:
    """Be the kubelet plugin until cancelled. Raises KerfError for what a person has to put right."""
    boot_id = (await anyio.Path(BOOT_ID).read_text()).strip()
    with logs.context(node=settings.node_name, driver=settings.driver_name):
        check_path(settings.dra_socket)
        check_path(settings.registration_socket)
        turns = Turns(settings.state)
        with first_turn(settings, turns) or nullcontext() as turn:
            backends = load_backends(settings.backends)
            access = await load_access(settings.kubeconfig)
            async with Client(access, user_agent=FIELD_MANAGER) as client:
                cluster = await connect(client, settings)
                await serve_instance(settings, cluster, backends, turns, turn, boot_id=boot_id)


async def connect(client: Client, settings: Settings) -> Cluster:
    """The cluster, as soon as its API server answers. Raises KerfError for what waiting does not cure."""
    for delay_s in settings.retry.delays(Random()):  # noqa: S311  (jitter, not a secret)
        try:
            return await _connect(client, settings)
        except TransientError as error:
            _log.warning("cannot reach the API server yet: %s", error)
            await anyio.sleep(delay_s)
    raise AssertionError("delays never end")


async def _connect(client: Client, settings: Settings) -> Cluster:
    """As the API server has it, slices are published or, where drivers allocate, an inventory."""
    classic = await discover_classic(client)
    if classic is None:
        return await KubeCluster.connect(client, settings)
    from driver.kubeletplugin.cluster.classic import ClassicCluster  # not needed by clusters of today

    node = await client.get(NODES, settings.node_name)
    return ClassicCluster(client, classic, node, settings, now=lambda: datetime.now(UTC))
