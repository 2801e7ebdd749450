"""What to do with a claim, given what the checkpoint knows of it: the rules that make prepare and unprepare repeatable.

The process may die between any two steps. What is found then, and what follows:

| died after | record | hardware | CDI file | at the next call |
|---|---|---|---|---|
| record *started* | started | unknown | none | prepare: once more (backends make it idempotent); unprepare: take back |
| hardware prepared | started | done | none | the same |
| CDI file written | started | done | there | the same; the file is overwritten |
| record *prepared* | prepared | done | there | prepare: answer from the record, ensure the file; unprepare: take back |
| record *releasing* | releasing | done | there | unprepare: take back; prepare: once more |
| CDI file removed | releasing | done | none | the same |
| hardware released | releasing | none | none | the same: releasing what is gone succeeds |
| record dropped | none | none | none | unprepare: success |

So *started* and *releasing* mean: the hardware is in an unknown state. Unprepare writes *releasing* before it touches
anything, or a prepare that follows a half-done unprepare would answer from a record that is no longer true; and of
several claims with shares of one device, those that are releasing do not keep the others from letting it go. A record
of an earlier boot is *started*, whatever it says: partitions and functions do not survive a reboot, nor does the
directory of the CDI files.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from api.model.claims import ResourceClaim
from api.model.names import ShareId
from api.model.prepared import ClaimState, PreparedClaim


class Found(StrEnum):
    """What the checkpoint knows of a claim."""

    NOTHING = "nothing"
    STARTED = "started"
    """The hardware is in an unknown state."""
    PREPARED = "prepared"
    OUTDATED = "outdated"
    """The record is for other devices: the claim was deallocated and allocated again, and nobody unprepared it."""


class Step(StrEnum):
    """One effect. Each may be repeated."""

    RECORD_STARTED = "record started"
    PREPARE_HARDWARE = "prepare hardware"
    WRITE_CDI = "write CDI file"
    RECORD_PREPARED = "record prepared"
    RECORD_RELEASING = "record releasing"
    REMOVE_CDI = "remove CDI file"
    RELEASE_HARDWARE = "release hardware"
    DROP_RECORD = "drop record"


MAKE: Final = (Step.RECORD_STARTED, Step.PREPARE_HARDWARE, Step.WRITE_CDI, Step.RECORD_PREPARED)
"""Intent first: hardware of ours is never without a record."""
TAKE_BACK: Final = (Step.RECORD_RELEASING, Step.REMOVE_CDI, Step.RELEASE_HARDWARE, Step.DROP_RECORD)
"""The file goes before what it names. Also for a prepare that failed: its shares must not keep anything."""
ENSURE: Final = (Step.WRITE_CDI,)
"""A file that is there with this content is left alone; one that somebody removed comes back."""

PREPARE: Final[Mapping[Found, tuple[Step, ...]]] = MappingProxyType(
    {
        Found.NOTHING: MAKE,
        Found.STARTED: MAKE,
        Found.PREPARED: ENSURE,
        Found.OUTDATED: TAKE_BACK + MAKE,
    }
)
UNPREPARE: Final[Mapping[Found, tuple[Step, ...]]] = MappingProxyType(
    {
        Found.NOTHING: (Step.REMOVE_CDI,),
        Found.STARTED: TAKE_BACK,
        Found.PREPARED: TAKE_BACK,
    }
)


def found(record: PreparedClaim | None, boot_id: str, shares: Sequence[ShareId] | None = None) -> Found:
    """How to take ``record`` in this boot. ``shares``: what the claim has allocated now; None where that is moot."""
    if record is None:
        return Found.NOTHING
    if shares is not None and tuple(shares) != tuple(device.share for device in record.devices):
        return Found.OUTDATED
    if record.state is ClaimState.PREPARED and record.boot_id == boot_id:
        return Found.PREPARED
    return Found.STARTED


def is_gone(claim: ResourceClaim | None, record: PreparedClaim) -> bool:
    """Whether ``claim``, read from the API server, no longer has the devices of its record."""
    if claim is None or claim.metadata.uid != record.claim.uid or claim.status.allocation is None:
        return True
    allocated = {result.share for result in claim.status.allocation.devices.results}
    return not allocated.issuperset(device.share for device in record.devices)
