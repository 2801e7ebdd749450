"""What the prepared devices of a node are used for, as they were sampled last."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kerf_dra.api.model.names import ShareId
from kerf_dra.driver.kubeletplugin.backends.base import DeviceSample


class UsedDevice(NamedTuple):
    """One device of one claim."""

    claim_uid: str
    share: ShareId
    """The device and, where several claims share it, the id of this claim's share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUsage:
    """What a device of a claim is used for."""

    sample: DeviceSample = field(default_factory=DeviceSample)
    """The latest sample; empty: none was taken, or none now."""
    energy_mj: int | None = None
    """The millijoules that were shared out to it since it was prepared; None: its card does not count energy."""
    power_w: float | None = None
    """The watts that were shared out to it between the latest two samples; None: there are no two of its card."""
    idle_since: float | None = None
    """When it was used last, in seconds since 1970, while it is idle; None: it is in use, or that is unknown."""

    @property
    def says_whether_idle(self) -> bool:
        """Whether the latest sample shows if the device is in use or idle."""
        return self.sample.processes is not None or self.sample.busy is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardEnergy:
    """The energy of a card since it was sampled for the first time, also by earlier processes."""

    total_mj: int
    """The millijoules of the whole card."""
    unattributed_mj: int
    """Those that were shared out to no claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """What all prepared devices of a node are used for. Only devices that are prepared now are in it."""

    at: float = 0.0
    """When it was noted, in seconds since 1970."""
    devices: Mapping[UsedDevice, DeviceUsage] = field(default_factory=dict)
    cards: Mapping[str, CardEnergy] = field(default_factory=dict)
    """By the UUID of each card that counts energy."""

    def find_idle_since(self, claim_uid: str, share: ShareId) -> float | None:
        """Return when an idle device of a claim was used last, in seconds since 1970; None: it is not known as idle."""
        usage = self.devices.get(UsedDevice(claim_uid, share))
        return None if usage is None else usage.idle_since
