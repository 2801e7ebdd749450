"""Killed inside a call of NVIDIA's library, and then the claim goes: the next process removes the rest.

What comes of a kill at any call while the claim stays, ``tests/kubeletplugin/fault_points`` tries.
"""

import signal
from contextlib import closing
from pathlib import Path

from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from kerf_dra.driver.testing.nvml import Death
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.node import call_in_process, hardware, machine
from tests.kubeletplugin.backends.one_call import collect_garbage
from tests.runtime.fork_server import run_in_fork

pytestmark = NEEDS_COMPILER


async def test_killed_while_making_a_partition_and_then_the_claim_goes(tmp_path: Path) -> None:
    hardware(tmp_path).close()
    machine(tmp_path).add_fault("nvmlGpuInstanceCreateComputeInstance", death=Death.AFTER)
    assert run_in_fork(call_in_process, tmp_path, "prepare") == -signal.SIGKILL
    await collect_garbage(tmp_path, hardware(tmp_path))
    with open_checkpoint(tmp_path, boot_id="boot-1") as checkpoint, closing(hardware(tmp_path)) as backend:
        assert not checkpoint.records
        assert [one for card in backend.discover() for one in backend.survey(card.uuid).partitions] == []
