"""Lists devices of extended resources to the kubelet, and prepares what it allocates.

What the devices are says the ``offer``: a device ID is the name of a placement's device, or stands for one user of a
discovered device. What was allocated has a record in the checkpoint, keyed by resource and device ID, and is prepared
by the steps of a claim's preparation: a placement is cut when Allocate asks for it. Whether a placement may be
allocated is decided in the same moment in which its record is written, so that what has just been given up, or given to
a claim, is not given to a container as well. Users of a device that other nodes reach are entered in its object first.

- A repeated Allocate finds the record and answers from it: containers of one pod that follow one another share IDs.
- An ID that a pod was seen with, and no pod has any more, is given to the next one: what the first one had is released,
  and the placement prepared again.
- An ID that a pod has, by the kubelet's own account, is refused to another one: a kubelet that has lost its checkpoint
  gives IDs out again.
- PreStartContainer comes before each start of a container, also after a reboot, when nothing calls Allocate again and
  nothing of what was prepared is there any more: what is missing is prepared again.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress

from kerf_dra.api.deviceplugin.v1beta1 import ContainerAllocation, ListedDevice, PreferenceRequest
from kerf_dra.api.errors import KerfError, TransientError
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.api.podresources.v1 import DeviceUse
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint
from kerf_dra.driver.kubeletplugin.claims.hardware import HardwareExecutor
from kerf_dra.driver.kubeletplugin.claims.record_lifecycle import RecordLifecycle
from kerf_dra.driver.kubeletplugin.claims.steps import ClaimContext, StepExecutor
from kerf_dra.driver.kubeletplugin.claims.transitions import RELEASE, Step
from kerf_dra.driver.kubeletplugin.deviceplugin.offer import DeviceOffer, device_id_of, record_uid
from kerf_dra.driver.runtime.concurrency import for_each
from kerf_dra.driver.runtime.notifier import Notifier

ListDeviceUses = Callable[[], Awaitable[Sequence[DeviceUse] | None]]
"""Asks the kubelet which device IDs its pods have; None if unknown. Raises KerfError when it does not answer."""

_log = logging.getLogger(__name__)


class IdInUseError(TransientError):
    """The kubelet gives a container what another one has, by its own account.

    The message, which the container's pod shows, does not say which one: it may be another tenant's.
    """

    def __init__(self, resource: str, use: DeviceUse) -> None:
        super().__init__(
            f"{use.id} of {resource} is in use by another pod, says the kubelet, which has lost account of devices: "
            "end the pods of this node that have extended resources"
        )


class ResourceAllocator:
    """The devices of one node's extended resources."""

    def __init__(
        self,
        *,
        lifecycle: RecordLifecycle,
        checkpoint: Checkpoint,
        executor: StepExecutor,
        offer: DeviceOffer,
        hardware: HardwareExecutor,
        list_uses: ListDeviceUses,
    ) -> None:
        self._lifecycle = lifecycle
        self._flights = lifecycle.flights
        self._checkpoint = checkpoint
        self._executor = executor
        self._offer = offer
        self._hardware = hardware
        self._list_uses = list_uses
        self._used: set[str] = set()
        """The records whose devices a pod was seen with."""
        self._unstarted: set[str] = set()
        """The records that this process has made for an Allocate, and with which no container has begun since."""
        self._calls: Counter[str] = Counter()
        """How often the kubelet has named the device of a record."""
        self._allocations: Counter[str] = Counter()
        """How often it has allocated it."""
        self.changed = Notifier()
        """Notified when what is listed may have changed."""
        self.starting = Notifier()
        """Notified when a container is about to start: from now on the kubelet lists its pod."""

    @property
    def resources(self) -> Sequence[str]:
        """The resources that are to be served."""
        return self._offer.resources

    def list_devices(self, resource: str) -> tuple[ListedDevice, ...]:
        """Return the complete list of a resource's devices, by ID."""
        return self._offer.list_devices(resource)

    def prefer(self, resource: str, requests: Sequence[PreferenceRequest]) -> Sequence[Sequence[str]]:
        """Return the IDs that containers should get, for each of ``requests``."""
        return self._offer.prefer(resource, requests)

    async def allocate(self, resource: str, containers: Sequence[Sequence[str]]) -> Sequence[ContainerAllocation]:
        """Prepare the devices of containers. Raises UnknownIdError before anything is changed, and the KerfError of a
        device that cannot be prepared; what was prepared with it is released as what no container has.
        """
        for container in containers:
            self._offer.check(resource, container)
        ids = sorted({each for container in containers for each in container})
        for counter in (self._calls, self._allocations):
            counter.update(record_uid(resource, each) for each in ids)
        await self._check_unused(resource, ids)
        records = await self._prepare_all(resource, ids, for_start=False)
        return [self._answer(resource, [records[each] for each in container]) for container in containers]

    async def ensure_prepared(self, resource: str, ids: Sequence[str]) -> None:
        """Prepare again what is no longer there, because a container is about to start. Raises as ``allocate`` does."""
        unknown = [each for each in ids if self._checkpoint.get(record_uid(resource, each)) is None]
        self._offer.check(resource, unknown)
        uids = {record_uid(resource, each) for each in ids}
        self._calls.update(uids)
        self._unstarted -= uids
        await self._prepare_all(resource, sorted(set(ids)), for_start=True)
        self.starting.notify()  # now, so that there is a record of each with which its pod is seen

    def note_used(self, uids: Collection[str]) -> None:
        """Note of which records pods have the devices."""
        self._used |= {*uids}

    def count_calls(self, uid: str) -> int:
        """Return how often the kubelet has named the device of a record, for ``release_unused``."""
        return self._calls[uid]

    def count_allocations(self, uid: str) -> int:
        """Return how often the kubelet has allocated the device of a record."""
        return self._allocations[uid]

    def is_unstarted(self, uid: str) -> bool:
        """Whether it is certain that no container has begun with the device of a record, as PreStartContainer would
        have said; of a record of before this process it is not.
        """
        return uid in self._unstarted

    async def release_unused(self, record: PreparedClaim, calls: int) -> None:
        """Release what no container has any more, unless the kubelet has named it since there were ``calls``, or it is
        no longer as ``record`` says: one that was releasing may have been prepared for the next pod.

        Raises KerfError; then it is to be tried again.
        """
        await self._flights.do(record.claim.uid, "release", self._release_unless_called, record, calls)

    async def adopt(self, resource: str, device_id: str, is_user: Callable[[], Awaitable[bool]]) -> None:
        """Make a record of a user of a device that has none, if ``is_user`` still says that it is one: a plugin whose
        checkpoint was lost had one. It is released like any other. Raises KerfError.
        """
        ref = ClaimRef("", f"{resource}/{device_id}", record_uid(resource, device_id))
        await self._flights.do(ref.uid, "adopt", self._adopt, resource, device_id, ref, is_user)

    async def enter_recorded(self, record: PreparedClaim) -> None:
        """Enter the user of a record again, unless it is released. Raises KerfError."""
        await self._flights.do(record.claim.uid, "enter", self._enter_recorded, record.claim.uid)

    async def _check_unused(self, resource: str, ids: Collection[str]) -> None:
        """Raise IdInUseError when the kubelet says that a pod has one of ``ids``, and the error of a kubelet that says
        nothing when a pod was seen with one.
        """
        uids = {uid for each in ids if self._checkpoint.get(uid := record_uid(resource, each)) is not None}
        if not uids:
            return  # no claim can have what has no record
        try:
            uses = await self._list_uses()
        except KerfError as error:
            if uids & self._used:
                raise
            _log.warning("cannot determine whether %s of %s is in use: %s", ", ".join(ids), resource, error)
            return
        for use in uses or ():
            if use.resource == resource and use.id in ids:
                _log.warning("%s of %s is in use by pod %s", use.id, resource, use.pod)
                raise IdInUseError(resource, use)

    async def _prepare_all(self, resource: str, ids: Sequence[str], *, for_start: bool) -> Mapping[str, PreparedClaim]:
        results = await for_each(lambda each: self._prepare_one(resource, each, for_start), ids) if ids else []
        for result in results:
            if isinstance(result, Exception):
                raise result
        return {each: result for each, result in zip(ids, results, strict=True) if isinstance(result, PreparedClaim)}

    async def _prepare_one(self, resource: str, device_id: str, for_start: bool) -> PreparedClaim | Exception:
        """Prepare one device; an error is returned, so that it does not cut off the others."""
        ref = ClaimRef("", f"{resource}/{device_id}", record_uid(resource, device_id))
        try:
            verb = "prepare for start" if for_start else "prepare"
            record = await self._flights.do(ref.uid, verb, self._prepare_id, resource, device_id, ref, for_start)
        except KerfError as error:
            _log.error("%s cannot be prepared: %s", ref.name, error)
            return error
        assert record is not None, "a prepare ends with a record or an error"
        return record

    async def _prepare_id(self, resource: str, device_id: str, ref: ClaimRef, for_start: bool) -> PreparedClaim | None:
        former = self._checkpoint.get(ref.uid)
        if former is not None and ref.uid in self._used and not for_start:
            _log.info("%s goes from a pod that has ended to the next one", ref.name)
            await self._execute_release(ClaimContext(ref, former, resource=resource))
        preparation = await self._lifecycle.begin_prepare(ref, resource=resource)
        context = preparation.context
        is_new = context.record is None and not for_start
        if preparation.makes_devices:
            context.wanted = (self._offer.resolve(resource, device_id, context.record),)
        [device] = context.wanted or context.existing.devices
        await self._offer.enter(resource, device_id, device)
        if is_new:
            self._unstarted.add(ref.uid)
        try:
            await self._executor.execute(preparation.steps, context)  # writes the record before it waits for anything
        except KerfError:
            if context.record is None:
                self._unstarted.discard(ref.uid)
                with suppress(KerfError):  # a user without a record is found later (``adopt``)
                    await self._offer.leave(resource, device_id, device)
            raise
        _log.info("prepared %s (record: %s)", ref.name, preparation.state)
        return context.record

    async def _adopt(
        self, resource: str, device_id: str, ref: ClaimRef, is_user: Callable[[], Awaitable[bool]]
    ) -> PreparedClaim | None:
        if self._checkpoint.get(ref.uid) is None and await is_user():
            wanted = (self._offer.resolve(resource, device_id, None),)
            await self._executor.execute((Step.RECORD_STARTED,), ClaimContext(ref, None, wanted, resource=resource))
            _log.warning("%s has a user without a record, of before the checkpoint was lost", ref.name)
        return None

    async def _enter_recorded(self, uid: str) -> PreparedClaim | None:
        record = self._checkpoint.get(uid)
        if record is not None and record.state is not ClaimState.RELEASING:
            for device in record.devices:
                await self._offer.enter(record.resource, device_id_of(record), device)
        return None

    def _answer(self, resource: str, records: Sequence[PreparedClaim]) -> ContainerAllocation:
        """Return what a container gets: device nodes, mounts and environment of each device are in the CDI devices."""
        devices = [device for record in records for device in record.devices]
        ids = ",".join(device.share.id.device for device in devices)
        name = "".join(letter if letter.isalnum() else "_" for letter in resource.upper())
        of_all = dict(entry.split("=", 1) for entry in self._hardware.build_container_edits(devices).env)
        return ContainerAllocation(
            cdi_devices=tuple(each for device in devices for each in device.cdi_ids),
            environment={**of_all, f"KERF_RESOURCE_{name}": ids},
            annotations={resource: ids},
        )

    async def _release_unless_called(self, record: PreparedClaim, calls: int) -> None:
        ref = record.claim
        if self._checkpoint.get(ref.uid) == record and self._calls[ref.uid] == calls:
            for device in record.devices:
                await self._offer.leave(record.resource, device_id_of(record), device)
            await self._execute_release(ClaimContext(ref, record, resource=record.resource))

    async def _execute_release(self, context: ClaimContext) -> None:
        await self._executor.execute(RELEASE, context)  # raises before the record is dropped when it must wait
        for known in (self._used, self._unstarted):
            known.discard(context.claim.uid)
        _log.info("released %s", context.claim.name)
