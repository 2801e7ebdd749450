"""Plugin registration: each socket in ``plugins_registry`` is a registered DRA driver for as long as it exists."""

import logging
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import anyio
import grpc.aio
from google.protobuf.message import DecodeError

from kerf_dra.api.dra import v1alpha3
from kerf_dra.api.dra.registry import DRA_SERVICES
from kerf_dra.api.dra.service import DraService
from kerf_dra.api.errors import KerfError, TransientError
from kerf_dra.api.grpc_method import GrpcMethod
from kerf_dra.api.registration.v1 import (
    DRA_PLUGIN,
    GET_INFO,
    NOTIFY_REGISTRATION_STATUS,
    PluginInfo,
    RegistrationStatus,
)
from kerf_dra.driver.runtime.concurrency import is_cancelled
from kerf_dra.driver.runtime.unary_call import call_unary

log = logging.getLogger(__name__)

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

_SCAN_S: Final = 0.05
"""Seconds between two scans of the directory, which cost nothing for a few sockets; the kubelet uses inotify."""
_HANDSHAKE_S: Final = 5.0
"""The deadline of GetInfo and of NotifyRegistrationStatus (the kubelet's: 1 s and 5 s; test machines are slow)."""
_FIRST_RETRY_S: Final = 0.5
_LAST_RETRY_S: Final = 30.0
"""The back-off after a failed handshake: 0.5 s, doubling, as the kubelet's (there up to two minutes)."""


class DriverCallError(TransientError):
    """A driver did not answer, or its answer cannot be used."""


async def call(
    channel: grpc.aio.Channel, method: GrpcMethod[RequestT, ResponseT], request: RequestT, timeout_s: float
) -> ResponseT:
    """Make one unary call. Raises DriverCallError with the gRPC status and its details when it fails, also when the
    channel is closed meanwhile.
    """
    try:
        return await call_unary(channel, method, request, timeout_s)
    except grpc.aio.AioRpcError as error:
        raise DriverCallError(f"{method.path}: {error.code().name}: {error.details()}") from error
    except DecodeError as error:
        raise DriverCallError(f"{method.path}: the answer is no such message: {error}") from error
    except anyio.get_cancelled_exc_class() as error:
        if is_cancelled():
            raise
        raise DriverCallError(f"{method.path}: the driver's socket has gone") from error


@dataclass(frozen=True, slots=True)
class Driver:
    """A registered DRA driver."""

    name: str
    endpoint: str
    service: DraService
    channel: grpc.aio.Channel

    async def call(self, method: GrpcMethod[RequestT, ResponseT], request: RequestT, timeout_s: float) -> ResponseT:
        return await call(self.channel, method, request, timeout_s)


@dataclass(slots=True)
class _Socket:
    """One socket file."""

    identity: tuple[int, int]
    """Distinguishes it from a later one of the same name (``_identify``)."""
    driver: str | None = None
    retry_at: float = 0.0
    retry_s: float = _FIRST_RETRY_S


@dataclass(slots=True)
class PluginWatcher:
    """Watches one registry directory; of several instances of a driver the last one registered serves."""

    directory: Path
    versions: tuple[str, ...]
    """The DRA service versions of this kubelet; ``1.0.0`` is that of kubelets until 1.30."""
    on_change: Callable[[str, bool], None]
    """Called with the name of a driver, and whether it is registered now."""
    _sockets: dict[Path, _Socket] = field(default_factory=dict)
    _drivers: dict[str, list[tuple[Path, Driver]]] = field(default_factory=dict)

    def get(self, name: str) -> Driver | None:
        instances = self._drivers.get(name)
        return instances[-1][1] if instances else None

    async def run(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            while True:
                await self._scan()
                await anyio.sleep(_SCAN_S)
        finally:
            with anyio.CancelScope(shield=True):
                for path in list(self._sockets):
                    await self._deregister(path)

    async def _scan(self) -> None:
        found = {path: identity for path in self.directory.iterdir() if (identity := _identify(path)) is not None}
        for path in [path for path, socket in self._sockets.items() if found.get(path) != socket.identity]:
            await self._deregister(path)
        for path, identity in sorted(found.items()):
            socket = self._sockets.setdefault(path, _Socket(identity))
            if socket.driver is None and anyio.current_time() >= socket.retry_at:
                await self._register(path, socket)

    async def _register(self, path: Path, socket: _Socket) -> None:
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            try:
                info = await call(channel, GET_INFO, None, _HANDSHAKE_S)
                driver = self._accept(info)
            except KerfError as error:
                log.warning("cannot register the plugin at %s: %s", path, error)
                await self._notify(channel, RegistrationStatus(registered=False, error=str(error)))
                socket.retry_at = anyio.current_time() + socket.retry_s
                socket.retry_s = min(2 * socket.retry_s, _LAST_RETRY_S)
                return
            socket.driver = driver.name
            self._drivers.setdefault(driver.name, []).append((path, driver))
            await self._notify(channel, RegistrationStatus(registered=True))
        self.on_change(driver.name, True)

    def _accept(self, info: PluginInfo) -> Driver:
        if info.type != DRA_PLUGIN:
            raise DriverCallError(f"plugin {info.name} is a {info.type}; only {DRA_PLUGIN} is handled")
        services = {service.supported_version: service for service in (*DRA_SERVICES, v1alpha3.SERVICE)}
        for version in info.supported_versions:
            if version in self.versions:
                channel = grpc.aio.insecure_channel(f"unix:{info.endpoint}")
                return Driver(info.name, info.endpoint, services[version], channel)
        offered = ", ".join(info.supported_versions) or "nothing"
        raise DriverCallError(f"driver {info.name} offers {offered}; this kubelet knows {', '.join(self.versions)}")

    async def _notify(self, channel: grpc.aio.Channel, status: RegistrationStatus) -> None:
        try:
            await call(channel, NOTIFY_REGISTRATION_STATUS, status, _HANDSHAKE_S)
        except DriverCallError as error:
            log.warning("a plugin did not take its registration status: %s", error)

    async def _deregister(self, path: Path) -> None:
        socket = self._sockets.pop(path)
        if socket.driver is None:
            return
        instances = self._drivers[socket.driver]
        for instance in [instance for instance in instances if instance[0] == path]:
            instances.remove(instance)
            await instance[1].channel.close()
        if not instances:
            self.on_change(socket.driver, False)


def _identify(path: Path) -> tuple[int, int] | None:
    """Return what distinguishes a socket from its successor at this path; None for all other files, hidden names, and
    files that have just gone.

    The inode alone does not: ext4 gives the next file that of the one that was removed. No program writes into a
    socket, so the time of its modification is that of its creation.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    is_offer = stat.S_ISSOCK(status.st_mode) and not path.name.startswith(".")
    return (status.st_ino, status.st_mtime_ns) if is_offer else None
