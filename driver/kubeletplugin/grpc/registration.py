"""Registration: how the kubelet learns of the plugin (``pluginregistration``), and how it is made to look again.

The kubelet notices sockets as they appear in ``plugins_registry`` and at its own start, asks for the plugin's name and
services, and tells what came of it. When it reports a failure, says nothing, or the socket is removed, a new socket
makes it look again.
"""

import logging
from pathlib import Path
from random import Random
from typing import Final

import anyio
from anyio.abc import TaskStatus

from api.registration.v1 import GET_INFO, NOTIFY_REGISTRATION_STATUS, PluginInfo, RegistrationStatus
from driver.kubeletplugin.grpc.server import Handlers, serving_at, unary
from driver.runtime import metrics
from driver.runtime.backoff import Backoff
from driver.runtime.notifier import Pulse

_log = logging.getLogger(__name__)

_REGISTERED: Final = metrics.gauge("kerf_registered", "1 while the kubelet has this plugin registered, else 0.")


class Registering:
    """Offers the plugin to the kubelet and remembers what it said."""

    def __init__(
        self,
        info: PluginInfo,
        socket: Path,
        *,
        silence_s: float,
        poll_s: float,
        grace_s: float,
        backoff: Backoff,
        random: Random,
    ) -> None:
        """``silence_s``: how long to wait for the kubelet; ``poll_s``: how often to see whether the socket is there."""
        self._info = info
        self._socket = socket
        self._silence_s = silence_s
        self._poll_s = poll_s
        self._grace_s = grace_s
        self._backoff = backoff
        self._random = random
        self._status: RegistrationStatus | None = None
        self.was_silent = False
        """Whether the kubelet was waited for in vain, at least once."""
        self._told = Pulse()

    @property
    def problem(self) -> str | None:
        """Why the kubelet does not know the plugin; None: it does."""
        if self._status is None:
            return f"the kubelet has not asked for {self._socket} yet: is it running, and is this its directory?"
        return None if self._status.registered else f"the kubelet refused the registration: {self._status.error}"

    @property
    def handlers(self) -> Handlers:
        return dict([unary(GET_INFO, self._get_info), unary(NOTIFY_REGISTRATION_STATUS, self._notify)])

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """For ever; has started when the first socket is there. Cancelling it makes the kubelet forget the plugin."""
        try:
            while True:
                for delay_s in self._backoff.delays(self._random):
                    was_registered = await self._offer(task_status)
                    task_status = anyio.TASK_STATUS_IGNORED
                    if was_registered:
                        break
                    await anyio.sleep(delay_s)
        finally:
            _REGISTERED.set(0)

    async def _offer(self, task_status: TaskStatus[None]) -> bool:
        """One socket's life; whether the plugin was registered at its end."""
        self._status = None
        _REGISTERED.set(0)
        async with serving_at(self._socket, self.handlers, grace_s=self._grace_s):
            task_status.started()
            reason = await self._end_of_offer()
        _log.warning("offering the plugin to the kubelet again: %s", reason)
        return self.problem is None

    async def _end_of_offer(self) -> str:
        """Why this socket has served its time."""
        patience_s = self._silence_s
        while True:
            if not self._socket.exists():
                return f"{self._socket} was removed"
            if self.problem is not None and (self._status is not None or patience_s <= 0):
                self.was_silent = self.was_silent or self._status is None
                return self.problem
            with anyio.move_on_after(self._poll_s):
                await self._told.wait()
            patience_s -= self._poll_s

    async def _get_info(self, _request: None) -> PluginInfo:
        return self._info

    async def _notify(self, status: RegistrationStatus) -> None:
        self._status = status
        _REGISTERED.set(status.registered)
        if status.registered:
            _log.info("the kubelet has registered the plugin")
        else:
            _log.error("the kubelet refused the registration: %s", status.error)
        self._told.beat()
