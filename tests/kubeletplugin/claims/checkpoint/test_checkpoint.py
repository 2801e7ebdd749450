"""The checkpoint: durable, one process at a time, and never silently empty."""

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from kerf_dra.api.checkpoint.v1 import CheckpointError
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.driver.kubeletplugin.claims.checkpoint import checkpoint_digest
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import (
    _LOG_WRITES,
    FILE_NAME,
    Checkpoint,
    open_checkpoint,
)
from tests.fakes.nvml import NEEDS_COMPILER
from tests.fakes.system_calls import build_library
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.records import BOOT, device, record


def test_a_new_checkpoint_is_empty(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert dict(checkpoint.records) == {}


def test_records_are_there_after_opening_again(tmp_path: Path) -> None:
    one, other = record("one"), record("other")
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(one)
        checkpoint.put(other)
        checkpoint.put(one)
        checkpoint.drop(other.claim.uid)
        checkpoint.drop("never there")
        assert checkpoint.get(other.claim.uid) is None
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert dict(checkpoint.records) == {one.claim.uid: one}
        assert checkpoint.get(one.claim.uid) == one


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT):
        assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_a_file_left_by_an_interrupted_first_start_does_not_count(tmp_path: Path) -> None:
    (tmp_path / f"{FILE_NAME}.new").write_bytes(b"half a database")
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
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
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record())
    damage(tmp_path / FILE_NAME)
    with (
        pytest.raises(CheckpointError, match=r"unreadable: .*; restore the file, or drain the node") as raised,
        open_checkpoint(tmp_path, boot_id=BOOT),
    ):
        pass
    assert str(raised.value).startswith(str(tmp_path / FILE_NAME))


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record("one"))
    _damage_record(tmp_path / FILE_NAME)
    with (
        pytest.raises(CheckpointError, match=r"claim uid-of-one: unreadable: the checksum does not match"),
        open_checkpoint(tmp_path, boot_id=BOOT),
    ):
        pass


def test_a_checkpoint_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT):
        pass
    _change(tmp_path / FILE_NAME, "PRAGMA user_version = 4")
    with (
        pytest.raises(CheckpointError, match=r"another version of Kerf .layout 4, this one knows 3.; start that"),
        open_checkpoint(tmp_path, boot_id=BOOT),
    ):
        pass


NOTED = {"before": ["gi-1"], "instance": 9}


def test_notes_are_there_after_opening_again_and_go_with_their_record(tmp_path: Path) -> None:
    one, other = record("one"), record("other")
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        for held in (one, other):
            checkpoint.put(held)
            journal = checkpoint.journal(held.claim.uid, device().share, BOOT)
            journal.write(before=["gi-1"], instance=8)
            journal.write(instance=9)
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert notes_of(checkpoint, one) == notes_of(checkpoint, other) == NOTED
        checkpoint.drop(one.claim.uid)
        assert notes_of(checkpoint, one) == {}
        checkpoint.journal(other.claim.uid, device().share, BOOT).clear()
        assert notes_of(checkpoint, other) == {}
        checkpoint.put(one)
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert notes_of(checkpoint, one) == notes_of(checkpoint, other) == {}


def notes_of(checkpoint: Checkpoint, held: PreparedClaim, boot_id: str = BOOT) -> object:
    return checkpoint.journal(held.claim.uid, device().share, boot_id).notes


@pytest.mark.parametrize(
    ("again", "kept"),
    [
        (record(state=ClaimState.RELEASING), True),
        (record(state=ClaimState.STARTED), True),
        (record(state=ClaimState.STARTED, boot_id="boot-2"), False),
        (record("training", device("gpu-1", card="GPU-1"), state=ClaimState.STARTED), False),
        (record("training", device(), device("gpu-1", card="GPU-1"), state=ClaimState.STARTED), True),
    ],
    ids=["releasing", "started again", "another boot", "another device", "one more device"],
)
def test_notes_stay_with_the_same_devices_in_the_same_boot(again: PreparedClaim, kept: bool, tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record())
        checkpoint.journal(again.claim.uid, device().share, BOOT).write(before=[])
        checkpoint.put(again)
        assert notes_of(checkpoint, again) == ({"before": []} if kept else {})
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert notes_of(checkpoint, again) == ({"before": []} if kept else {})
        listed = {uid: [dict(one.notes) for one in each.values()] for uid, each in checkpoint.notes.items() if each}
        assert listed == ({again.claim.uid: [{"before": []}]} if kept else {})


