"""Serves extended resources to the kubelet: a socket and a registration for each (device plugin interface v1beta1).

The plugin serves its socket first, because the kubelet connects before it answers the registration. A kubelet that
starts removes all sockets beside its own, which it makes again: when either is not that of the registration any more,
the plugin serves and registers again. It never does so while the kubelet has it registered: the end of the first
connection would reach the kubelet after the second one, and disconnect both (``PluginDisconnected``,
kubernetes/kubernetes ``pkg/kubelet/cm/devicemanager``).
"""

import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import anyio
import anyio.to_thread
import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from kerf_dra.api.deviceplugin.v1beta1 import (
    ALLOCATE,
    GET_OPTIONS,
    GET_PREFERRED_ALLOCATION,
    KUBELET_SOCKET,
    LIST_AND_WATCH,
    PRE_START_CONTAINER,
    REGISTER,
    ContainerAllocation,
    DevicePluginOptions,
    ListedDevice,
    PreferenceRequest,
    Registration,
)
from kerf_dra.api.errors import KerfError, TransientError
from kerf_dra.api.grpc_method import GrpcMethod, RequestT, ResponseT
from kerf_dra.driver.kubeletplugin.deviceplugin.offer import UnknownIdError
from kerf_dra.driver.kubeletplugin.grpc.server import Handler, Handlers, SocketError, serving_at, stream, was_removed
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.runtime.unary_call import call_unary

OPTIONS: Final = DevicePluginOptions(pre_start_required=True, preferred_allocation=True)
"""PreStartContainer is needed after a reboot: nothing else is called before containers start again."""
REGISTER_TIMEOUT_S: Final = 10.0
"""Limit of a registration, in which the kubelet connects to the plugin: it gives up after 10 s itself."""

_SocketIdentity: TypeAlias = tuple[int, int] | None

_log = logging.getLogger(__name__)


class ResourceHandler(Protocol):
    """The object that knows the devices of all resources. Its methods raise KerfError with the reason of a failure."""

    changed: Notifier

    @property
    def resources(self) -> Sequence[str]: ...

    def list_devices(self, resource: str) -> tuple[ListedDevice, ...]: ...

    def prefer(self, resource: str, requests: Sequence[PreferenceRequest]) -> Sequence[Sequence[str]]: ...

    async def allocate(self, resource: str, containers: Sequence[Sequence[str]]) -> Sequence[ContainerAllocation]: ...

    async def ensure_prepared(self, resource: str, ids: Sequence[str]) -> None: ...


class DevicePluginServer:
    """Serves the extended resources of one driver on a node."""

    def __init__(self, settings: Settings, handler: ResourceHandler) -> None:
        self._settings = settings
        self._handler = handler
        self._scopes: dict[str, anyio.CancelScope] = {}

    async def run(self) -> None:
        """Serve each resource as long as there is one, until cancelled."""
        async with anyio.create_task_group() as group:
            while True:
                change = self._handler.changed.next_event
                wanted = set(self._handler.resources)
                for resource in wanted - self._scopes.keys():
                    scope = self._scopes[resource] = anyio.CancelScope()
                    group.start_soon(self._serve_until_cancelled, resource, scope)
                for resource in self._scopes.keys() - wanted:
                    self._scopes.pop(resource).cancel()
                await change.wait()

    async def _serve_until_cancelled(self, resource: str, scope: anyio.CancelScope) -> None:
        with scope:
            await ResourceServer(self._settings, resource, self._handler).run()


