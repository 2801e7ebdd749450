"""Claims whose preparation the hardware keeps refusing: their pods are to start elsewhere.

The placement is tainted (``inventory.state.refusals``), so that the pod's owner replaces it on another node or device.
Where eviction cannot work, or would lose the pod, an event says which pod to delete.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from kerf_dra.api.checkpoint.v1 import CheckpointError
from kerf_dra.api.core.v1 import Pod, reference
from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.model.claims import AllocatedClaim, ResourceClaim
from kerf_dra.api.model.names import ClaimRef, DeviceId, ObjectRef
from kerf_dra.api.model.prepared import ClaimState
from kerf_dra.driver.kubeletplugin.backends.base import HardwareConflictError
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint
from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError
from kerf_dra.driver.kubeletplugin.claims.record_lifecycle import PrepareResult
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster, claim_reference, describe_other_claim
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.kubeletplugin.inventory.state.refusals import MAX_EVICTING
from kerf_dra.driver.kubeletplugin.inventory.surveyor import HardwareSurveyor
from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.work_queue import WorkQueue
from kerf_dra.driver.scheduling.extended_resources import EXTENDED_CLAIM

_log = logging.getLogger(__name__)

_REASON: Final = "DeviceRefused"
"""The reason of the events."""
RECHECK_S: Final = 2.0
"""Time between two looks at what another program holds, each of which counts as a refusal: the kubelet's own tries are
some ten seconds apart, and a card that is held for seconds only should not cost a pod its node."""
_REFUSED: Final = metrics.counter(
    "kerf_refused_placements_total", "Placements that the hardware refused too often.", ["driver", "outcome"]
)


class RefusedClaims:
    """The refusals of one node, and what follows from them."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        checkpoint: Checkpoint,
        state: NodeState,
        driver: str,
        surveyor: HardwareSurveyor,
        recheck_s: float = RECHECK_S,
    ) -> None:
        """Tests give ``recheck_s``."""
        self._recheck_s = recheck_s
        self._cluster = cluster
        self._checkpoint = checkpoint
        self._state = state
        self._restrictions = state.restrictions
        self._tracker = state.restrictions.refusals
        self._driver = driver
        self._surveyor = surveyor
        self._queue: WorkQueue[ClaimRef] = WorkQueue(name="refused-claims")
        self._due: dict[ClaimRef, dict[DeviceId, tuple[Partition, str]]] = {}
        self._held: dict[ClaimRef, dict[DeviceId, Partition]] = {}
        """What another program held at the last try or look."""

    @property
    def is_rechecking(self) -> bool:
        """Whether what another program held at a try is looked at again."""
        return bool(self._held)

    def note_prepare(self, result: PrepareResult) -> None:
        """Note what a prepare came to: devices that could not be prepared, or that nothing is refused any more.

        Without a pod on this node, as before a pod is bound, none is to be evicted: the scheduler tries another node.
        """
        if result.error is None:
            self.forget(result.ref)
        elif isinstance(result.error, DevicesFailedError):
            self._note_failures(result.ref, result.error, has_pod=not result.is_early)

    def _note_failures(self, claim: ClaimRef, error: DevicesFailedError, *, has_pod: bool) -> None:
        """Note that devices of ``claim`` could not be prepared. Only what the hardware says counts as a refusal."""
        for device, failure in zip(error.failed, error.failures, strict=True):
            if isinstance(failure, InvalidDocumentError | CheckpointError):
                continue
            partition = from_card_part(device.part)
            if self._restrictions.allocated.add(device.share.id):
                self._state.note_refusals()
            self._surveyor.request(partition.card_uuid)
            if has_pod:
                if self._record(claim, device.share.id, partition, _describe(failure)):
                    self._queue.add(claim)
                if isinstance(failure, HardwareConflictError):
                    self._held.setdefault(claim, {})[device.share.id] = partition
                    self._queue.add(claim, after_s=self._recheck_s)

    def forget(self, claim: ClaimRef) -> None:
        """Forget what was refused to ``claim``, which is prepared or released."""
        self._tracker.forget(claim.uid)
        self._due.pop(claim, None)
        self._held.pop(claim, None)

    async def run(self) -> None:
        """Taint what was refused too often, and notify those concerned, until cancelled."""
        await self._queue.run(self._handle, workers=1)

    def _record(self, claim: ClaimRef, device: DeviceId, partition: Partition, reason: str) -> bool:
        """Count a refusal; returns whether there were too many, and the claim's turn is due."""
        is_due = self._tracker.record(claim.uid, device)
        if is_due:
            self._due.setdefault(claim, {})[device] = (partition, reason)
        return is_due

    def _recheck(self, claim: ClaimRef) -> None:
        """Count what the latest survey still shows as held; what is not held any more the kubelet's next try gets.

        What is due by this is done in the same turn: where that fails, as without the API server, its back-off counts.
        """
        for device, partition in self._held.pop(claim, {}).items():
            reason = self._restrictions.surveys.find_held(partition)
            if reason is not None and device not in self._tracker.placements:
                self._record(claim, device, partition, reason)
                self._held.setdefault(claim, {})[device] = partition
                self._surveyor.request(partition.card_uuid)

    async def _handle(self, ref: ClaimRef) -> None:
        self._recheck(ref)
        await self._report_due(ref)
        if ref in self._held:  # only now: of two times the queue keeps the earlier, and a back-off would not count
            self._queue.add(ref, after_s=self._recheck_s)

    async def _report_due(self, ref: ClaimRef) -> None:
        due = self._due.get(ref)
        if not due:
            return
        claim = await self._cluster.read_claim(ref)
        if claim is None or claim.metadata.uid != ref.uid:
            self.forget(ref)  # no kubelet prepares or unprepares it any more
            return
        pods = await self._read_pods(claim)
        others = [other for other in await self._cluster.list_claims() or () if other.metadata.uid != ref.uid]
        for device, (partition, reason) in due.items():
            user = self._find_user(ref, others, device)
            self._taint(claim, pods, device, partition, reason, user)
        self._due.pop(ref, None)

    def _taint(
        self,
        claim: ResourceClaim,
        pods: Sequence[Pod],
        device: DeviceId,
        partition: Partition,
        reason: str,
        user: ClaimRef | ObjectRef | None,
    ) -> None:
        """Taint a placement, and report it. ``user`` is another claim that has the device, too."""
        obstacle = self._find_obstacle(claim, pods, device, user)
        was_held = self._restrictions.surveys.find_held(partition) is not None
        is_new = self._tracker.taint(device, partition, reason, evicts=not obstacle, was_held=was_held)
        evicts = self._tracker.placements[device].evicts
        message = f"the hardware keeps refusing {device.device}: {reason}"
        if evicts:
            message += "; the pod is evicted, so that its owner replaces it elsewhere"
        else:
            named = (
                " and ".join(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods) or "that uses the claim"
            )
            message += f"; delete pod {named} to have it replaced, because {obstacle}"
        for about in (claim_reference(claim), *map(reference, pods)):
            self._cluster.report(about, type="Warning", reason=_REASON, message=message)
        if is_new:
            _log.warning("claim %s: %s%s", claim.ref, message, f" ({user} has the device, too)" if user else "")
            _REFUSED.labels(self._driver, "evicted" if evicts else "told").inc()
            self._state.note_refusals()

    def _find_obstacle(
        self, claim: ResourceClaim, pods: Sequence[Pod], device: DeviceId, user: ClaimRef | ObjectRef | None
    ) -> str:
        """Return why an eviction cannot work or would lose work; empty: it does what is wanted."""
        if not self._cluster.can_evict:
            return "this cluster evicts no pod from a tainted device (Kubernetes 1.36, feature gate DRADeviceTaints)"
        if claim.metadata.annotations.get(EXTENDED_CLAIM) == "true":
            return "pods with extended resources are not evicted (kubernetes/kubernetes#141290)"
        if others := [consumer for consumer in claim.status.reserved_for if consumer.resource != "pods"]:
            return f"the claim is reserved for {others[0].resource}/{others[0].name}, which is not a pod"
        for pod in pods:
            if not any(owner.controller for owner in pod.metadata.owner_references):
                return f"pod {pod.metadata.name} has no owner that would create it again"
        if not pods:
            return "there is no pod to evict: the claim is reserved for none"
        if user is not None:
            return f"{describe_other_claim(user, claim.metadata.namespace)} uses another share of the device"
        placement = self._tracker.placements.get(device)
        if not self._tracker.may_evict_more and not (placement is not None and placement.evicts):
            return f"{MAX_EVICTING} placements of this node evict pods already: see what its hardware is missing"
        return ""

    def _find_user(
        self, claim: ClaimRef, others: Iterable[AllocatedClaim], device: DeviceId
    ) -> ClaimRef | ObjectRef | None:
        """Return another claim that has ``device``, prepared or not: its pods would be evicted, too."""
        for uid, record in self._checkpoint.records.items():
            is_other = uid != claim.uid and record.state is ClaimState.PREPARED
            if is_other and any(held.share.id == device for held in record.devices):
                return record.claim
        for other in others:
            allocation = other.status.allocation
            if allocation is not None and any(result.id == device for result in allocation.devices.results):
                return other.ref
        return None

    async def _read_pods(self, claim: ResourceClaim) -> list[Pod]:
        pods = []
        for consumer in claim.status.reserved_for:
            if consumer.resource == "pods":
                pod = await self._cluster.read_pod(ObjectRef(claim.metadata.namespace, consumer.name))
                if pod is not None and pod.metadata.uid == consumer.uid:
                    pods.append(pod)
        return pods


def _describe(failure: Exception) -> str:
    return str(failure) or repr(failure)
