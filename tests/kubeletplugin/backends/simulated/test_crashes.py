"""Killed inside the steps of a simulated FPGA card: the next process finishes, or finds and removes, what was left.

The backend kills its process at a step that ``faults.json`` names. What comes of a kill at any call while a GPU is cut,
``tests/kubeletplugin/fault_points`` tries.
"""

import json
import signal
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from tests.kubeletplugin.backends.one_call import collect_garbage
from tests.kubeletplugin.backends.simulated.machine import STATE, call, call_in_process, hardware
from tests.runtime.fork_server import run_in_fork

WHEN = pytest.mark.parametrize("when", ["before", "after"])
MAKING = pytest.mark.parametrize("step", ["fpga-check", "fpga-program", "fpga-read-back"])


def killed_at(root: Path, operation: str, step: str, when: str) -> None:
    """A process that does ``operation`` dies at ``step``."""
    hardware(root)
    faults = root / STATE / "faults.json"
    faults.parent.mkdir(exist_ok=True)
    faults.write_text(json.dumps({"faults": [{"step": step, "effect": "crash", "when": when}]}))
    assert run_in_fork(call_in_process, root, operation) == -signal.SIGKILL
    assert json.loads(faults.read_text()).get("faults", []) == []


def left(root: Path) -> tuple[int, int]:
    """Records, and partitions on the hardware."""
    with open_checkpoint(root, boot_id="boot-1") as checkpoint:
        return len(checkpoint.records), len(hardware(root).partitions())


async def ends_well(root: Path) -> None:
    """The claim can be prepared, and unprepare leaves nothing."""
    await call(root, "prepare")
    assert left(root) == (1, 1)
    await call(root, "unprepare")
    assert left(root) == (0, 0)


@WHEN
@MAKING
async def test_killed_while_loading_a_function(step: str, when: str, tmp_path: Path) -> None:
    killed_at(tmp_path, "prepare", step, when)
    assert left(tmp_path)[0] == 1
    await ends_well(tmp_path)


@WHEN
@MAKING
async def test_killed_while_loading_a_function_and_then_the_claim_goes(step: str, when: str, tmp_path: Path) -> None:
    killed_at(tmp_path, "prepare", step, when)
    await collect_garbage(tmp_path, hardware(tmp_path))
    assert left(tmp_path) == (0, 0)


@WHEN
async def test_killed_while_blanking_a_slot(when: str, tmp_path: Path) -> None:
    await call(tmp_path, "prepare")
    killed_at(tmp_path, "unprepare", "fpga-blank", when)
    assert left(tmp_path)[0] == 1
    await ends_well(tmp_path)
