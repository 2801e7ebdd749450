"""The checkpoint: the claims that this node has prepared or begun to prepare, durable across crashes and power loss.

It is a SQLite database with one row for each claim (``kerf_dra.api.checkpoint``), and one for the notes on each device
whose hardware may have been changed (``DeviceJournal``), which go with the claim's. Every write survives the process;
``sync`` makes the writes before it survive the machine. Only the record *started* must: records of an earlier boot are
*started* whatever they say (``transitions``), so later records may reach the disk with the next claim's.

What cannot be read is never taken for "nothing prepared": the plugin refuses to start and says what to do. The file
appears complete or not at all, so an empty or a foreign one is damage; each record has a checksum
(``kerf_dra.api.checkpoint``); SQLite's own check and a comparison of the tables find what is wrong with the pages; and
which content was written is noted outside of the database (``checkpoint_digest``), because a log that lost its end is
no error to SQLite. A folder that was emptied with all this in it is found by the CDI files of the claims, which are
elsewhere and go with the boot.

SQLite writes its log and does not sync it (``synchronous=NORMAL``, https://www.sqlite.org/wal.html). The sync that
``synchronous=FULL`` would add after each write is made here, by the worker thread that is about to change hardware: one
for all claims that wait. Notes are written by worker threads, too, records by the event loop: a lock keeps their
statements apart. What SQLite syncs by itself when its log has grown, the log and then the database into which it moves
it, is done by the same thread, over a connection of its own: readers and writers go on meanwhile (``PASSIVE``). The log
begins with a sync: at the start in a worker thread (``begin_log``), and after each move in the event loop.
"""

import os
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from kerf_dra.api.checkpoint import v1
from kerf_dra.api.checkpoint.v1 import CardRecords, CheckpointError
from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.names import DeviceId, ShareId
from kerf_dra.api.model.prepared import DeviceNotes, PreparedClaim
from kerf_dra.api.model.recorded_cards import CardRecord
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint_digest import (
    ContentDigest,
    DigestFile,
    Row,
    create_digest_file,
    open_digest_file,
)

FILE_NAME: Final = "checkpoint.db"

_APPLICATION_ID: Final = 0x6B657266
"""``kerf`` in ASCII, in the header of the file: distinguishes it from any other SQLite database."""
_LAYOUT: Final = 3
"""Version of the tables (``PRAGMA user_version``); records have a schema version of their own."""
_TABLES: Final = (
    "CREATE TABLE claims (uid TEXT PRIMARY KEY, record BLOB NOT NULL)",
    "CREATE TABLE notes (uid TEXT NOT NULL, share TEXT NOT NULL, notes BLOB NOT NULL, PRIMARY KEY (uid, share))",
)
_SET_LAYOUT: Final = f"PRAGMA user_version = {_LAYOUT}"
_UNSYNCED_CREATION: Final = (
    "PRAGMA synchronous = OFF",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    _SET_LAYOUT,
)
"""The first statements in a new database, which is synced once it is complete."""
_PUT_RECORD: Final = "INSERT INTO claims VALUES (?, ?) ON CONFLICT DO UPDATE SET record = excluded.record"
_PUT_NOTES: Final = "INSERT INTO notes VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET notes = excluded.notes"
_DELETE_RECORD: Final = "DELETE FROM claims WHERE uid = ?"
_DELETE_NOTES: Final = "DELETE FROM notes WHERE uid = ? AND share = ?"
_CACHE_KIB: Final = 64
"""Cached pages, enough for a write. Nothing is read again, and SQLite would keep 2 MB."""
_LOG_WRITES: Final = 1000
"""Move the log into the database after so many writes, at the next sync: the log has some 10 MB then."""
_LOCKED_S: Final = 0.5
"""Wait this long for a person who has the file open for writing: every call waits meanwhile, and may be repeated."""
_Changes: TypeAlias = Mapping[Row, bytes | None]
"""The new content of rows; None: the row is deleted."""
_DAMAGED: Final = "restore the file, or drain the node, remove the partitions by the vendor's tool, then the file"
_DISK_CODES: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
"""What SQLite says, without its extended codes, when a call of the system was refused (https://sqlite.org/rescode.html)."""
_FAILING_DISK: Final = (
    "the file may be intact: check its disk, free space and permissions, then start the plugin again; only if "
    "the file is lost, restore it, or drain the node, remove the partitions by the vendor's tool, then the file"
)
_DANGLING: Final = "mount what it leads to, or remove the link if no claim was ever prepared on this node"
_WIPED: Final = (
    "restore the folder, or drain the node, remove the partitions by the vendor's tool, then these CDI files"
)
_UNSYNCED: Final = "see the kernel's log about the disk, then restart the plugin: nothing more is prepared until then"
_UNWRITABLE: Final = "free space on its disk or make it writable; nothing was changed and the call may be repeated"


