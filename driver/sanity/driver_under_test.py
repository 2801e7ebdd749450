"""The driver under test: its sockets, called as a kubelet calls them, its slices, and its CDI folder."""

import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from kerf_dra import cdi
from kerf_dra.api.dra.health import DeviceHealth
from kerf_dra.api.dra.registry import DRA_SERVICES, HEALTH_SERVICES
from kerf_dra.api.dra.service import DraService
from kerf_dra.api.errors import KerfError
from kerf_dra.api.grpc_method import GrpcMethod
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PrepareOutcome
from kerf_dra.api.registration.v1 import GET_INFO, NOTIFY_REGISTRATION_STATUS, PluginInfo, RegistrationStatus
from kerf_dra.cdi.cache import read_file
from kerf_dra.driver.runtime.unary_call import call_unary
from kerf_dra.driver.sanity.allocated_claims import AllocatedClaims
from kerf_dra.driver.sanity.driver_process import DriverProcess, InstanceCommand, ProcessError

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

START_S: Final = 60.0
"""The longest time from a driver's start to its service."""
PUBLISHED_S: Final = 60.0
"""The longest time from then to what it publishes."""
_POLL_S: Final = 0.1
"""Seconds between two looks whether it has come so far."""
HANDSHAKE_S: Final = 5.0
"""The deadline of the calls of a registration (``pkg/kubelet/pluginmanager``: 1 s and 5 s)."""
CALL_S: Final = 45.0
"""The kubelet's deadline of a prepare or unprepare (``pkg/kubelet/cm/dra``)."""
HEALTH_S: Final = 30.0
"""The longest time to the first answer of a health stream: a kubelet takes reports for outdated after it."""
_UNKNOWN_FIELD: Final = b"\xfa\x7f\x05later"
"""A field of protobuf, number 2047, with five bytes: far above what the service has."""
_MOST_BYTES: Final = 4 * 1024 * 1024
"""The largest answer that a kubelet reads (gRPC's default)."""
_NO_ANSWER: Final = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE})
"""The statuses that the client itself makes where the driver does not answer."""


class CallError(KerfError):
    """A call failed, or its answer is not what was asked for."""


class RefusedCallError(CallError):
    """The driver has answered with an error of the call."""


