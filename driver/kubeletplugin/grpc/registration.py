"""Registration of the plugin with the kubelet (``pluginregistration``).

The kubelet notices sockets that appear in ``plugins_registry``, and those that are there when it starts. It asks for
the plugin's name and services, and says whether it has registered the plugin. When it reports a failure, says nothing,
or the socket is removed, a new socket makes it try again.
"""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskStatus

from kerf_dra.api.registration.v1 import GET_INFO, NOTIFY_REGISTRATION_STATUS, PluginInfo, RegistrationStatus
from kerf_dra.driver.kubeletplugin.grpc.server import Handlers, serving_at, unary, was_removed
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.notifier import Notifier

_log = logging.getLogger(__name__)

_REGISTERED: Final = metrics.gauge(
    "kerf_registered", "1 while the kubelet has this driver registered, else 0.", ["driver"]
)


def remove_abandoned_sockets(own: Path, driver: str) -> None:
    """Remove the registration sockets of ``driver`` beside ``own`` at which no process listens.

    An instance that was killed leaves its socket, which the kubelet then calls every few seconds for as long as it is
    there. Where one cannot be removed, it and those not yet looked at are left alone.
    """
    try:
        for path in _sockets_of(driver, own.parent):
            if path != own and not _is_served(path):
                path.unlink(missing_ok=True)
                _log.info("removed %s, the socket of an instance that has ended", path)
    except OSError as error:
        _log.warning("cannot remove the sockets of instances that have ended: %s", error)


def _sockets_of(driver: str, directory: Path) -> Iterator[Path]:
    names = [path for path in directory.glob("*-reg.sock") if path.name.startswith(f"{driver}-")]
    return (path for path in names if path.is_socket())


def _is_served(path: Path) -> bool:
    """Whether a process listens at a socket, as far as can be determined: only a refused connection says that none
    does.
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


class Registrar:
    """Serves the registration socket and keeps the kubelet's answer."""

    def __init__(
        self,
        info: PluginInfo,
        socket: Path,
        *,
        silence_s: float,
        poll_s: float,
        grace_s: float,
        backoff: Backoff,
    ) -> None:
        """The kubelet gets ``silence_s`` to answer; every ``poll_s`` the registrar checks that the socket is there."""
        self._info = info
        self._registered = _REGISTERED.labels(info.name)
        self._socket = socket
        self._silence_s = silence_s
        self._poll_s = poll_s
        self._grace_s = grace_s
        self._backoff = backoff
        self._status: RegistrationStatus | None = None
        self.was_silent = False
        """Whether the kubelet has left a socket unanswered until the limit."""
        self._answered = Notifier()

    @property
    def problem(self) -> str | None:
        """The reason why the plugin is not registered; None: it is registered."""
        if self._status is None:
            return f"the kubelet has not asked for {self._socket} yet: is it running, and is this its directory?"
        return None if self._status.registered else f"the kubelet refused the registration: {self._status.error}"

    @property
    def handlers(self) -> Handlers:
        return dict([unary(GET_INFO, self._get_info), unary(NOTIFY_REGISTRATION_STATUS, self._notify)])

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Offer the plugin again and again; has started when the first socket is there.

        Cancelling removes the socket, which makes the kubelet forget the plugin.
        """
        remove_abandoned_sockets(self._socket, self._info.name)
        try:
            while True:
                for delay_s in self._backoff.delays():
                    was_registered = await self._register_once(task_status)
                    task_status = anyio.TASK_STATUS_IGNORED
                    if was_registered:
                        break
                    await anyio.sleep(delay_s)
        finally:
            self._registered.set(0)

    async def _register_once(self, task_status: TaskStatus[None]) -> bool:
        """Serve one socket until a new one is needed; returns whether the plugin was registered then."""
        self._status = None
        self._registered.set(0)
        async with serving_at(self._socket, self.handlers, grace_s=self._grace_s):
            task_status.started()
            reason = await self._wait_until_stale()
        _log.warning("registering the plugin with the kubelet again: %s", reason)
        return self.problem is None

    async def _wait_until_stale(self) -> str:
        """Wait until a new socket is needed; returns the reason."""
        left_s = self._silence_s
        while True:
            if was_removed(self._socket):
                return f"{self._socket} was removed"
            if self.problem is not None and (self._status is not None or left_s <= 0):
                self.was_silent = self.was_silent or self._status is None
                return self.problem
            with anyio.move_on_after(self._poll_s):
                await self._answered.wait()
            left_s -= self._poll_s

    async def _get_info(self, _request: None) -> PluginInfo:
        return self._info

    async def _notify(self, status: RegistrationStatus) -> None:
        self._status = status
        self._registered.set(status.registered)
        if status.registered:
            _log.info("the kubelet has registered the plugin")
        else:
            _log.error("the kubelet refused the registration: %s", status.error)
        self._answered.notify()
