"""Follows the numbers that the kernel gives device nodes: ``cardN``, ``renderDN``, ``dfl-port.N``, ``uioN``.

They are no identity, also within a boot: where drivers are bound again, the numbers of two cards may be swapped, and a
container that opens its node by path uses the other claim's card. After each survey of a card the nodes of its claims
are read and compared with the handles. Where they differ, and a second reading says the same, the record gets the new
numbers, then the CDI file; then the device is tainted, because a running container has the old node until it ends.

A note of the device says that this happened, so that the taint outlives the process; it goes with the claim's release.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Final

from msgspec.structs import replace

from kerf_dra.api.model.prepared import PreparedClaim, PreparedDevice
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint
from kerf_dra.driver.kubeletplugin.claims.hardware import HardwareExecutor
from kerf_dra.driver.kubeletplugin.claims.repair.file_repairer import REPAIRS
from kerf_dra.driver.kubeletplugin.claims.repair.prepared_records import PreparedRecords
from kerf_dra.driver.kubeletplugin.claims.status_writer import DeviceStatusWriter
from kerf_dra.driver.kubeletplugin.claims.steps import ClaimContext, StepExecutor
from kerf_dra.driver.kubeletplugin.claims.transitions import RecordState, Step, classify_record
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)

_RENUMBERED: Final = "renumbered"
"""The value of the taint, which is wire format and which tolerations may name, and the name of the note."""


class NumberRepairer:
    """The follower of the numbers of one node's device nodes."""

    def __init__(
        self,
        *,
        settings: Settings,
        boot_id: str,
        checkpoint: Checkpoint,
        records: PreparedRecords,
        executor: StepExecutor,
        hardware: HardwareExecutor,
        state: NodeState,
        status_writer: DeviceStatusWriter,
        cluster: Cluster,
    ) -> None:
        self._driver = settings.driver_name
        self._boot_id = boot_id
        self._checkpoint = checkpoint
        self._records = records
        self._executor = executor
        self._hardware = hardware
        self._unusable = state.restrictions.unusable
        self._state = state
        self._status_writer = status_writer
        self._cluster = cluster
        self._problems = ProblemLog(_log)

    def recall(self) -> None:
        """Taint what a process before this one has found renumbered."""
        for record in self._records.list_all():
            for device in record.devices:
                if _RENUMBERED in self._checkpoint.journal(record.claim.uid, device.share, self._boot_id).notes:
                    self._taint(record, device)

    async def repair(self, record: PreparedClaim, surveyed: Collection[str]) -> None:
        """Compare the numbers of a claim's device nodes on the ``surveyed`` cards, and follow what has changed."""
        uid = record.claim.uid
        if not any(device.part.card_uuid in surveyed for device in record.devices):
            return
        try:
            changed = await self._find_changed(record)
        except Exception as error:  # noqa: BLE001  (backends are third parties': the other claims go on)
            self._problems.note(uid, f"claim {record.claim}: its device nodes cannot be compared: {error!r}")
            return
        self._problems.clear(uid)
        failure = await self._records.run_alone(record, "renumber", self._renumber) if changed else None
        if failure is not None:
            _log.error("claim %s: its device nodes have other numbers now: %r", record.claim, failure)

    async def _find_changed(self, record: PreparedClaim) -> list[PreparedDevice]:
        """Return the devices whose nodes have other numbers now, with those. Raises what backends raise."""
        if classify_record(record, self._boot_id) is not RecordState.PREPARED:
            return []
        now = [await self._hardware.renumber_device(device) for device in record.devices]
        return [device for device, was in zip(now, record.devices, strict=True) if device is not was]

    async def _renumber(self, uid: str) -> None:
        """Have record and file name the nodes of now, and taint what a container may have open by its old node."""
        record = self._records.find(uid)
        if record is None or not (changed := await self._find_changed(record)):
            return
        by_share = {device.share: device for device in changed}
        for device in () if record.awaits_pod else changed:
            self._checkpoint.journal(uid, device.share, self._boot_id).write(**{_RENUMBERED: True})
        devices = tuple(by_share.get(device.share, device) for device in record.devices)
        context = ClaimContext(record.claim, replace(record, devices=devices), awaits_pod=record.awaits_pod)
        try:
            await self._executor.execute((Step.RECORD_PREPARED, Step.WRITE_CDI), context)
        finally:
            self._report(record, changed)

    def _report(self, record: PreparedClaim, changed: Sequence[PreparedDevice]) -> None:
        """Report it, and taint the devices, unless no container has begun with them."""
        REPAIRS.labels(self._driver, "numbers").inc(len(changed))
        if not record.resource:
            self._status_writer.request(record.claim)
        names = ", ".join(device.share.id.device for device in changed)
        message = f"the kernel has given the device nodes of {names}, which claim {record.claim} has, other numbers"
        if record.awaits_pod:
            _log.warning("%s", message)
            return
        message += (
            ": a container that runs has the old ones, which may be another device's; its pods are evicted where the "
            "cluster evicts pods from tainted devices, else delete them"
        )
        _log.error("%s", message)
        self._cluster.report(None, type="Warning", reason="DeviceNodesRenumbered", message=message)
        for device in changed:
            self._taint(record, device)

    def _taint(self, record: PreparedClaim, device: PreparedDevice) -> None:
        if self._unusable.add(record.claim.uid, device.share, _RENUMBERED, from_card_part(device.part)):
            self._state.request_publication()
