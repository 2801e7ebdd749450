"""The steps that follow from a claim's record: the rules that make prepare and unprepare repeatable. Pure.

The process may die between any two steps. What is found then, and what follows:

| died after | record | hardware | CDI file | at the next call |
|---|---|---|---|---|
| record *started* | started | unknown | none | prepare: once more (backends make it idempotent); unprepare: release |
| hardware prepared | started | done | none | the same |
| CDI file written | started | done | there | the same; the file is overwritten |
| record *prepared* | prepared | done | there | prepare: answer from the record, ensure the file; unprepare: release |
| record *releasing* | releasing | done | there | unprepare: release; prepare: once more |
| CDI file removed | releasing | done | none | the same |
| hardware released | releasing | none | none | the same: releasing what is gone succeeds |
| record dropped | none | none | none | unprepare: success |

So *started* and *releasing* mean: the hardware is in an unknown state, but for devices of a *started* record that have
a handle: they were ready before something else of their claim had to be prepared again. Unprepare records *releasing*
before it changes anything, or a prepare that follows a half-done unprepare would answer from a record that is no longer
true; and of several claims with shares of one device, those that are releasing do not keep the others from releasing
it. A record of an earlier boot counts as *started*, whatever it says: partitions and functions do not survive a reboot,
nor does the directory of the CDI files.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from kerf_dra.api.model.names import ShareId
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim


class RecordState(StrEnum):
    """What the checkpoint knows of a claim."""

    ABSENT = "absent"
    STARTED = "started"
    """The hardware is in an unknown state."""
    PREPARED = "prepared"
    OUTDATED = "outdated"
    """The record is for other devices: the claim was deallocated and allocated again, and no kubelet unprepared it."""


class Step(StrEnum):
    """One durable change. Each may be repeated."""

    RECORD_STARTED = "record started"
    PREPARE_HARDWARE = "prepare hardware"
    WRITE_CDI = "write CDI file"
    RECORD_PREPARED = "record prepared"
    RECORD_RELEASING = "record releasing"
    REMOVE_CDI = "remove CDI file"
    RELEASE_HARDWARE = "release hardware"
    DROP_RECORD = "drop record"


ACQUIRE: Final = (Step.RECORD_STARTED, Step.PREPARE_HARDWARE, Step.WRITE_CDI, Step.RECORD_PREPARED)
"""The record comes first, so that hardware is never changed without a record."""
RELEASE: Final = (Step.RECORD_RELEASING, Step.REMOVE_CDI, Step.RELEASE_HARDWARE, Step.DROP_RECORD)
"""The file goes before the devices that it names. A prepare that fails takes these steps, too."""

PREPARE: Final[Mapping[RecordState, tuple[Step, ...]]] = MappingProxyType(
    {
        RecordState.ABSENT: ACQUIRE,
        RecordState.STARTED: ACQUIRE,
        # A file with this content is left alone; one that another program removed comes back.
        RecordState.PREPARED: (Step.WRITE_CDI,),
        RecordState.OUTDATED: ACQUIRE,  # after RELEASE, or with the record set aside while pods or cards keep it
    }
)
UNPREPARE: Final[Mapping[RecordState, tuple[Step, ...]]] = MappingProxyType(
    {
        RecordState.ABSENT: (Step.REMOVE_CDI,),
        RecordState.STARTED: RELEASE,
        RecordState.PREPARED: RELEASE,
    }
)


def classify_record(
    record: PreparedClaim | None, boot_id: str, allocated: Iterable[tuple[str, ShareId]] | None = None
) -> RecordState:
    """Return what ``record`` means in this boot.

    ``allocated`` are the claim's devices now, each with its request, in any order; None: they do not matter.
    """
    if record is None:
        return RecordState.ABSENT
    if allocated is not None:
        held = Counter((request, device.share) for device in record.devices for request in device.requests)
        if held != Counter(allocated):
            return RecordState.OUTDATED
    if record.state is ClaimState.PREPARED and record.boot_id == boot_id:
        return RecordState.PREPARED
    return RecordState.STARTED


def may_run(record: PreparedClaim, boot_id: str) -> bool:
    """Whether a container may have been started with devices of ``record``, and run still."""
    return bool(record.ready_devices) and record.boot_id == boot_id and not record.awaits_pod
