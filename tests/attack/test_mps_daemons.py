"""What the daemon of a device shared by MPS, or who may write its logs, can do to its keeper; rows of ``kinds.toml``.

The keeper is root. It once emptied the file to which a log was a link, wrote the old log through another link, gave the
daemon's answers back to it as commands, and kept all that the daemon printed.
"""

import os
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from kerf_dra.driver.mps.control_daemon import CONTROL, ControlDaemon
from kerf_dra.driver.mps.documents import DaemonFolder
from kerf_dra.driver.mps.driver_programs import ProgramFailedError
from tests.attack.kinds import cases

GPU = "GPU-c553884f-64d4-5b61-9db5-5eafc03970dc"
LARGE = 3 * 2**20


class LogFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is in place of a log, or of the turn before it."""

    there: Literal["link", "hard link", "pipe", "folder", "link to the folder"]
    at: str = "server.log"


class DaemonAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a daemon prints to every command, and why it is refused."""

    prints: str
    """Shell that prints it."""
    says: str


@pytest.fixture
def folder(tmp_path: Path) -> DaemonFolder:
    found = DaemonFolder(tmp_path / "sharing" / GPU)
    found.log.mkdir(parents=True)
    return found


@pytest.mark.parametrize(
    "file", cases("test_mps_daemons.py::test_no_log_is_emptied_or_written_but_the_daemons_own", LogFile)
)
def test_no_log_is_emptied_or_written_but_the_daemons_own(file: LogFile, folder: DaemonFolder, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "server.log").write_bytes(b"x" * LARGE)
    path = folder.log / file.at
    match file.there:
        case "link":
            path.symlink_to(theirs / "server.log")
        case "hard link":
            path.hardlink_to(theirs / "server.log")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "link to the folder":
            folder.log.rmdir()
            folder.log.symlink_to(theirs)
    is_link = folder.log.is_symlink()
    if not is_link:
        (folder.log / "control.log").write_bytes(b"y" * LARGE)
    daemon = ControlDaemon(folder, tmp_path)
    try:
        daemon.bound_logs()
    except OSError:
        assert is_link, "one file keeps no other log from its bound"
    assert (theirs / "server.log").read_bytes() == b"x" * LARGE
    assert [entry.name for entry in theirs.iterdir()] == ["server.log"]
    if not is_link:
        sizes = {name: (folder.log / name).stat().st_size for name in ("control.log", "control.log.1")}
        assert sizes == {"control.log": 0, "control.log.1": 2**20}
        assert not (folder.log / "control.log.1").is_symlink()


@pytest.mark.parametrize(
    "answer", cases("test_mps_daemons.py::test_an_answer_is_cut_and_checked_before_it_is_used", DaemonAnswer)
)
def test_an_answer_is_cut_and_checked_before_it_is_used(
    answer: DaemonAnswer, folder: DaemonFolder, tmp_path: Path
) -> None:
    programs = tmp_path / "driver/usr/bin"
    programs.mkdir(parents=True)
    asked = tmp_path / "asked"
    (programs / CONTROL).write_text(f"#!/bin/sh\ncat >> {asked}\n{answer.prints}\n")
    (programs / CONTROL).chmod(0o755)
    daemon = ControlDaemon(folder, tmp_path / "driver", command_s=20.0)
    with pytest.raises(ProgramFailedError) as caught:
        daemon.set_limits(active_thread_percentage=50, pinned_memory_mib=None)
    assert answer.says in str(caught.value)
    assert (len(str(caught.value)) < 500, str(caught.value).isprintable()) == (True, True)
    assert asked.read_text() == "get_server_list\n"
