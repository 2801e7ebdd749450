"""Who uses what a claim has: the kubelet says so by its account of pods, the hardware by surveys, the kernel by the
processes of pods.

A pod that is deleted by force is gone from the API server and from the kubelet's account while its container may be
one that nothing can kill: its processes are there, where this process sees those of others (``hostPID``).

All can say that a claim is in use, and none that it is not: kubelets before Kubernetes 1.34 list no claims, not all
hardware reports processes, and a container that starts has no process on the hardware yet. Where the kubelet lists no
claims, the API server is asked whether the pods have ended for which the claim was reserved.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kerf_dra.api.model.allocations import ResourceClaimConsumerReference
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim, PreparedDevice
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.kubeletplugin.backends.kernel_files import describe_processes, find_pod_processes
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import is_set_aside
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster
from kerf_dra.driver.kubeletplugin.inventory.state.surveys import SurveyTracker
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.runtime.worker_threads import LimitedCalls, Work

_PROC: Final = Path("/proc")


class ClaimUsers:
    """The users of one node's claims."""

    def __init__(
        self,
        *,
        records: Mapping[str, PreparedClaim],
        surveys: SurveyTracker,
        list_uses: Callable[[], Awaitable[Sequence[ClaimUse] | None]],
        cluster: Cluster,
        start: Callable[[Work], None],
        proc: Path = _PROC,
    ) -> None:
        """``records`` is a live view. ``list_uses`` asks the kubelet, and raises KerfError when it does not answer.

        It returns None where the kubelet cannot be asked. ``start`` begins work in a thread; tests give ``proc``.
        """
        self._records = records
        self._surveys = surveys
        self._list_uses = list_uses
        self._cluster = cluster
        self._calls = LimitedCalls(1, start=start)
        self._proc = proc
        self._has_listed = False

    async def list_used(self) -> set[str]:
        """Return the UIDs of the records whose claims pods use, as far as the kubelet says. Raises KerfError."""
        used = {use.claim for use in await self._list() or ()}
        return {
            uid for uid, record in self._records.items() if _ref(record) in used and not self._has_successor(record)
        }

    async def lists_claims(self) -> bool:
        """Whether the kubelet lists the claims of its pods: its version does, or it has listed one.

        Raises KerfError.
        """
        uses = await self._list()
        return self._has_listed or (uses is not None and self._cluster.kubelet_lists_claims)

    async def find_user(self, record: PreparedClaim, pods: Sequence[ResourceClaimConsumerReference] = ()) -> str | None:
        """Return who uses what ``record`` has, for people; None if unknown. Raises KerfError.

        ``pods`` are those that the claim was reserved for when it was in use.
        """
        for use in await self._list() or ():
            if use.claim == _ref(record) and not self._has_successor(record):
                return f"the kubelet runs pod {use.pod} with it"
        for device in record.devices:
            if self._is_alone(record, device) and self._surveys.is_in_use(from_card_part(device.part)):
                return f"a process uses {device.share.id.device}"
        for pod in pods:
            processes = await self._calls.run(find_pod_processes, self._proc, pod.uid) if pod.resource == "pods" else {}
            if processes:
                ref = ObjectRef(record.claim.namespace, pod.name)
                return f"{describe_processes(processes)} of pod {ref}, which it was reserved for, has not ended"
        for pod in () if await self.lists_claims() else pods:
            ref = ObjectRef(record.claim.namespace, pod.name)
            found = await self._cluster.read_pod(ref)
            if found is not None and found.metadata.uid == pod.uid and not found.is_finished:
                return f"pod {ref}, which it was reserved for, has not ended"
        return None

    async def _list(self) -> Sequence[ClaimUse] | None:
        uses = await self._list_uses()
        self._has_listed = self._has_listed or bool(uses)
        return uses

    def _has_successor(self, record: PreparedClaim) -> bool:
        """Whether a later claim of the same name is prepared: the kubelet names no UIDs, and pods use that one.

        What a claim had before it was allocated otherwise is no longer what the kubelet prepares for its pods, though
        the claim may not have its other devices yet: they may be waiting for these.
        """
        if is_set_aside(record.claim.uid):
            return True
        prepared = [other for other in self._records.values() if other.state is ClaimState.PREPARED]
        latest = [other.claim.uid for other in prepared if _ref(other) == _ref(record)][-1:]
        return latest not in ([], [record.claim.uid])

    def _is_alone(self, record: PreparedClaim, device: PreparedDevice) -> bool:
        """Whether a process on the device can only be that of the claim's pods."""
        others = (other for uid, other in self._records.items() if uid != record.claim.uid)
        has_others = any(held.share.id == device.share.id for other in others for held in other.devices)
        return not device.admin_access and not has_others


def _ref(record: PreparedClaim) -> ObjectRef:
    return ObjectRef(record.claim.namespace, record.claim.name)
