"""The kubelet plugin as a process. What it needs alone comes first: the lock, then what it remembers."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import anyio

from api.errors import TransientError
from driver.kube.auth import load_access
from driver.kube.client import Client
from driver.kubeletplugin.backends.registry import load_backends
from driver.kubeletplugin.checkpointing import Checkpoint, open_checkpoint
from driver.kubeletplugin.cluster import KubeCluster
from driver.kubeletplugin.locking import sole_instance
from driver.kubeletplugin.node import serve_node
from driver.kubeletplugin.settings import FIELD_MANAGER, Settings
from driver.kubeletplugin.sockets import check_path
from driver.runtime import logs
from driver.runtime.backoff import Backoff

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""The kernel's own identity of this boot (random(4)); the same in every container."""

_RETRY: Final = Backoff(first_s=0.5, factor=2, limit_s=60, jitter=0.2)
"""For the API server: soon at first, at most a minute apart, nodes not in step."""

_log = logging.getLogger(__name__)


async def run(settings: Settings) -> None:
    """Be the kubelet plugin until cancelled. Raises KerfError for what a person has to put right."""
    boot_id = (await anyio.Path(BOOT_ID).read_text()).strip()
    with logs.context(node=settings.node_name, driver=settings.driver_name), opened_state(settings) as checkpoint:
        backends = load_backends(settings.backends)
        access = await load_access(settings.kubeconfig)
        async with Client(access, user_agent=FIELD_MANAGER) as client:
            cluster = await connect(client, settings)
            await serve_node(settings, cluster, backends, checkpoint, boot_id=boot_id)


@contextmanager
def opened_state(settings: Settings) -> Iterator[Checkpoint]:
    """What earlier runs have left, for this process alone.

    Raises SocketError for paths that cannot be served at, AlreadyRunningError, and CheckpointError.
    """
    check_path(settings.dra_socket)
    check_path(settings.registration_socket)
    with sole_instance(settings.state), open_checkpoint(settings.state) as checkpoint:
        yield checkpoint


async def connect(client: Client, settings: Settings, *, backoff: Backoff = _RETRY) -> KubeCluster:
    """The cluster, as soon as its API server answers. Raises KerfError for what waiting does not cure."""
    for delay_s in backoff.delays(Random()):  # noqa: S311  (jitter, not a secret)
        try:
            return await KubeCluster.connect(client, settings)
        except TransientError as error:
            _log.warning("cannot reach the API server yet: %s", error)
            await anyio.sleep(delay_s)
    raise AssertionError("delays never end")
