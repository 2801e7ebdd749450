"""Killed inside of libxrt (FP-12): the next process finishes or clears the rest."""

import subprocess
import sys
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from tests.fakes.xrt import NEEDS_COMPILER, XrtMachine
from tests.fakes.xrt.machine import AES_ID, BLANK_ID
from tests.kubeletplugin.backends.one_call import collect_garbage
from tests.kubeletplugin.backends.xrt.machine import call, hardware, machine

pytestmark = NEEDS_COMPILER


@pytest.fixture
def root(tmp_path: Path) -> Path:
    XrtMachine.create(tmp_path / "machine").describe()
    return tmp_path


def run(root: Path, operation: str) -> int:
    """A process of its own does ``operation``; its exit status, once its children have ended, too."""
    command = [sys.executable, "-m", "tests.kubeletplugin.backends.xrt.machine", str(root), operation]
    return subprocess.run(command, check=False, timeout=240, stderr=subprocess.PIPE).returncode


def left(root: Path) -> tuple[int, str]:
    """Records, and what the card reports."""
    with open_checkpoint(root, boot_id="boot-1") as checkpoint:
        return len(checkpoint.records), machine(root).read_loaded(0)


def cdi_files(root: Path) -> list[str]:
    return [path.read_text() for path in root.rglob("*.json") if "cdiVersion" in path.read_text()]


async def test_a_claim_is_prepared_and_released_through_the_library(root: Path) -> None:
    """FP-15: every spec that is written is looked at."""
    await call(root, "prepare")
    assert left(root) == (1, AES_ID)
    [spec] = cdi_files(root)
    assert "/dev/dri/renderD128" in spec
    assert "xclmgmt" not in spec
    await call(root, "unprepare")
    assert left(root) == (0, BLANK_ID)
    assert cdi_files(root) == []
    assert [line.split()[:2] for line in machine(root).calls()] == [["load", "0000:3b:00.1"]] * 2


@pytest.mark.parametrize(("point", "loaded"), [("die-before", BLANK_ID), ("die-halfway", ""), ("die-after", AES_ID)])
async def test_killed_in_a_load_that_is_then_finished(point: str, loaded: str, root: Path) -> None:
    machine(root).add_fault("load", point)
    assert run(root, "prepare") == -9
    assert left(root) == (1, loaded)
    assert cdi_files(root) == []
    await call(root, "prepare")
    assert left(root) == (1, AES_ID)
    await call(root, "unprepare")
    assert left(root) == (0, BLANK_ID)


async def test_killed_in_a_load_and_then_the_claim_goes(root: Path) -> None:
    machine(root).add_fault("load", "die-halfway")
    assert run(root, "prepare") == -9
    await collect_garbage(root, hardware(root))
    assert left(root) == (0, BLANK_ID)


async def test_killed_in_the_middle_of_a_release(root: Path) -> None:
    await call(root, "prepare")
    machine(root).add_fault("load", "die-halfway")
    assert run(root, "unprepare") == -9
    assert left(root) == (1, "")
    await call(root, "unprepare")
    assert left(root) == (0, BLANK_ID)
