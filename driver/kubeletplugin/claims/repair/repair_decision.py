"""What follows when a prepared claim has lost a partition: another program destroyed it, or reset its card. Pure.

A partition with processes cannot be destroyed, so nothing of the claim runs on a lost one. It is made again at its
place, where a card derives the same UUID from it, and the next start of the container finds it. A program that destroys
it again and again means it: after some tries the device is tainted, so that the pod starts elsewhere.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

SURVEYS: Final = 2
"""Successive surveys without the partition before anything is done: one may have been made in the middle of a reset."""
TRIES: Final = 3
"""Times that a lost partition is made again for one claim: more often than a tool fails, and few enough that an
administrator who clears a card is not fought."""


class Repair(Enum):
    """What is done about a lost partition."""

    WAIT = auto()
    MAKE = auto()
    """It is made again."""
    GIVE_UP = auto()
    """Its device is tainted, so that the claim's pods start elsewhere."""


@dataclass(slots=True)
class Loss:
    """A lost partition of one claim."""

    surveys: int = 0
    """Successive surveys of its card that did not find it; 0: the latest one did."""
    tries: int = 0
    """Times that it was made again, or could not be."""
    next_try_at: float = 0.0
    """When it may be made again, in seconds of the event loop: a card needs time, and so does the program that destroys
    it."""


def decide(loss: Loss, obstacle: str | None, now: float) -> Repair:
    """Return what is done about ``loss`` at ``now``; ``obstacle`` is what keeps its place from claims, None: nothing.

    Something that is gone again ends an obstacle, but nothing brings spent tries back.
    """
    if loss.surveys < SURVEYS:
        return Repair.WAIT
    if obstacle or loss.tries >= TRIES:
        return Repair.GIVE_UP
    return Repair.MAKE if now >= loss.next_try_at else Repair.WAIT
