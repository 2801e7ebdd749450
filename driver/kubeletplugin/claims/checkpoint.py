"""The checkpoint: the claims that this node has prepared or begun to prepare, durable across crashes and power loss.

It is a SQLite database with one row for each claim (``api.checkpoint``), and one for the notes on each device whose
hardware may have been changed (``DeviceJournal``), which go with the claim's. Every write survives the process;
``sync`` makes the writes before it survive the machine. Only the record *started* must: records of an earlier boot are
*started* whatever they say (``transitions``), so later records may reach the disk with the next claim's. The file
appears complete or not at all, so an empty, foreign or damaged one is never taken for "nothing prepared": the plugin
refuses to start and says what to do.

SQLite writes its log and does not sync it (``synchronous=NORMAL``, https://www.sqlite.org/wal.html). The sync that
``synchronous=FULL`` would add after each write is made here, by the worker thread that is about to change hardware: one
for all claims that wait. Notes are written by worker threads, too, records by the event loop: a lock keeps their
statements apart.
"""

import os
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from api.checkpoint import v1
from api.checkpoint.v1 import CheckpointError
from api.errors import TransientError
from api.model.names import DeviceId, ShareId
from api.model.prepared import DeviceNotes, PreparedClaim

FILE_NAME: Final = "checkpoint.db"

_APPLICATION_ID: Final = 0x6B657266
"""``kerf`` in ASCII, in the header of the file: distinguishes it from any other SQLite database."""
_LAYOUT: Final = 2
"""Version of the tables (``PRAGMA user_version``); records have a schema version of their own."""
_TABLES: Final = (
    "CREATE TABLE claims (uid TEXT PRIMARY KEY, record BLOB NOT NULL)",
    "CREATE TABLE notes (uid TEXT NOT NULL, share TEXT NOT NULL, notes BLOB NOT NULL, PRIMARY KEY (uid, share))",
    "CREATE TRIGGER claim_dropped AFTER DELETE ON claims BEGIN DELETE FROM notes WHERE uid = old.uid; END",
)
_UPSERT: Final = "INSERT INTO claims (uid, record) VALUES (?, ?) ON CONFLICT DO UPDATE SET record = excluded.record"
_CACHE_KIB: Final = 64
"""Cached pages, enough for a write. Nothing is read again, and SQLite would keep 2 MB."""
_LOCKED_S: Final = 0.5
"""Wait this long for a person who has the file open for writing: every call waits meanwhile, and may be repeated."""
_Statement: TypeAlias = tuple[str, tuple[object, ...]]
_DAMAGED: Final = "restore the file, or drain the node, remove the partitions by the vendor's tool, then the file"
_UNSYNCED: Final = "see the kernel's log about the disk, then restart the plugin: nothing more is prepared until then"
_UNWRITABLE: Final = "free space on its disk or make it writable; nothing was changed and the call may be repeated"


class JournalClosedError(TransientError):
    """The first note comes from a call that was given up: nobody would take back what it makes."""

    def __init__(self, share: ShareId) -> None:
        super().__init__(f"the prepare of {share} was given up before it began on the hardware")


