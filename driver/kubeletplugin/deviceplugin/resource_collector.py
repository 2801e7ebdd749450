"""Releases devices of extended resources that no container has any more: the interface has no call for it.

The kubelet says which pods have which device IDs. A device is released when it is missing in two of its answers, apart
by a grace, and in all between, and nothing contradicts:

- a process on the hardware;
- the pod that was seen with it, by the API server's account. A kubelet that starts while it cannot reach the API server
  lists no pods, though their containers run; then the plugin cannot reach it either, and releases nothing;
- a call of the kubelet for the device since the first of the two answers.

A device that no answer has had was allocated for a pod that was rejected, or is an init container's: the kubelet's
answers leave those out, and have a pod's other containers from Allocate on (``List`` of ``apis/podresources/
server_v1.go``). If no container has begun with it, it gets a few minutes (``Settings.unstarted_grace_s``): one that is
yet to begin has it prepared again by PreStartContainer, or is refused if others have it by then. Otherwise an init
container may be at work with it, and it gets far more time (``Settings.unlisted_grace_s``). The kubelet may allocate it
meanwhile. A kubelet that does not answer frees nothing.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster
from kerf_dra.driver.kubeletplugin.deviceplugin.offer import record_uid
from kerf_dra.driver.kubeletplugin.deviceplugin.resource_allocator import ListDeviceUses, ResourceAllocator
from kerf_dra.driver.kubeletplugin.inventory.state.surveys import SurveyTracker
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Sighting:
    """The pod that the kubelet has listed with a device last."""

    pod: ObjectRef
    uid: str
    """The pod's UID; empty: the API server did not say."""
    allocations: int
    """How often the kubelet had allocated the device until then: a later call may be for another pod."""


@dataclass(frozen=True, slots=True)
class _Absence:
    """Since when no answer of the kubelet has a device."""

    since: float
    calls: int
    """How often the kubelet had named the device until then."""


class ResourceCollector:
    """Releases what one node's containers no longer have. ``clock`` returns monotonic seconds."""

    def __init__(
        self,
        *,
        settings: Settings,
        cluster: Cluster,
        checkpoint: Checkpoint,
        allocator: ResourceAllocator,
        list_uses: ListDeviceUses,
        surveys: SurveyTracker,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._checkpoint = checkpoint
        self._allocator = allocator
        self._list_uses = list_uses
        self._surveys = surveys
        self._clock = clock
        self._seen: dict[str, _Sighting] = {}
        self._absent: dict[str, _Absence] = {}
        self._doubts = ProblemLog(_log)

    async def run(self) -> None:
        """Ask the kubelet at the interval, and when a container starts, until cancelled.

        A pod may end before the interval does: it should have been seen with its devices. So a kubelet that does not
        answer, as a busy one may, is asked again soon.
        """
        while True:
            start = self._allocator.starting.next_event
            is_answered = await self.collect()
            settings = self._settings
            with anyio.move_on_after(settings.usage_interval_s if is_answered else settings.usage_retry_s):
                await start.wait()

    async def collect(self) -> bool:
        """Ask the kubelet once, and release what is to be released. Returns whether it answered, if asked."""
        records = {uid: record for uid, record in self._checkpoint.records.items() if record.resource}
        for known in (self._seen, self._absent):
            for uid in known.keys() - records.keys():
                del known[uid]
        self._doubts.keep(records)
        if not records:
            return True
        calls = {uid: self._allocator.count_calls(uid) for uid in records}
        try:
            uses = await self._list_uses()
        except KerfError as error:
            _log.debug("%s", error)
            return False
        if uses is None:
            return True
        pods = {record_uid(use.resource, use.id): use.pod for use in uses}
        self._allocator.note_used(pods.keys() & records.keys())
        for uid, record in records.items():
            try:
                await self._judge(record, pods.get(uid), calls[uid])
            except KerfError as error:
                self._doubts.note(uid, f"{record.claim.name} is not released: {error}")
            else:
                self._doubts.clear(uid)
        return True

    async def _judge(self, record: PreparedClaim, pod: ObjectRef | None, calls: int) -> None:
        uid = record.claim.uid
        if pod is not None:
            self._absent.pop(uid, None)
            seen = self._seen.get(uid)
            pod_uid = seen.uid if seen is not None and seen.pod == pod else await self._read_uid(pod)
            self._seen[uid] = _Sighting(pod, pod_uid, self._allocator.count_allocations(uid))
            return
        if record.state is not ClaimState.RELEASING:  # else it was found to be over before
            absence = self._absent.get(uid)
            seen = self._seen.get(uid)
            if seen is not None and seen.allocations != self._allocator.count_allocations(uid):
                del self._seen[uid]
            if absence is None or absence.calls != calls:
                self._absent[uid] = _Absence(self._clock(), calls)
                return
            if self._clock() - absence.since < self._find_grace(uid) or await self._is_contradicted(record):
                return
        await self._allocator.release_unused(record, calls)

    def _find_grace(self, uid: str) -> float:
        """Return the seconds for which no answer must have a device."""
        if uid in self._seen:
            return self._settings.unused_grace_s
        if self._allocator.is_unstarted(uid):
            return self._settings.unstarted_grace_s
        return self._settings.unlisted_grace_s

    async def _read_uid(self, pod: ObjectRef) -> str:
        try:
            found = await self._cluster.read_pod(pod)
        except KerfError:
            return ""
        return "" if found is None else found.metadata.uid

    async def _is_contradicted(self, record: PreparedClaim) -> bool:
        """Whether another program says that a container has the device. Raises KerfError when it is unknown."""
        if any(self._surveys.is_in_use(from_card_part(device.part)) for device in record.devices):
            return True
        seen = self._seen.get(record.claim.uid)
        if seen is None:
            await self._cluster.list_published()  # the API server answers us, so it answers the kubelet as well
            return False
        pod = await self._cluster.read_pod(seen.pod)
        return pod is not None and not pod.is_finished and seen.uid in {"", pod.metadata.uid}
