"""One daemon of MPS is kept as its request wants it, whatever happens to it or to its keeper."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from kerf_dra.driver.mps import control_daemon
from kerf_dra.driver.mps.documents import (
    DaemonFolder,
    DaemonRequest,
    DaemonState,
    UnreadableDocumentError,
    write_document,
)
from kerf_dra.driver.mps.driver_programs import ProgramFailedError
from kerf_dra.driver.mps.service import DaemonKeeper
from tests.fakes.mps import ask, make_driver_root, step_until, want

GPU = "GPU-c553884f-64d4-5b61-9db5-5eafc03970dc"


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 0.25  # a step takes some time, so that what is to be tried again later is
        return self.now


class Node:
    """A device and its keeper, one process after another."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "sharing"
        self.driver_root = make_driver_root(folder / "driver")
        self.folder = DaemonFolder(self.root / GPU)
        self.clock = Clock()
        self.keepers: list[DaemonKeeper] = []
        self.restart()

    def restart(self, command_s: float = 60.0) -> None:
        self.keeper = DaemonKeeper(self.folder, self.driver_root, now=self.clock, command_s=command_s)
        self.keepers.append(self.keeper)

    def close(self) -> None:
        """End the daemon; those who have started one learn that it has ended."""
        self.folder.request.unlink(missing_ok=True)
        for keeper in self.keepers:
            keeper.step()

    @property
    def state(self) -> DaemonState:
        found = self.folder.read_state()
        assert found is not None
        return found

    def ready(self, request: str) -> DaemonState:
        """The state when the daemon has carried out the request of this id."""
        step_until(self.keeper, lambda: self.state.is_ready and self.state.request == request)
        return self.state

    def break_program(self) -> None:
        """Let a daemon end as soon as it is started."""
        (self.driver_root / "usr/bin/nvidia-cuda-mps-control").write_text("#!/bin/sh\nexit 1\n")

    def ask(self, command: str) -> str:
        return ask(self.folder, self.driver_root, command)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.close()


def test_a_request_starts_a_daemon_with_its_limits_and_its_end_ends_it(node: Node) -> None:
    state = node.ready(want(node.folder, percentage=30, memory_mib=4096))
    assert (state.restarts, state.error) == (0, "")
    variables = Path(f"/proc/{state.pid}/environ").read_bytes().split(b"\0")
    assert f"CUDA_VISIBLE_DEVICES={GPU}".encode() in variables
    assert f"CUDA_MPS_LOG_DIRECTORY={node.folder.log}".encode() in variables
    assert node.ask("get_default_active_thread_percentage") == "30.0\n"
    assert node.ask("get_default_device_pinned_mem_limit 0") == "4096M\n"
    node.folder.request.unlink()
    assert not node.keeper.step()
    assert not node.folder.state.exists()
    assert not node.folder.pipe.exists()
    assert not Path(f"/proc/{state.pid}").exists()


def test_a_further_claim_raises_the_limits_of_servers_that_run(node: Node) -> None:
    node.ready(want(node.folder, percentage=30, memory_mib=1024))
    node.ask("start_server -uid 7")
    node.ready(want(node.folder, percentage=50, memory_mib=2048))
    assert node.ask("get_active_thread_percentage 1007") == "50.0\n"
    assert node.ask("get_device_pinned_mem_limit 1007 0") == "2048M\n"


def test_a_daemon_that_is_killed_is_started_again_and_the_state_says_so(node: Node) -> None:
    request = want(node.folder)
    first = node.ready(request)
    os.kill(first.pid, signal.SIGKILL)
    started_again = re.compile(
        r"the MPS control daemon has ended with exit code -9; its log is in .*, and is started again"
    )  # before that it may only be known that it does not answer
    step_until(node.keeper, lambda: started_again.fullmatch(node.state.error) is not None)
    assert node.state.is_failing
    again = node.ready(request)
    assert (again.pid != first.pid, again.restarts, again.is_failing) == (True, 1, False)


def test_a_daemon_that_never_becomes_ready_fails_nobody(node: Node) -> None:
    node.break_program()
    want(node.folder)
    step_until(node.keeper, lambda: "has ended with exit code 1" in node.state.error)
    assert not node.state.is_failing


def test_a_daemon_that_has_ended_with_its_keeper_has_failed_its_clients(node: Node) -> None:
    """The pod of ``kerf mps-daemons`` was deleted: the next one has not seen the end."""
    node.ready(want(node.folder))
    control_daemon.ControlDaemon(node.folder, node.driver_root).end()
    node.break_program()
    node.restart()
    step_until(node.keeper, lambda: "has ended with exit code 1" in node.state.error)
    assert node.state.is_failing
    assert node.state.restarts > 0


@pytest.mark.long
def test_a_daemon_that_dies_at_once_is_started_with_growing_delays(node: Node) -> None:
    node.break_program()
    want(node.folder)
    starts: list[float] = []
    for _ in range(200):  # of a quarter of a second and more each
        node.keeper.step()
        if node.state.restarts + 1 > len(starts):
            starts.append(node.clock.now)
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert len(gaps) > 3
    assert gaps[-1] > 3 * gaps[0]
    step_until(node.keeper, lambda: "has ended with exit code 1; its log is in" in node.state.error)