class Checkpoint:
    """The records by claim UID. Reads come from memory; only the active instance may have it open (``handover``)."""

    def __init__(self, path: Path, connection: sqlite3.Connection, *, sync_log: Callable[[], None]) -> None:
        """Read all records. Raises CheckpointError when one cannot be decoded.

        ``sync_log`` syncs SQLite's log and may raise OSError.
        """
        self._path = path
        self._connection = connection
        self._sync_log = sync_log
        self._written = self._synced = 0
        """The number of writes, and how many of them are on the disk."""
        self._last_writes: dict[str, int] = {}
        """The number of the write that has the record, by claim UID; a record of an earlier process has none."""
        self._disk = threading.Lock()
        self._sync_error: OSError | None = None
        self._statements = threading.Lock()
        self._records: dict[str, PreparedClaim] = {}
        self._notes: defaultdict[str, dict[ShareId, DeviceNotes]] = defaultdict(dict)
        """The notes by claim UID and share."""
        with _reading(path):
            rows: list[tuple[str, bytes]] = connection.execute(
                "SELECT uid, record FROM claims ORDER BY rowid"
            ).fetchall()
            noted: list[tuple[str, str, bytes]] = connection.execute("SELECT uid, share, notes FROM notes").fetchall()
        for uid, record in rows:
            self._records[uid] = v1.decode(record, f"{path}, claim {uid}")
        for uid, share, data in noted:
            notes = v1.decode_notes(data, f"{path}, claim {uid}, notes on {share}")
            self._notes[uid][notes.share] = notes

    @property
    def records(self) -> Mapping[str, PreparedClaim]:
        """A live view of all records."""
        return MappingProxyType(self._records)

    def get(self, uid: str) -> PreparedClaim | None:
        return self._records.get(uid)

    def put(self, record: PreparedClaim) -> None:
        """Store ``record``. Notes of another boot, and on devices that it no longer has, go away.

        Raises CheckpointError when it cannot be written; the earlier record then remains.
        """
        uid, before = record.claim.uid, self._records.get(record.claim.uid)
        statements: list[_Statement] = [(_UPSERT, (uid, v1.encode(record)))]
        gone = set() if before is None else _shares(before)
        if before is not None and before.boot_id == record.boot_id:
            gone -= _shares(record)
        statements += [("DELETE FROM notes WHERE uid = ? AND share = ?", (uid, str(share))) for share in gone]
        self._write(*statements)
        self._last_writes[uid] = self._written
        self._records[uid] = record
        for share in gone:
            self._notes[uid].pop(share, None)

    def set_aside(self, uid: str) -> PreparedClaim:
        """Give the record a UID of its own, with its notes: the claim may then have another record. Returns it.

        Raises CheckpointError when it cannot be written; the record then remains as it was.
        """
        record = self._records[uid]
        aside = next(name for number in count(1) if (name := f"{uid}-aside-{number}") not in self._records)
        moved = replace(record, claim=record.claim._replace(uid=aside))
        self._write(
            (_UPSERT, (aside, v1.encode(moved))),
            ("UPDATE notes SET uid = ? WHERE uid = ?", (aside, uid)),
            ("DELETE FROM claims WHERE uid = ?", (uid,)),
        )
        self._records[aside] = moved
        self._notes[aside] = self._notes.pop(uid, {})
        self._forget(uid)
        return moved

    def drop(self, uid: str) -> None:
        """Remove the record with its notes, if there is one. After a power cut it may be back, for garbage collection.

        Raises CheckpointError when it cannot be removed.
        """
        self._write(("DELETE FROM claims WHERE uid = ?", (uid,)))
        self._forget(uid)

    def journal(self, uid: str, share: ShareId, boot_id: str) -> "DeviceJournal":
        """Return the journal of one share of a device of the claim ``uid``, in the boot ``boot_id``."""
        return DeviceJournal(self, uid, share, boot_id)

    def journals_of(self, device: DeviceId, boot_id: str) -> "list[DeviceJournal]":
        """Return the journals with notes on any claim's share of ``device`` in the boot ``boot_id``."""
        return [
            DeviceJournal(self, uid, share, boot_id)
            for uid, of_claim in list(self._notes.items())
            for share, notes in list(of_claim.items())
            if share.id == device and notes.boot_id == boot_id
        ]

    def read_notes(self, uid: str, share: ShareId) -> DeviceNotes | None:
        """Return the notes of any boot, for ``DeviceJournal``."""
        return self._notes.get(uid, {}).get(share)

    def write_notes(self, uid: str, notes: DeviceNotes) -> None:
        """Replace the notes, for ``DeviceJournal``; may be called in any thread.

        Raises CheckpointError when they cannot be written, or the claim has no record any more.
        """
        if uid not in self._records:
            raise CheckpointError(str(self._path), f"claim {uid} has no record for notes", "prepare the claim again")
        upsert = "INSERT INTO notes VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET notes = excluded.notes"
        self._write((upsert, (uid, str(notes.share), v1.encode_notes(notes))))
        self._notes[uid][notes.share] = notes

    def drop_notes(self, uid: str, share: ShareId) -> None:
        """Remove the notes, for ``DeviceJournal``; may be called in any thread. Raises CheckpointError."""
        if self.read_notes(uid, share) is not None:
            self._write(("DELETE FROM notes WHERE uid = ? AND share = ?", (uid, str(share))))
            self._notes[uid].pop(share, None)

    def sync(self, uid: str) -> None:
        """Make the record of the claim ``uid`` survive a power cut; blocks, in any thread.

        One sync serves all records that were written before it. Raises CheckpointError when a sync fails, and from then
        on for every record that needs one: after a failed sync the kernel counts what it could not write as written
        (fsync(2)), so that a later success would mean nothing.
        """
        number = self._last_writes.get(uid, 0)
        with self._disk:
            if self._synced >= number:
                return
            if self._sync_error is None:
                self._sync_all()
            if self._sync_error is not None:
                reason = f"cannot be synced: {self._sync_error}"
                raise CheckpointError(str(self._path), reason, _UNSYNCED) from self._sync_error

    def _sync_all(self) -> None:
        written = self._written
        try:
            self._sync_log()
        except OSError as error:
            self._sync_error = error
        else:
            self._synced = written

    def _forget(self, uid: str) -> None:
        self._records.pop(uid, None)
        self._notes.pop(uid, None)
        self._last_writes.pop(uid, None)

    def _write(self, *statements: "_Statement") -> None:
        """Execute the statements, all or none."""
        with self._statements:
            try:
                if len(statements) == 1:
                    self._connection.execute(*statements[0])  # by itself a transaction
                else:
                    self._write_all(statements)
            except sqlite3.Error as error:
                raise CheckpointError(str(self._path), f"cannot be written: {error}", _UNWRITABLE) from error
            self._written += 1

    def _write_all(self, statements: "Sequence[_Statement]") -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for statement, parameters in statements:
                self._connection.execute(statement, parameters)
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            self._connection.execute("ROLLBACK")
            raise