@dataclass
class DriverUnderTest:
    """One driver on one node."""

    registration_socket: Path
    cdi_folders: Sequence[Path]
    claims: AllocatedClaims
    process: DriverProcess | None = None
    """Its process; None: the test has not started it."""
    instances: InstanceCommand | None = None
    """How another instance is started beside it; None: its command has no place for what distinguishes them."""
    holder: Sequence[str] = ()
    """The command of a program that uses a device; empty: there is none."""
    info: PluginInfo | None = field(default=None, init=False)
    """Its registration, once that has been read."""

    @property
    def has_registration_socket(self) -> bool:
        """Whether the driver's registration socket is there."""
        return is_socket(self.registration_socket)

    async def start(self) -> None:
        """Start the driver's process, and register it. Raises ProcessError when it ends instead, or does not serve."""
        assert self.process is not None, "only a driver with a command is started"
        self.process.start()
        with anyio.move_on_after(START_S):
            while self.process.exit_code is None:
                try:
                    await self.get_info()
                    await self.notify_registration(RegistrationStatus(registered=True))
                except CallError:  # it does not serve yet
                    await anyio.sleep(_POLL_S)
                else:
                    return
        if (code := self.process.exit_code) is not None:
            raise ProcessError(f"the driver has ended with exit code {code}")
        raise ProcessError(f"the driver does not serve {self.registration_socket} {START_S:g} s after its start")

    async def restart(self) -> None:
        """Kill the driver's process, and start the driver again. Raises ProcessError."""
        assert self.process is not None, "only a driver with a command is started"
        await self.process.kill()
        await self.start()

    def create_instance(self) -> "DriverUnderTest":
        """Return another instance of the driver on the same node, which is not started yet."""
        assert self.instances is not None, "only a driver with instances has another one"
        socket, command = self.instances.name_instance()
        return replace(self, registration_socket=socket, process=DriverProcess(command))

    async def wait_published(self) -> None:
        """Wait until the driver's pools are complete, for PUBLISHED_S at most. Raises ApiError."""
        with anyio.move_on_after(PUBLISHED_S):
            while not are_complete(await self.claims.list_slices()):  # noqa: ASYNC110  (as the API server is asked)
                await anyio.sleep(_POLL_S)

    async def get_info(self) -> PluginInfo:
        """Read the driver's registration. Raises CallError."""
        self.info = await self._call(self.registration_socket, GET_INFO, None, HANDSHAKE_S)
        return self.info

    async def notify_registration(self, status: RegistrationStatus) -> None:
        """Report what the kubelet made of the registration. Raises CallError."""
        await self._call(self.registration_socket, NOTIFY_REGISTRATION_STATUS, status, HANDSHAKE_S)

    async def prepare(self, *claims: ClaimRef, timeout_s: float = CALL_S) -> Mapping[str, PrepareOutcome]:
        """Call NodePrepareResources; returns the outcomes by UID. Raises CallError."""
        return await self._call(await self._endpoint(), (await self._service()).prepare, claims, timeout_s)

    async def cancel_prepare(self, claim: ClaimRef, after_s: float) -> None:
        """Call NodePrepareResources, and cancel the call so long after its begin. Raises CallError."""
        method = (await self._service()).prepare
        async with self._channel(await self._endpoint()) as channel:
            stub: Any = channel.unary_unary(method.path, request_serializer=method.encode_request)
            call = stub((claim,), timeout=CALL_S)
            await anyio.sleep(after_s)
            call.cancel()

    async def prepare_with_unknown_field(self, claim: ClaimRef) -> Mapping[str, PrepareOutcome]:
        """Call NodePrepareResources with a field that only later kubelets know. Raises CallError."""
        method = (await self._service()).prepare
        later = replace(method, encode_request=lambda claims: method.encode_request(claims) + _UNKNOWN_FIELD)
        return await self._call(await self._endpoint(), later, (claim,), CALL_S)

    async def watch_health(self) -> Sequence[DeviceHealth] | None:
        """Return the first answer of NodeWatchResources; None: the driver does not offer it. Raises CallError."""
        offered = (self.info or await self.get_info()).supported_versions
        service = next((each for each in HEALTH_SERVICES if each.supported_version in offered), None)
        if service is None:
            return None
        watch = service.watch
        async with self._channel(await self._endpoint()) as channel:
            stub: Any = channel.unary_stream(watch.path, request_serializer=watch.encode_request)
            try:
                async for answer in stub(None, timeout=HEALTH_S):
                    return watch.decode_response(answer)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:  # kubelets take it for a driver without it, too
                    return None
                raise CallError(f"{watch.name}: {error.code().name}: {error.details()}") from error
            except DecodeError as error:
                raise CallError(f"{watch.name}: the answer is no such message: {error}") from error
        raise CallError(f"{watch.name}: the stream has ended without an answer")

    async def unprepare(self, *claims: ClaimRef) -> Mapping[str, str]:
        """Call NodeUnprepareResources; returns the errors by UID. Raises CallError."""
        return await self._call(await self._endpoint(), (await self._service()).unprepare, claims, CALL_S)

    async def prepare_one(self, claim: ClaimRef) -> PrepareOutcome:
        """Prepare one claim. Raises CallError, also when the answer has another claim, or the driver's error."""
        answers = await self.prepare(claim)
        if set(answers) != {claim.uid}:
            raise CallError(f"asked for claim UID {claim.uid}, the answer has {sorted(answers)}")
        if answers[claim.uid].error:
            raise CallError(f"the prepare of an allocated claim failed: {answers[claim.uid].error}")
        return answers[claim.uid]

    async def find_refusal(self, claim: ClaimRef) -> str:
        """Have a claim prepared that cannot be; returns the error, of the claim or of the call; empty: there is none.

        Raises CallError when the driver does not answer, or not about this claim. What it has prepared is unprepared.
        """
        try:
            answers = await self.prepare(claim)
        except RefusedCallError as error:
            return str(error)
        await self.unprepare(claim)
        if set(answers) != {claim.uid}:
            raise CallError(f"asked for claim UID {claim.uid}, the answer has {sorted(answers)}")
        return answers[claim.uid].error

    async def unprepare_one(self, claim: ClaimRef) -> str:
        """Unprepare one claim; returns the driver's error. Raises CallError, also when the answer lacks it."""
        answers = await self.unprepare(claim)
        if set(answers) != {claim.uid}:
            raise CallError(f"asked for claim UID {claim.uid}, the answer has {sorted(answers)}")
        return answers[claim.uid]

    async def unprepare_deleted(self) -> str:
        """Prepare a claim, delete it, and unprepare it; returns the driver's error.

        Raises CallError, NoDeviceError and ApiError.
        """
        async with self.claims.allocated() as [claim]:
            await self.prepare_one(claim)
            await self.claims.delete(claim)
            return await self.unprepare_one(claim)

    @asynccontextmanager
    async def prepared(self, claim: ClaimRef) -> AsyncIterator[PrepareOutcome]:
        """The claim is prepared inside. Raises CallError."""
        outcome = await self.prepare_one(claim)
        try:
            yield outcome
        finally:
            await self.unprepare_one(claim)

    def read_cdi_files(self) -> Mapping[Path, bytes | None]:
        """Return the files of the CDI folders; None: a file cannot be read."""
        folders = [folder for folder in self.cdi_folders if folder.is_dir()]
        files = {path: read_file(path) for folder in folders for path in sorted(folder.iterdir())}
        return {path: data if isinstance(data, bytes) else None for path, data in files.items()}

    def load_cdi_catalog(self) -> "cdi.Catalog":
        """Return what the files of the CDI folders define, as container runtimes read them."""
        return cdi.Cache(self.cdi_folders).catalog

    def list_defined(self, outcome: PrepareOutcome) -> set[str]:
        """Return the CDI names of prepared devices that files define."""
        return {name for each in outcome.devices for name in each.cdi_ids} & self.load_cdi_catalog().devices.keys()

    async def leaves_files(self) -> bool:
        """Whether files define a claim's names after its unprepare by the process that has prepared it, too.

        Rows about other processes do not report that again. Raises CallError, NoDeviceError and ApiError.
        """
        async with self.claims.allocated() as [claim]:
            async with self.prepared(claim) as outcome:
                pass
            return bool(self.list_own(outcome, claim))

    def list_own(self, outcome: PrepareOutcome, claim: ClaimRef) -> set[str]:
        """Return the defined names that are of this claim alone: others, such as a card's, may stay."""
        return {name for name in self.list_defined(outcome) if claim.uid in name}

    async def _endpoint(self) -> Path:
        return Path((self.info or await self.get_info()).endpoint)

    async def _service(self) -> DraService:
        """Return the service that a kubelet takes: the first version of the driver's list that it knows."""
        offered = (self.info or await self.get_info()).supported_versions
        known = {service.supported_version: service for service in DRA_SERVICES}
        found = next((known[version] for version in offered if version in known), None)
        if found is None:
            raise CallError(
                f"the driver offers {', '.join(offered) or 'no versions'}; kubelets know {', '.join(known)}"
            )
        return found

    async def _call(
        self, path: Path, method: GrpcMethod[RequestT, ResponseT], request: RequestT, timeout_s: float
    ) -> ResponseT:
        """Make one call. Raises CallError with its gRPC status."""
        async with self._channel(path) as channel:
            try:
                return await call_unary(channel, method, request, timeout_s)
            except grpc.aio.AioRpcError as error:
                is_answer = error.code() not in _NO_ANSWER
                kind = RefusedCallError if is_answer else CallError
                raise kind(f"{method.name}: {error.code().name}: {error.details()}") from error
            except DecodeError as error:
                raise CallError(f"{method.name}: the answer is no such message: {error}") from error

    @asynccontextmanager
    async def _channel(self, path: Path) -> "AsyncIterator[grpc.aio.Channel]":
        if not is_socket(path):
            raise CallError(f"{path} is no socket")
        options = (("grpc.max_receive_message_length", _MOST_BYTES),)
        async with grpc.aio.insecure_channel(f"unix:{path}", options=options) as channel:
            yield channel


def are_complete(slices: Sequence[ResourceSlice]) -> bool:
    """Whether every pool has all slices of its newest generation, and there is one."""
    pools = [one.spec.pool for one in slices]
    newest = {pool.name: max(each.generation for each in pools if each.name == pool.name) for pool in pools}
    current = [pool for pool in pools if pool.generation == newest[pool.name]]
    return bool(pools) and all(
        pool.resource_slice_count == sum(each.name == pool.name for each in current) for pool in current
    )


def is_socket(path: Path) -> bool:
    """Whether there is a socket at ``path``."""
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False