_ASIDE: Final = "-aside-"
"""Between a claim's UID and a number, in UIDs of records that are set aside: no claim's own UID has it (RFC 4122)."""


def is_set_aside(uid: str) -> bool:
    """Whether the record of this UID has what a claim had before it was allocated otherwise."""
    return _ASIDE in uid


def claim_uid_of(uid: str) -> str:
    """Return the UID of the claim that has, or had, the devices of the record of this UID."""
    return uid.partition(_ASIDE)[0]


class JournalClosedError(TransientError):
    """The first note comes from a call that was given up: no release would take back what it makes."""

    def __init__(self, share: ShareId) -> None:
        super().__init__(f"the prepare of {share} was stopped before it began on the hardware")


class Checkpoint:
    """The records by claim UID. Reads come from memory; only the active instance may have it open (``handover``)."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        digest_file: DigestFile,
        *,
        sync_log: Callable[[], None],
        move_log: Callable[[], object],
    ) -> None:
        """Read all records. Raises CheckpointError when one cannot be decoded, or they are not those that were written.

        ``sync_log`` syncs SQLite's log and may raise OSError, ``move_log`` moves it into the database and may raise
        sqlite3.Error.
        """
        self._path = path
        self._connection = connection
        self._digest_file = digest_file
        self._sync_log = sync_log
        self._move_log = move_log
        self._written = self._synced = self._moved = 0
        """The number of writes, how many of them are on the disk, and how many the log had when it was moved last."""
        self._last_writes: dict[str, int] = {}
        """The number of the write that has the record, by claim UID; a record of an earlier process has none."""
        self._disk = threading.Lock()
        self._sync_error: OSError | None = None
        self._statements = threading.Lock()
        self._records: dict[str, PreparedClaim] = {}
        self._notes: defaultdict[str, dict[ShareId, DeviceNotes]] = defaultdict(dict)
        """The notes by claim UID and share."""
        self._cards: dict[str, CardRecord] = {}
        """What is known of cards, by UUID."""
        self._encoded_cards: dict[str, bytes] = {}
        """The same as records have it: to encode a card takes longer than to encode a record and to write it."""
        self._stored_cards: dict[str, CardRecords] = {}
        """What the row of each record says of its cards, by claim UID."""
        with _reading(path):
            rows = _read_rows(connection)
            for (uid, share), data in rows.items():
                if not share:
                    self._records[uid], cards = v1.decode_stored(data, f"{path}, claim {uid}")
                    self._stored_cards[uid] = cards
                    self._cards |= cards
                else:
                    notes = v1.decode_notes(data, f"{path}, claim {uid}, notes on {share}")
                    self._notes[uid][notes.share] = notes
            self._encoded_cards = {uuid: v1.encode_card(card) for uuid, card in self._cards.items()}
            self._content = ContentDigest(rows)
            digest_file.check(self._content.summary, path)

    @property
    def records(self) -> Mapping[str, PreparedClaim]:
        """A live view of all records."""
        return MappingProxyType(self._records)

    @property
    def notes(self) -> Mapping[str, Mapping[ShareId, DeviceNotes]]:
        """A live view of all notes by claim UID; a claim without notes may have an entry or none."""
        return MappingProxyType(self._notes)

    @property
    def cards(self) -> CardRecords:
        """A live view of what is known of cards, by UUID."""
        return MappingProxyType(self._cards)

    def note_cards(self, cards: CardRecords) -> None:
        """Take what is known of ``cards`` now for records to come, and store it with those that have devices of them.

        Raises CheckpointError when that cannot be written; the next call tries it again.
        """
        changed = {uuid: card for uuid, card in cards.items() if self._cards.get(uuid) != card}
        self._cards |= changed
        self._encoded_cards |= {uuid: v1.encode_card(card) for uuid, card in changed.items()}
        for uid, record in self._records.items():
            if self._stored_cards.get(uid) != self._describe_cards(record):
                self._write_record(record)

    def begin_log(self) -> None:
        """Write a page that says what it said before, so that SQLite syncs the beginning of its log now; blocks.

        Raises CheckpointError when that cannot be written.
        """
        with self._statements, _reading(self._path):
            self._connection.execute(_SET_LAYOUT)

    def get(self, uid: str) -> PreparedClaim | None:
        return self._records.get(uid)

    def put(self, record: PreparedClaim) -> None:
        """Store ``record``. Notes of another boot, and on devices that it no longer has, go away.

        Raises CheckpointError when it cannot be written; the earlier record then remains.
        """
        uid, before = record.claim.uid, self._records.get(record.claim.uid)
        gone = set() if before is None else _shares(before)
        if before is not None and before.boot_id == record.boot_id:
            gone -= _shares(record)
        gone &= self._notes.get(uid, {}).keys()
        self._write_record(record, {(uid, str(share)): None for share in gone})
        self._records[uid] = record
        for share in gone:
            self._notes[uid].pop(share, None)

    def _write_record(self, record: PreparedClaim, others: _Changes = MappingProxyType({})) -> None:
        """Write the row of ``record``, with the changes of ``others``."""
        uid, cards = record.claim.uid, self._describe_cards(record)
        self._write({(uid, ""): self._encode(record, cards), **others})
        self._last_writes[uid] = self._written
        self._stored_cards[uid] = cards

    def _describe_cards(self, record: PreparedClaim) -> CardRecords:
        return {uuid: self._cards[uuid] for device in record.devices if (uuid := device.part.card_uuid) in self._cards}

    def _encode(self, record: PreparedClaim, cards: CardRecords) -> bytes:
        return v1.encode(record, {uuid: self._encoded_cards[uuid] for uuid in cards})

    def set_aside(self, uid: str) -> PreparedClaim:
        """Give the record a UID of its own, with its notes: the claim may then have another record. Returns it.

        Raises CheckpointError when it cannot be written; the record then remains as it was.
        """
        aside = next(name for number in count(1) if (name := f"{uid}{_ASIDE}{number}") not in self._records)
        return self._rename(uid, aside)

    def take_back(self, aside: str) -> PreparedClaim:
        """Undo ``set_aside``: the claim has these devices again, and no other record. Returns the record.

        Raises CheckpointError when it cannot be written; the record then remains as it was.
        """
        return self._rename(aside, claim_uid_of(aside))

    def _rename(self, uid: str, new: str) -> PreparedClaim:
        record = self._records[uid]
        moved = replace(record, claim=record.claim._replace(uid=new))
        cards = self._describe_cards(record)
        changes: dict[Row, bytes | None] = {(new, ""): self._encode(moved, cards)}
        for share, notes in self._notes.get(uid, {}).items():
            changes[new, str(share)] = v1.encode_notes(notes)
        self._write({**changes, **self._deletion(uid)})
        self._records[new] = moved
        self._stored_cards[new] = cards
        self._notes[new] = self._notes.pop(uid, {})
        self._forget(uid)
        return moved

    def list_set_aside(self, uid: str) -> list[PreparedClaim]:
        """List the records that were set aside from that of the claim ``uid``."""
        return [record for name, record in self._records.items() if name.startswith(f"{uid}{_ASIDE}")]

    def drop(self, uid: str) -> None:
        """Remove the record with its notes, if there is one. After a power cut it may be back, for garbage collection.

        Raises CheckpointError when it cannot be removed.
        """
        self._write(self._deletion(uid))
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
        self._write({(uid, str(notes.share)): v1.encode_notes(notes)})
        self._notes[uid][notes.share] = notes

    def drop_notes(self, uid: str, share: ShareId) -> None:
        """Remove the notes, for ``DeviceJournal``; may be called in any thread. Raises CheckpointError."""
        if self.read_notes(uid, share) is not None:
            self._write({(uid, str(share)): None})
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
            if self._sync_error is None and self._written - self._moved >= _LOG_WRITES:
                self._move_all()
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

    def _move_all(self) -> None:
        self._moved = self._written
        try:
            self._move_log()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", "") == "SQLITE_IOERR_FSYNC":
                self._sync_error = OSError(str(error))
            # Otherwise the log is complete, and grows until a later call moves it.

    def _forget(self, uid: str) -> None:
        self._records.pop(uid, None)
        self._stored_cards.pop(uid, None)
        self._notes.pop(uid, None)
        self._last_writes.pop(uid, None)

    def _deletion(self, uid: str) -> _Changes:
        return {(uid, ""): None, **{(uid, str(share)): None for share in list(self._notes.get(uid, {}))}}

    def _write(self, changes: _Changes) -> None:
        """Change the rows, all or none."""
        with self._statements:
            after = self._content.preview(changes)
            try:
                self._digest_file.write(self._content.summary, after.summary)
                if len(changes) == 1:
                    self._change_rows(changes)  # by itself a transaction
                else:
                    self._change_all(changes)
            except (sqlite3.Error, OSError) as error:
                raise CheckpointError(str(self._path), f"cannot be written: {error}", _UNWRITABLE) from error
            self._content.apply(after)
            self._digest_file.finish_write(after.summary)
            self._written += 1

    def _change_all(self, changes: _Changes) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._change_rows(changes)
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:  # SQLite has ended it where the disk failed
                self._connection.execute("ROLLBACK")
            raise

    def _change_rows(self, changes: _Changes) -> None:
        for (uid, share), data in changes.items():
            key = (uid, share) if share else (uid,)
            if data is None:
                self._connection.execute(_DELETE_NOTES if share else _DELETE_RECORD, key)
            else:
                self._connection.execute(_PUT_NOTES if share else _PUT_RECORD, (*key, data))


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

    def sync_record(self) -> None:
        """Make the claim's record survive a power cut. Raises CheckpointError."""
        self._checkpoint.sync(self.uid)

    def clear(self) -> None:
        """Forget all notes: nothing of the device's prepare is on the hardware. Raises CheckpointError."""
        self._checkpoint.drop_notes(self.uid, self.share)


