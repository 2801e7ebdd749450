"""The records of what containers may be using, and the right to work on one of them alone."""

import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint, is_set_aside
from kerf_dra.driver.kubeletplugin.claims.record_lifecycle import Flights
from kerf_dra.driver.kubeletplugin.claims.transitions import RecordState, classify_record
from kerf_dra.driver.runtime import logs

_log: Final = logging.getLogger(__name__)


class PreparedRecords:
    """The records of prepared claims and extended resources, and of those that an interrupted repair left *started*.

    What a claim had before it was allocated otherwise is not among them: no container is to be started with it.
    """

    def __init__(
        self,
        *,
        checkpoint: Checkpoint,
        boot_id: str,
        flights: Flights,
    ) -> None:
        self._checkpoint = checkpoint
        self._boot_id = boot_id
        self._flights = flights
        self._interrupted: set[str] = set()

    def adopt_interrupted(self, find_file: Callable[[ClaimRef], Path]) -> None:
        """Take over the repairs of a process before this one: records that are *started* and have a CDI file.

        A prepare removes the file, or writes it as its last step but one, so that finishing it is right as well.
        """
        for uid, record in self._checkpoint.records.items():
            is_started = record.state is ClaimState.STARTED and record.boot_id == self._boot_id
            if is_started and not is_set_aside(uid) and _is_there(find_file(record.claim)):
                self._interrupted.add(uid)

    def note_interrupted(self, uid: str) -> None:
        """Note that a repair has left this record *started*: a container may still run with it."""
        self._interrupted.add(uid)

    def list_all(self) -> list[PreparedClaim]:
        """Return these records as of now."""
        self._interrupted &= self._checkpoint.records.keys()
        return [record for uid in self._checkpoint.records if (record := self.find(uid)) is not None]

    def find(self, uid: str) -> PreparedClaim | None:
        """Return the record as of now; None: it is not there any more, or released."""
        record = self._checkpoint.get(uid)
        if record is None or is_set_aside(uid):
            return None
        if classify_record(record, self._boot_id) is RecordState.PREPARED:
            self._interrupted.discard(uid)
            return record
        is_interrupted = uid in self._interrupted and record.state is ClaimState.STARTED
        return record if is_interrupted and record.boot_id == self._boot_id else None

    async def run_alone(
        self, record: PreparedClaim, verb: str, work: Callable[[str], Coroutine[Any, Any, None]]
    ) -> Exception | None:
        """Run ``work`` on the record's UID while nothing else works on it; returns the error that it raised.

        The error is not that of the flight, which would log it at each try. A plugin that stops does no such work.
        """
        errors: list[Exception] = []

        async def run(uid: str) -> PreparedClaim | None:
            try:
                await work(uid)
            except Exception as error:  # noqa: BLE001  (backends are third parties': the other claims go on)
                errors.append(error)
            return None

        uid = record.claim.uid
        with logs.context(claim=str(record.claim), claim_uid=uid), suppress(KerfError):  # the plugin stops
            await self._flights.do(uid, verb, run, uid)
        return errors[0] if errors else None


def _is_there(path: Path) -> bool:
    """Whether a file is there; one that cannot be seen is not: the claim's next prepare finishes what was begun."""
    try:
        return path.exists()
    except OSError as error:
        _log.warning("a repair that was interrupted, if it was one, is left to the next prepare: %s", error)
        return False
