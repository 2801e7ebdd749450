"""Which devices are ill, as their backends say: as taints that keep claims away, and as reports for the kubelet.

A taint goes when its cause goes. It is NoSchedule, never NoExecute: whether a running pod is better off dead is for the
administrator to say, with a DeviceTaintRule (KEP-5055).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias

from api.dra.health import DeviceHealth, Health
from api.model.devices import DeviceTaint
from api.model.prepared import PreparedClaim
from driver.kubeletplugin.backends.base import HealthChange
from driver.kubeletplugin.parts import partition_of
from driver.partitions.geometry import Partition

_Ill: TypeAlias = tuple[str, Partition | None]
"""A card's UUID, and the partition of it that is ill; None: the whole card."""


class HealthBoard:
    """What is known now."""

    def __init__(self, *, driver: str, now: Callable[[], float]) -> None:
        """``now``: Unix time in seconds. ``taint`` is what ill devices get."""
        self.taint: Final = DeviceTaint(key=f"{driver}/unhealthy", effect="NoSchedule")
        self._now = now
        self._ills: dict[_Ill, str] = {}

    @property
    def ills(self) -> Mapping[_Ill, str]:
        return self._ills

    def forget(self, card_uuids: Collection[str]) -> None:
        """Forget what is known of these cards: their backend begins to tell anew."""
        for ill in [ill for ill in self._ills if ill[0] in card_uuids]:
            del self._ills[ill]

    def note(self, change: HealthChange) -> bool:
        """Take in a change; False when it tells nothing new."""
        key = (change.card_uuid, change.partition)
        known = self._ills.get(key)
        if change.healthy:
            self._ills.pop(key, None)
            return known is not None
        self._ills[key] = change.reason
        return known != change.reason

    def reason(self, partition: Partition) -> str | None:
        """Why ``partition`` is ill: its card is, or something that it overlaps; None when it is well."""
        for (card_uuid, part), reason in self._ills.items():
            if card_uuid == partition.card_uuid and (part is None or part.overlaps(partition)):
                return reason
        return None

    def reports(self, records: Iterable[PreparedClaim]) -> tuple[DeviceHealth, ...]:
        """How the devices of claims are, each device once."""
        checked_at_s = int(self._now())
        devices = {device.share.id: partition_of(device.part) for record in records for device in record.devices}
        return tuple(
            DeviceHealth(
                pool=device.pool,
                device=device.device,
                health=Health.HEALTHY if (reason := self.reason(partition)) is None else Health.UNHEALTHY,
                checked_at_s=checked_at_s,
                message=reason or "",
            )
            for device, partition in devices.items()
        )
