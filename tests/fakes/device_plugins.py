"""The kubelet's device manager, as a plugin meets it: real gRPC over real sockets, with messages of its own.

It follows kubernetes/kubernetes ``pkg/kubelet/cm/devicemanager``: it connects before it answers a registration, and at
its start removes all sockets of plugins. Paths are spelled out here, apart from the code under test. It has the
kubelet's account of pods, too (``pods``), which the plugin reads as pod resources.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import grpc
import grpc.aio
from anyio.abc import TaskGroup

from kerf_dra.api._generated.deviceplugin_v1beta1 import api_pb2 as v1beta1
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.podresources.v1 import LIST, DeviceUse, PodUses

TIMEOUT_S = 30.0
"""Of one call: far longer than any takes, so that only a call that hangs fails."""


class FakeDevicePluginKubelet:
    """The device manager of a kubelet with its root directory."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "device-plugins"
        self.pod_resources = root / "pod-resources" / "kubelet.sock"
        self.registrations: list[v1beta1.RegisterRequest] = []
        self.lists: dict[str, list[dict[str, v1beta1.Device]]] = {}
        """By resource: each list of devices that it was sent, by ID."""
        self.ended: list[str] = []
        """The resources whose streams have ended, each as often as one has."""
        self.pods: dict[tuple[str, str], str] = {}
        """The pod of each resource and device ID: the kubelet's account."""
        self.refusals = 0
        self.refuses = False
        """Whether registrations are answered with an error."""
        self.is_silent = False
        """Whether pod resources are not served."""
        self.lists_asked = 0
        self.before_answer: Callable[[], Awaitable[None]] | None = None
        """What happens between the moment of which an account of pods is, and its arrival."""
        self._changed = anyio.Event()
        self._servers: list[grpc.aio.Server] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeDevicePluginKubelet"]:
        """The kubelet runs inside."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.pod_resources.parent.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob("*.sock"):
            path.unlink()
        async with anyio.create_task_group() as streams, AsyncExitStack() as stack:
            handlers = {"/v1beta1.Registration/Register": self._on_register(streams)}
            stack.push_async_callback(self._stop, await self._serve(self.folder / "kubelet.sock", handlers))
            pods: dict[str, Any] = {"/v1.PodResourcesLister/List": grpc.unary_unary_rpc_method_handler(self._list_pods)}
            stack.push_async_callback(self._stop, await self._serve(self.pod_resources, pods))
            yield self
            streams.cancel_scope.cancel()

    async def wait_list(self, resource: str, ids: int, healthy: int | None = None) -> dict[str, v1beta1.Device]:
        """Wait until a resource is served, and its last list has so many devices, so many of them healthy; returns it.

        A list that a plugin which has ended has sent does not count: a test once called its socket, which was gone.
        """
        while True:
            changed = self._changed
            last = (self.lists.get(resource) or [{}])[-1]
            found = sum(device.health == "Healthy" for device in last.values())
            begun = sum(each.resource_name == resource for each in self.registrations)
            is_served = bool(self.lists.get(resource)) and begun > self.ended.count(resource)
            if is_served and len(last) == ids and (healthy is None or found == healthy):
                return last
            await changed.wait()

    async def wait_registrations(self, count: int) -> v1beta1.RegisterRequest:
        """Wait for so many registrations in all; returns the last."""
        while len(self.registrations) < count:
            await self._changed.wait()
        return self.registrations[-1]

    async def wait_refusals(self, count: int) -> None:
        while self.refusals < count:
            await self._changed.wait()

    async def options(self, resource: str) -> Any:
        return await self._call(resource, "GetDevicePluginOptions", v1beta1.Empty(), v1beta1.DevicePluginOptions)

    async def prefer(self, resource: str, available: Sequence[str], size: int, must: Sequence[str] = ()) -> list[str]:
        wish = v1beta1.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        request = v1beta1.PreferredAllocationRequest(container_requests=[wish])
        answer = await self._call(resource, "GetPreferredAllocation", request, v1beta1.PreferredAllocationResponse)
        return list(answer.container_responses[0].deviceIDs)

    async def allocate(self, resource: str, *ids: str, pod: str = "") -> Any:
        """Allocate ``ids`` for a container; with ``pod`` the kubelet has it as running with them afterwards."""
        request = v1beta1.AllocateRequest(container_requests=[v1beta1.ContainerAllocateRequest(devices_ids=ids)])
        answer = await self._call(resource, "Allocate", request, v1beta1.AllocateResponse)
        if pod:
            self.pods.update({(resource, each): pod for each in ids})
        return answer.container_responses[0]

    async def pre_start(self, resource: str, *ids: str) -> None:
        request = v1beta1.PreStartContainerRequest(devices_ids=ids)
        await self._call(resource, "PreStartContainer", request, v1beta1.PreStartContainerResponse)

    def end(self, pod: str) -> None:
        """A pod ends: the kubelet forgets what it had."""
        self.pods = {held: other for held, other in self.pods.items() if other != pod}

    async def _call(self, resource: str, method: str, request: Any, response: Any) -> Any:
        endpoint = next(each.endpoint for each in reversed(self.registrations) if each.resource_name == resource)
        async with grpc.aio.insecure_channel(f"unix:{self.folder / endpoint}") as channel:
            call: Any = channel.unary_unary(
                f"/v1beta1.DevicePlugin/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=response.FromString,
            )
            return await call(request, timeout=TIMEOUT_S)

    def _on_register(self, streams: TaskGroup) -> Any:
        async def register(data: bytes, context: Any) -> bytes:
            request = v1beta1.RegisterRequest.FromString(data)
            if self.refuses:
                self.refusals += 1
                self._tell()
                await context.abort(grpc.StatusCode.UNKNOWN, "not now")
            channel = grpc.aio.insecure_channel(f"unix:{self.folder / request.endpoint}")
            await channel.channel_ready()
            self.registrations.append(request)
            streams.start_soon(self._follow, request.resource_name, channel)
            self._tell()
            return v1beta1.Empty().SerializeToString()

        return grpc.unary_unary_rpc_method_handler(register)

    async def _follow(self, resource: str, channel: grpc.aio.Channel) -> None:
        watch: Any = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=v1beta1.ListAndWatchResponse.FromString,
        )
        try:
            async for answer in watch(v1beta1.Empty()):
                self.lists.setdefault(resource, []).append({device.ID: device for device in answer.devices})
                self._tell()
        except grpc.aio.AioRpcError:
            pass
        finally:
            self.ended.append(resource)
            self._tell()
            with anyio.CancelScope(shield=True):
                await channel.close()

    async def _list_pods(self, _data: bytes, context: Any) -> bytes:
        self.lists_asked += 1
        self._tell()
        if self.is_silent:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
        uses = [
            DeviceUse(resource=resource, id=id_, pod=ObjectRef("default", pod))
            for (resource, id_), pod in self.pods.items()
        ]
        if self.before_answer is not None:
            await self.before_answer()
        return LIST.encode_response(PodUses(devices=tuple(uses)))

    async def wait_lists_asked(self, more: int) -> None:
        """Wait until the plugin has asked so many more times what pods have."""
        until = self.lists_asked + more
        while self.lists_asked < until:
            await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _serve(self, path: Path, handlers: dict[str, Any]) -> grpc.aio.Server:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((_ByPath(handlers),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        return server

    @staticmethod
    async def _stop(server: grpc.aio.Server) -> None:
        with anyio.CancelScope(shield=True):
            await server.stop(0.1)


class _ByPath(grpc.GenericRpcHandler):
    def __init__(self, handlers: dict[str, Any]) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._handlers.get(handler_call_details.method)
