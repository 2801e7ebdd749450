"""Decides which partition on a card is ours, from what was noted before it was made. Pure.

No hardware says whose a partition is. So before the first try to make a device's partition, the ids of all partitions
on the card are noted (``BEFORE``), and the note goes when the device is released. A partition with exactly the device's
profile and placement is ours if such a note exists and does not have its id: nothing but our own prepare was about to
make it. Claims that share a device have one partition, so each one's note counts for all of them.

A *static* partition, which an administrator has made for claims, is every claim's that is given its place, unless a
process of another program uses it. It is never made or removed.

Everything else is another program's. It is never finished, handed out or destroyed, even where it is exactly what a
claim needs; the claim fails with HardwareConflictError, and the device's place is free again when the other is gone.

**The window that remains.** Another program cuts exactly the same profile at exactly the same place while a note is
there and our partition is not: the process died between the two (or a call hangs, or neither our create nor its undoing
got through), or between the end of our partition and that of the note, or the card was reset under a prepared claim.
Then theirs is taken for ours. While nothing goes wrong, the hardware's refusal of our create ends the note.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from kerf_dra.driver.kubeletplugin.backends.base import (
    CardSurvey,
    FoundPartition,
    HardwareBusyError,
    HardwareConflictError,
)
from kerf_dra.driver.partitions.geometry import Partition

BEFORE: Final = "before"
"""The note of the ids that were on the card before the first try."""


def find_ours(
    partition: Partition, survey: CardSurvey, own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
) -> FoundPartition | None:
    """Return what an interrupted prepare of ``partition`` left, or what other claims share; None: nothing of ours.

    ``own`` are the notes on the claim's device, ``others`` those on other shares of it.
    """
    for found in survey.partitions:
        if found.matches(partition) and _is_ours(found, own, others):
            return found
    return None


def _is_ours(found: FoundPartition, own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> bool:
    # Processes that use the place are of those who share it, or of strangers: this claim has none yet.
    if found.is_static:
        return not found.in_use or any(BEFORE in notes for notes in others)
    return any(came_later(notes, found.id) for notes in (others if found.is_use else (own, *others)))


def came_later(notes: Mapping[str, Any], found_id: str) -> bool:
    """Whether the partition of this id was not there when ``notes`` were begun. Without a note nothing was made."""
    return BEFORE in notes and found_id not in notes[BEFORE]


def check_free(partition: Partition, survey: CardSurvey, ours: FoundPartition | None) -> None:
    """Check that nothing else has what ``partition`` needs.

    Raises HardwareConflictError, which names the other one, and HardwareBusyError when the card's modes forbid it now.
    """
    for found in survey.partitions:
        if found is not ours and found.overlaps(partition):
            raise HardwareConflictError(f"in use outside of Kerf: {found}")
    reason = survey.find_restriction(partition)
    if reason and ours is None:
        wanted = "whole" if partition.is_whole else "in partitions"
        raise HardwareBusyError(f"the card is not available {wanted} now: {reason}")


def list_before(survey: CardSurvey, ours: FoundPartition | None) -> Collection[str]:
    """Return the ids to note before the first try: of static partitions, too, which are not made then."""
    return [found.id for found in survey.partitions if found is not ours or found.is_static]
