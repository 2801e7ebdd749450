"""Real processes on one simulated card: killed in the middle of a step, and working at the same time."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.backends.base import HardwareConflictError
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareFault, HardwareFaults, HardwareStep
from tests.kubeletplugin.backends.simulated import step_process
from tests.kubeletplugin.backends.simulated.machine import Machine, Notes
from tests.kubeletplugin.backends.simulated.step_process import partition_of, prepare_and_die
from tests.partitions.cards import gpu_partition
from tests.runtime.fork_server import run_in_fork


@pytest.mark.parametrize("recovery", ["retry", "abandon"])
@pytest.mark.parametrize(("what", "step"), [("gpu", 2), ("gpu", 3), ("fpga", 3)])
def test_a_plugin_killed_in_the_middle_of_a_step_leaves_what_the_next_can_finish_or_undo(
    tmp_path: Path, what: str, step: int, recovery: str
) -> None:
    machine = Machine(tmp_path / "state")
    assert run_in_fork(prepare_and_die, machine.state, what, step) == -signal.SIGKILL
    device = machine.device(partition_of(machine, what))
    machine.notes[device.share, device.claim.uid] = Notes(machine.state / "notes")
    machine.release(device, machine.prepare(device) if recovery == "retry" else None)
    assert machine.open().partitions() == []


def test_a_crash_fault_kills_the_process_as_kill_9_does(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "state")
    machine.open().inject(
        HardwareFaults(faults=(HardwareFault(step=HardwareStep.CREATE_GPU_INSTANCE, effect="crash", when="after"),))
    )
    assert run_in_fork(prepare_and_die, machine.state, "gpu", 0) == -signal.SIGKILL
    assert machine.open().partitions() == [partition_of(machine, "gpu")]


def test_what_one_process_is_making_is_another_ones_conflict(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "state")
    command = [sys.executable, "-m", step_process.__name__, str(machine.state), "gpu", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[4]) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == b"in the middle\n"
            with pytest.raises(HardwareConflictError, match=r"in use outside of Kerf: 2g\.20gb at 2"):
                machine.prepare(machine.device(gpu_partition(machine.card(0), "1g.10gb", 2), "other"))
        finally:
            child.kill()  # it stays for ever
