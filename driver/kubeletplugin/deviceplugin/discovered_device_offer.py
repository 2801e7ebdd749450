"""Offers discovered devices by the device plugin interface, and enters their users in the devices' objects.

That is done where no scheduler counts the users (Kubernetes 1.29 to 1.31); ``kerf_dra.driver.families.shared.users``
says what is listed and what may be entered. The records of this node say who uses a device here. A user is entered
before its record is written, and removed before its record is dropped; what differs after a crash, or because another
program has changed the object, is put right: a user of this node without a record gets one, so that it is released as
all are, and a record without a user is entered again.
"""

import hashlib
import logging
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Final

import anyio

from kerf_dra.api.deviceplugin.v1beta1 import ListedDevice, PreferenceRequest
from kerf_dra.api.errors import KerfError, PermanentError, TransientError
from kerf_dra.api.kerf.discovery_objects import DeviceUser, DiscoveredDeviceObject
from kerf_dra.api.model.names import DeviceId, DriverName, ShareId
from kerf_dra.api.model.prepared import PreparedClaim, PreparedDevice
from kerf_dra.driver.families.shared.objects import FoundDevice
from kerf_dra.driver.families.shared.users import (
    count_free,
    digest_of,
    enter_user,
    list_healthy,
    list_ids,
    list_members,
    list_own,
    list_resources,
    must_differ,
    remove_user,
)
from kerf_dra.driver.kube.http.errors import ConflictError, NotFoundError
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint
from kerf_dra.driver.kubeletplugin.cluster.base import DiscoveredDeviceSource
from kerf_dra.driver.kubeletplugin.deviceplugin.offer import UnknownIdError, record_uid
from kerf_dra.driver.kubeletplugin.deviceplugin.resource_allocator import ResourceAllocator
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.partitions.records import to_card_part
from kerf_dra.driver.runtime.problem_log import ProblemLog

_TRIES: Final = 20
"""Writes that fail because others were faster: each lets one more node in, and few devices have more users."""

_log = logging.getLogger(__name__)


class RepeatedDeviceError(PermanentError):
    """A container would have one device several times, of a configuration whose devices must differ."""

    def __init__(self, resource: str, device: str) -> None:
        super().__init__(
            f"the container would have {device} several times, but several of {resource} must be different devices "
            "(uniqueDevices of the DiscoveryConfiguration): ask for fewer, or try again"
        )


class ContendedDeviceError(TransientError):
    """The object of a device changes so often that nothing can be written."""

    def __init__(self, device: str) -> None:
        super().__init__(f"DiscoveredDevice {device} has changed {_TRIES} times while it was to be written")


