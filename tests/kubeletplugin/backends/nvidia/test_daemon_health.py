"""MPS control daemons that fail make their devices unhealthy, as long as they do and a while longer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.backends.nvidia.sharing import DaemonHealth
from kerf_dra.driver.kubeletplugin.backends.nvidia.sharing.daemon_health import HOLD_S
from kerf_dra.driver.mps.documents import LOCK, DaemonFolder, DaemonState, write_document
from kerf_dra.driver.runtime import file_lock
from kerf_dra.driver.runtime.file_lock import FileLock
from tests.fakes.mps import want

GPU = "GPU-c553884f-64d4-5b61-9db5-5eafc03970dc"
DIED = "the MPS control daemon has ended with exit code 1"
STARTED_AGAIN = "the MPS control daemon has ended and was started again: its clients of before have failed"


class Node:
    """The folder of shared devices, with one device whose daemon is wanted."""

    def __init__(self, root: Path) -> None:
        self.folder = DaemonFolder(root / GPU)
        self.request = want(self.folder)
        self.now = 1000.0
        self.keeper: FileLock = file_lock.acquire(root / LOCK)
        self.health = DaemonHealth(root, now=lambda: self.now)

    def write(self, *, error: str = "", restarts: int = 0, is_failing: bool = False) -> None:
        """Write a state as the keeper does."""
        request = "" if error else self.request
        state = DaemonState(request=request, is_ready=not error, error=error, restarts=restarts, is_failing=is_failing)
        write_document(self.folder.state, state)

    def die(self) -> None:
        """Let the daemon die after it was ready and looked at, and be ready again."""
        self.write()
        assert self.reason == ""
        self.write(restarts=1)

    @property
    def reason(self) -> str:
        return self.health.list_failures().get(GPU, "")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    with node.keeper:
        yield node


def test_without_a_folder_nothing_is_shared_and_nothing_fails() -> None:
    assert DaemonHealth(None, now=lambda: 0.0).list_failures() == {}


def test_a_folder_that_is_not_there_yet_has_no_daemons(tmp_path: Path) -> None:
    assert DaemonHealth(tmp_path / "later", now=lambda: 0.0).list_failures() == {}


def test_a_daemon_that_is_awaited_and_one_that_answers_are_well(node: Node) -> None:
    assert node.reason == ""
    node.write(error="the MPS control daemon starts")
    assert node.reason == ""
    node.write()
    assert node.reason == ""


def test_a_daemon_that_fails_its_clients_is_named_with_the_reason(node: Node) -> None:
    node.write(error=DIED, is_failing=True)
    assert node.reason == DIED


def test_a_daemon_that_was_started_again_counts_as_failed_for_a_while(node: Node) -> None:
    node.die()
    assert node.reason == STARTED_AGAIN
    node.now += HOLD_S - 1
    assert node.reason == STARTED_AGAIN
    node.now += 1
    assert node.reason == ""


def test_a_daemon_that_needed_several_starts_to_become_ready_has_failed_nobody(node: Node) -> None:
    for restarts in (0, 1, 2):
        node.write(error=DIED, restarts=restarts)
        assert node.reason == ""
    node.write(restarts=3)
    assert node.reason == ""


def test_each_further_death_prolongs_the_while(node: Node) -> None:
    node.die()
    assert node.reason == STARTED_AGAIN
    node.now += HOLD_S - 1
    node.write(restarts=2)
    assert node.reason == STARTED_AGAIN
    node.now += HOLD_S - 1
    assert node.reason == STARTED_AGAIN


def test_a_plugin_that_starts_does_not_count_what_was_before(node: Node) -> None:
    node.write(restarts=3)
    assert node.reason == ""


def test_a_device_that_no_claim_shares_any_more_is_well(node: Node) -> None:
    node.die()
    assert node.reason == STARTED_AGAIN
    node.folder.request.unlink()
    assert node.reason == ""
    node.request = want(node.folder)  # the next claims have nothing to do with it
    node.write()
    assert node.reason == ""


def test_without_the_process_that_keeps_daemons_their_devices_get_no_claims(node: Node) -> None:
    node.write()
    node.keeper.release()
    assert node.reason.startswith("`kerf mps-daemons` does not run")


def test_a_state_that_cannot_be_read_is_named(node: Node) -> None:
    node.folder.state.write_text("{}")
    assert node.reason.startswith(f"{node.folder.state} cannot be read")