class DeviceJournal:
    """The notes on one share of a device of a claim, in one boot: the Journal of backends, and how it ends."""

    def __init__(self, checkpoint: Checkpoint, uid: str, share: ShareId, boot_id: str) -> None:
        self.uid = uid
        self.share = share
        self._checkpoint = checkpoint
        self._boot_id = boot_id
        self._writing = threading.Lock()
        self._is_closed = False

    @property
    def notes(self) -> Mapping[str, Any]:
        known = self._checkpoint.read_notes(self.uid, self.share)
        return {} if known is None or known.boot_id != self._boot_id else known.notes

    def write(self, **notes: object) -> None:
        with self._writing:
            merged = {**self.notes, **notes}
            if self._is_closed:
                raise JournalClosedError(self.share)
            self._checkpoint.write_notes(self.uid, DeviceNotes(share=self.share, boot_id=self._boot_id, notes=merged))

    def close_unless_begun(self) -> None:
        """Refuse the first note from now on: a call that was given up must not begin on the hardware after all."""
        with self._writing:
            self._is_closed = not self.notes

    def clear(self) -> None:
        """Forget all notes: nothing of the device's prepare is on the hardware. Raises CheckpointError."""
        self._checkpoint.drop_notes(self.uid, self.share)


def _shares(record: PreparedClaim) -> set[ShareId]:
    return {device.share for device in record.devices}


@contextmanager
def open_checkpoint(directory: Path, *, fdatasync: Callable[[int], None] = os.fdatasync) -> Iterator[Checkpoint]:
    """Open the checkpoint in ``directory``, made when there is none; the caller holds the instance lock.

    Tests give ``fdatasync``. Raises CheckpointError when the file cannot be read, or is no checkpoint of this version.
    """
    path = directory / FILE_NAME
    with _reading(path):
        if not path.exists():
            _create(path)
        if path.stat().st_size == 0:
            raise CheckpointError(str(path), "unreadable: it is empty", _DAMAGED)
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=_LOCKED_S, check_same_thread=False
        )
    with closing(connection):
        with _reading(path):
            _check(path, connection)
            # The log exists from the first read to the last connection's end. Its descriptor may be closed, unlike one
            # of the database: SQLite has no locks on it that would go with it (fcntl_locking(2)).
            log = os.open(_log_of(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield Checkpoint(path, connection, sync_log=partial(fdatasync, log))
        finally:
            os.close(log)


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _create(path: Path) -> None:
    """Make an empty database beside ``path`` and move it there whole."""
    for log in (_log_of(path), path.with_name(f"{path.name}-journal")):
        if log.exists():
            raise CheckpointError(str(path), f"it is missing though its log {log.name} is there", _DAMAGED)
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    connection = sqlite3.connect(temporary, isolation_level=None)
    try:
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_LAYOUT}")
        for statement in _TABLES:
            connection.execute(statement)
    finally:
        connection.close()
    temporary.chmod(0o600)
    temporary.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _check(path: Path, connection: sqlite3.Connection) -> None:
    def pragma(name: str) -> object:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    if pragma("application_id") != _APPLICATION_ID:
        raise CheckpointError(str(path), "unreadable: it is not a checkpoint of Kerf", _DAMAGED)
    if pragma("user_version") != _LAYOUT:
        reason = f"written by another version of Kerf (layout {pragma('user_version')}, this one knows {_LAYOUT})"
        raise CheckpointError(str(path), reason, "start that version, or drain the node and remove the file")
    if (verdict := pragma("quick_check(1)")) != "ok":
        raise CheckpointError(str(path), f"unreadable: {' '.join(str(verdict).split())}", _DAMAGED)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute("SELECT 1 FROM claims LIMIT 1").fetchall()  # the first read makes the log


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise CheckpointError(str(path), f"unreadable: {error}", _DAMAGED) from error
