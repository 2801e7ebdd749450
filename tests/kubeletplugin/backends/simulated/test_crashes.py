"""Killed inside the hardware's own steps, where a GPU instance may exist without its compute instance.

The simulated backend kills its process at a step that ``faults.json`` names; the next process must finish, or find and
remove, what was left, whatever step it was.
"""

import json
import signal
from pathlib import Path

import pytest

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.kubeletplugin.claims.checkpoint import open_checkpoint
from tests.kubeletplugin.backends.one_call import collect_garbage
from tests.kubeletplugin.backends.simulated.machine import FPGA_CLAIM, GPU_CLAIM, STATE, call, call_in_process, hardware
from tests.runtime.fork_server import run_in_fork

MAKING = [
    (GPU_CLAIM, "nvmlDeviceSetMigMode"),
    (GPU_CLAIM, "nvmlDeviceCreateGpuInstanceWithPlacement"),
    (GPU_CLAIM, "nvmlGpuInstanceCreateComputeInstance"),
    (FPGA_CLAIM, "fpga-check"),
    (FPGA_CLAIM, "fpga-program"),
    (FPGA_CLAIM, "fpga-read-back"),
]
RELEASING = [
    (GPU_CLAIM, "nvmlComputeInstanceDestroy"),
    (GPU_CLAIM, "nvmlGpuInstanceDestroy"),
    (FPGA_CLAIM, "fpga-blank"),
]
DEVICES = {"gpu": 2, "fpga": 1}
WHEN = pytest.mark.parametrize("when", ["before", "after"])


def killed_at(root: Path, held: ResourceClaim, operation: str, step: str, when: str) -> None:
    """A process that does ``operation`` dies at ``step``."""
    hardware(root)
    faults = root / STATE / "faults.json"
    faults.parent.mkdir(exist_ok=True)
    faults.write_text(json.dumps({"faults": [{"step": step, "effect": "crash", "when": when}]}))
    assert run_in_fork(call_in_process, root, held, operation) == -signal.SIGKILL
    assert json.loads(faults.read_text()).get("faults", []) == []


def left(root: Path) -> tuple[int, int]:
    """Records, and partitions on the hardware."""
    with open_checkpoint(root, boot_id="boot-1") as checkpoint:
        return len(checkpoint.records), len(hardware(root).partitions())


async def ends_well(root: Path, held: ResourceClaim) -> None:
    """The claim can be prepared, and unprepare leaves nothing."""
    await call(root, held, "prepare")
    assert left(root) == (1, DEVICES[held.metadata.name])
    await call(root, held, "unprepare")
    assert left(root) == (0, 0)


@WHEN
@pytest.mark.parametrize(("held", "step"), MAKING, ids=[step for _, step in MAKING])
async def test_killed_while_making_a_partition(held: ResourceClaim, step: str, when: str, tmp_path: Path) -> None:
    killed_at(tmp_path, held, "prepare", step, when)
    assert left(tmp_path)[0] == 1
    await ends_well(tmp_path, held)


@WHEN
@pytest.mark.parametrize(("held", "step"), MAKING, ids=[step for _, step in MAKING])
async def test_killed_while_making_a_partition_and_then_the_claim_goes(
    held: ResourceClaim, step: str, when: str, tmp_path: Path
) -> None:
    killed_at(tmp_path, held, "prepare", step, when)
    await collect_garbage(tmp_path, hardware(tmp_path))
    assert left(tmp_path) == (0, 0)


@WHEN
@pytest.mark.parametrize(("held", "step"), RELEASING, ids=[step for _, step in RELEASING])
async def test_killed_while_releasing_a_partition(held: ResourceClaim, step: str, when: str, tmp_path: Path) -> None:
    await call(tmp_path, held, "prepare")
    killed_at(tmp_path, held, "unprepare", step, when)
    assert left(tmp_path)[0] == 1
    await ends_well(tmp_path, held)
