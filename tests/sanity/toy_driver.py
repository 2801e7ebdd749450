"""A DRA driver of two devices that does what a kubelet needs, or has one fault, named by the row that it breaks."""

import dataclasses
import fcntl
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import msgspec
from msgspec.structs import replace

from kerf_dra.api.core.v1 import NODES
from kerf_dra.api.dra.health import DeviceHealth, Health
from kerf_dra.api.dra.registry import DRA_SERVICES, HEALTH_SERVICES
from kerf_dra.api.grpc_method import GrpcMethod
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PrepareOutcome, ReportedDevice
from kerf_dra.api.registration.v1 import GET_INFO, NOTIFY_REGISTRATION_STATUS, PluginInfo, RegistrationStatus
from kerf_dra.driver.kube.discovery import ApiFeatures
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kubeletplugin.grpc.server import serving_at, stream, unary

DRIVER: Final = "toy.example.com"
NODE: Final = "node-1"
DEVICES: Final = ("toy-0", "toy-1")
Prepare: TypeAlias = GrpcMethod[Sequence[ClaimRef], Mapping[str, PrepareOutcome]]
_VERSIONS: Final = tuple(service.supported_version for service in DRA_SERVICES)
_HEALTH: Final = HEALTH_SERVICES[0]
LOCK: Final = "TOY_LOCK"
"""The variable of containers with the file that a program locks while it uses a device."""
_SLOW: Final = {"PREPARE-3": 50, "PREPARE-10": 50, "UNPREPARE-6": 50, "RESTART-9": 50}
"""Faults that show in the middle of a prepare, with the requests to the API server by which it takes longer."""
_POLL_S: Final = 0.05


