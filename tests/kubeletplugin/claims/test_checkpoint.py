"""The checkpoint: durable, one process at a time, and never silently empty."""

import errno
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from api.checkpoint.v1 import CheckpointError
from driver.kubeletplugin.claims.checkpoint import FILE_NAME, open_checkpoint
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.records import record


def test_a_new_checkpoint_is_empty(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path) as checkpoint:
        assert dict(checkpoint.records) == {}


def test_records_are_there_after_opening_again(tmp_path: Path) -> None:
    one, other = record("one"), record("other")
    with open_checkpoint(tmp_path) as checkpoint:
        checkpoint.put(one)
        checkpoint.put(other)
        checkpoint.put(one)
        checkpoint.drop(other.claim.uid)
        checkpoint.drop("never there")
        assert checkpoint.get(other.claim.uid) is None
    with open_checkpoint(tmp_path) as checkpoint:
        assert dict(checkpoint.records) == {one.claim.uid: one}
        assert checkpoint.get(one.claim.uid) == one


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path):
        assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_a_file_left_by_an_interrupted_first_start_does_not_count(tmp_path: Path) -> None:
    (tmp_path / f"{FILE_NAME}.new").write_bytes(b"half a database")
    with open_checkpoint(tmp_path) as checkpoint:
        assert not checkpoint.records


def _truncate(path: Path) -> None:
    path.write_bytes(b"")


def _overwrite_header(path: Path) -> None:
    path.write_bytes(b"x" * 4096)


def _overwrite_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)


def _damage_record(path: Path) -> None:
    _change(path, "UPDATE claims SET record = CAST(replace(CAST(record AS TEXT), 'Prepared', 'Started') AS BLOB)")


