"""The metrics of a node's claims: how many are in which phase, how long they took, and who has which device.

Series that name a claim are as many as there are prepared devices on the node, and go with them: they join Kerf's
figures with those of others that know pods (kube-state-metrics) or UUIDs (DCGM). They are read from the records when
they are asked for.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Final

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim, PreparedDevice
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.kubeletplugin.inventory.metrics.card_metrics import name_cut
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.partitions.device_names import card_name
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.partitions.unit_map import get_unit_map
from kerf_dra.driver.runtime import metrics

_CLAIMS: Final = metrics.live_gauge(
    "kerf_claims",
    "Claims of this node by phase: preparing, awaiting-pod (prepared before binding), prepared, running (the kubelet "
    "has a pod with it; from Kubernetes 1.34 on), releasing.",
    ["driver", "node", "phase"],
)
_DEVICES: Final = metrics.live_gauge(
    "kerf_prepared_device_info",
    "1 for each prepared device: which claim and pod has which part of which card. Of several pods the first by name.",
    [
        "driver",
        "node",
        "namespace",
        "pod",
        "claim",
        "claim_uid",
        "device",
        "share",
        "card",
        "card_uuid",
        "cut",
        "uuid",
        "instance_id",
    ],
)
_RATIOS: Final = metrics.live_gauge(
    "kerf_prepared_device_card_ratio",
    "The part of its card that each prepared device has, from 0 to 1: its units, such as memory slices, by those of "
    "the card. Of a share, the part of the device that the share has. Without devices of admin access.",
    ["driver", "node", "namespace", "pod", "claim", "claim_uid", "device", "share"],
)
_PREPARED_AT: Final = metrics.live_gauge(
    "kerf_claim_prepared_timestamp_seconds",
    "When a claim's devices were made ready by this process, in seconds since 1970.",
    ["driver", "node", "namespace", "pod", "claim", "claim_uid"],
)
_SECONDS: Final = metrics.histogram(
    "kerf_claim_phase_seconds",
    "Time of a claim in a phase: queued (from its creation to its allocation), allocated (from there until its devices "
    "are ready), by times in whole seconds. Needs the gate DRADeviceBindingConditions (on from Kubernetes 1.36), with "
    "which the scheduler says when it allocated.",
    ["driver", "phase"],
    # From a scheduler's cycle and a partition (tenths of a second) to pods that wait for others to end (hours).
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400),
)

_PHASES: Final = ("preparing", "awaiting-pod", "prepared", "running", "releasing")


class ClaimMetrics:
    """The metrics of one family's claims on one node."""

    def __init__(
        self,
        *,
        driver: str,
        node: str,
        state: NodeState,
        now: Callable[[], float],
    ) -> None:
        """``now`` is the time in seconds since 1970."""
        self._driver = driver
        self._node = node
        self._state = state
        self._records = state.records
        self._now = now
        self._pods: dict[str, str] = {}
        """The pod of each claim by UID, as the claim or the kubelet said last."""
        self._prepared_at: dict[str, float] = {}
        self._used: frozenset[ObjectRef] = frozenset()

    @contextmanager
    def served(self) -> Iterator[None]:
        """Serve the metrics inside the context."""
        with ExitStack() as stack:
            stack.enter_context(_CLAIMS.reading(self._count_claims))
            stack.enter_context(_DEVICES.reading(self._describe_devices))
            stack.enter_context(_RATIOS.reading(self._measure_devices))
            stack.enter_context(_PREPARED_AT.reading(self._list_prepared))
            yield

    def note_prepared(self, claim: ResourceClaim, *, is_new: bool) -> None:
        """Note that the devices of ``claim`` are ready; ``is_new``: they were not before."""
        uid = claim.metadata.uid
        self._forget_gone()
        pods = sorted(user.name for user in claim.status.reserved_for if user.resource == "pods")
        if pods:
            self._pods[uid] = pods[0]
        if not is_new:
            return
        ready = self._prepared_at[uid] = self._now()
        allocation = claim.status.allocation
        allocated = _seconds(allocation.allocation_timestamp if allocation else None)
        created = _seconds(claim.metadata.creation_timestamp)
        if allocated is None:
            return
        if created is not None:
            _SECONDS.labels(self._driver, "queued").observe(max(0.0, allocated - created))
        _SECONDS.labels(self._driver, "allocated").observe(max(0.0, ready - allocated))  # clocks of two machines

    def find_pod(self, claim_uid: str) -> str:
        """Return the name of the pod that has a claim; empty: none is known."""
        return self._pods.get(claim_uid, "")

    def note_uses(self, uses: Sequence[ClaimUse]) -> None:
        """Note which pods the kubelet has, with which claims."""
        self._used = frozenset(use.claim for use in uses)
        pods: dict[ObjectRef, str] = {}
        for use in uses:
            pods[use.claim] = min(use.pod.name, pods.get(use.claim, use.pod.name))
        for uid, record in self._records.items():
            if (pod := pods.get(_ref(record))) is not None:
                self._pods[uid] = pod

    def _forget_gone(self) -> None:
        for kept in (self._pods, self._prepared_at):
            for uid in kept.keys() - self._records.keys():
                del kept[uid]

    def _count_claims(self) -> metrics.Samples:
        found = Counter(map(self._phase, self._records.values()))
        return [((self._driver, self._node, phase), found[phase]) for phase in _PHASES]

    def _phase(self, record: PreparedClaim) -> str:
        if record.state is ClaimState.STARTED:
            return "preparing"
        if record.state is ClaimState.RELEASING:
            return "releasing"
        if record.awaits_pod:
            return "awaiting-pod"
        return "running" if _ref(record) in self._used else "prepared"

    def _describe_devices(self) -> metrics.Samples:
        cards = {card.uuid: card_name(card) for card in self._state.cards}
        for record in self._records.values():
            if record.state is ClaimState.PREPARED:
                for device in record.devices:
                    yield self._describe_device(record, device, cards.get(device.part.card_uuid, "")), 1

    def _describe_device(self, record: PreparedClaim, device: PreparedDevice, card: str) -> Sequence[str]:
        handle = device.handle or {}
        uuid, instance = handle.get("uuid"), handle.get("instance")
        return (
            *self._identify_device(record, device),
            card,
            device.part.card_uuid,
            name_cut(from_card_part(device.part)),
            uuid if isinstance(uuid, str) else "",
            str(instance) if isinstance(instance, int) else "",
        )

    def _measure_devices(self) -> metrics.Samples:
        cards = {card.uuid: card for card in self._state.cards}
        for record in self._records.values():
            if record.state is ClaimState.PREPARED:
                for device in record.devices:
                    ratio = find_card_ratio(cards.get(device.part.card_uuid), device)
                    if ratio is not None:
                        yield self._identify_device(record, device), ratio

    def _identify_device(self, record: PreparedClaim, device: PreparedDevice) -> Sequence[str]:
        claim, share = record.claim, device.share
        pod = self._pods.get(claim.uid, "")
        return (
            self._driver,
            self._node,
            claim.namespace,
            pod,
            claim.name,
            claim.uid,
            share.id.device,
            share.share or "",
        )

    def _list_prepared(self) -> metrics.Samples:
        for uid, record in self._records.items():
            if record.state is ClaimState.PREPARED and uid in self._prepared_at:
                claim = record.claim
                pod = self._pods.get(uid, "")
                labels = (self._driver, self._node, claim.namespace, pod, claim.name, uid)
                yield labels, self._prepared_at[uid]


def find_card_ratio(card: Card | None, device: PreparedDevice) -> float | None:
    """Return the part of ``card`` that ``device`` has, from 0 to 1; None: the card is not known, or has no such
    partition, or the device is one of admin access, which takes nothing from others.
    """
    partition = from_card_part(device.part)
    spec = None if card is None or device.admin_access else get_unit_map(card).find(partition)
    if card is None or spec is None:
        return None
    units = get_unit_map(card).layouts[spec.placement.layout].mask if spec.placement else spec.mask
    ratio = spec.mask.bit_count() / units.bit_count()
    divided = card.geometry.shareable
    amounts = (device.consumed_capacity.get(name) for name in (divided, f"{device.share.id.driver}/{divided}"))
    consumed, whole = next(filter(None, amounts), None), spec.amount(divided)
    return ratio * consumed.nano / whole.nano if consumed and whole else ratio


def _ref(record: PreparedClaim) -> ObjectRef:
    return ObjectRef(record.claim.namespace, record.claim.name)


def _seconds(timestamp: str | None) -> float | None:
    """Return a time of the API server in seconds since 1970; None: it is not there, or is no time."""
    try:
        return datetime.fromisoformat(timestamp).timestamp() if timestamp else None
    except ValueError:
        return None
