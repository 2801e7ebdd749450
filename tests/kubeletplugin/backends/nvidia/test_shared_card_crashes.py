"""The plugin, the keeper of daemons or a daemon is killed while a card is shared by MPS: nothing is left in the end.

What is left is asked of the card, and of the processes of the machine.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pynvml
import pytest

from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from kerf_dra.driver.mps.documents import DaemonFolder, DaemonState, list_folders
from kerf_dra.driver.testing.nvml import NvidiaMachine
from tests.fakes.mps import ask, kept_by_a_process
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml
from tests.kubeletplugin.backends.nvidia.sharing_process import SHARING, call, hardware
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.wait import until

pytestmark = NEEDS_COMPILER

DEFAULT, EXCLUSIVE_PROCESS = 0, 3
"""NVML_COMPUTEMODE_*."""


def driver_root(root: Path) -> Path:
    return NvidiaMachine(root / "machine").driver_root


def start(root: Path, operation: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.kubeletplugin.backends.nvidia.sharing_process", str(root), operation]
    )


def folder_of(root: Path) -> DaemonFolder | None:
    return next(iter(list_folders(root / SHARING)), None)


def state(root: Path) -> DaemonState | None:
    folder = folder_of(root)
    return None if folder is None else folder.read_state()


async def wait_for(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(LONGEST_S):
        await until(condition)


def mode(root: Path) -> int:
    with open_nvml(NvidiaMachine(root / "machine")):
        return int(pynvml.nvmlDeviceGetComputeMode(pynvml.nvmlDeviceGetHandleByIndex(0)))


def check_shared(root: Path) -> None:
    """The claim has its card, in the mode of MPS, and its daemon answers with the claim's limit."""
    folder = folder_of(root)
    assert folder is not None
    assert mode(root) == EXCLUSIVE_PROCESS
    assert ask(folder, driver_root(root), "get_default_active_thread_percentage") == "30.0\n"


def check_nothing_left(root: Path) -> None:
    folder = folder_of(root)
    with open_checkpoint(root, boot_id="boot-1") as checkpoint:
        assert not checkpoint.records
    assert mode(root) == DEFAULT
    if folder is not None:
        assert {path.name for path in folder.path.iterdir()} <= {"log"}
        assert ask(folder, driver_root(root), "get_server_list") == ""


@pytest.mark.parametrize("then", ["prepare", pytest.param("unprepare", marks=pytest.mark.long)])
async def test_the_plugin_is_killed_while_it_waits_for_a_daemon(then: str, tmp_path: Path) -> None:
    hardware(tmp_path).close()
    plugin = start(tmp_path, "prepare")
    await wait_for(lambda: (folder := folder_of(tmp_path)) is not None and folder.request.exists())
    plugin.kill()
    plugin.wait()
    assert mode(tmp_path) == EXCLUSIVE_PROCESS
    with kept_by_a_process(tmp_path / SHARING, driver_root(tmp_path)):
        if then == "prepare":
            await call(tmp_path, "prepare")
            check_shared(tmp_path)
        await call(tmp_path, "unprepare")
        check_nothing_left(tmp_path)


@pytest.mark.long
async def test_the_plugin_is_killed_while_it_waits_for_the_end_of_a_daemon(tmp_path: Path) -> None:
    hardware(tmp_path).close()
    with kept_by_a_process(tmp_path / SHARING, driver_root(tmp_path)) as keeper:
        await call(tmp_path, "prepare")
        folder = folder_of(tmp_path)
        assert folder is not None
        keeper.send_signal(signal.SIGSTOP)
        plugin = start(tmp_path, "unprepare")
        await wait_for(lambda: not folder.request.exists())
        plugin.kill()
        plugin.wait()
        assert mode(tmp_path) == EXCLUSIVE_PROCESS
        keeper.send_signal(signal.SIGCONT)
        await call(tmp_path, "unprepare")
        check_nothing_left(tmp_path)


@pytest.mark.long
async def test_the_keeper_is_killed_and_the_next_one_takes_over_what_runs(tmp_path: Path) -> None:
    hardware(tmp_path).close()
    with kept_by_a_process(tmp_path / SHARING, driver_root(tmp_path)) as keeper:
        await call(tmp_path, "prepare")
        before = state(tmp_path)
        keeper.kill()
        keeper.wait()
        check_shared(tmp_path)
        with kept_by_a_process(tmp_path / SHARING, driver_root(tmp_path)):
            await call(tmp_path, "prepare")
            await wait_for(lambda: (found := state(tmp_path)) is not None and found.is_ready)
            after = state(tmp_path)
            assert before is not None
            assert after is not None
            assert after.pid == before.pid
            await call(tmp_path, "unprepare")
            check_nothing_left(tmp_path)


@pytest.mark.long
async def test_a_daemon_is_killed_and_the_next_one_has_the_claims_limit(tmp_path: Path) -> None:
    hardware(tmp_path).close()
    with kept_by_a_process(tmp_path / SHARING, driver_root(tmp_path)):
        await call(tmp_path, "prepare")
        before = state(tmp_path)
        assert before is not None
        os.kill(before.pid, signal.SIGKILL)
        await wait_for(lambda: (found := state(tmp_path)) is not None and found.restarts == 1 and found.is_ready)
        check_shared(tmp_path)
        await call(tmp_path, "unprepare")
        check_nothing_left(tmp_path)