def _damage_where_no_record_is(path: Path) -> None:
    """The list of free pages: reading succeeds, a later write would not."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executemany("INSERT INTO claims VALUES (?, ?)", [(str(n), bytes(4096)) for n in range(20)])
    connection.execute("DELETE FROM claims WHERE length(record) = 4096")
    connection.close()
    content = bytearray(path.read_bytes())
    first_free = int.from_bytes(content[32:36], "big")  # https://www.sqlite.org/fileformat2.html#the_freelist
    content[4096 * (first_free - 1) + 4 : 4096 * (first_free - 1) + 8] = b"\x00\x00\xff\xff"
    path.write_bytes(content)


def _replace_by_foreign_database(path: Path) -> None:
    path.unlink()
    _change(path, "CREATE TABLE claims (uid TEXT, record BLOB)")


def _change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _overwrite_header,
        _overwrite_middle,
        _damage_record,
        _damage_where_no_record_is,
        _replace_by_foreign_database,
    ],
)
def test_a_damaged_checkpoint_is_refused_with_its_path_and_the_remedy(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    with open_checkpoint(tmp_path) as checkpoint:
        checkpoint.put(record())
    damage(tmp_path / FILE_NAME)
    with (
        pytest.raises(CheckpointError, match=r"unreadable: .*; restore the file, or drain the node") as raised,
        open_checkpoint(tmp_path),
    ):
        pass
    assert str(raised.value).startswith(str(tmp_path / FILE_NAME))


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path) as checkpoint:
        checkpoint.put(record("one"))
    _damage_record(tmp_path / FILE_NAME)
    with (
        pytest.raises(CheckpointError, match=r"claim uid-of-one: unreadable: the checksum does not match"),
        open_checkpoint(tmp_path),
    ):
        pass


def test_a_checkpoint_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path):
        pass
    _change(tmp_path / FILE_NAME, "PRAGMA user_version = 2")
    with (
        pytest.raises(CheckpointError, match=r"another version of Kerf .layout 2, this one knows 1"),
        open_checkpoint(tmp_path),
    ):
        pass


def test_a_missing_file_beside_its_log_is_not_taken_for_a_first_start(tmp_path: Path) -> None:
    (tmp_path / f"{FILE_NAME}-wal").write_bytes(b"log")
    with (
        pytest.raises(CheckpointError, match=r"it is missing though its log checkpoint.db-wal is there"),
        open_checkpoint(tmp_path),
    ):
        pass


class Disk:
    """Counts syncs of the log, keeps what each of them made last, and waits at its gate."""

    def __init__(self, directory: Path, error: OSError | None = None) -> None:
        self.error = error
        self.syncs = 0
        self.reached = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self._directory = directory

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        self.reached.set()
        self.gate.wait(LONGEST_S)
        if self.error is not None:
            raise self.error
        log = self._directory / f"{FILE_NAME}-wal"
        assert os.fstat(descriptor).st_ino == log.stat().st_ino, "the log that SQLite writes"
        lasting = self._directory / "after-power-cut"
        lasting.mkdir(exist_ok=True)
        for path in (self._directory / FILE_NAME, log):
            shutil.copy(path, lasting)

    def after_power_cut(self) -> set[str]:
        """The claims that are known then."""
        with open_checkpoint(self._directory / "after-power-cut") as checkpoint:
            return set(checkpoint.records)


async def test_what_was_written_before_a_sync_survives_a_power_cut(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with open_checkpoint(tmp_path, fdatasync=disk.sync) as checkpoint:
        checkpoint.put(record("one"))
        checkpoint.put(record("other"))
        checkpoint.drop("uid-of-other")
        await checkpoint.sync()
        assert disk.after_power_cut() == {"uid-of-one"}
        checkpoint.put(record("late"))
        assert disk.after_power_cut() == {"uid-of-one"}
        checkpoint._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # as SQLite does by itself, now and then
        checkpoint.put(record("last"))
        await checkpoint.sync()
        assert disk.after_power_cut() == {"uid-of-one", "uid-of-late", "uid-of-last"}


async def test_a_sync_with_nothing_new_leaves_the_disk_alone(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with open_checkpoint(tmp_path, fdatasync=disk.sync) as checkpoint:
        await checkpoint.sync()
        assert disk.syncs == 0
        checkpoint.put(record())
        await checkpoint.sync()
        await checkpoint.sync()
        assert disk.syncs == 1


async def test_claims_that_come_while_the_disk_is_busy_share_the_next_sync(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.gate.clear()
    with open_checkpoint(tmp_path, fdatasync=disk.sync) as checkpoint:
        async with anyio.create_task_group() as group:
            checkpoint.put(record("first"))
            group.start_soon(checkpoint.sync)
            await anyio.to_thread.run_sync(disk.reached.wait, LONGEST_S)
            for number in range(31):
                checkpoint.put(record(f"claim-{number}"))
                group.start_soon(checkpoint.sync)
            await anyio.wait_all_tasks_blocked()
            disk.gate.set()
        assert disk.syncs == 2
        assert len(disk.after_power_cut()) == 32


async def test_after_a_failed_sync_nothing_is_called_lasting_any_more_until_the_checkpoint_is_opened_again(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path, OSError(errno.EIO, "Input/output error"))
    with open_checkpoint(tmp_path, fdatasync=disk.sync) as checkpoint:
        checkpoint.put(record("one"))
        with pytest.raises(CheckpointError, match=r"cannot be synced: .* Input/output error; see the kernel's log"):
            await checkpoint.sync()
        disk.error = None
        checkpoint.put(record("two"))
        with pytest.raises(CheckpointError, match="then restart the plugin"):
            await checkpoint.sync()
        assert disk.syncs == 1
    with open_checkpoint(tmp_path, fdatasync=disk.sync) as checkpoint:
        assert set(checkpoint.records) == {"uid-of-one", "uid-of-two"}
        checkpoint.put(record("three"))
        await checkpoint.sync()


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    before = record("one")
    with open_checkpoint(tmp_path) as checkpoint:
        checkpoint.put(before)
        locked = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
        locked.execute("BEGIN IMMEDIATE")
        checkpoint._connection.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(CheckpointError, match="cannot be written: database is locked; free space"):
            checkpoint.put(record("two"))
        with pytest.raises(CheckpointError, match="cannot be written"):
            checkpoint.drop(before.claim.uid)
        locked.close()
        assert dict(checkpoint.records) == {before.claim.uid: before}
        checkpoint.put(record("two"))
    with open_checkpoint(tmp_path) as checkpoint:
        assert set(checkpoint.records) == {"uid-of-one", "uid-of-two"}