@dataclass
class ToyDriver:
    """The driver on one node, below ``root``."""

    root: Path
    client: Client
    api: ApiFeatures
    fault: str = ""
    """The id of the row that it breaks; empty: none."""
    instance: str = ""
    """What the names of its sockets have, where several run at the same time."""
    grace_s: float = 0
    """Seconds that calls in flight get at its end."""
    is_ending: bool = False
    """Whether its process has got SIGTERM."""
    prepared: dict[str, PrepareOutcome] = field(default_factory=dict)
    """By claim UID."""
    calls: list[str] = field(default_factory=list)
    was_prepared: anyio.Event = field(default_factory=anyio.Event)
    """Set once a claim is prepared."""
    _restored: set[str] = field(default_factory=set)
    """The claims that an earlier process has prepared."""
    _files: set[Path] = field(default_factory=set)
    """The CDI files that an earlier process has left."""
    _own: set[str] = field(default_factory=set)
    """The claims that this process has prepared."""
    _released: set[str] = field(default_factory=set)
    _busy: set[str] = field(default_factory=set)
    _stuck: set[str] = field(default_factory=set)
    _held: set[str] = field(default_factory=set)
    """The claims whose device a program used at an unprepare."""
    _names: dict[str, str] = field(default_factory=dict)
    """The names of claims by UID."""
    _former: dict[str, PrepareOutcome] = field(default_factory=dict)
    """Everything that was ever prepared, by claim UID."""
    _registrations: int = 0

    @property
    def registration_socket(self) -> Path:
        return self.root / f"toy{self.instance}-reg.sock"

    @property
    def service_socket(self) -> Path:
        return self.root / f"dra{self.instance}.sock"

    @property
    def cdi_folder(self) -> Path:
        return self.root / "cdi"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """It is registered and has published its devices inside."""
        self.cdi_folder.mkdir(exist_ok=True)
        self._restore()
        await self._publish()
        service = dict(unary(self._strictly(row.prepare), self._prepare_all) for row in DRA_SERVICES)
        service |= dict(unary(row.unprepare, self._unprepare_all) for row in DRA_SERVICES)
        service |= dict([stream(_HEALTH.watch, self._watch_health)])
        registration = dict([unary(GET_INFO, self._get_info), unary(NOTIFY_REGISTRATION_STATUS, self._notify)])
        async with AsyncExitStack() as stack:
            for path, handlers in ((self.service_socket, service), (self.registration_socket, registration)):
                await stack.enter_async_context(serving_at(path, handlers, grace_s=self.grace_s))
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(self._keep_published)
            yield
            tasks.cancel_scope.cancel()

    # What it publishes

    async def _publish(self) -> None:
        node = await self.client.get(NODES, NODE)
        for document in self._slices(node.metadata.uid):
            await self.client.apply(self.api.resource.resource_slices, document, field_manager="toy")

    async def _keep_published(self) -> None:
        while self.fault != "SLICE-6":
            await anyio.sleep(_POLL_S)
            there = {one.metadata.name for one in (await self.client.list(self.api.resource.resource_slices)).items}
            if not {document["metadata"]["name"] for document in self._slices("")} <= there:
                await self._publish()

    @property
    def _devices(self) -> Sequence[str]:
        """The names of its devices."""
        return [f"{name}-{os.getpid()}" for name in DEVICES] if self.fault == "RESTART-4" else DEVICES

    def _slices(self, node_uid: str) -> Sequence[JsonObject]:
        if self.fault == "SLICE-1":
            return ()
        names = ("toy-0", "toy-0") if self.fault == "SLICE-3" else self._devices
        count = 3 if self.fault == "SLICE-2" else len(names)
        return [self._slice(number, name, count, node_uid) for number, name in enumerate(names)]

    def _slice(self, number: int, device: str, count: int, node_uid: str) -> JsonObject:
        """Return one slice for each device, so that a pool has several."""
        uses = [{"counterSet": "unknown", "counters": {"memory": {"value": "1"}}}]
        owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node_uid, "controller": True}
        metadata: JsonObject = {"name": f"toy-{number}"}
        if self.fault != "SLICE-5":
            metadata["ownerReferences"] = [owner]
        return {
            "metadata": metadata,
            "spec": {
                "driver": DRIVER,
                "nodeName": NODE,
                "pool": {"name": NODE, "generation": 1, "resourceSliceCount": count},
                "devices": [{"name": device} | ({"consumesCounters": uses} if self.fault == "SLICE-4" else {})],
            },
        }

    # Its registration

    async def _get_info(self, _: None) -> PluginInfo:
        socket = self.service_socket
        versions = {"REG-3": (*_VERSIONS, _VERSIONS[-1]), "REG-4": tuple(reversed(_VERSIONS))}
        services = (*versions.get(self.fault, _VERSIONS), _HEALTH.supported_version)
        return PluginInfo(
            type="CSIPlugin" if self.fault == "REG-1" else "DRAPlugin",
            name=DRIVER,
            endpoint=os.path.relpath(socket) if self.fault == "REG-2" else str(socket),
            supported_versions=services,
        )

    async def _notify(self, _: RegistrationStatus) -> None:
        self._registrations += 1
        if self.fault == "REG-5" and self._registrations > 1:
            raise RuntimeError("it is registered")

    async def _watch_health(self, _: None) -> AsyncIterator[Sequence[DeviceHealth]]:
        pool = "wrong" if self.fault == "HEALTH-1" else NODE
        yield [
            DeviceHealth(pool=pool, device=name, health=Health.HEALTHY, checked_at_s=1) for name in self._devices[:1]
        ]
        await anyio.sleep_forever()

    # Its claims

    def _strictly(self, method: Prepare) -> Prepare:
        """Return the method, which refuses fields that it does not know."""

        def decode(data: bytes) -> Sequence[ClaimRef]:
            claims = method.decode_request(data)
            if method.encode_request(claims) != data:
                raise ValueError("unknown field")
            return claims

        return dataclasses.replace(method, decode_request=decode) if self.fault == "PREPARE-9" else method

    async def _prepare_all(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareOutcome]:
        self.calls += [f"prepare {claim.uid}" for claim in claims]
        outcomes = {claim.uid: await self._prepare(claim, len(claims)) for claim in claims}
        if self.fault == "PREPARE-7" and any(outcome.error for outcome in outcomes.values()):
            return {uid: PrepareOutcome(error="another claim failed") for uid in outcomes}
        if self.fault == "PREPARE-12" and not any(outcome.error for outcome in outcomes.values()):
            return dict([*outcomes.items()][:1])
        return outcomes

    async def _prepare(self, ref: ClaimRef, together: int) -> PrepareOutcome:
        if ref.uid in self._busy and self.fault == "PREPARE-3":
            return PrepareOutcome(error="another call for the claim is in progress")
        if ref.uid in self._stuck and self.fault == "PREPARE-10":
            return PrepareOutcome(error="an earlier call for the claim has not ended")
        self._busy.add(ref.uid)
        try:
            for _ in range(_SLOW.get(self.fault, 0)):
                await self._find(ref)
            return await self._prepare_alone(ref, together)
        except anyio.get_cancelled_exc_class():
            self._stuck.add(ref.uid)
            if self.fault == "RESTART-9" and self.is_ending:
                self.prepared[ref.uid] = PrepareOutcome()
                self._save()
            raise
        finally:
            self._busy.discard(ref.uid)

    async def _prepare_alone(self, ref: ClaimRef, together: int) -> PrepareOutcome:
        claim = await self._find(ref)
        self._load()
        if ref.uid in self.prepared:
            if not self._cdi_file(ref.uid).exists() and self.fault != "RESTART-11":
                self._write_cdi(ref.uid)
            is_forgotten = self.fault == "PREPARE-2" and ref.uid in self._own
            return PrepareOutcome() if is_forgotten else self.prepared[ref.uid]
        if claim is None:
            is_good = self.fault != "PREPARE-4" or together > 1
            return PrepareOutcome(error=f"claim {ref} does not exist") if is_good else PrepareOutcome()
        if claim.metadata.uid != ref.uid and self.fault != "PREPARE-6":
            return PrepareOutcome(error=f"claim {ref} has another UID")
        if claim.status.allocation is None:
            return PrepareOutcome() if self.fault == "PREPARE-5" else PrepareOutcome(error=f"{ref} has no devices")
        if ref.uid in self._released and self.fault == "PREPARE-8":
            return PrepareOutcome(error=f"claim {ref} was unprepared")
        if self.fault == "RESTART-8" and self._cdi_file(ref.uid) in self._files:
            return PrepareOutcome(error=f"{self._cdi_file(ref.uid)} exists")
        outcome = PrepareOutcome(
            devices=tuple(
                ReportedDevice(
                    requests=(result.request_name.request,),
                    pool="wrong" if self.fault == "PREPARE-1" else result.pool,
                    device=result.device,
                    share=None,
                    cdi_ids=("toy" if self.fault == "CDI-1" else f"{DRIVER}/toy=claim-{ref.uid}",),
                )
                for result in claim.status.allocation.devices.results
                if result.driver == DRIVER or self.fault == "PREPARE-13"
            )
        )
        if self.fault == "PREPARE-14":
            outcome = self._former.setdefault(ref.uid, outcome)
        self._write_cdi(ref.uid)
        if self.fault == "RESTART-8":
            for _ in range(50):
                await self._find(ref)
        self.prepared[ref.uid] = outcome
        self._own.add(ref.uid)
        self._names[ref.uid] = ref.name
        self.was_prepared.set()
        self._save()
        if self.fault == "RESTART-7":
            os.open(os.devnull, os.O_RDONLY)
        return outcome

    async def _unprepare_all(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        self.calls += [f"unprepare {claim.uid}" for claim in claims]
        return {claim.uid: await self._unprepare(claim) for claim in claims}

    async def _unprepare(self, ref: ClaimRef) -> str:
        if self.fault == "UNPREPARE-6":
            self._stuck |= self._busy & {ref.uid}
            if ref.uid in self._stuck:
                return f"claim {ref} was unprepared while it was being prepared"
        is_there = await self._find(ref) is not None
        self._load()
        if self.fault == "PREPARE-11":
            for uid in [uid for uid in self.prepared if self._names.get(uid) == ref.name]:
                self._remove_cdi(uid)
        if ref.uid not in self.prepared:
            return self._refuse_unknown(ref, is_there=is_there)
        is_restored = ref.uid in self._restored
        if (self.fault == "RESTART-2" and is_restored and is_there) or (
            self.fault == "RESTART-3" and is_restored and not is_there
        ):
            return f"claim {ref} is of another process"
        if self.fault == "UNPREPARE-4" and not is_there:
            return f"claim {ref} does not exist"
        if error := await self._find_obstacle(ref):
            return error
        del self.prepared[ref.uid]
        self._save()
        self._released.add(ref.uid)
        for uid in [ref.uid, *(self.prepared if self.fault == "UNPREPARE-5" else ())]:
            self._remove_cdi(uid)
        return ""

    def _refuse_unknown(self, ref: ClaimRef, *, is_there: bool) -> str:
        """Return why a claim that is not prepared cannot be unprepared; empty: nothing is to be done."""
        if self.fault == "UNPREPARE-1" and not is_there and ref.uid not in self._released:
            return f"claim {ref} is not known"
        if self.fault == "UNPREPARE-2" and ref.uid in self._released:
            return f"claim {ref} is unprepared"
        if self.fault == "UNPREPARE-3" and is_there and ref.uid not in self._released:
            return f"claim {ref} was not prepared"
        return ""

    async def _find_obstacle(self, ref: ClaimRef) -> str:
        """Return why a prepared claim cannot be unprepared now; empty: nothing prevents it."""
        if not self._is_free(ref.uid) or (self.fault == "UNPREPARE-7" and ref.uid in self._held):
            self._held.add(ref.uid)
            return f"a program uses the device of {ref}"
        if self.fault == "RESTART-10":
            if not self._cdi_file(ref.uid).exists():
                return f"{self._cdi_file(ref.uid)} does not exist"
            self._remove_cdi(ref.uid)
            for _ in range(50):
                await self._find(ref)
        return ""

    def _is_free(self, uid: str) -> bool:
        """Whether no program uses the device of a claim."""
        with self._lock_file(uid).open("w") as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lock_file(uid).unlink()
            return True
        return False

    def _lock_file(self, uid: str) -> Path:
        return self.root / f"{uid}.lock"

    async def _find(self, ref: ClaimRef) -> ResourceClaim | None:
        await anyio.lowlevel.checkpoint()
        return await self.client.find(self.api.resource.resource_claims, ref.name, ref.namespace)

    # Its files

    @property
    def _records(self) -> Path:
        return self.root / "prepared.json"

    def _save(self) -> None:
        new = self._records.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(self.prepared))
        new.replace(self._records)

    def _restore(self) -> None:
        """Read what an earlier process has prepared, and what it has left."""
        self._files = {*self.cdi_folder.iterdir()}
        if self._records.exists():
            self.prepared = msgspec.json.decode(self._records.read_bytes(), type=dict[str, PrepareOutcome])
            self._restored = {*self.prepared}
        self._load()

    def _load(self) -> None:
        """Read what is prepared, also by another instance."""
        if self._records.exists() and self.fault != "REG-6":
            self.prepared = msgspec.json.decode(self._records.read_bytes(), type=dict[str, PrepareOutcome])
        if self.fault == "RESTART-1":
            for uid in self._restored & self.prepared.keys():
                devices = tuple(replace(device, cdi_ids=()) for device in self.prepared[uid].devices)
                self.prepared[uid] = PrepareOutcome(devices=devices)

    def _write_cdi(self, uid: str) -> None:
        device = {"name": f"claim-{uid}", "containerEdits": {"env": [f"{LOCK}={self._lock_file(uid)}"]}}
        spec = {
            "cdiVersion": "0.7.0" if self.fault == "CDI-6" else "0.3.0",
            "kind": f"{DRIVER}/toy",
            "devices": [device],
        }
        if self.fault != "CDI-2":
            self._write(self._cdi_file(uid), spec)
        if self.fault == "CDI-3":
            self._write(self.cdi_folder / "toy-extra.json", {**spec, "kind": "no kind"})

    def _write(self, path: Path, spec: JsonObject) -> None:
        new = path if self.fault == "CDI-7" else path.with_suffix(".new")
        new.write_text(json.dumps(spec))
        new.replace(path)

    def _remove_cdi(self, uid: str) -> None:
        if self.fault == "CDI-5":
            for path in {*self.cdi_folder.iterdir()} - {self._cdi_file(each) for each in self.prepared if each != uid}:
                path.unlink()
        elif self.fault != "CDI-4":
            self._cdi_file(uid).unlink(missing_ok=True)
            (self.cdi_folder / "toy-extra.json").unlink(missing_ok=True)

    def _cdi_file(self, uid: str) -> Path:
        return self.cdi_folder / f"toy-{uid}.json"
