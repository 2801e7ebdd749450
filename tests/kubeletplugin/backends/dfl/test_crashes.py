"""Killed inside a call of the kernel's DFL driver (FP-12): the next process finishes or clears the rest.

The process that dies makes its own system calls, which the stand-in answers by LD_PRELOAD.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from tests.fakes.dfl import NEEDS_COMPILER, DflMachine, FakeSystemCalls, build_library
from tests.fakes.dfl.machine import AES_ID, BLANK_ID
from tests.kubeletplugin.backends.dfl.machine import call, hardware, machine
from tests.kubeletplugin.backends.one_call import collect_garbage

pytestmark = NEEDS_COMPILER

NO_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    DflMachine.create(tmp_path / "machine").describe()
    return tmp_path


def run(root: Path, operation: str) -> int:
    """A process of its own does ``operation``; its exit status."""
    command = [sys.executable, "-m", "tests.kubeletplugin.backends.dfl.machine", str(root), operation]
    environment = {**os.environ, "LD_PRELOAD": str(build_library())}
    return subprocess.run(command, check=False, timeout=240, env=environment).returncode


def left(root: Path) -> tuple[int, str]:
    """Records, and what the slot reports."""
    with open_checkpoint(root, boot_id="boot-1") as checkpoint:
        return len(checkpoint.records), machine(root).read_afu_id(1)


def cdi_files(root: Path) -> list[str]:
    return [path.read_text() for path in root.rglob("*.json") if "cdiVersion" in path.read_text()]


def test_the_driver_is_called_as_the_kernel_has_it(root: Path) -> None:
    """FP-07, FP-12, FP-15: nothing stands between the backend and its system calls."""
    assert run(root, "prepare") == 0
    assert left(root) == (1, AES_ID)
    assert "/dev/dfl-port.1" in "".join(cdi_files(root))
    assert "dfl-fme" not in "".join(cdi_files(root))
    assert [line.split()[0] for line in machine(root).calls()] == ["pr", "reset"]


async def test_killed_in_a_load_that_is_then_finished(root: Path) -> None:
    machine(root).add_fault("pr", "die-halfway")
    assert run(root, "prepare") == -9
    assert left(root) == (1, NO_ID)
    assert cdi_files(root) == []
    await call(root, "prepare", FakeSystemCalls())
    assert left(root) == (1, AES_ID)
    await call(root, "unprepare", FakeSystemCalls())
    assert left(root) == (0, BLANK_ID)


async def test_killed_in_a_load_and_then_the_claim_goes(root: Path) -> None:
    machine(root).add_fault("pr", "die-halfway")
    assert run(root, "prepare") == -9
    await collect_garbage(root, hardware(root, FakeSystemCalls()))
    assert left(root) == (0, BLANK_ID)


async def test_killed_in_the_middle_of_a_release(root: Path) -> None:
    await call(root, "prepare", FakeSystemCalls())
    machine(root).add_fault("pr", "die-halfway")
    assert run(root, "unprepare") == -9
    assert left(root) == (1, NO_ID)
    await call(root, "unprepare", FakeSystemCalls())
    assert left(root) == (0, BLANK_ID)