def _shares(record: PreparedClaim) -> set[ShareId]:
    return {device.share for device in record.devices}


@contextmanager
def open_checkpoint(
    directory: Path,
    *,
    boot_id: str,
    find_cdi_files: Callable[[], Sequence[Path]] = tuple,
    fdatasync: Callable[[int], None] = os.fdatasync,
) -> Iterator[Checkpoint]:
    """Open the checkpoint in ``directory``, made when there is none; the caller holds the instance lock.

    ``find_cdi_files`` returns the CDI files of the driver's claims, and may raise CheckpointError: while there are any,
    no checkpoint is made. Tests give ``fdatasync``. Raises CheckpointError when the files cannot be read, have lost
    what was written in this boot, or are those of another version.
    """
    path = directory / FILE_NAME
    with _reading(path):
        if path.is_symlink() and not path.exists():
            raise CheckpointError(str(path), "unreadable: it is a link that leads nowhere", _DANGLING)
        if not path.exists():
            _check_unused(path, find_cdi_files())
            _create(path, boot_id)
        if path.stat().st_size == 0:
            raise CheckpointError(str(path), "unreadable: it is empty", _DAMAGED)
        connection = _connect(path)
    with closing(connection), ExitStack() as stack:
        with _reading(path):
            _check(path, connection)
            stack.enter_context(closing(mover := _connect(path)))
            # The log exists from the first read to the last connection's end. Its descriptor may be closed, unlike one
            # of the database: SQLite has no locks on it that would go with it (fcntl_locking(2)).
            log = os.open(_log_of(path), os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(_close, log)
            digest_file = stack.enter_context(open_digest_file(directory, boot_id))
        yield Checkpoint(
            path,
            connection,
            digest_file,
            sync_log=partial(fdatasync, log),
            move_log=lambda: mover.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall(),
        )


def _close(descriptor: int) -> None:
    with suppress(OSError):  # nothing is written by it, and it is free (close(2))
        os.close(descriptor)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=_LOCKED_S, check_same_thread=False
    )


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _check_unused(path: Path, cdi_files: Sequence[Path]) -> None:
    """Check that nothing says that there was a checkpoint. Raises CheckpointError."""
    for log in (_log_of(path), path.with_name(f"{path.name}-journal")):
        if log.exists():
            raise CheckpointError(str(path), f"it is missing though its log {log.name} is there", _DAMAGED)
    if cdi_files:
        reason = f"it is missing though {len(cdi_files)} claims are prepared: there is {cdi_files[0]}"
        raise CheckpointError(str(path), reason, _WIPED)


