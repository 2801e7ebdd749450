"""A process that prepares a device of a simulated card, and stays or dies in the delay of one of the steps.

``python -m tests.kubeletplugin.backends.simulated.step_process STATE gpu|fpga STEP``: one that stays, and says so.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from kerf_dra.driver.kubeletplugin.backends.simulated import SimulatedBackend
from kerf_dra.driver.partitions.geometry import Partition
from tests.kubeletplugin.backends.simulated.machine import Machine, Notes
from tests.partitions.cards import gpu_partition, slots


def partition_of(machine: Machine, what: str) -> Partition:
    return gpu_partition(machine.card(0), "2g.20gb", 2) if what == "gpu" else slots(machine.card(2), 1, 2, "fft-large")


def prepare(state: Path, what: str, step: int, at_step: Callable[[], None]) -> None:
    """Prepare a device, and call ``at_step`` in the delay of the step of this number; 0: never."""
    machine = Machine(state)
    device = machine.device(partition_of(machine, what))
    machine.notes[device.share, device.claim.uid] = Notes(state / "notes")
    begun = 0

    def sleep(_: float) -> None:
        nonlocal begun
        begun += 1
        if begun == step:
            at_step()

    machine.prepare(device, None, SimulatedBackend(machine.config, sleep=sleep))


def prepare_and_die(state: Path, what: str, step: int) -> None:
    prepare(state, what, step, lambda: os.kill(os.getpid(), signal.SIGKILL))


def _stay() -> None:
    print("in the middle", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    prepare(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), _stay)
