"""Real processes on one simulated card: killed in the middle of a step, and working at the same time."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from driver.kubeletplugin.backends.base import HardwareBusyError
from driver.kubeletplugin.backends.simulated.steps import HardwareFault, HardwareFaults, HardwareStep
from driver.partitions.geometry import Partition
from tests.kubeletplugin.backends.claims import Machine
from tests.partitions.cards import gpu_partition, slots

CHILD = """
import sys
from pathlib import Path
import anyio
from driver.kubeletplugin.backends.simulated import SimulatedBackend
from tests.kubeletplugin.backends.claims import Machine
from tests.partitions.cards import gpu_partition, slots

machine = Machine(Path(sys.argv[1]))
what, step = sys.argv[2], int(sys.argv[3])
partition = gpu_partition(machine.card(0), "2g.20gb", 2) if what == "gpu" else slots(machine.card(2), 1, 2, "fft-large")
begun = 0

async def sleep(delay_s):
    global begun
    begun += 1
    if begun == step:
        print("in the middle", flush=True)
        await anyio.sleep_forever()

anyio.run(SimulatedBackend(machine.config, sleep=sleep).prepare, machine.device(partition), None)
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
async def test_a_plugin_killed_in_the_middle_of_a_step_leaves_what_the_next_can_finish_or_undo(
    tmp_path: Path, what: str, step: int, recovery: str
) -> None:
    machine = Machine(tmp_path / "state")
    with start(machine, what, step) as child:
        assert first_line(child) == "in the middle"
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    backend, device = machine.open(), machine.device(partition_of(machine, what))
    if recovery == "retry":
        await backend.unprepare(await backend.prepare(device, None))
    else:
        await backend.abandon(device)
    assert backend.held() == {}


async def test_a_crash_fault_kills_the_process_as_kill_9_does(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "state")
    machine.open().inject(
        HardwareFaults(faults=(HardwareFault(step=HardwareStep.CREATE_GPU_INSTANCE, effect="crash", when="after"),))
    )
    with start(machine, "gpu", 0) as child:
        assert first_line(child) == ""
    assert child.returncode == -signal.SIGKILL
    assert list(machine.open().held().values()) == [partition_of(machine, "gpu")]


async def test_what_one_process_is_making_is_busy_for_another(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "state")
    with start(machine, "fpga", 3) as child:
        assert first_line(child) == "in the middle"
        with pytest.raises(HardwareBusyError, match="slots 2-3 are in use"):
            await machine.open().prepare(machine.device(slots(machine.card(2), 2, 2, "fft-large"), "other"), None)
        child.kill()
