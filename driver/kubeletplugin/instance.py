"""One instance of the plugin: its sockets for its whole life, its work in turns (docs/rolling-update.md).

Start: cards, DRA socket, registration, publishing; so nothing is offered that cannot be prepared. While another
instance has the turn: sockets and registration first, the rest when it hands over. End: the kubelet forgets the plugin,
calls in flight end, hardware work in flight ends, the lock is free.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from random import Random
from typing import Final

import anyio
from anyio.abc import TaskStatus

from api.errors import PermanentError
from api.registration.v1 import PluginInfo
from driver.kubeletplugin.backends.base import Backend
from driver.kubeletplugin.claims.checkpoint import open_checkpoint
from driver.kubeletplugin.cluster.base import Cluster
from driver.kubeletplugin.grpc.dra_service import NodeClaimService
from driver.kubeletplugin.grpc.health_service import HealthFeed
from driver.kubeletplugin.grpc.registration import Registering
from driver.kubeletplugin.grpc.server import serving_at
from driver.kubeletplugin.handover import AlreadyRunningError, Turn, Turns
from driver.kubeletplugin.plugin import Node
from driver.kubeletplugin.proxy import Relay
from driver.kubeletplugin.settings import Settings
from driver.runtime import metrics
from driver.runtime.probes import Probes

_WORKING: Final = metrics.gauge("kerf_working", "1 while it is this instance's turn to work, else 0.")

_log = logging.getLogger(__name__)


class SocketRemovedError(PermanentError):
    """Somebody removed the socket that the plugin serves at."""


def first_turn(settings: Settings, turns: Turns) -> Turn | None:
    """The turn, if it is free; None: another instance has it, which will be asked.

    Raises AlreadyRunningError where the other one has the same sockets, and CheckpointError before anything else is
    begun.
    """
    try:
        turn = turns.take()
    except AlreadyRunningError:
        if not settings.instance:
            raise
        _log.info("process %s works on this node, it will be asked to hand over", turns.holder)
        return None
    with ExitStack() as unless_trusted:
        unless_trusted.enter_context(turn)
        with open_checkpoint(settings.state):
            unless_trusted.pop_all()
    return turn


async def serve_instance(
    settings: Settings,
    cluster: Cluster,
    backends: Sequence[Backend],
    turns: Turns,
    turn: Turn | None,
    *,
    boot_id: str,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Be one instance until cancelled; started once it is offered to the kubelet. ``turn`` is that of ``first_turn``.

    Raises SocketError, CheckpointError, and SocketRemovedError for a process that is better started again.
    """
    instance = _Instance(settings, cluster, {backend.name: backend for backend in backends}, turns, boot_id)
    async with anyio.create_task_group() as group:
        try:
            await group.start(instance.work, turn)
            await instance.serve(task_status)
        finally:
            instance.end()


class _Instance:
    def __init__(
        self, settings: Settings, cluster: Cluster, backends: Mapping[str, Backend], turns: Turns, boot_id: str
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._backends = backends
        self._turns = turns
        self._boot_id = boot_id
        self._relay = Relay()
        self._feed = HealthFeed(self._relay, interval_s=settings.health_interval_s)
        self._registering = self._make_registering()
        self._node: Node | None = None
        self._has_worked = False
        self._probes = Probes(metrics.REGISTRY)
        self._probes.add_check("cards", lambda: self._node.inventorying.problem if self._node else None)
        self._probes.add_check("kubelet", lambda: self._registering.problem)
        self._probes.add_check("turn", self._why_waiting)
        self._offered = anyio.Event()
        self._works = anyio.CancelScope(shield=True)

    async def serve(self, task_status: TaskStatus[None]) -> None:
        """The sockets, for ever."""
        claims = NodeClaimService(self._relay, self._cluster.offer.services)
        handlers = {**claims.handlers, **self._feed.handlers}
        async with serving_at(self._settings.dra_socket, handlers, grace_s=self._settings.rpc_grace_s):
            try:
                async with anyio.create_task_group() as services:
                    await services.start(self._probes.serve, self._settings.probes_address)
                    await services.start(self._registering.run)
                    services.start_soon(self._guard_socket)
                    self._offered.set()
                    task_status.started()
            finally:
                self._feed.close()
                self._relay.close()

    async def work(self, turn: Turn | None, *, task_status: TaskStatus[None]) -> None:
        """Take turns until ``end``; has started when the sockets may open."""
        with self._works:
            if turn is None:
                task_status.started()
                task_status = anyio.TASK_STATUS_IGNORED
                turn = await self._turns.wait(may_ask=self._has_offered_itself)
            while True:
                with turn:
                    await self._work_in(turn, task_status)
                _log.info("another instance takes over")
                task_status = anyio.TASK_STATUS_IGNORED
                turn = await self._turns.wait(may_ask=lambda: False)

    def end(self) -> None:
        """The sockets are closed: let work in flight end."""
        self._works.cancel()

    async def _work_in(self, turn: Turn, task_status: TaskStatus[None]) -> None:
        with open_checkpoint(self._settings.state) as checkpoint:
            async with anyio.create_task_group() as works:
                node = Node(
                    self._settings,
                    self._cluster,
                    self._backends,
                    checkpoint,
                    boot_id=self._boot_id,
                    works=works,
                    on_health=self._feed.changed,
                )
                try:
                    await node.look()
                    self._enter(node)
                    task_status.started()
                    await self._offered.wait()
                    await self._until_asked(node, turn)
                    self._leave()
                    await node.preparing.drain(self._settings.handover_grace_s)
                finally:
                    self._leave()
                    with anyio.CancelScope(shield=True):
                        await node.preparing.drain(self._settings.shutdown_grace_s)

    async def _until_asked(self, node: Node, turn: Turn) -> None:
        async with anyio.create_task_group() as services:
            services.start_soon(node.run)
            await turn.asked()
            services.cancel_scope.cancel()

    def _enter(self, node: Node) -> None:
        self._node = node
        self._has_worked = True
        self._relay.enter(node)
        self._feed.changed()
        _WORKING.set(1)

    def _leave(self) -> None:
        self._node = None
        self._relay.leave()
        _WORKING.set(0)

    def _why_waiting(self) -> str | None:
        """A new instance is ready once it has taken over: then the old one may end."""
        waiting = f"process {self._turns.holder} has not handed over yet"
        return None if self._has_worked else waiting

    def _has_offered_itself(self) -> bool:
        """The kubelet calls this instance now, or there is none that calls anybody."""
        return self._offered.is_set() and (self._registering.problem is None or self._registering.was_silent)

    def _make_registering(self) -> Registering:
        info = PluginInfo(
            name=self._settings.driver_name,
            endpoint=str(self._settings.dra_socket),
            supported_versions=self._cluster.offer.supported_versions,
        )
        return Registering(
            info,
            self._settings.registration_socket,
            silence_s=self._settings.registration_silence_s,
            poll_s=self._settings.socket_poll_s,
            grace_s=self._settings.rpc_grace_s,
            backoff=self._settings.retry,
            random=Random(),  # noqa: S311  (jitter, not a secret)
        )

    async def _guard_socket(self) -> None:
        """A process without its socket is useless, and looks alive."""
        while await anyio.Path(self._settings.dra_socket).exists():  # noqa: ASYNC110  (a directory sets no event)
            await anyio.sleep(self._settings.socket_poll_s)
        raise SocketRemovedError(f"{self._settings.dra_socket} was removed: starting again makes a new one")