def test_notes_of_another_boot_are_void_and_give_way(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record())
        checkpoint.journal(record().claim.uid, device().share, BOOT).write(before=["gi-1"])
        assert notes_of(checkpoint, record(), "boot-2") == {}
        checkpoint.journal(record().claim.uid, device().share, "boot-2").write(instance=1)
        assert notes_of(checkpoint, record(), "boot-2") == {"instance": 1}
        assert notes_of(checkpoint, record()) == {}


def test_a_device_has_the_journals_of_all_claims_that_share_it(tmp_path: Path) -> None:
    shares = {name: device(share=name) for name in ("one", "two", "three")}
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        for name, share in shares.items():
            checkpoint.put(record(name, share))
        for name, boot_id in (("one", BOOT), ("two", "boot-0")):
            checkpoint.journal(record(name).claim.uid, shares[name].share, boot_id).write(before=[])
        [found] = checkpoint.journals_of(device().share.id, BOOT)
        assert (found.uid, found.share.share, dict(found.notes)) == ("uid-of-one", "one", {"before": []})


def test_nothing_is_noted_for_a_claim_without_a_record(tmp_path: Path) -> None:
    """A call that was given up may come to its note when the claim is long gone."""
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        with pytest.raises(CheckpointError, match="claim uid-of-gone has no record for notes"):
            checkpoint.journal("uid-of-gone", device().share, BOOT).write(before=[])
        assert checkpoint.journals_of(device().share.id, BOOT) == []


def test_what_the_system_refuses_does_not_pass_for_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    with (
        pytest.raises(CheckpointError, match="cannot be opened: unable to open database file; the file may be intact"),
        open_checkpoint(tmp_path, boot_id=BOOT),
    ):
        pass


def test_rows_that_cannot_be_read_are_refused_with_the_file_that_has_them(tmp_path: Path) -> None:
    """The check before may still have passed."""
    path = tmp_path / FILE_NAME
    with (
        open_checkpoint(tmp_path, boot_id=BOOT) as opened,
        closing(sqlite3.connect(":memory:")) as empty,
        pytest.raises(CheckpointError, match=f"{FILE_NAME}.*unreadable: no such table"),
    ):
        Checkpoint(path, empty, opened._digest_file, sync_log=lambda: None, move_log=lambda: None)


def test_all_notes_of_a_claim_go_with_its_record_and_those_of_others_stay(tmp_path: Path) -> None:
    """The next claim with the same UID, or the next start, finds notes without a record otherwise."""
    devices = device(), device("gpu-1-1g-1gb-at-0", card="GPU-1")
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        for each in (record("gone", *devices), record("stays", *devices)):
            checkpoint.put(each)
            for held in devices:
                checkpoint.journal(each.claim.uid, held.share, BOOT).write(before=[])
        checkpoint.drop("uid-of-gone")
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert set(checkpoint.records) == {"uid-of-stays"}
        found = [journal.uid for held in devices for journal in checkpoint.journals_of(held.share.id, BOOT)]
        assert found == ["uid-of-stays"] * 2
        checkpoint.put(record("gone", *devices))
        assert [len(checkpoint.journals_of(held.share.id, BOOT)) for held in devices] == [1, 1]


