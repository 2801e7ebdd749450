"""Which devices are not well, as their backends say: as taints, and as reports for the kubelet.

What is ill works and should get nothing new (NoSchedule); what is lost cannot serve its pods any longer, and they are
better started again elsewhere (NoExecute: kube-controller-manager evicts those that do not tolerate it, KEP-5055). A
taint goes when its cause goes. A card that could not load a function gets no more claims for it, for a while.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from api.dra.health import DeviceHealth, Health
from api.model.devices import DeviceTaint
from api.model.prepared import PreparedClaim
from driver.kubeletplugin.backends.base import Condition, HealthChange
from driver.partitions.geometry import Partition
from driver.partitions.records import from_card_part

_Part: TypeAlias = tuple[str, Partition | None]
"""A card's UUID and a partition of it; None: the whole card."""

_EFFECTS: Final = MappingProxyType({Condition.ILL: "NoSchedule", Condition.LOST: "NoExecute"})


class Ailment(NamedTuple):
    """What is wrong with hardware."""

    condition: Condition
    """ILL or LOST."""
    reason: str


class Setback(NamedTuple):
    """A function that could not be loaded into a card, lately."""

    reason: str
    until: float
    """Unix time in seconds."""


class HealthBoard:
    """What is known now."""

    def __init__(self, *, driver: str, now: Callable[[], float]) -> None:
        """``now``: Unix time in seconds."""
        key = f"{driver}/unhealthy"
        self._taints = {
            condition: DeviceTaint(key=key, value=condition.value, effect=effect)
            for condition, effect in _EFFECTS.items()
        }
        self._now = now
        self._ailments: dict[_Part, Ailment] = {}
        self._setback_taint = DeviceTaint(key=f"{driver}/load-failed", effect="NoSchedule")
        self._setbacks: dict[tuple[str, str | None], Setback] = {}

    @property
    def ailments(self) -> Mapping[_Part, Ailment]:
        return self._ailments

    @property
    def is_clear(self) -> bool:
        """Nothing is wrong with anything."""
        return not self._ailments and not self._setbacks

    def forget(self, card_uuids: Collection[str]) -> None:
        """Forget what is known of these cards: their backend begins to tell anew."""
        for part in [part for part in self._ailments if part[0] in card_uuids]:
            del self._ailments[part]

    def note(self, change: HealthChange) -> bool:
        """Take in a change; False when it tells nothing new."""
        key = (change.card_uuid, change.partition)
        known = self._ailments.get(key)
        if change.condition is Condition.WELL:
            self._ailments.pop(key, None)
            return known is not None
        self._ailments[key] = Ailment(change.condition, change.reason)
        return known != self._ailments[key]

    def ailment(self, partition: Partition) -> Ailment | None:
        """What is wrong with ``partition``, its card or anything that it overlaps: the worst; None when all is well."""
        found = [
            ailment
            for (card_uuid, part), ailment in self._ailments.items()
            if card_uuid == partition.card_uuid and (part is None or part.overlaps(partition))
        ]
        return max(found, key=lambda ailment: ailment.condition is Condition.LOST, default=None)

    def taints(self, partition: Partition) -> tuple[DeviceTaint, ...]:
        """What the device of ``partition`` is published with."""
        ailment = self.ailment(partition)
        ill = () if ailment is None else (self._taints[ailment.condition],)
        return ill if self.setback(partition) is None else (*ill, self._setback_taint)

    def set_back(self, partition: Partition, reason: str, hold_s: float) -> None:
        """``partition`` could not be made ready: its card gets no more claims for its function, for ``hold_s``."""
        self._setbacks[partition.card_uuid, partition.function] = Setback(reason, self._now() + hold_s)

    def setback(self, partition: Partition) -> str | None:
        """Why ``partition`` should not be tried again yet; None: it may be."""
        setback = self._setbacks.get((partition.card_uuid, partition.function))
        return setback.reason if setback is not None and self._now() < setback.until else None

    def end_setbacks(self) -> bool:
        """Forget those whose time is over; says whether there were any."""
        over = [key for key, setback in self._setbacks.items() if setback.until <= self._now()]
        for key in over:
            del self._setbacks[key]
        return bool(over)

    def reports(self, records: Iterable[PreparedClaim]) -> tuple[DeviceHealth, ...]:
        """How the devices of claims are, each device once."""
        checked_at_s = int(self._now())
        devices = {device.share.id: from_card_part(device.part) for record in records for device in record.devices}
        return tuple(
            DeviceHealth(
                pool=device.pool,
                device=device.device,
                health=Health.HEALTHY if (ailment := self.ailment(partition)) is None else Health.UNHEALTHY,
                checked_at_s=checked_at_s,
                message=ailment.reason if ailment else "",
            )
            for device, partition in devices.items()
        )