class DiscoveredDeviceOffer:
    """A DeviceOffer of discovered devices."""

    def __init__(self, source: DiscoveredDeviceSource, *, driver: DriverName, node: str, state: NodeState) -> None:
        self._source = source
        self._driver = driver
        self._node = node
        self._state = state

    @property
    def resources(self) -> Sequence[str]:
        return list_resources(self._source.discovery, self._node)

    def list_devices(self, resource: str) -> tuple[ListedDevice, ...]:
        listed: list[ListedDevice] = []
        for one in self._list_members(resource):
            healthy = list_healthy(one, node=self._node, resource=resource) if self._is_ready(one) else ()
            own = list_own(one.users, self._node, resource)
            listed += (
                ListedDevice(id=each, health="Healthy" if each in healthy else "Unhealthy")
                for each in list_ids(one, own)
            )
        return tuple(sorted(listed, key=lambda device: device.id))

    def prefer(self, resource: str, requests: Sequence[PreferenceRequest]) -> Sequence[Sequence[str]]:
        """Return IDs of different devices, as long as there are any: of those that have most capacity left first.

        Of equal ones each node begins with another, so that nodes that choose at once choose differently.
        """
        members = {one.digest: one for one in self._list_members(resource)}
        return [self._choose(request, members) for request in requests]

    def check(self, resource: str, ids: Collection[str]) -> None:
        members = {one.digest: one for one in self._list_members(resource)}
        known = {
            each
            for one in members.values()
            if self._node in one.device.spec.nodes and self._is_ready(one)
            for each in list_ids(one, list_own(one.users, self._node, resource))
        }
        if unknown := set(ids) - known:
            raise UnknownIdError(resource, unknown)
        for digest, times in Counter(map(digest_of, ids)).items():
            if times > 1 and must_differ(members[digest], resource):
                raise RepeatedDeviceError(resource, members[digest].name)

    def resolve(self, resource: str, device_id: str, record: PreparedClaim | None) -> PreparedDevice:
        if record is not None:
            name = record.devices[0].share.id.device
        else:
            members = {one.digest: one.name for one in self._list_members(resource)}
            name = members.get(digest_of(device_id), "")
        id_ = DeviceId(self._driver, name, name)
        if (offered := self._state.devices.find(id_)) is None:
            raise UnknownIdError(resource, [device_id])
        share = hashlib.sha256(record_uid(resource, device_id).encode()).hexdigest()[:16]
        return PreparedDevice(
            requests=(), share=ShareId(id_, share), part=to_card_part(offered.partition), backend=offered.backend
        )

    async def enter(self, resource: str, device_id: str, device: PreparedDevice) -> None:
        """Raises NoCapacityError, UnknownIdError, ContendedDeviceError, and ApiError."""
        name, user = device.share.id.device, self._make_user(resource, device_id)

        def enter(held: DiscoveredDeviceObject | None) -> tuple[DeviceUser, ...] | None:
            one = None if held is None else self._source.join(held)
            if held is None or one is None:
                raise UnknownIdError(resource, [device_id])
            return enter_user(name, one.capacity, held.status.users, user)

        await self._write(name, enter)

    async def leave(self, resource: str, device_id: str, device: PreparedDevice) -> None:
        """Raises ContendedDeviceError, and ApiError."""
        name, user = device.share.id.device, self._make_user(resource, device_id)
        await self._write(name, lambda held: None if held is None else remove_user(held.status.users, user))

    async def is_user(self, name: str, user: DeviceUser) -> bool:
        """Whether a device has a user now. Raises ApiError."""
        held = await self._source.read(name)
        return held is not None and user in held.status.users

    def _make_user(self, resource: str, device_id: str) -> DeviceUser:
        return DeviceUser(node=self._node, resource=resource, id=device_id)

    async def _write(
        self, name: str, change: Callable[[DiscoveredDeviceObject | None], tuple[DeviceUser, ...] | None]
    ) -> None:
        for _ in range(_TRIES):
            held = await self._source.read(name)
            users = change(held)
            if held is None or users is None:
                return
            try:
                await self._source.write_users(held, users)
            except (ConflictError, NotFoundError):
                continue
            return
        raise ContendedDeviceError(name)

    def _list_members(self, resource: str) -> Sequence[FoundDevice]:
        return list_members(self._source.discovery, resource, self._node)

    def _is_ready(self, one: FoundDevice) -> bool:
        """Whether the device can be prepared already: its object may just have come."""
        return self._state.devices.find(DeviceId(self._driver, one.name, one.name)) is not None

    def _choose(self, request: PreferenceRequest, members: dict[str, FoundDevice]) -> tuple[str, ...]:
        chosen = [each for each in dict.fromkeys(request.must_include) if each in request.available][: request.size]
        left = [each for each in dict.fromkeys(request.available) if each not in chosen]
        while left and len(chosen) < request.size:
            had = Counter(map(digest_of, chosen))

            def rank(each: str, had: Counter[str] = had) -> tuple[int, int, int, str]:
                digest = digest_of(each)
                one = members.get(digest)
                turn = zlib.crc32(f"{self._node}/{digest}".encode())
                return had[digest], had[digest] - (count_free(one) if one is not None else 0), turn, each

            best = min(left, key=rank)
            left.remove(best)
            chosen.append(best)
        return tuple(chosen)


class UserKeeper:
    """Keeps the users of this node in the devices' objects as its records are."""

    def __init__(
        self,
        source: DiscoveredDeviceSource,
        *,
        node: str,
        offer: DiscoveredDeviceOffer,
        allocator: ResourceAllocator,
        checkpoint: Checkpoint,
        interval_s: float,
    ) -> None:
        """What could not be put right is tried again after ``interval_s`` seconds, or when an object changes."""
        self._source = source
        self._node = node
        self._offer = offer
        self._allocator = allocator
        self._checkpoint = checkpoint
        self._interval_s = interval_s
        self._problems = ProblemLog(_log)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            change = self._source.changed.next_event
            if self._source.is_synced:
                await self.reconcile()
            with anyio.move_on_after(self._interval_s):
                await change.wait()

    async def reconcile(self) -> None:
        """Put right what differs. An error keeps nothing else from being put right, and is logged once."""
        entered: set[str] = set()
        wrong: set[str] = set()
        for one in self._source.discovery.devices.values():
            for user in one.users:
                if user.node != self._node:
                    continue
                uid = record_uid(user.resource, user.id)
                entered.add(uid)
                if self._checkpoint.get(uid) is None:
                    wrong.add(uid)
                    is_user = partial(self._offer.is_user, one.name, user)
                    await self._try(uid, partial(self._allocator.adopt, user.resource, user.id, is_user))
        for uid, record in tuple(self._checkpoint.records.items()):
            if record.resource and uid not in entered:
                wrong.add(uid)
                await self._try(uid, partial(self._allocator.enter_recorded, record))
        self._problems.keep(wrong)

    async def _try(self, uid: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except KerfError as error:
            self._problems.note(uid, f"{uid}: the users of its device are not as they should be: {error}")
        else:
            self._problems.clear(uid)
