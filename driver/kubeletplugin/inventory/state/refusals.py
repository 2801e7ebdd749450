"""Placements that the hardware keeps refusing to a claim, so that its pod can start elsewhere. Pure.

A pod whose claim cannot be prepared waits on its node for ever, next to others where it could run. After a few refusals
the placement is tainted: NoExecute evicts the pod, whose owner creates a new one that is scheduled elsewhere. Where
eviction cannot work or would lose work the taint is NoSchedule, and an event says which pod to delete.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kerf_dra.api.model.devices import DeviceTaint
from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.partitions.geometry import Partition

REFUSALS: Final = 3
"""Refusals of one device to one claim before its placement is tainted: the kubelet repeats a prepare within seconds, so
that what is over in a moment does not cost the pod its node, and a pod waits less than half a minute."""
MAX_EVICTING: Final = 2
"""Placements of a node that are tainted NoExecute at a time: a defect of a driver refuses everything, and evicting all
of a node's pods would only carry the load to the next node."""
HOLD_S: Final = 120.0
"""Shortest time for which a placement stays tainted whose refusals no survey explains: the pod is evicted and scheduled
again within it, and not to the placement that has just refused it; and a person may look."""
FORGET_S: Final = 600.0
"""Refusals that are further apart are unrelated: the kubelet's own back-off ends at a few minutes."""


class _Refusals(NamedTuple):
    times: int
    last_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPlacement:
    """A placement that is tainted because the hardware refused it too often."""

    device: DeviceId
    partition: Partition
    reason: str
    evicts: bool
    """Whether its taint evicts the pods that have it."""
    was_held: bool
    """Whether a survey shows who holds it: then the next one that no longer does ends the taint."""
    since: float


class RefusalTracker:
    """The refusals of a node's hardware. ``now`` returns monotonic seconds: a node's clock may be set."""

    def __init__(self, *, driver: str, now: Callable[[], float]) -> None:
        self._key = f"{driver}/refused"
        self._now = now
        self._counts: dict[tuple[str, DeviceId], _Refusals] = {}
        self._placements: dict[DeviceId, RefusedPlacement] = {}

    @property
    def placements(self) -> Mapping[DeviceId, RefusedPlacement]:
        """The placements that are tainted now."""
        return self._placements

    @property
    def may_evict_more(self) -> bool:
        return sum(placement.evicts for placement in self._placements.values()) < MAX_EVICTING

    def record(self, claim_uid: str, device: DeviceId) -> bool:
        """Count a refusal; returns whether there were too many and the placement evicts no pod yet."""
        known = self._counts.get((claim_uid, device))
        now = self._now()
        times = known.times + 1 if known is not None and now - known.last_at < FORGET_S else 1
        self._counts[claim_uid, device] = _Refusals(times, now)
        placement = self._placements.get(device)
        return times >= REFUSALS and not (placement is not None and placement.evicts)

    def forget(self, claim_uid: str) -> None:
        """Forget the refusals of a claim, because it is prepared or gone."""
        for key in [key for key in self._counts if key[0] == claim_uid]:
            del self._counts[key]

    def taint(
        self, device: DeviceId, partition: Partition, reason: str, *, evicts: bool, was_held: bool = False
    ) -> bool:
        """Taint a placement; returns whether its taint is new. ``evicts`` counts only while ``may_evict_more``."""
        known = self._placements.get(device)
        evicts = (known is not None and known.evicts) or (evicts and self.may_evict_more)
        self._placements[device] = RefusedPlacement(
            device=device,
            partition=partition,
            reason=reason,
            evicts=evicts,
            was_held=was_held,
            since=self._now(),
        )
        return known is None or known.evicts != evicts

    def expire(self, card_uuid: str, is_held: Callable[[Partition], bool]) -> bool:
        """Apply a survey of the card: placements that are not held become free, at once if that was the reason.

        Returns whether there were any.
        """
        now = self._now()
        freed = [
            placement.device
            for placement in self._placements.values()
            if placement.partition.card_uuid == card_uuid
            and (placement.was_held or now - placement.since >= HOLD_S)
            and not is_held(placement.partition)
        ]
        for device in freed:
            del self._placements[device]
        for key in [
            key for key, refusals in self._counts.items() if now - refusals.last_at >= FORGET_S or key[1] in freed
        ]:
            del self._counts[key]
        return bool(freed)

    def build_taints(self, partition: Partition) -> tuple[DeviceTaint, ...]:
        """Return the taints of the device of ``partition``, exclusive or shared."""
        effects = {
            "NoExecute" if placement.evicts else "NoSchedule"
            for placement in self._placements.values()
            if _has_same_place(placement.partition, partition)
        }
        return tuple(DeviceTaint(key=self._key, effect=effect) for effect in sorted(effects)[:1])


def _has_same_place(one: Partition, other: Partition) -> bool:
    return (one.card_uuid, one.placement, one.profile, one.function) == (
        other.card_uuid,
        other.placement,
        other.profile,
        other.function,
    )
