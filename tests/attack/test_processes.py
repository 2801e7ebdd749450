"""Terminals that close and processes that are killed: what they started ends with them, and leaves nothing."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from kerf_dra.api.registration.v1 import PluginInfo
from kerf_dra.driver.kubeletplugin.grpc.registration import Registrar, remove_abandoned_sockets
from kerf_dra.driver.runtime.backoff import Backoff

TIMEOUT_S = 240
CHILD = """
import sys, anyio
from kerf_dra.driver.runtime import lifecycle
async def main():
    print("up", flush=True)
    await anyio.sleep_forever()
sys.exit(lifecycle.run(main))
"""
PARENT = f"""
import sys, anyio
from pathlib import Path
from kerf_dra.driver.demo import processes
processes._COMMAND = (sys.executable, "-c", {CHILD!r})
async def main():
    async with processes.run_program("child", [], Path(sys.argv[1])):
        await anyio.sleep_forever()
anyio.run(main)
"""
DEMO = """
import sys, anyio
from kerf_dra.driver.demo.interruption import run_in_folder
class Run:
    async def run(self, root, interruption):
        (root / "state").write_text("x")
        print(root, flush=True)
        try:
            if sys.argv[1] == "pauses":
                await interruption.pause()
            else:
                await anyio.sleep_forever()
        finally:
            if sys.argv[1] == "hangs":
                with anyio.CancelScope(shield=True):
                    print("stopping", flush=True)
                    await anyio.sleep_forever()
        return 0
sys.exit(anyio.run(run_in_folder, Run()))
"""


@contextmanager
def started(
    code: str, *arguments: str, ignores_hangup: bool = False, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    # A child inherits what is ignored: below nohup or in the background of a script that is more than it should be.
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)}
    for number in before:
        signal.signal(number, signal.SIG_DFL)
    if ignores_hangup:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    with process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_programs_of_a_demo_that_was_killed_end_with_it(end: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "log"
    os.mkfifo(log)
    with started(PARENT, str(log)) as parent, log.open() as output:
        assert output.readline() == "up\n"
        parent.send_signal(end)
        parent.wait(TIMEOUT_S)
        output.read()  # ends when no process has the file open


def test_a_program_whose_parent_ended_before_it_looked_does_not_start() -> None:
    with started(CHILD, KERF_PARENT_PID="1") as process:
        output, errors = process.communicate(timeout=TIMEOUT_S)
    assert (output, process.returncode) == ("", 1)
    assert "the process that started this one has ended" in errors


def test_a_program_that_was_started_by_hand_needs_no_parent() -> None:
    with started(CHILD) as process:
        assert first_line(process) == "up"
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0


def test_the_end_of_the_terminal_stops_a_program_in_order() -> None:
    with started(CHILD) as process:
        assert first_line(process) == "up"
        process.send_signal(signal.SIGHUP)
        assert process.wait(TIMEOUT_S) == 0


def test_a_program_below_nohup_outlives_the_terminal() -> None:
    with started(CHILD, ignores_hangup=True) as process:
        assert first_line(process) == "up"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize(("run", "code"), [("works", 130), ("pauses", 0)])
def test_a_demo_removes_its_folder_whatever_stops_it(
    number: signal.Signals, run: str, code: int, tmp_path: Path
) -> None:
    with started(DEMO, run, TMPDIR=str(tmp_path)) as process:
        root = Path(first_line(process))
        assert root.is_dir()
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == code
    assert not root.exists()


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGQUIT])
def test_a_second_signal_ends_a_demo_at_once_and_removes_its_folder_all_the_same(
    second: signal.Signals, tmp_path: Path
) -> None:
    with started(DEMO, "hangs", TMPDIR=str(tmp_path)) as process:
        root = Path(first_line(process))
        process.send_signal(signal.SIGINT)
        assert first_line(process) == "stopping"
        process.send_signal(second)
        assert process.wait(TIMEOUT_S) == 128 + second
    assert not root.exists()


def bound(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    return listener


def test_the_registration_socket_of_a_killed_instance_is_removed_and_no_other(tmp_path: Path) -> None:
    killed, alive, foreign, own = (
        tmp_path / f"{name}-reg.sock" for name in ("d.example-old", "d.example-new", "e.example-old", "d.example")
    )
    file = tmp_path / "d.example-file-reg.sock"
    file.write_text("no socket")
    bound(killed).close()
    bound(foreign).close()
    bound(own).close()
    with bound(alive) as listener:
        listener.listen()
        remove_abandoned_sockets(own, "d.example")
        assert sorted(tmp_path.iterdir()) == sorted([alive, foreign, own, file])


async def test_an_instance_that_starts_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    killed, own = tmp_path / "d-old-reg.sock", tmp_path / "d-new-reg.sock"
    bound(killed).close()
    backoff = Backoff(first_s=1, factor=2, limit_s=2, jitter=0)
    info = PluginInfo(name="d", endpoint="", supported_versions=())
    registrar = Registrar(info, own, silence_s=60, poll_s=60, grace_s=0, backoff=backoff)
    async with anyio.create_task_group() as group:
        await group.start(registrar.run)
        assert list(tmp_path.iterdir()) == [own]
        group.cancel_scope.cancel()


def test_a_registry_that_is_not_there_yet_is_no_error(tmp_path: Path) -> None:
    remove_abandoned_sockets(tmp_path / "none/d-reg.sock", "d")
