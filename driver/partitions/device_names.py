"""Names of published devices: DNS labels that identify the partition and stay the same while the node is up.

``gpu-0``, ``gpu-0-1g-10gb-at-0``, ``gpu-0-1g-24gb-no-me-at-3``, ``fpga-0``, ``fpga-0-slot-2``, ``fpga-0-slots-0-1``,
``fpga-0-aes-gcm-at-2``, ``fpga-0-fft-at-0-1`` in two slots, ``fpga-0-fft-at-0-and-2`` in two that are no neighbours,
``fpga-0-slot-0-of-halves`` for the layout ``halves``; ``gpu-0-3g-40gb-at-0-shared`` for a partition that several
claims may hold, ``gpu-0-monitor`` for admin access to a card (KEP-5018).
"""

import re
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from kerf_dra.driver.partitions.geometry import Card, Partition, Placement

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
    placement = partition.placement
    if partition.profile is not None:
        return f"{prefix}-{_profile_label(partition.profile)}-at-{placement.start}"
    return f"{prefix}-{name_part(placement, partition.function, card.geometry.unit)}"


def name_part(placement: Placement, function: str | None, unit: str = "") -> str:
    """Return what the name of a function's device, or without one of a bare set of units, has behind the card's name.

    >>> name_part(Placement(0, 2), "fft")
    'fft-at-0-1'
    """
    if function is not None:
        return f"{function}-at-{list_units(placement)}"
    return f"{unit if placement.size == 1 else f'{unit}s'}-{list_units(placement)}"


def list_units(placement: Placement) -> str:
    """Return each run of units by its first and its last: no two placements have one text.

    >>> list_units(Placement.of_units([0, 1, 3], "halves"))
    '0-1-and-3-of-halves'
    """
    runs = [
        [unit for _, unit in run] for _, run in groupby(enumerate(placement.units), key=lambda each: each[1] - each[0])
    ]
    texts = (str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return "-and-".join(texts) + (f"-of-{placement.layout}" if placement.layout else "")


def _profile_label(profile: str) -> str:
    """``1g.24gb+me.all`` becomes ``1g-24gb-me-all``. A minus means without: ``1g.24gb-me`` is ``1g-24gb-no-me``."""
    return profile.replace("-", "-no-").replace("+", "-").replace(".", "-")
