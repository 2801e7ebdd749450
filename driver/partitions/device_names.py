"""Names of published devices: DNS labels that identify the partition and stay the same while the node is up.

``gpu-0``, ``gpu-0-1g-10gb-at-0``, ``gpu-0-1g-24gb-no-me-at-3``, ``fpga-0``, ``fpga-0-slot-2``, ``fpga-0-slots-0-1``,
``fpga-0-aes-gcm-at-2``; ``gpu-0-3g-40gb-at-0-shared`` for a partition that several claims may hold, ``gpu-0-monitor``
for admin access to a card (KEP-5018).
"""

import re
from dataclasses import dataclass
from typing import Final

from driver.partitions.geometry import Card, Partition

_SHARED: Final = "-shared"
_MONITOR: Final = "-monitor"


_PARTS: Final = re.compile(r"(?P<kind>.*?)-(?P<index>[0-9]+)(?P<suffix>-.*)?")
"""A device's name: no part of a family's name is a number, so the first number ends the card's name."""


@dataclass(frozen=True, slots=True)
class DeviceNameParts:
    """The parts of a device's name."""

    kind: str
    """The family of the card."""
    index: int
    """The number of the card."""
    suffix: str
    """What follows the name of the card; empty: the device is the whole card."""

    @property
    def card(self) -> str:
        """The name of the card."""
        return f"{self.kind}-{self.index}"


def parse_device_name(name: str) -> DeviceNameParts | None:
    """Split the name of a device; None: it is not named as ``device_name`` names devices.

    >>> parse_device_name("gpu-0-1g-10gb-at-0")
    DeviceNameParts(kind='gpu', index=0, suffix='-1g-10gb-at-0')
    """
    match = _PARTS.fullmatch(name)
    return None if match is None else DeviceNameParts(match["kind"], int(match["index"]), match["suffix"] or "")


def card_name(card: Card) -> str:
    """The whole card's device name: the prefix of its partitions' names, and the name of its counter set."""
    return f"{card.kind}-{card.index}"


def device_name(card: Card, partition: Partition) -> str:
    """The device name of ``partition``, which belongs to ``card``."""
    name = _exclusive_name(card, partition)
    return shared_name(name) if partition.shared else name


def shared_name(name: str) -> str:
    """The name of the shared device of the exclusive device ``name``."""
    return name + _SHARED


def exclusive_name(name: str) -> str | None:
    """The name of the exclusive device that the shared device ``name`` stands for; None: ``name`` is not shared."""
    return name.removesuffix(_SHARED) if name.endswith(_SHARED) else None


def monitor_name(card: str) -> str:
    """The name of the monitor device of the card of this name."""
    return card + _MONITOR


def monitored_name(name: str) -> str | None:
    """The name of the card that the monitor device ``name`` stands for; None: ``name`` is no monitor device."""
    return name.removesuffix(_MONITOR) if name.endswith(_MONITOR) else None


def _exclusive_name(card: Card, partition: Partition) -> str:
    prefix = card_name(card)
    if partition.placement is None:
        return prefix
    start, size = partition.placement
    if partition.profile is not None:
        return f"{prefix}-{_profile_label(partition.profile)}-at-{start}"
    if partition.function is not None:
        return f"{prefix}-{partition.function}-at-{start}"
    unit = card.geometry.unit
    return f"{prefix}-{unit}-{start}" if size == 1 else f"{prefix}-{unit}s-{start}-{start + size - 1}"


def _profile_label(profile: str) -> str:
    """``1g.24gb+me.all`` becomes ``1g-24gb-me-all``. A minus means without: ``1g.24gb-me`` is ``1g-24gb-no-me``."""
    return profile.replace("-", "-no-").replace("+", "-").replace(".", "-")
