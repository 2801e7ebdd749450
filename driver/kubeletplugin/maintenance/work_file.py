"""The records of acts on cards in maintenance: one small file beside the checkpoint, durable across crashes.

It is replaced as a whole and synced before each step, so there is the record of before or of after. One that cannot be
read is never taken for "nothing was begun": nothing is done with any card until it is restored or removed.
"""

import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from kerf_dra.api.errors import TransientError
from kerf_dra.api.kerf.card_maintenance import FollowingAct
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.runtime.documents.input_file import read_regular_file
from kerf_dra.driver.runtime.documents.output_file import discard_unfinished, replace_durably

FILE_NAME: Final = "maintenances.json"
_MAX_BYTES: Final = 2**20
"""The most bytes of the file: a record has a few hundred, and a node some cards."""
_PRIVATE: Final = 0o600
"""Only the plugin's account may say what was done."""

WorkStage: TypeAlias = Literal["Planned", "Begun", "Ended", "Done", "Failed"]
"""Planned: the act has not begun. Begun: it may have. Ended: the card is to be verified. Done, Failed: that is over."""


class WorkFileError(TransientError):
    """The file cannot be read or written; the message says what to do."""


class WorkRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What has been done for one generation of a CardMaintenance."""

    uid: str
    generation: int
    card_uuid: str
    backend: str
    act: FollowingAct
    stage: WorkStage
    message: str = ""
    """What the act has said, or why it has failed."""
    attempts: int = 0
    """How many verifications have failed."""
    started_at: str = ""
    """When the act began (RFC 3339); empty: it has not."""
    finished_at: str = ""
    """When it was Done or Failed."""
    notes: dict[str, Any] = {}
    """What the backend has noted about the act."""
    test_notes: dict[str, Any] = {}
    """What was noted before a test partition was made; empty: none may be there."""

    @property
    def key(self) -> tuple[str, int]:
        return self.uid, self.generation

    def __str__(self) -> str:
        since = f" since {self.started_at}" if self.started_at else ""
        message = f": {to_one_line(self.message)}" if self.message else ""
        return f"{self.act}, {self.stage}{since}{message}"


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    records: tuple[WorkRecord, ...] = ()


def read_records(path: Path) -> tuple[WorkRecord, ...]:
    """Return the records of a file, which a plugin may be writing. Raises WorkFileError when it cannot be read."""
    try:
        return msgspec.json.decode(read_regular_file(path, max_bytes=_MAX_BYTES), type=_Document).records
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError) as error:
        raise WorkFileError(
            f"{path} cannot be read, so it is not known what was begun with cards: {error}; restore it, or look at "
            "the cards in maintenance, remove it and start the plugin again"
        ) from error


class WorkFile:
    """The file of one family's plugin, its one writer. Reads come from memory; writes block, in any thread."""

    def __init__(self, path: Path) -> None:
        """Read the file. What a killed writer has left is removed."""
        self._path = path
        self._temporary = path.with_name(f".{path.name}.tmp")
        self._lock = threading.Lock()
        self._records: dict[tuple[str, int], WorkRecord] = {}
        self.problem = ""
        """Why the file could not be read; empty: it could."""
        discard_unfinished(self._temporary)
        try:
            self._records = {record.key: record for record in read_records(path)}
        except WorkFileError as error:
            self.problem = str(error)

    @property
    def records(self) -> Mapping[tuple[str, int], WorkRecord]:
        """The records by UID and generation."""
        return self._records

    def put(self, record: WorkRecord) -> None:
        """Store a record. Raises WorkFileError when it cannot be written; the earlier one then remains."""
        with self._lock:
            self._write({**self._records, record.key: record})

    def keep_only(self, uids: Collection[str]) -> None:
        """Forget the records of all other CardMaintenances. Raises WorkFileError."""
        with self._lock:
            kept = {key: record for key, record in self._records.items() if record.uid in uids}
            if len(kept) < len(self._records):
                self._write(kept)

    def _write(self, records: dict[tuple[str, int], WorkRecord]) -> None:
        if self.problem:
            raise WorkFileError(self.problem)
        content = msgspec.json.encode(_Document(records=tuple(records.values())))
        try:
            replace_durably(self._path, content, self._temporary, mode=_PRIVATE)
        except OSError as error:
            raise WorkFileError(
                f"{self._path} cannot be written: {error}; free space on its disk or make it writable"
            ) from error
        self._records = records


class WorkJournal:
    """A ``Journal`` of backends that is kept in the record of an act."""

    def __init__(self, file: WorkFile, key: tuple[str, int], *, is_test: bool) -> None:
        """``is_test``: the notes are those on a test partition, not on the act."""
        self._file = file
        self._key = key
        self._field = "test_notes" if is_test else "notes"

    @property
    def notes(self) -> Mapping[str, Any]:
        found: dict[str, Any] = getattr(self._file.records[self._key], self._field)
        return found

    def write(self, **notes: object) -> None:
        """Add or replace notes, durably. Raises WorkFileError."""
        record = self._file.records[self._key]
        self._file.put(msgspec.structs.replace(record, **{self._field: {**self.notes, **notes}}))

    def clear(self) -> None:
        """Forget the notes, durably. Raises WorkFileError."""
        self._file.put(msgspec.structs.replace(self._file.records[self._key], **{self._field: {}}))
