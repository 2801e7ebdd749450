"""Killed inside a call of NVIDIA's library, with unmodified bindings: the next process finishes or removes the rest.

What is left is asked of the cards, by another user of the library.
"""

import signal
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.claims.checkpoint import open_checkpoint
from kerf_dra.driver.testing.nvml import Death
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.node import call, call_in_process, hardware, machine
from tests.kubeletplugin.backends.one_call import collect_garbage
from tests.runtime.fork_server import run_in_fork

pytestmark = NEEDS_COMPILER

MAKING = [
    ("nvmlDeviceCreateGpuInstanceWithPlacement", Death.AFTER, 1),
    ("nvmlGpuInstanceCreateComputeInstance", Death.HALFWAY, 1),
]


def killed_at(root: Path, operation: str, function: str, death: Death) -> None:
    """A process that does ``operation`` dies in a call of ``function``."""
    hardware(root).close()
    machine(root).add_fault(function, death=death)
    assert run_in_fork(call_in_process, root, operation) == -signal.SIGKILL


def left(root: Path) -> tuple[int, list[str]]:
    """Records, and partitions on the card."""
    backend = hardware(root)
    with open_checkpoint(root, boot_id="boot-1") as checkpoint:
        found = [str(one) for card in backend.discover() for one in backend.survey(card.uuid).partitions]
        backend.close()
        return len(checkpoint.records), found


@pytest.mark.parametrize(("function", "death", "instances"), MAKING, ids=[function for function, *_ in MAKING])
async def test_killed_while_making_a_partition(function: str, death: Death, instances: int, tmp_path: Path) -> None:
    killed_at(tmp_path, "prepare", function, death)
    records, found = left(tmp_path)
    assert (records, len(found)) == (1, instances)
    await call(tmp_path, "prepare")
    assert left(tmp_path) == (1, ["3g.40gb at 4", "1g.20gb at 0"])
    await call(tmp_path, "unprepare")
    assert left(tmp_path) == (0, [])


async def test_killed_while_making_a_partition_and_then_the_claim_goes(tmp_path: Path) -> None:
    killed_at(tmp_path, "prepare", "nvmlGpuInstanceCreateComputeInstance", Death.AFTER)
    await collect_garbage(tmp_path, hardware(tmp_path))
    assert left(tmp_path) == (0, [])
