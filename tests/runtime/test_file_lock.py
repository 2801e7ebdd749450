"""Locks between processes, on files and on directories."""

import fcntl
import os
from pathlib import Path

import pytest

from kerf_dra.driver.runtime.file_lock import FileLock, acquire, is_held, try_acquire


@pytest.fixture(params=["file", "directory"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The path of the lock: a file that does not exist yet, or a directory that does."""
    return tmp_path / "lock" if request.param == "file" else tmp_path


def test_a_lock_is_held_by_one_until_its_context_ends(path: Path) -> None:
    with acquire(path):
        assert is_held(path)
        assert try_acquire(path) is None
    assert not is_held(path)
    with acquire(path):
        pass


def test_a_look_of_another_process_is_no_holder(path: Path) -> None:
    """A look takes the lock shared, for a moment: an instance that looked then would have ended for no request."""
    with acquire(path):
        pass
    flags = os.O_RDONLY | os.O_DIRECTORY if path.is_dir() else os.O_RDWR
    looking = os.open(path, flags)
    try:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not is_held(path)
        assert try_acquire(path) is None
    finally:
        os.close(looking)


def test_a_lock_that_is_released_twice_frees_nobody_elses(path: Path) -> None:
    first = acquire(path)
    first.release()
    with acquire(path):
        first.release()
        assert is_held(path)


def test_the_content_of_a_locked_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("a longer text")
    with acquire(path) as lock:
        lock.write("short")
        assert path.read_text() == "short"


def test_a_lock_that_cannot_be_made_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        try_acquire(tmp_path / "missing/lock")


def test_a_lock_whose_file_cannot_be_closed_is_let_go_without_an_error(tmp_path: Path) -> None:
    """EIO at this close(2), of a disk that had failed, ended a plugin that stopped as an error of the program."""
    descriptor = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    os.close(descriptor)
    FileLock(descriptor).release()
