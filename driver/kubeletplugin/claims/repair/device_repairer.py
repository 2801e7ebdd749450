"""Makes partitions of prepared claims again that another program has destroyed, or has their pods start elsewhere.

What a backend has set up beside a device is set up again, too, such as the request for a daemon of MPS.

Each survey of a card says which partitions of claims it lacks; ``repair_decision`` says what follows. A claim that the
API server shows as ended is left to garbage collection. The record is *started* before the card is changed, so that a
release finds whatever the repair has made; the record of a repair that failed is as it was. What an interrupted one
left, the next process finishes.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Final

import anyio
from msgspec.structs import replace

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.names import ShareId
from kerf_dra.api.model.prepared import PreparedClaim, PreparedDevice
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import claim_uid_of
from kerf_dra.driver.kubeletplugin.claims.hardware import HardwareExecutor
from kerf_dra.driver.kubeletplugin.claims.repair.file_repairer import REPAIRS
from kerf_dra.driver.kubeletplugin.claims.repair.number_repairer import NumberRepairer
from kerf_dra.driver.kubeletplugin.claims.repair.prepared_records import PreparedRecords
from kerf_dra.driver.kubeletplugin.claims.repair.repair_decision import TRIES, Loss, Repair, decide
from kerf_dra.driver.kubeletplugin.claims.status_writer import DeviceStatusWriter
from kerf_dra.driver.kubeletplugin.claims.steps import ClaimContext, StepExecutor
from kerf_dra.driver.kubeletplugin.claims.transitions import ACQUIRE
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster
from kerf_dra.driver.kubeletplugin.cluster.claim_end import find_end
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.kubeletplugin.inventory.surveyor import HardwareSurveyor
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)

_GONE: Final = "gone"
"""The value of the taint: wire format, which tolerations may name."""


class DeviceRepairer:
    """The repairer of the devices of one node's claims."""

    def __init__(
        self,
        *,
        settings: Settings,
        records: PreparedRecords,
        executor: StepExecutor,
        surveyor: HardwareSurveyor,
        hardware: HardwareExecutor,
        state: NodeState,
        status_writer: DeviceStatusWriter,
        numbers: NumberRepairer,
        cluster: Cluster,
    ) -> None:
        self._driver = settings.driver_name
        self._interval_s = settings.survey_interval_s
        self._records = records
        self._executor = executor
        self._surveyor = surveyor
        self._hardware = hardware
        self._problems = ProblemLog(_log)
        self._surveys = state.restrictions.surveys
        self._unusable = state.restrictions.unusable
        self._state = state
        self._status_writer = status_writer
        self._numbers = numbers
        self._cluster = cluster
        self._losses: dict[tuple[str, ShareId], Loss] = {}
        """By claim UID and share."""

    async def run(self) -> None:
        """Deal with what surveys show, until cancelled."""
        self._numbers.recall()
        while True:
            survey = self._state.surveyed.next_event
            await self.repair(self._state.surveyed.take())
            await survey.wait()

    async def repair(self, surveyed: Collection[str]) -> None:
        """Deal with what the latest surveys of these cards show."""
        records = self._records.list_all()
        self._forget_others({record.claim.uid for record in records})
        for record in records:
            lost = self._count_losses(record, surveyed)
            decisions = {device.share: self._decide(record, device) for device in lost}
            given_up = [device for device in lost if decisions[device.share] is Repair.GIVE_UP]
            for device in given_up:
                self._give_up(record, device)
            if Repair.MAKE in decisions.values() and not given_up:
                await self._make_again(record)
            await self._numbers.repair(record, surveyed)
            on_cards = [device for device in record.devices if device.part.card_uuid in surveyed]
            if self._hardware.has_restorable(on_cards):
                await self._restore(record)

    async def _restore(self, record: PreparedClaim) -> None:
        """Have set up again what surveys do not show."""
        uid = record.claim.uid
        error = await self._records.run_alone(record, "restore devices", self._restore_devices)
        if error is None:
            self._problems.clear(uid)
        else:
            reason = str(error) or repr(error)
            self._problems.note(uid, f"claim {record.claim}: what its devices need cannot be set up again: {reason}")

    async def _restore_devices(self, uid: str) -> None:
        record = self._records.find(uid)
        for device in () if record is None else record.ready_devices:
            if await self._hardware.restore_device(device):
                REPAIRS.labels(self._driver, "sharing").inc()
                _log.warning("what %s is shared by was removed, and is set up again", device.share.id.device)

    def _count_losses(self, record: PreparedClaim, surveyed: Collection[str]) -> list[PreparedDevice]:
        """Count one more survey of each device on ``surveyed`` cards; returns those that are lost."""
        lost = []
        for device in record.devices:
            if device.part.card_uuid not in surveyed:
                continue
            key = (record.claim.uid, device.share)
            if self._is_lost(record, device):
                self._losses.setdefault(key, Loss()).surveys += 1
                lost.append(device)
            elif key in self._losses:
                self._losses[key].surveys = 0
            if device not in lost and self._unusable.discard(*key, _GONE):
                self._state.request_publication()
        return lost

    def _is_lost(self, record: PreparedClaim, device: PreparedDevice) -> bool:
        return device.handle is None or self._surveys.is_missing(record.claim.uid, device)

    def _decide(self, record: PreparedClaim, device: PreparedDevice) -> Repair:
        obstacle = self._surveys.find_held(from_card_part(device.part))
        return decide(self._losses[record.claim.uid, device.share], obstacle, anyio.current_time())

    async def _make_again(self, record: PreparedClaim) -> None:
        error = await self._records.run_alone(record, "repair devices", self._make_lost)
        if error is not None:
            _log.warning("claim %s: a lost partition cannot be made again: %s", record.claim, str(error) or repr(error))

    async def _make_lost(self, uid: str) -> None:
        """Make again what a fresh survey does not find either, unless the claim has ended.

        Raises KerfError, also where a card cannot be surveyed.
        """
        record = self._records.find(uid)
        if record is None or await self._has_ended(record):
            return
        await self._surveyor.survey_now({device.part.card_uuid for device in record.devices if not device.admin_access})
        lost = [device for device in record.devices if self._is_lost(record, device)]
        if not lost or any(self._surveys.find_held(from_card_part(device.part)) for device in lost):
            return
        for device in lost:
            self._count_try(uid, device)
        wanted = tuple(replace(device, handle=None) if device in lost else device for device in record.devices)
        context = ClaimContext(
            record.claim,
            record,
            wanted,
            pod_claim_name=record.pod_claim_name,
            awaits_pod=record.awaits_pod,
            resource=record.resource,
            repaired=record,
        )
        self._records.note_interrupted(uid)
        try:
            await self._executor.execute(ACQUIRE, context)
        finally:
            for device in lost:
                self._surveyor.request(device.part.card_uuid)
        self._report_made(record, lost)

    async def _has_ended(self, record: PreparedClaim) -> bool:
        """Whether the API server shows that the claim needs no devices; then garbage collection looks for the proof.

        While the server does not answer, the claim counts as there: its container waits for the partition.
        """
        if record.resource:
            return False
        try:
            claim = await self._cluster.read_claim(record.claim)
        except KerfError as error:
            _log.info("claim %s: whether it still needs its lost partition is not known: %s", record.claim, error)
            return False
        end = find_end(claim, record, claim_uid_of(record.claim.uid))
        if end is not None:
            self._state.suspects.add(record.claim.uid)
            _log.info("claim %s: a lost partition is not made again: %s, says the API server", record.claim, end)
        return end is not None

    def _count_try(self, uid: str, device: PreparedDevice) -> None:
        loss = self._losses.setdefault((uid, device.share), Loss())
        loss.surveys = 0  # the latest one is of before this try
        loss.tries += 1
        loss.next_try_at = anyio.current_time() + self._interval_s

    def _report_made(self, record: PreparedClaim, lost: Sequence[PreparedDevice]) -> None:
        REPAIRS.labels(self._driver, "devices").inc(len(lost))
        for device in lost:
            tries = self._losses[record.claim.uid, device.share].tries
            message = (
                f"{device.share.id.device} of claim {record.claim} was destroyed by another program or by a reset, and "
                f"is made again (at most {TRIES} times for a claim, this was number {tries})"
            )
            _log.warning("%s", message)
            self._cluster.report(None, type="Warning", reason="PartitionMadeAgain", message=message)
        if not record.resource:
            self._status_writer.request(record.claim)

    def _give_up(self, record: PreparedClaim, device: PreparedDevice) -> None:
        """Taint the device until the claim is released, or what is lost is back; report it once."""
        partition = from_card_part(device.part)
        if not self._unusable.add(record.claim.uid, device.share, _GONE, partition):
            return
        self._state.request_publication()
        reason = self._surveys.find_held(partition) or f"it was made again {TRIES} times"
        message = (
            f"{device.share.id.device} of claim {record.claim} is gone, and is not made again: {reason}; its pods are "
            "evicted where the cluster evicts pods from tainted devices, else delete them; find out what removes "
            "partitions from this card"
        )
        _log.error("%s", message)
        self._cluster.report(None, type="Warning", reason="PartitionNotMadeAgain", message=message)

    def _forget_others(self, uids: set[str]) -> None:
        """Forget claims that are released, with their taints."""
        for key in [key for key in self._losses if key[0] not in uids]:
            del self._losses[key]
        self._problems.keep(uids)
        if self._unusable.keep_only(uids):
            self._state.request_publication()
