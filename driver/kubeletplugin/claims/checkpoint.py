"""The checkpoint: the claims that this node has prepared or begun to prepare, durable across crashes and power loss.

It is a SQLite database with one row for each claim (``api.checkpoint``). Every write survives the process; ``sync``
makes the writes before it survive the machine. Only the record *started* must: records of an earlier boot count as
*started* whatever they say (``transitions``), so later records may reach the disk with the next claim's. The file
appears complete or not at all, so an empty, foreign or damaged one is never taken for "nothing prepared": the plugin
refuses to start and says what to do.

SQLite writes its log and does not sync it (``synchronous=NORMAL``, https://www.sqlite.org/wal.html). The sync that
``synchronous=FULL`` would add after each write is made here: one for all claims that wait, while others go on.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio
import anyio.to_thread

from api.checkpoint import v1
from api.checkpoint.v1 import CheckpointError
from api.model.prepared import PreparedClaim

FILE_NAME: Final = "checkpoint.db"

_APPLICATION_ID: Final = 0x6B657266
"""``kerf`` in ASCII, in the header of the file: distinguishes it from any other SQLite database."""
_LAYOUT: Final = 1
"""Version of the tables (``PRAGMA user_version``); records have a schema version of their own."""
_CACHE_KIB: Final = 64
"""Cached pages, enough for a write. Nothing is read again, and SQLite would keep 2 MB."""
_LOCKED_S: Final = 0.5
"""Wait this long for a person who has the file open for writing: every call waits meanwhile, and may be repeated."""
_DAMAGED: Final = "restore the file, or drain the node, remove the partitions by the vendor's tool, then the file"
_UNSYNCED: Final = "see the kernel's log about the disk, then restart the plugin: nothing more is prepared until then"
_UNWRITABLE: Final = "free space on its disk or make it writable; nothing was changed and the call may be repeated"


class Checkpoint:
    """The records by claim UID. Reads come from memory; only the active instance may have it open (``handover``)."""

    def __init__(self, path: Path, connection: sqlite3.Connection, *, sync_log: Callable[[], None]) -> None:
        """Read all records. Raises CheckpointError when one cannot be decoded.

        ``sync_log`` syncs SQLite's log; it runs in a thread and may raise OSError.
        """
        self._path = path
        self._connection = connection
        self._sync_log = sync_log
        self._written = self._synced = 0
        """The number of writes, and how many of them are on the disk."""
        self._disk = anyio.Lock(fast_acquire=True)
        self._sync_error: OSError | None = None
        self._records: dict[str, PreparedClaim] = {}
        with _reading(path):
            rows: list[tuple[str, bytes]] = connection.execute(
                "SELECT uid, record FROM claims ORDER BY rowid"
            ).fetchall()
        for uid, record in rows:
            self._records[uid] = v1.decode(record, f"{path}, claim {uid}")

    @property
    def records(self) -> Mapping[str, PreparedClaim]:
        """A live view of all records."""
        return MappingProxyType(self._records)

    def get(self, uid: str) -> PreparedClaim | None:
        return self._records.get(uid)

    def put(self, record: PreparedClaim) -> None:
        """Store ``record``. Raises CheckpointError when it cannot be written; the earlier record then remains."""
        uid = record.claim.uid
        self._write(
            "INSERT INTO claims (uid, record) VALUES (?, ?) ON CONFLICT (uid) DO UPDATE SET record = excluded.record",
            (uid, v1.encode(record)),
        )
        self._records[uid] = record

    def drop(self, uid: str) -> None:
        """Remove the record, if there is one. After a power cut it may be back, for garbage collection to find.

        Raises CheckpointError when it cannot be removed.
        """
        self._write("DELETE FROM claims WHERE uid = ?", (uid,))
        self._records.pop(uid, None)

    async def sync(self) -> None:
        """Make all earlier writes survive a power cut. Calls that wait at the same time share one sync.

        Raises CheckpointError when a sync fails, and from then on always: after a failed sync the kernel counts what it
        could not write as written (fsync(2)), so that a later success would mean nothing.
        """
        before = self._written
        async with self._disk:
            if self._synced >= before:
                return
            if self._sync_error is None:
                await self._sync_all()
            if self._sync_error is not None:
                reason = f"cannot be synced: {self._sync_error}"
                raise CheckpointError(str(self._path), reason, _UNSYNCED) from self._sync_error

    async def _sync_all(self) -> None:
        written = self._written
        try:
            await anyio.to_thread.run_sync(self._sync_log)
        except OSError as error:
            self._sync_error = error
        else:
            self._synced = written

    def _write(self, statement: str, parameters: tuple[object, ...]) -> None:
        try:
            self._connection.execute(statement, parameters)
        except sqlite3.Error as error:
            raise CheckpointError(str(self._path), f"cannot be written: {error}", _UNWRITABLE) from error
        self._written += 1


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
        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=_LOCKED_S)
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
        connection.execute("CREATE TABLE claims (uid TEXT PRIMARY KEY, record BLOB NOT NULL)")
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
