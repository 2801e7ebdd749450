"""What the two kinds of simulated cards have in common."""

from collections.abc import Iterator
from typing import Protocol

from api.kerf.v1alpha1 import DeviceConfig
from driver.kubeletplugin.backends.base import AllocatedDevice
from driver.kubeletplugin.backends.simulated.handles import SimulatedHandle
from driver.partitions.geometry import Card, DeviceKind, Partition


class SimulatedCard(Protocol):
    """One card. Owners are marks on the hardware (``handles.owner_of``).

    Every method may be called again after any failure, also by a new process. Raises HardwareBusyError and
    HardwareRefusedError.
    """

    @property
    def kind(self) -> DeviceKind: ...

    @property
    def name(self) -> str:
        """The whole card's device name, ``gpu-0``."""
        ...

    def discover(self) -> Card:
        """The card as it is now."""
        ...

    def handle(self, device: AllocatedDevice, config: DeviceConfig | None) -> SimulatedHandle:
        """What ``device`` is remembered by once it is made, or at once with admin access. Changes nothing."""
        ...

    def has(self, owner: str) -> bool:
        """Whether everything that ``make`` does for ``owner`` is done."""
        ...

    async def make(self, device: AllocatedDevice, config: DeviceConfig | None, owner: str) -> None:
        """Cut or load ``device``, or go on where an earlier try was cut off."""
        ...

    async def take_back(self, handle: SimulatedHandle) -> None:
        """End the regular use of what ``handle`` stands for; gone already is success."""
        ...

    async def abandon(self, owner: str) -> None:
        """Remove whatever ``owner`` has, whole or half made."""
        ...

    def held(self) -> Iterator[tuple[str, Partition]]:
        """Owners and what they hold, half-made partitions included."""
        ...
