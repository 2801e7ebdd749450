"""Killed inside a call to dfx-mgrd (FP-12): the daemon goes on, and the next process finishes or clears the rest.

What dies is a process of its own.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kerf_dra.driver.kubeletplugin.claims.allocated_devices import DeviceInUseError
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from tests.fakes.dfx import DaemonStandIn, DfxMachine
from tests.fakes.dfx.machine import BASE
from tests.kubeletplugin.backends.one_call import collect_garbage
from tests.kubeletplugin.backends.slots.machine import DEVICE, call, call_in_process, hardware
from tests.runtime.fork_server import run_in_fork


class Board(NamedTuple):
    """A board with a daemon that runs."""

    root: Path
    socket: str
    machine: DfxMachine

    def run(self, operation: str, device: str = DEVICE) -> int:
        """A process of its own does ``operation``; its exit status."""
        return run_in_fork(call_in_process, self.root, self.socket, operation, device)

    def left(self) -> tuple[int, dict[str, str], str]:
        """Records, what is loaded, and what the slot's logic was made into last."""
        state = DaemonStandIn(self.machine.folder, self.socket).read_state()
        with open_checkpoint(self.root, boot_id="boot-1") as checkpoint:
            loaded = {slot: package for slot, (package, _) in state["slots"].items()}
            return len(checkpoint.records), loaded, state["fabric"].get("1", "")

    def cdi_files(self) -> list[str]:
        return [path.read_text() for path in self.root.rglob("*.json") if "cdiVersion" in path.read_text()]


HALF = "fpga-0-aes-at-1-of-halves"


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    machine = DfxMachine.create(tmp_path / "machine")
    machine.add_layouts()
    machine.describe_layouts()
    with tempfile.TemporaryDirectory(prefix="dfx-") as folder:
        daemon = DaemonStandIn(machine.folder, f"{folder}/s")
        daemon.start()
        yield Board(tmp_path, daemon.path, machine)
        daemon.stop()


async def test_killed_in_a_load_that_goes_on_without_it(board: Board) -> None:
    board.machine.add_fault("load", "kill")
    assert board.run("prepare") == -9
    assert board.cdi_files() == []
    await call(board.root, board.socket, "prepare")
    assert board.left() == (1, {"1": "aes-1"}, "aes-1")
    assert board.machine.calls() == ["load aes-1 1"], "what the dead process began is not loaded twice"
    assert "dfx-mgrd" not in "".join(board.cdi_files())
    assert "/dev/uio4" in "".join(board.cdi_files())
    await call(board.root, board.socket, "unprepare")
    assert board.left() == (0, {}, "blank-1")


async def test_killed_in_a_load_and_then_the_claim_goes(board: Board) -> None:
    board.machine.add_fault("load", "kill")
    assert board.run("prepare") == -9
    await collect_garbage(board.root, hardware(board.root, board.socket))
    assert board.left() == (0, {}, "blank-1")


@pytest.mark.parametrize("kind", ["unload", "load"])
async def test_killed_in_the_middle_of_a_release(kind: str, board: Board) -> None:
    await call(board.root, board.socket, "prepare")
    board.machine.add_fault(kind, "kill")
    assert board.run("unprepare") == -9
    await call(board.root, board.socket, "unprepare")
    assert board.left() == (0, {}, "blank-1")


@pytest.mark.parametrize("kind", ["remove", "load"])
async def test_killed_while_the_layout_is_exchanged(kind: str, board: Board) -> None:
    """The base design is removed, or the next one and its function are loaded, without the process that asked."""
    await call(board.root, board.socket, "prepare")
    await call(board.root, board.socket, "unprepare")
    (board.machine.folder / "log").unlink()
    board.machine.add_fault(kind, "kill")
    assert board.run("prepare", HALF) == -9
    assert board.cdi_files() == []
    await call(board.root, board.socket, "prepare", HALF)
    assert board.machine.calls() == [f"remove {BASE}", "load aes-half-1 1"], "nothing is done twice"
    assert board.left() == (1, {"1": "aes-half-1"}, "aes-half-1")
    await call(board.root, board.socket, "unprepare", HALF)
    assert board.left() == (0, {}, "blank-half-1")


async def test_killed_while_the_layout_is_exchanged_and_then_the_claim_goes(board: Board) -> None:
    await call(board.root, board.socket, "prepare")
    await call(board.root, board.socket, "unprepare")
    board.machine.add_fault("remove", "kill")
    assert board.run("prepare", HALF) == -9
    await collect_garbage(board.root, hardware(board.root, board.socket))
    assert board.left()[:2] == (0, {})
    assert list(board.machine.overlays.iterdir()) == [], "the board has no layout until the next claim"
    await call(board.root, board.socket, "prepare")
    assert board.left() == (1, {"1": "aes-1"}, "aes-1")


async def test_another_layout_waits_for_a_claim_that_is_still_prepared(board: Board) -> None:
    """A claim that was deleted by force may be: its function runs, whoever has it open now."""
    await call(board.root, board.socket, "prepare")
    before = board.machine.calls()
    refusal = pytest.RaisesExc(DeviceInUseError, match=r"fpga-0-aes-at-1-of-halves is taken by .*fpga-0-aes-at-1, held")
    with pytest.RaisesGroup(refusal):
        await call(board.root, board.socket, "prepare", HALF)
    assert board.machine.calls() == before
