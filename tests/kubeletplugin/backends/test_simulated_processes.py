"""Real processes on one simulated card: killed in the middle of a step, and working at the same time."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from driver.kubeletplugin.backends.base import HardwareConflictError
from driver.kubeletplugin.backends.simulated.steps import HardwareFault, HardwareFaults, HardwareStep
from driver.partitions.geometry import Partition
from tests.kubeletplugin.backends.claims import Machine, Notes
from tests.partitions.cards import gpu_partition, slots

CHILD = """
import sys
import time
from pathlib import Path
from driver.kubeletplugin.backends.simulated import SimulatedBackend
from tests.kubeletplugin.backends.claims import Machine, Notes
from tests.partitions.cards import gpu_partition, slots

machine = Machine(Path(sys.argv[1]))
what, step = sys.argv[2], int(sys.argv[3])
partition = gpu_partition(machine.card(0), "2g.20gb", 2) if what == "gpu" else slots(machine.card(2), 1, 2, "fft-large")
device = machine.device(partition)
machine.notes[device.share, device.claim.uid] = Notes(machine.state / "notes")
begun = 0

def sleep(delay_s):
    global begun
    begun += 1
    if begun == step:
        print("in the middle", flush=True)
        time.sleep(3600)

machine.prepare(device, None, SimulatedBackend(machine.config, sleep=sleep))
print("prepared", flush=True)
"""
"""Prepares a device, and stays for ever in the delay of the step with the given number."""


def partition_of(machine: Machine, what: str) -> Partition:
    return gpu_partition(machine.card(0), "2g.20gb", 2) if what == "gpu" else slots(machine.card(2), 1, 2, "fft-large")


def start(machine: Machine, what: str, step: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(machine.state), what, str(step)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


def first_line(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


@pytest.mark.parametrize("recovery", ["retry", "abandon"])
@pytest.mark.parametrize(("what", "step"), [("gpu", 2), ("gpu", 3), ("fpga", 3)])
def test_a_plugin_killed_in_the_middle_of_a_step_leaves_what_the_next_can_finish_or_undo(
    tmp_path: Path, what: str, step: int, recovery: str
) -> None:
    machine = Machine(tmp_path / "state")
    with start(machine, what, step) as child:
        assert first_line(child) == "in the middle"
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    device = machine.device(partition_of(machine, what))
    machine.notes[device.share, device.claim.uid] = Notes(machine.state / "notes")
    machine.release(device, machine.prepare(device) if recovery == "retry" else None)
    assert machine.open().partitions() == []


def test_a_crash_fault_kills_the_process_as_kill_9_does(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "state")
    machine.open().inject(
        HardwareFaults(faults=(HardwareFault(step=HardwareStep.CREATE_GPU_INSTANCE, effect="crash", when="after"),))
    )
    with start(machine, "gpu", 0) as child:
        assert first_line(child) == ""
    assert child.returncode == -signal.SIGKILL
    assert machine.open().partitions() == [partition_of(machine, "gpu")]


def test_what_one_process_is_making_is_another_ones_conflict(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "state")
    with start(machine, "gpu", 3) as child:
        assert first_line(child) == "in the middle"
        with pytest.raises(HardwareConflictError, match=r"in use outside of Kerf: 2g\.20gb at 2"):
            machine.prepare(machine.device(gpu_partition(machine.card(0), "1g.10gb", 2), "other"))
        child.kill()
