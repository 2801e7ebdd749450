"""The settings of ``kerf controller --reclaim``."""

from dataclasses import dataclass
from typing import Final

NAME: Final = "kerf-reclaimer"
"""The name of the program: user agent, event source and field manager."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimSettings:
    """Settings of the eviction of pods from cards in maintenance."""

    cards_at_once: int = 4
    """How many cards of the cluster are drained at a time: half a node of eight."""
    active_s: float = 2.0
    """The period of looking at cards that are being drained: three reads for each, and pods end in seconds."""
    idle_s: float = 30.0
    """The period of looking at cards that are free, or stuck: a person or a new pod changes these."""
    settle_s: float = 0.5
    """The delay after a change: claims and pods change together."""