def test_damaged_notes_are_refused_like_damaged_records(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record())
        checkpoint.journal(record().claim.uid, device().share, BOOT).write(before=[])
    _change(tmp_path / FILE_NAME, "UPDATE notes SET notes = CAST(replace(CAST(notes AS TEXT), '[]', '[1]') AS BLOB)")
    with (
        pytest.raises(CheckpointError, match=r"claim uid-of-training, notes on .*gpu-0-1g-1gb-at-0: unreadable: the"),
        open_checkpoint(tmp_path, boot_id=BOOT),
    ):
        pass


def test_a_record_and_its_notes_change_together_or_not_at_all(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record())
        checkpoint.journal(record().claim.uid, device().share, BOOT).write(before=[])
        checkpoint._connection.execute("PRAGMA query_only = 1")
        with pytest.raises(CheckpointError, match="cannot be written"):
            checkpoint.put(record(boot_id="boot-2"))
        checkpoint._connection.execute("PRAGMA query_only = 0")
        assert notes_of(checkpoint, record()) == {"before": []}
        checkpoint.put(record("another"))
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert checkpoint.get(record().claim.uid) == record()
        assert notes_of(checkpoint, record()) == {"before": []}


def test_a_change_of_which_a_part_fails_is_rolled_back_and_the_next_one_is_made(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record())
        checkpoint.journal(record().claim.uid, device().share, BOOT).write(before=[])
        checkpoint._connection.execute(
            "CREATE TEMP TRIGGER t BEFORE DELETE ON notes BEGIN SELECT RAISE(ABORT, 'x'); END"
        )
        with pytest.raises(CheckpointError, match="cannot be written: x"):
            checkpoint.drop(record().claim.uid)
        assert checkpoint.get(record().claim.uid) == record()
        checkpoint._connection.execute("DROP TRIGGER t")
        checkpoint.drop(record().claim.uid)
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert not checkpoint.records


def test_a_checkpoint_that_is_closed_leaves_no_file_open(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record())
    open_files = {link.resolve() for link in Path("/proc/self/fd").iterdir()}
    assert not [path for path in open_files if path.is_relative_to(tmp_path)]


