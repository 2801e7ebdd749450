"""Copies of a checkpoint: whole, also beside a plugin that writes, and without a change of the original."""

import os
import threading
from pathlib import Path

import pytest

from kerf_dra.api.checkpoint.v1 import CheckpointError
from kerf_dra.driver.kubeletplugin.checkpoint_copy import copy_checkpoint, has_checkpoint, open_copy
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import FILE_NAME, open_checkpoint
from tests.kubeletplugin.records import BOOT, device, record


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_copy_has_what_is_still_in_the_log_and_the_original_stays_as_it_is(tmp_path: Path) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    state.mkdir()
    copy.mkdir()
    with open_checkpoint(state, boot_id=BOOT) as checkpoint:
        checkpoint.put(record("one"))
        checkpoint.journal(record("one").claim.uid, device().share, BOOT).write(before=["gi-1"])
        before = contents(state)
        assert record("one").claim.uid.encode() not in before[FILE_NAME]  # it is in the log only
        copy_checkpoint(state, copy, boot_id=BOOT)
        assert contents(state) == before
    assert sorted(path.name for path in copy.iterdir()) == [FILE_NAME, "checkpoint.digest"]
    with open_checkpoint(copy, boot_id=BOOT) as copied:
        assert list(copied.records.values()) == [record("one")]
        assert [notes.notes for notes in copied.notes[record("one").claim.uid].values()] == [{"before": ["gi-1"]}]


def test_a_copy_made_beside_a_plugin_that_writes_is_whole(tmp_path: Path) -> None:
    """Each claim is recorded after the one before it was dropped: a copy has one or none, and never something else."""
    done = threading.Event()
    records = [record(f"claim-{number}") for number in range(10)]

    def write() -> None:
        with open_checkpoint(tmp_path, boot_id=BOOT, fdatasync=lambda _: None) as checkpoint:
            ready.set()
            while not done.is_set():
                for one in records:
                    checkpoint.put(one)
                    checkpoint.sync(one.claim.uid)  # which moves the log into the database now and then
                    checkpoint.drop(one.claim.uid)

    ready = threading.Event()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert ready.wait(120)
        for _ in range(20):
            with open_copy(tmp_path, boot_id=BOOT) as checkpoint:
                assert len(checkpoint.records) <= 1
    finally:
        done.set()
        writer.join()


def test_what_the_plugin_could_not_open_is_an_error_that_names_the_original(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record("one"))
    (tmp_path / FILE_NAME).write_bytes(b"x" * 4096)
    with pytest.raises(CheckpointError, match="not a database") as raised, open_copy(tmp_path, boot_id=BOOT):
        pass
    assert str(raised.value).startswith(f"{tmp_path}/{FILE_NAME}: ")


def test_a_log_that_was_deleted_is_noticed_by_the_digest(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record("one"))
        (tmp_path / f"{FILE_NAME}-wal").rename(tmp_path / "elsewhere")
        with (
            pytest.raises(CheckpointError, match="it has 0 claims, and 1 were written"),
            open_copy(tmp_path, boot_id=BOOT),
        ):
            pass


def test_a_folder_without_checkpoint_has_nothing_to_copy(tmp_path: Path) -> None:
    assert not has_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="there is none"), open_copy(tmp_path, boot_id=BOOT):
        pass
    assert list(tmp_path.iterdir()) == []


def test_something_else_under_the_files_name_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE_NAME)
    with pytest.raises(CheckpointError, match="it is not a file"), open_copy(tmp_path, boot_id=BOOT):
        pass
