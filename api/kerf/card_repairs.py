"""The repair that a card needs, as its node publishes it: the value of the taint ``<driver>/repair`` of its devices.

The kubelet plugin knows it from the hardware, and ``kerf controller --reclaim`` reads it. A taint beside the one of an
unhealthy device changes nothing for claims that do not tolerate both.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from kerf_dra.api.model.devices import DeviceTaint


class RepairAct(StrEnum):
    """What repairs a card; the values are wire format."""

    BOOT = "boot"
    """Its node is booted: nothing less reaches the card."""
    RESET = "reset"
    """It is reset. What its pods compute is lost, so that they need not be waited for."""
    RESET_WHEN_FREE = "reset-when-free"
    """It is reset, once its pods have ended: they go on until then."""


class CardRepair(NamedTuple):
    """A repair that a card needs."""

    act: RepairAct
    cause: str
    """Why, in lower-case letters, digits and hyphens, such as ``xid-95``."""

    def __str__(self) -> str:
        """Return the value of the taint.

        >>> str(CardRepair(RepairAct.RESET, "xid-95"))
        'reset.xid-95'
        """
        return f"{self.act}.{self.cause}"


_ORDER: Final = tuple(RepairAct)
"""The acts, the one that includes the others first."""


def parse_repair(value: str) -> CardRepair | None:
    """Return the repair that a taint's value names; None: it names none that this release knows.

    >>> parse_repair("reset.xid-95").act, parse_repair("polish.xid-95")
    (<RepairAct.RESET: 'reset'>, None)
    """
    act, _, cause = value.partition(".")
    return CardRepair(RepairAct(act), cause) if act in _ORDER and cause else None


def choose_repair(repairs: Iterable[CardRepair | None]) -> CardRepair | None:
    """Return the first of the repairs that include the others; None: there are none."""
    return min((each for each in repairs if each is not None), key=lambda each: _ORDER.index(each.act), default=None)


def repair_taint_key(driver: str) -> str:
    """Return the key of the taint of the devices of a card of ``driver`` that needs a repair."""
    return f"{driver}/repair"


def build_repair_taint(driver: str, repair: CardRepair) -> DeviceTaint:
    """Return the taint of a device whose card needs ``repair``."""
    return DeviceTaint(key=repair_taint_key(driver), value=str(repair), effect="NoSchedule")