class ResourceServer:
    """Serves one resource."""

    def __init__(self, settings: Settings, resource: str, handler: ResourceHandler) -> None:
        self._settings = settings
        self._resource = resource
        self._handler = handler
        self._kubelet_socket = settings.device_plugins_dir / KUBELET_SOCKET
        digest = hashlib.sha256(resource.encode()).hexdigest()[:8]
        self.socket: Final = settings.device_plugins_dir / f"{settings.driver_name}-{digest}.sock"
        """The same for each instance, so that none is left behind by one that was killed."""
        self._closed = anyio.Event()

    @property
    def handlers(self) -> Handlers:
        resource, handler = self._resource, self._handler

        async def get_options(_: None) -> DevicePluginOptions:
            return OPTIONS

        async def prefer(requests: Sequence[PreferenceRequest]) -> Sequence[Sequence[str]]:
            return handler.prefer(resource, requests)

        async def allocate(containers: Sequence[Sequence[str]]) -> Sequence[ContainerAllocation]:
            return await handler.allocate(resource, containers)

        async def pre_start(ids: Sequence[str]) -> None:
            await handler.ensure_prepared(resource, ids)

        return dict(
            [
                _call(GET_OPTIONS, get_options),
                _call(GET_PREFERRED_ALLOCATION, prefer),
                _call(ALLOCATE, allocate),
                _call(PRE_START_CONTAINER, pre_start),
                stream(LIST_AND_WATCH, self._watch),
            ]
        )

    async def run(self) -> None:
        """Serve and register again and again, until cancelled."""
        while True:
            for delay_s in self._settings.retry.delays():
                if await self._serve_once():
                    break
                await anyio.sleep(min(delay_s, self._settings.registration_silence_s))

    async def _serve_once(self) -> bool:
        """Serve and register until the kubelet is another one; returns whether it had registered the resource."""
        kubelet = await self._identify(self._kubelet_socket)
        if kubelet is None:
            await anyio.sleep(self._settings.device_plugin_poll_s)
            return True  # no kubelet is no failure: it is looked for at the same pace
        self._closed = anyio.Event()
        try:
            async with serving_at(self.socket, self.handlers, grace_s=self._settings.rpc_grace_s):
                try:
                    await self._register()
                    await self._wait_until_stale(kubelet)
                finally:
                    self._closed.set()
                    self._handler.changed.notify()  # streams end: a server cannot stop while one goes on
        except (SocketError, grpc.aio.AioRpcError, DecodeError) as error:
            reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
            _log.warning("the kubelet has not registered %s, will try again: %s", self._resource, reason)
            return False
        return True

    async def _register(self) -> None:
        registration = Registration(endpoint=self.socket.name, resource=self._resource, options=OPTIONS)
        async with grpc.aio.insecure_channel(f"unix:{self._kubelet_socket}") as channel:
            await call_unary(channel, REGISTER, registration, REGISTER_TIMEOUT_S)
        _log.info("the kubelet has registered %s", self._resource)

    async def _wait_until_stale(self, kubelet: _SocketIdentity) -> None:
        while True:
            await anyio.sleep(self._settings.device_plugin_poll_s)
            if await anyio.to_thread.run_sync(was_removed, self.socket):
                _log.info("registering %s with the kubelet again: %s was removed", self._resource, self.socket)
                return
            found = await self._identify(self._kubelet_socket)
            if found is not None and found != kubelet:
                _log.info("registering %s with the kubelet again: its socket is another one", self._resource)
                return

    async def _watch(self, _request: None) -> AsyncIterator[Sequence[ListedDevice]]:
        closed, last = self._closed, None
        while not closed.is_set():
            change = self._handler.changed.next_event
            devices = self._handler.list_devices(self._resource)
            if devices != last:
                last = devices
                yield devices
            else:
                await change.wait()

    @staticmethod
    async def _identify(path: Path) -> _SocketIdentity:
        """Return what distinguishes a socket from one that was made later; None: it is not there, or cannot be seen."""
        try:
            found = await anyio.Path(path).stat()
        except OSError:
            return None
        return found.st_ino, found.st_ctime_ns


def _call(
    method: GrpcMethod[RequestT, ResponseT], answer: Callable[[RequestT], Awaitable[ResponseT]]
) -> "tuple[str, Handler]":
    """Make an item of Handlers that answers with a status of gRPC where the handler fails: messages have no errors."""

    async def handle(request: RequestT, context: "grpc.aio.ServicerContext[Any, Any]") -> bytes:
        try:
            return method.encode_response(await answer(request))
        except UnknownIdError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except TransientError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except KerfError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

    return method.path, grpc.unary_unary_rpc_method_handler(handle, request_deserializer=method.decode_request)