@pytest.mark.long
def test_a_daemon_that_hangs_is_killed_and_started_again(node: Node) -> None:
    request = want(node.folder)
    first = node.ready(request)
    node.restart(command_s=0.1)
    os.kill(first.pid, signal.SIGSTOP)
    node.clock.now += 11
    step_until(node.keeper, lambda: not node.state.is_ready)
    assert "no end after 0.1 s" in node.state.error
    node.restart()
    node.clock.now += 31
    assert node.ready(request).pid != first.pid
    assert not Path(f"/proc/{first.pid}/cmdline").read_bytes()  # what is left is known to the keeper before


@pytest.mark.long
def test_another_keeper_takes_over_a_daemon_that_runs(tmp_path: Path, node: Node) -> None:
    """The keeper was killed, and its daemons were not: their clients notice nothing."""
    request = want(node.folder)
    script = (
        "import sys; from pathlib import Path; from tests.mps.test_keeper import *;"
        f"node = Node(Path({str(tmp_path / 'other')!r}));"
        f"node.folder = DaemonFolder(Path({str(node.folder.path)!r})); node.restart(); node.ready({request!r});"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=240, check=False).returncode == -signal.SIGKILL
    first = node.state
    node.ask("start_server -uid 7")
    second = node.ready(want(node.folder, percentage=40))
    assert second.pid == first.pid
    assert node.ask("get_server_list") == "1007\n"
    node.folder.request.unlink()
    assert not node.keeper.step()
    assert node.ask("get_server_list") == ""


def test_a_request_of_an_earlier_boot_is_none(node: Node) -> None:
    node.folder.path.mkdir(parents=True)
    write_document(node.folder.request, DaemonRequest(id="1", boot_id="an-earlier-boot", device=GPU))
    assert not node.keeper.step()
    assert not node.folder.pipe.exists()


def test_a_request_that_cannot_be_read_is_named_and_ends_no_daemon(node: Node) -> None:
    pid = node.ready(want(node.folder)).pid
    node.folder.request.write_text('{"id": "1", "bootId": "2", "device": "3", "version": 2}')
    assert node.keeper.step()
    assert node.state.error.startswith(f"{node.folder.request} cannot be read: ")
    assert node.state.pid == pid
    assert node.ask("get_default_active_thread_percentage") == "100.0\n"


def test_a_daemon_goes_on_while_the_folder_of_requests_is_not_there(node: Node) -> None:
    """The file system of the folder was not mounted for a while: each request seemed to be withdrawn."""
    pid = node.ready(want(node.folder)).pid
    away = node.root.with_name("away")
    node.root.rename(away)
    with pytest.raises(UnreadableDocumentError, match="mount its file system"):
        node.keeper.step()
    node.root.mkdir()  # where it is mounted
    with pytest.raises(UnreadableDocumentError, match="mount its file system"):
        node.keeper.step()
    assert Path(f"/proc/{pid}").exists()
    away.rename(node.root)
    assert node.keeper.step()
    assert node.state.pid == pid


def test_without_the_program_the_state_says_what_is_missing(node: Node) -> None:
    (node.driver_root / "usr/bin/nvidia-cuda-mps-control").unlink()
    want(node.folder)
    step_until(node.keeper, lambda: "there is no nvidia-cuda-mps-control below" in node.state.error)


@pytest.mark.long
def test_a_limit_that_the_daemon_does_not_take_is_an_error(node: Node) -> None:
    program = node.driver_root / "usr/bin/nvidia-cuda-mps-control"
    program.write_text(program.read_text().replace("_thread_percentage = _to_percentage(percentage)", "x = 1.0"))
    want(node.folder, percentage=30)
    step_until(node.keeper, lambda: "has taken 100 % of the threads in place of 30 %" in node.state.error)


@pytest.mark.long
def test_a_log_is_turned_over_and_never_grows_beyond_its_bound(node: Node) -> None:
    request = want(node.folder)
    node.ready(request)
    for turn in range(3):
        with (node.folder.log / "control.log").open("ab") as log:
            log.write(f"{turn}\n".encode() * 2**20)
        node.keeper.step()
    files = {path.name: path.stat().st_size for path in node.folder.log.iterdir()}
    assert files == {"control.log": 0, "control.log.1": 2**20}
    assert (node.folder.log / "control.log.1").read_bytes().endswith(b"2\n")


@pytest.mark.long
def test_whatever_a_container_has_left_beside_the_sockets_goes_and_no_link_is_followed(
    tmp_path: Path, node: Node
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    node.ready(want(node.folder))
    (node.folder.pipe / "folder" / "deeper").mkdir(parents=True)
    (node.folder.pipe / "link").symlink_to(outside)
    os.mkfifo(node.folder.pipe / "pipe")
    node.folder.request.unlink()
    assert not node.keeper.step()
    assert not node.folder.pipe.exists()
    assert (outside / "file").exists()


@pytest.mark.long
def test_what_is_another_daemons_is_left_alone(node: Node) -> None:
    node.ready(want(node.folder))
    other = DaemonFolder(node.root / "GPU-another")
    daemon = control_daemon.ControlDaemon(other, node.driver_root)
    assert daemon.pid == 0
    with pytest.raises(ProgramFailedError, match="Cannot find MPS control daemon process"):
        daemon.check()
    daemon.end()
    assert node.ask("get_default_active_thread_percentage") == "100.0\n"
