"""Decides in which ways a card can be allocated in its MIG mode. Pure.

For a claim Kerf never resets a card. Where switching MIG mode takes a reset (Ampere), the mode stays as an
administrator has set it, and the survey says what is impossible and why. From Hopper on the mode changes at once; there
the policy decides.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from kerf_dra.driver.kubeletplugin.backends.nvidia.readings import MigMode

_NEEDING_RESET: Final = frozenset({"ampere"})
"""Architectures whose MIG mode changes with a reset only (NVIDIA, MIG User Guide); none before them has MIG."""
_STATIC: Final = "migMode of the backend is Static, so claims get only the MIG devices that an administrator has made"


class MigPolicy(StrEnum):
    """What the backend may do with the MIG mode of a card."""

    LEAVE = "Leave"
    """Nothing: an administrator switches it."""
    ON_DEMAND = "OnDemand"
    """Switch it on for the first partition and off for the whole card, while no process uses the card, where that needs
    no reset."""
    STATIC = "Static"
    """Nothing, and make and remove no MIG device: claims get those that an administrator has made."""


class Restrictions(NamedTuple):
    """Why a card cannot be allocated whole, and why not in partitions; empty: it can."""

    no_whole: str
    no_partitions: str


def can_switch(architecture: str, policy: MigPolicy) -> bool:
    """Whether the backend may switch MIG mode of a card of this architecture."""
    return policy is MigPolicy.ON_DEMAND and architecture not in _NEEDING_RESET


def find_restrictions(mode: MigMode | None, architecture: str, policy: MigPolicy) -> Restrictions:
    """Return in which ways a card in this mode (None: without MIG) cannot be allocated now."""
    if mode is None:
        return Restrictions("", "the card has no MIG")
    if can_switch(architecture, policy):
        return Restrictions("", "")
    if mode.is_on_later != mode.is_on:
        later = "on" if mode.is_on_later else "off"
        reason = f"MIG mode {later} is pending a reset of the card"
    elif architecture in _NEEDING_RESET:
        now, other, number = ("on", "off", 0) if mode.is_on else ("off", "on", 1)
        reason = f"MIG mode is {now}, and to switch it {other} takes a reset: nvidia-smi -mig {number}"
    else:
        reason = f"MIG mode is {'on' if mode.is_on else 'off'}, and migMode of the backend is {policy.value}"
    if not mode.is_on:
        return Restrictions("", reason)
    return Restrictions(reason, _STATIC if policy is MigPolicy.STATIC else "")