def _create(path: Path, boot_id: str) -> None:
    """Make an empty database beside ``path`` and move it there whole, after the file that notes its content.

    Three syncs: of each file and of their folder. SQLite's own, some twenty, would protect what has no name yet.
    """
    temporary = path.with_name(f"{path.name}.new")
    for left in (temporary, _log_of(temporary)):
        left.unlink(missing_ok=True)
    connection = sqlite3.connect(temporary, isolation_level=None)
    try:
        for statement in (*_UNSYNCED_CREATION, *_TABLES, "PRAGMA journal_mode = WAL"):
            connection.execute(statement)
    finally:
        connection.close()
    temporary.chmod(0o600)
    _sync(temporary, os.O_RDWR)
    create_digest_file(path, boot_id)
    temporary.rename(path)
    _sync(path.parent, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_rows(connection: sqlite3.Connection) -> dict[Row, bytes]:
    """Read all rows, records in the order in which they were first written."""
    records: list[tuple[str, bytes]] = connection.execute("SELECT uid, record FROM claims ORDER BY rowid").fetchall()
    notes: list[tuple[str, str, bytes]] = connection.execute("SELECT uid, share, notes FROM notes").fetchall()
    rows = {(uid, ""): record for uid, record in records} | {(uid, share): data for uid, share, data in notes}
    if not all(isinstance(part, str) for row in rows for part in row) or not all(map(_is_blob, rows.values())):
        raise sqlite3.DatabaseError("a row has values of other types than were written")
    return rows


def _is_blob(value: object) -> bool:
    return isinstance(value, bytes)


def _check(path: Path, connection: sqlite3.Connection) -> None:
    def pragma(name: str) -> object:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    if pragma("application_id") != _APPLICATION_ID:
        raise CheckpointError(str(path), "unreadable: it is not a checkpoint of Kerf", _DAMAGED)
    if pragma("user_version") != _LAYOUT:
        reason = f"written by another version of Kerf (layout {pragma('user_version')}, this one knows {_LAYOUT})"
        raise CheckpointError(str(path), reason, "start that version, or drain the node and remove the file")
    tables = connection.execute("SELECT sql FROM sqlite_schema WHERE sql NOT NULL ORDER BY rowid").fetchall()
    if tables != [(statement,) for statement in _TABLES]:
        raise CheckpointError(str(path), "unreadable: its tables are not those of a checkpoint", _DAMAGED)
    if (verdict := pragma("integrity_check(1)")) != "ok":
        raise CheckpointError(str(path), f"unreadable: {' '.join(str(verdict).split())}", _DAMAGED)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # see ``Checkpoint.sync``
    connection.execute("SELECT 1 FROM claims LIMIT 1").fetchall()  # the first read makes the log
    # Where one open(2) fails, SQLite goes on without the right to write, for good: this needs the right, and no more.
    connection.execute("DELETE FROM claims WHERE FALSE")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last where SQLite quotes what is damaged
        if _is_of_the_disk(error):
            raise CheckpointError(str(path), f"cannot be opened: {error}", _FAILING_DISK) from error
        raise CheckpointError(str(path), f"unreadable: {error}", _DAMAGED) from error


def _is_of_the_disk(error: Exception) -> bool:
    """Whether the system has refused a call, which says nothing about the file's content."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK_CODES
    return isinstance(error, OSError)
