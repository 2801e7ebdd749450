"""The reader of files that people name: what it reads, and what it refuses without waiting or filling memory."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kerf_dra.driver.runtime.documents.input_file import (
    UnreadableFileError,
    describe_read_error,
    read_file,
    read_regular_file,
    read_standard_input,
)


class Clock:
    """A clock that goes on by ``step_s`` seconds each time it is read."""

    def __init__(self, step_s: float) -> None:
        self.now_s = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.fixture
def standard_input(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end of a pipe that is written to; the other one is standard input."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        yield writer


@pytest.mark.parametrize("size", [0, 1, 2**16, 2**16 + 1])
def test_a_file_is_read_up_to_the_limit(tmp_path: Path, size: int) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"a" * size)
    link.symlink_to(file)
    assert read_file(link, max_bytes=size) == read_regular_file(file, max_bytes=size) == b"a" * size
    for read in (read_file, read_regular_file):
        if size:
            with pytest.raises(UnreadableFileError, match=f"has more than {size - 1} bytes"):
                read(file, max_bytes=size - 1)


def test_files_whose_size_the_kernel_does_not_know_are_read_to_their_end() -> None:
    assert read_file(Path("/proc/self/status")).startswith(b"Name:")
    assert read_file(Path(os.devnull)) == b""


@pytest.mark.parametrize(
    ("path", "says"),
    [("/dev/zero", "is a device, not a file"), ("/", "is a directory, not a file"), ("/nowhere", "No such file")],
)
def test_what_is_no_file_is_refused_in_words(path: str, says: str) -> None:
    with pytest.raises(OSError) as caught:
        read_file(Path(path))
    assert says in describe_read_error(caught.value)
    assert (caught.value.filename, "[Errno" in describe_read_error(caught.value)) == (path, False)


def test_a_pipe_is_read_until_its_writers_end(pipe: Path) -> None:
    data = b"0123456789" * 20_000  # more than a pipe holds
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    assert read_file(pipe) == data
    writer.join()


def test_a_pipe_that_nothing_is_written_to_ends_the_wait(pipe: Path) -> None:
    clock = Clock(step_s=30)
    with pytest.raises(UnreadableFileError, match="nothing came for 60 s"):
        read_file(pipe, clock=clock)
    assert clock.now_s < 200


def test_a_pipe_in_which_something_comes_again_and_again_ends_too(pipe: Path) -> None:
    def write() -> None:
        with suppress(BrokenPipeError), pipe.open("wb", buffering=0) as stream:
            while True:
                stream.write(b"a")

    writer = threading.Thread(target=write)
    writer.start()
    with pytest.raises(UnreadableFileError, match="did not end within 600 s"):
        read_file(pipe, clock=Clock(step_s=50))
    writer.join()


def test_a_pipe_without_end_is_read_up_to_the_limit_only(standard_input: int) -> None:
    os.write(standard_input, b"a" * 4096)
    with pytest.raises(UnreadableFileError, match="has more than 4095 bytes"):
        read_standard_input(max_bytes=4095)
    os.close(standard_input)


def test_a_pipe_is_no_regular_file_and_is_not_waited_for(pipe: Path) -> None:
    with pytest.raises(UnreadableFileError, match="is not a regular file"):
        read_regular_file(pipe)


def test_closed_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UnreadableFileError, match="is closed"):
        read_standard_input()
