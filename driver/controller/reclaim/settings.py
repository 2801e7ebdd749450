"""The settings of ``kerf controller --reclaim``."""

from dataclasses import dataclass
from typing import Final

from kerf_dra.driver.reclaim.automatic_repairs import ReclaimMode, RepairLimits

NAME: Final = "kerf-reclaimer"
"""The name of the program: user agent, event source and field manager."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimSettings:
    """Settings of the eviction of pods from cards in maintenance."""

    mode: ReclaimMode = ReclaimMode.REPORT
    """What is done: an administrator sees what Act would do before it does."""
    limits: RepairLimits = RepairLimits(cards=4, node_cards=2)  # noqa: RUF009  (frozen)
    """How many cards are drained at the same time, for administrators and for repairs together, and how many repairs
    of the reclaimer's own are under way: four in the cluster, half a node of eight, and two of one node. Zero: none."""
    evictions: int = 200
    """The most evictions in an hour: the pods of four cards with seven partitions each, of which each is shared by
    seven. Zero: none."""
    namespace_evictions: int = 100
    """The most of them in one namespace: half of all, so that the cards of another one can be drained meanwhile."""
    active_s: float = 2.0
    """The period of looking at cards that are being drained: three reads for each, and pods end in seconds."""
    idle_s: float = 30.0
    """The period of looking at cards that are free, or stuck: a person or a new pod changes these."""
    settle_s: float = 0.5
    """The delay after a change: claims and pods change together."""
