"""A kubelet that speaks to plugins as a real one does: real gRPC over real sockets, with messages of its own.

It follows kubernetes/kubernetes ``pkg/kubelet/pluginmanager`` and ``pkg/kubelet/cm/dra``: it scans ``plugins_registry``
for sockets, takes the first version of the plugin's list that it knows, and checks that an answer has an entry for each
claim and for no other. Paths and versions are spelled out here, apart from the code under test.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import grpc
import grpc.aio

from kerf_dra.api._generated.dra_v1 import api_pb2 as v1
from kerf_dra.api._generated.dra_v1beta1 import api_pb2 as v1beta1
from kerf_dra.api._generated.health_v1 import api_pb2 as health_v1
from kerf_dra.api._generated.health_v1alpha1 import api_pb2 as health_v1alpha1
from kerf_dra.api._generated.registration_v1 import api_pb2 as registration
from kerf_dra.api.model.names import ClaimRef

DRA = {"v1.DRAPlugin": ("v1", v1), "v1beta1.DRAPlugin": ("v1beta1", v1beta1)}
HEALTH = {"v1.DRAResourceHealth": ("v1", health_v1), "v1alpha1.DRAResourceHealth": ("v1alpha1", health_v1alpha1)}
V1_37 = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
V1_32 = ("v1beta1.DRAPlugin",)
TIMEOUT_S = 45.0
"""Of one call (``pkg/kubelet/cm/dra``)."""


class ClaimError(Exception):
    """The plugin's error for one claim."""


class FakeKubelet:
    """A kubelet with its root directory."""

    def __init__(self, root: Path, known: Sequence[str] = V1_37, driver: str = "") -> None:
        """``driver``: the one that it calls; empty: whichever registers."""
        self.root = root
        self.driver = driver
        self.known = known
        self.info: registration.PluginInfo | None = None
        self.version = ""
        self.health_version = ""
        self.make_folder()

    def make_folder(self) -> None:
        (self.root / "plugins_registry").mkdir(parents=True, exist_ok=True)

    @property
    def sockets(self) -> list[Path]:
        every = (self.root / "plugins_registry").glob(f"{self.driver}*")
        return [path for path in every if path.is_socket()]

    async def register(self, *, error: str = "", timeout_s: float = TIMEOUT_S) -> registration.PluginInfo:
        """Wait for a plugin and take the newest on, or refuse it with ``error``."""
        while not self.sockets:  # noqa: ASYNC110  (a directory sets no event)
            await anyio.sleep(0.001)
        first, *others = self.sockets
        newest = max(first, *others, key=lambda path: path.stat().st_ctime_ns) if others else first
        async with self._channel(newest) as channel:
            call = self._unary(channel, "/pluginregistration.Registration/GetInfo", registration.PluginInfo)
            # A socket has a name before its plugin listens there.
            info: registration.PluginInfo = await call(
                registration.InfoRequest(), timeout=timeout_s, wait_for_ready=True
            )
            if not error:
                self.info = info
                self.version = next(
                    version for version in info.supported_versions if version in DRA and version in self.known
                )
                offered = (
                    version for version in info.supported_versions if version in HEALTH and version in self.known
                )
                self.health_version = next(offered, "")
            notify = self._unary(
                channel,
                "/pluginregistration.Registration/NotifyRegistrationStatus",
                registration.RegistrationStatusResponse,
            )
            await notify(registration.RegistrationStatus(plugin_registered=not error, error=error), timeout=timeout_s)
        return info

    async def prepare_all(self, claims: Sequence[ClaimRef], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        """Return the answers by UID, and check that they are complete."""
        version, messages = DRA[self.version]
        path = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/NodePrepareResources"
        request = messages.NodePrepareResourcesRequest(claims=self._claims(messages, claims))
        response = await self._call(path, request, messages.NodePrepareResourcesResponse, timeout_s)
        return self._answers(response, claims)

    async def unprepare_all(self, claims: Sequence[ClaimRef], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        version, messages = DRA[self.version]
        path = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/NodeUnprepareResources"
        request = messages.NodeUnprepareResourcesRequest(claims=self._claims(messages, claims))
        response = await self._call(path, request, messages.NodeUnprepareResourcesResponse, timeout_s)
        return self._answers(response, claims)

    async def prepare(self, claim: ClaimRef, timeout_s: float = TIMEOUT_S) -> list[Any]:
        """The claim's devices. Raises ClaimError with the plugin's error for it, and what gRPC raises."""
        answer = (await self.prepare_all([claim], timeout_s))[claim.uid]
        if answer.error:
            raise ClaimError(answer.error)
        return list(answer.devices)

    async def unprepare(self, claim: ClaimRef, timeout_s: float = TIMEOUT_S) -> None:
        answer = (await self.unprepare_all([claim], timeout_s))[claim.uid]
        if answer.error:
            raise ClaimError(answer.error)

    @asynccontextmanager
    async def watching_health(self) -> AsyncIterator[Callable[[], Any]]:
        """Gives a function that waits for the next report: ``await report()``."""
        version, messages = HEALTH[self.health_version]
        async with self._channel(self._endpoint) as channel:
            watch: Any = channel.unary_stream(
                f"/{version}.DRAResourceHealth/NodeWatchResources",
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=messages.NodeWatchResourcesResponse.FromString,
            )
            call = watch(messages.NodeWatchResourcesRequest())
            yield call.read
            call.cancel()

    @property
    def _endpoint(self) -> Path:
        assert self.info is not None, "register first"
        return Path(self.info.endpoint)

    async def _call(self, path: str, request: Any, response: Any, timeout_s: float) -> Any:
        async with self._channel(self._endpoint) as channel:
            return await self._unary(channel, path, response)(request, timeout=timeout_s)

    @staticmethod
    def _claims(messages: Any, claims: Sequence[ClaimRef]) -> list[Any]:
        return [messages.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name) for claim in claims]

    @staticmethod
    def _answers(response: Any, claims: Sequence[ClaimRef]) -> dict[str, Any]:
        assert set(response.claims) == {claim.uid for claim in claims}, "an entry for each claim and for no other"
        return dict(response.claims)

    @staticmethod
    @asynccontextmanager
    async def _channel(path: Path) -> AsyncIterator[grpc.aio.Channel]:
        channel = grpc.aio.insecure_channel(f"unix:{path}")
        try:
            yield channel
        finally:
            await channel.close()

    @staticmethod
    def _unary(channel: grpc.aio.Channel, path: str, response: Any) -> Any:
        return channel.unary_unary(
            path,
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=response.FromString,
        )