async def test_notes_are_written_by_threads_while_records_are_written(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        for number in range(8):
            checkpoint.put(record(f"claim-{number}"))

        def note(number: int) -> None:
            for value in range(50):
                checkpoint.journal(f"uid-of-claim-{number}", device().share, BOOT).write(value=value)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(anyio.to_thread.run_sync, note, number)
            for number in range(50):
                checkpoint.put(record("more", boot_id=f"boot-{number}"))
                await anyio.lowlevel.checkpoint()
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert [notes_of(checkpoint, record(f"claim-{number}")) for number in range(8)] == [{"value": 49}] * 8


def test_a_missing_file_beside_its_log_is_not_taken_for_a_first_start(tmp_path: Path) -> None:
    (tmp_path / f"{FILE_NAME}-wal").write_bytes(b"log")
    with (
        pytest.raises(CheckpointError, match=r"it is missing though its log checkpoint.db-wal is there"),
        open_checkpoint(tmp_path, boot_id=BOOT),
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
        for path in (self._directory / FILE_NAME, log, self._directory / checkpoint_digest.FILE_NAME):
            shutil.copy(path, lasting)

    def after_power_cut(self) -> set[str]:
        """The claims that are known then."""
        with open_checkpoint(self._directory / "after-power-cut", boot_id="boot-2") as checkpoint:
            return set(checkpoint.records)


def test_a_new_checkpoint_is_in_its_folder_after_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first claims of a node could be synced into a file that has no name then."""
    synced: list[tuple[str, set[str]]] = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(_state_of(descriptor, tmp_path)))
    with open_checkpoint(tmp_path, boot_id=BOOT):
        pass
    new, made = f"{FILE_NAME}.new", {FILE_NAME, checkpoint_digest.FILE_NAME}
    (database, beside), (digest, _), (folder, there) = synced
    assert (database, beside) == (str(tmp_path / new), {new}), "the whole database: no log has a part of it"
    assert digest == str(tmp_path / f"{checkpoint_digest.FILE_NAME}.new"), "its content, before it gets its name"
    assert (folder, there) == (str(tmp_path), made), "both names"


def _state_of(descriptor: int, folder: Path) -> tuple[str, set[str]]:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink()), {path.name for path in folder.iterdir()}


def test_sqlite_syncs_its_log_before_it_moves_it_into_the_database(tmp_path: Path) -> None:
    """The syncs of the checkpoint are those of the log alone: where SQLite syncs nothing, a database whose pages reach
    the disk in another order is damaged by a power cut (https://www.sqlite.org/pragma.html#pragma_synchronous)."""
    normal = (1,)
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert checkpoint._connection.execute("PRAGMA synchronous").fetchone() == normal
        assert checkpoint._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_what_was_written_before_a_sync_survives_a_power_cut(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with open_checkpoint(tmp_path, boot_id=BOOT, fdatasync=disk.sync) as checkpoint:
        checkpoint.put(record("one"))
        checkpoint.put(record("other"))
        checkpoint.drop("uid-of-other")
        checkpoint.sync("uid-of-one")
        assert disk.after_power_cut() == {"uid-of-one"}
        checkpoint.put(record("late"))
        assert disk.after_power_cut() == {"uid-of-one"}
        checkpoint._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # as SQLite does by itself, now and then
        checkpoint.put(record("last"))
        checkpoint.sync("uid-of-last")
        assert disk.after_power_cut() == {"uid-of-one", "uid-of-late", "uid-of-last"}


def test_the_thread_that_syncs_moves_the_log_into_the_database_and_no_write_does(tmp_path: Path) -> None:
    """SQLite did it within every 400th write, in the event loop, which waited for three syncs."""
    database, log = tmp_path / FILE_NAME, tmp_path / f"{FILE_NAME}-wal"
    disk, sizes = Disk(tmp_path), list[int]()
    with open_checkpoint(tmp_path, boot_id=BOOT, fdatasync=disk.sync) as checkpoint:
        for turn in range(3):
            before = database.read_bytes()
            for number in range(_LOG_WRITES // 2 + 1):
                checkpoint.put(record(f"claim-{number}"))
                checkpoint.drop(f"uid-of-claim-{number}")
            assert database.read_bytes() == before
            checkpoint.put(record(f"kept-{turn}"))
            checkpoint.sync(f"uid-of-kept-{turn}")
            assert database.read_bytes() != before
            assert len(disk.after_power_cut()) == turn + 1
            sizes.append(log.stat().st_size)
        checkpoint.put(record("last"))
    assert max(sizes) < 2 * sizes[0], "the log begins anew"
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert len(checkpoint.records) == 4


def test_a_log_that_cannot_be_moved_grows_and_one_that_cannot_be_synced_lasts_no_longer(tmp_path: Path) -> None:
    errors = [sqlite3.OperationalError("disk full"), sqlite3.OperationalError("disk I/O error")]
    errors[0].sqlite_errorname, errors[1].sqlite_errorname = "SQLITE_FULL", "SQLITE_IOERR_FSYNC"

    def fail() -> None:
        raise errors.pop(0)

    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint._move_log = fail
        for _ in range(_LOG_WRITES):
            checkpoint.put(record())
        checkpoint.sync("uid-of-training")
        for _ in range(_LOG_WRITES):
            checkpoint.put(record())
        with pytest.raises(CheckpointError, match="cannot be synced: disk I/O error"):
            checkpoint.sync("uid-of-training")
        assert errors == []


def test_a_sync_of_what_an_earlier_one_has_leaves_the_disk_alone(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with open_checkpoint(tmp_path, boot_id=BOOT, fdatasync=disk.sync) as checkpoint:
        checkpoint.sync("uid-of-nobody")
        assert disk.syncs == 0
        checkpoint.put(record("one"))
        checkpoint.put(record("other"))
        checkpoint.sync("uid-of-other")
        checkpoint.put(record("late"))
        checkpoint.sync("uid-of-one")
        assert disk.syncs == 1
        checkpoint.put(record("one", state=ClaimState.RELEASING))
        checkpoint.sync("uid-of-one")
        assert disk.syncs == 2


async def test_claims_that_come_while_the_disk_is_busy_share_the_next_sync(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.gate.clear()
    with open_checkpoint(tmp_path, boot_id=BOOT, fdatasync=disk.sync) as checkpoint:
        async with anyio.create_task_group() as group:
            checkpoint.put(record("first"))
            group.start_soon(anyio.to_thread.run_sync, checkpoint.sync, "uid-of-first")
            await anyio.to_thread.run_sync(disk.reached.wait, LONGEST_S)
            for number in range(31):
                checkpoint.put(record(f"claim-{number}"))
                group.start_soon(anyio.to_thread.run_sync, checkpoint.sync, f"uid-of-claim-{number}")
            disk.gate.set()
        assert disk.syncs == 2
        assert len(disk.after_power_cut()) == 32


def test_after_a_failed_sync_nothing_is_called_lasting_any_more_until_the_checkpoint_is_opened_again(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path, OSError(errno.EIO, "Input/output error"))
    with open_checkpoint(tmp_path, boot_id=BOOT, fdatasync=disk.sync) as checkpoint:
        checkpoint.put(record("one"))
        with pytest.raises(CheckpointError, match=r"cannot be synced: .* Input/output error; see the kernel's log"):
            checkpoint.sync("uid-of-one")
        disk.error = None
        checkpoint.put(record("two"))
        with pytest.raises(CheckpointError, match="then restart the plugin"):
            checkpoint.sync("uid-of-two")
        assert disk.syncs == 1
    with open_checkpoint(tmp_path, boot_id=BOOT, fdatasync=disk.sync) as checkpoint:
        assert set(checkpoint.records) == {"uid-of-one", "uid-of-two"}
        checkpoint.put(record("three"))
        checkpoint.sync("uid-of-three")


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    before = record("one")
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
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
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert set(checkpoint.records) == {"uid-of-one", "uid-of-two"}


def test_a_record_that_is_set_aside_keeps_its_notes_under_a_uid_of_its_own(tmp_path: Path) -> None:
    first = record()
    uid = first.claim.uid
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        for _ in range(2):
            checkpoint.put(first)
            checkpoint.journal(uid, device().share, BOOT).write(before=["gi-1"])
            checkpoint.set_aside(uid)
        assert checkpoint.get(uid) is None
        assert notes_of(checkpoint, first) == {}
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert sorted(checkpoint.records) == [f"{uid}-aside-1", f"{uid}-aside-2"]
        for name, kept in checkpoint.records.items():
            assert (kept.claim.uid, kept.devices) == (name, first.devices)
            assert notes_of(checkpoint, kept) == {"before": ["gi-1"]}
        assert checkpoint.take_back(f"{uid}-aside-1") == first
        assert notes_of(checkpoint, first) == {"before": ["gi-1"]}
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert sorted(checkpoint.records) == [uid, f"{uid}-aside-2"]
        assert checkpoint.get(uid) == first


@NEEDS_COMPILER
def test_a_checkpoint_of_which_one_call_failed_is_opened_to_be_written_or_refused_with_a_reason(tmp_path: Path) -> None:
    """EIO at the open of the database let SQLite open it to be read only: it started, and every prepare failed after.

    At other calls the message asked to drain the node and to remove the file, which was whole.
    """
    command = [sys.executable, "-m", "tests.kubeletplugin.claims.checkpoint.checkpoint_process", str(tmp_path)]
    environment = {**os.environ, "LD_PRELOAD": str(build_library())}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True, env=environment)
    messages = [(call, message) for call, message in map(json.loads, done.stdout.splitlines()) if message]
    assert len(messages) > 20
    assert [call for call, message in messages if "cannot be written" in message] == []
    reads = [call.partition(" ")[0] for call, message in messages if "cannot be opened" not in message]
    assert {*reads} <= {"pread64", "pread"}, "what cannot be read is damage to SQLite"
