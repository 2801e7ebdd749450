"""Writes what claims got into their status, for users who may read claims (KEP-4817; docs/claim-status.md).

The status follows the records: a claim whose record is *prepared* has an entry for each device, any other has none. So
every write is the same, whether it is the first one, a later try, one after a restart, or the removal: read the claim
and its record, compose what the claim should have, and write it if the claim has something else. No prepare waits for
it. The resource version of what was read keeps two writers from undoing each other's work.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

import anyio

from kerf_dra.api.kerf.device_status import DeviceStatus
from kerf_dra.api.kerf.v1alpha1 import API_VERSION
from kerf_dra.api.model.allocations import AllocatedDeviceStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import AllocatedClaim, ResourceClaim
from kerf_dra.api.model.device_attributes import ATTRIBUTE_PCI_BUS_ID, ATTRIBUTE_SIMULATED
from kerf_dra.api.model.names import ClaimRef, DriverName
from kerf_dra.api.model.prepared import PreparedDevice
from kerf_dra.api.model.times import format_unix_time
from kerf_dra.driver.kube.http.errors import ConflictError, ForbiddenError, NotFoundError
from kerf_dra.driver.kubeletplugin.claims.hardware import HardwareExecutor, PreparedIdentity
from kerf_dra.driver.kubeletplugin.claims.record_lifecycle import PrepareResult
from kerf_dra.driver.kubeletplugin.claims.transitions import RecordState, classify_record
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster, StatusDroppedError
from kerf_dra.driver.kubeletplugin.cluster.claim_end import SeenClaims, find_end
from kerf_dra.driver.kubeletplugin.inventory.binding_conditions import BindingConditions
from kerf_dra.driver.kubeletplugin.inventory.device_status import (
    DeviceKey,
    are_same,
    compose_device_statuses,
    encode_data,
    select_reported,
)
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.concurrency import UnansweredCalls
from kerf_dra.driver.runtime.work_queue import WorkQueue

ASK_AGAIN_S: Final = 600.0
"""Time after which a write that was refused is tried again: a person who has given the permission waits ten minutes at
most, and a thousand nodes without it make some two calls a second."""
_RETRIES: Final = Backoff(first_s=1, factor=2, limit_s=300, jitter=0.2)
"""Back-off of writes that fail otherwise: nothing waits for them."""

_log = logging.getLogger(__name__)

_WRITES: Final = metrics.counter(
    "kerf_claim_status_writes_total",
    "Writes of what claims got into their status: written, forbidden, or dropped (gate off).",
    ["driver", "outcome"],
)


class DeviceStatusWriter:
    """The writer of one node's entries in the status of claims. ``now`` returns Unix time in seconds."""

    def __init__(
        self,
        *,
        driver: DriverName,
        boot_id: str,
        cluster: Cluster,
        state: NodeState,
        hardware: HardwareExecutor,
        now: Callable[[], float],
        removal_s: float,
        seen: SeenClaims,
        is_sampling: bool,
        unanswered: UnansweredCalls,
        retries: Backoff = _RETRIES,
    ) -> None:
        """``seen`` is given what the answers show of claims. ``is_sampling``: whether devices are sampled, of which the
        backend can say what they are used for. ``unanswered`` are the kubelet's calls, which go first.

        What a claim shows is removed ``removal_s`` seconds after it was unprepared.
        """
        self._driver = driver
        self._conditions = BindingConditions.of_driver(driver)
        self._boot_id = boot_id
        self._cluster = cluster
        self._state = state
        self._records = state.records
        self._hardware = hardware
        self._now = now
        self._removal_s = removal_s
        self._seen = seen
        self._unanswered = unanswered
        self._is_sampling = is_sampling
        self._read: dict[str, ResourceClaim] = {}
        """Claims whose turn is to come, as they were read for their prepare, by UID."""
        self._queue: WorkQueue[ClaimRef] = WorkQueue(name="claim-status", retries=retries)
        self._refused_until: dict[str, float] = {}
        """By namespace: until when nothing is written there. Admission may refuse one namespace and take another."""
        self._logged: set[str] = set()

    def note_prepare(self, result: PrepareResult) -> None:
        """Have the status of a claim follow what its prepare came to, unless an early one has made it ready: then the
        binding conditions are written with it.
        """
        if not (result.is_early and result.has_ready_record):
            self.request(result.ref, result.claim)

    def request_removal(self, claim: ClaimRef) -> None:
        """Have what ``claim``, which is unprepared, shows removed after a while, if it still shows it then."""
        if self._cluster.has_device_status:
            self._queue.add(claim, after_s=self._removal_s)

    def request(self, claim: ClaimRef, read: ResourceClaim | None = None) -> None:
        """Have the status of ``claim`` follow its record, soon. Returns at once.

        ``read`` is the claim as it was read a moment ago, which saves a call.
        """
        if self._cluster.has_device_status:
            if read is not None:
                self._read[claim.uid] = read
            self._queue.add(claim)

    async def write(self, claim: AllocatedClaim | ResourceClaim, awaited: Iterable[AllocatedDeviceStatus] = ()) -> bool:
        """Write what ``claim`` should have, with the binding conditions ``awaited``, unless it has just that.

        Returns whether there was something to write. Raises what ``Cluster.write_device_status`` raises.
        """
        wanted = compose_device_statuses(
            claim.status,
            self._conditions,
            driver=self._driver,
            prepared=self._describe(claim.metadata.uid),
            awaited=awaited,
            now=self._now(),
        )
        if are_same(wanted, select_reported(claim.status, self._driver)):
            return False
        kept = await self._cluster.write_device_status(claim, wanted)
        record = self._records.get(kept.metadata.uid)
        if record is not None:
            is_in_use = find_end(kept, record, kept.metadata.uid) is None
            self._seen.note(kept.metadata.uid, kept, is_in_use=is_in_use)
        self._count("written")
        return True

    async def run(self) -> None:
        """Write what is missing or out of date at the start, and what was requested, until cancelled."""
        for record in self._records.values():
            if not record.resource:
                self.request(record.claim)
        # One after the other: no caller waits, and of many that are refused one write is enough to know.
        await self._queue.run(self._reconcile, workers=1)

    async def _reconcile(self, ref: ClaimRef) -> None:
        """Make the status of a claim follow its record. Raises KerfError."""
        await self._unanswered.let_go_first()
        read = self._read.pop(ref.uid, None)
        if (left_s := self._refused_until.get(ref.namespace, 0) - anyio.current_time()) > 0:
            self._defer(ref, left_s)
            return
        try:
            if await self._write_current(ref, read):
                self._refused_until.pop(ref.namespace, None)
                self._logged.clear()
        except NotFoundError:
            return  # it has been deleted, and its status with it
        except (ForbiddenError, StatusDroppedError) as error:
            self._pause(ref, error)

    async def _write_current(self, ref: ClaimRef, read: ResourceClaim | None) -> bool:
        """Write the status of the claim as it is now; returns whether there was something to write.

        What ``read`` shows may be gone by now: only what its resource version was checked for is taken for an answer.
        """
        if read is not None:
            with suppress(ConflictError):  # another driver, or a scheduler, has written since
                if await self.write(read):
                    return True
        now = await self._cluster.read_claim(ref)
        return now is not None and now.metadata.uid == ref.uid and await self.write(now)

    def _pause(self, ref: ClaimRef, error: ForbiddenError | StatusDroppedError) -> None:
        """Write nothing more in the claim's namespace for a while."""
        outcome = "dropped" if isinstance(error, StatusDroppedError) else "forbidden"
        self._count(outcome)
        if outcome not in self._logged:
            self._logged.add(outcome)
            _log.warning(
                "the status of claims does not show their devices (tried again every %g s; `kerf rbac` prints the "
                "permissions): %s",
                ASK_AGAIN_S,
                error,
            )
        now = anyio.current_time()
        self._refused_until = {name: until for name, until in self._refused_until.items() if until > now}
        self._refused_until[ref.namespace] = now + ASK_AGAIN_S
        self._defer(ref, ASK_AGAIN_S)

    def _defer(self, ref: ClaimRef, after_s: float) -> None:
        """Have the claim's turn come later, unless it is unprepared: such claims would gather without end.

        What one of them may still show goes when it is deallocated, which the API server sees to.
        """
        if ref.uid in self._records:
            self._queue.add(ref, after_s=after_s)

    def _describe(self, uid: str) -> Mapping[DeviceKey, JsonObject]:
        """Return ``data`` of each device of a claim that is prepared now."""
        record = self._records.get(uid)
        if record is None or classify_record(record, self._boot_id) is not RecordState.PREPARED:
            return {}
        return {
            (*device.share.id, device.share.share): self._describe_device(
                device, identity, self._state.usage.find_idle_since(uid, device.share)
            )
            for device, identity in zip(record.devices, self._hardware.identify(record.devices), strict=True)
        }

    def _describe_device(
        self, device: PreparedDevice, identity: PreparedIdentity, idle_since: float | None
    ) -> JsonObject:
        published = self._state.devices.find(device.share.id)
        attributes = published.attributes if published is not None else {}
        address, simulated = attributes.get(ATTRIBUTE_PCI_BUS_ID), attributes.get(ATTRIBUTE_SIMULATED)
        status = DeviceStatus(
            api_version=API_VERSION,
            uuid=identity.uuid,
            card=device.part.card_uuid,
            pci_bus_id=(address.string or "") if address is not None else "",
            profile=device.part.profile or "",
            function=identity.function,
            simulated=simulated is not None and simulated.value is True,
            device_nodes=identity.device_nodes,
            cdi_devices=device.cdi_ids,
            sampled=self._is_sampling and identity.is_sampled,
            idle_since="" if idle_since is None else format_unix_time(idle_since),
        )
        return encode_data(status)

    def _count(self, outcome: str) -> None:
        _WRITES.labels(self._driver, outcome).inc()
