"""Daemons of MPS for tests: the stand-in's program in a driver's root, kept in a thread or by a process of Kerf."""

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kerf_dra.driver.mps.control_daemon import ControlDaemon
from kerf_dra.driver.mps.documents import LOCK, DaemonFolder, DaemonRequest, list_folders, write_document
from kerf_dra.driver.mps.service import DaemonKeeper
from kerf_dra.driver.runtime import file_lock
from kerf_dra.driver.runtime.boot import read_boot_id
from kerf_dra.driver.testing.nvml.driver_tree import write_program

PROGRAM = "nvidia-cuda-mps-control"


def make_driver_root(folder: Path) -> Path:
    """A driver's root with the stand-in of the daemon, which needs no compiler."""
    programs = folder / "usr" / "bin"
    programs.mkdir(parents=True)
    write_program(PROGRAM, programs)
    return folder


def ask(folder: DaemonFolder, driver_root: Path, command: str) -> str:
    """What the device's daemon answers to a command, as its clients ask it."""
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(folder.pipe)}
    done = subprocess.run(
        [driver_root / "usr" / "bin" / PROGRAM],
        input=f"{command}\n",
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.stdout


def want(folder: DaemonFolder, *, percentage: int = 100, memory_mib: int | None = None) -> str:
    """Write a request as the plugin does, and return its id."""
    folder.path.mkdir(parents=True, exist_ok=True)
    request = DaemonRequest(
        id=uuid.uuid4().hex,
        boot_id=read_boot_id(),
        device=folder.device,
        active_thread_percentage=percentage,
        pinned_memory_mib=memory_mib,
    )
    write_document(folder.request, request)
    return request.id


def end_daemons(root: Path, driver_root: Path) -> None:
    """End the daemons that a test has left."""
    for folder in list_folders(root):
        ControlDaemon(folder, driver_root).end()


@contextmanager
def kept_in_a_thread(root: Path, driver_root: Path) -> Iterator[None]:
    """Keep the daemons of the requests in ``root`` as ``kerf mps-daemons`` does, until the end of the context."""
    root.mkdir(parents=True, exist_ok=True)
    is_over = threading.Event()

    def keep() -> None:
        keepers: dict[str, DaemonKeeper] = {}
        while not is_over.wait(0.02):
            for folder in list_folders(root):
                if folder.request.exists() or folder.state.exists():
                    keeper = keepers.setdefault(folder.device, DaemonKeeper(folder, driver_root))
                    if not keeper.step():
                        del keepers[folder.device]
        for device, keeper in keepers.items():
            DaemonFolder(root / device).request.unlink(missing_ok=True)
            keeper.step()

    thread = threading.Thread(target=keep, name="mps-daemons")
    with file_lock.acquire(root / LOCK):
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


@contextmanager
def kept_by_a_process(root: Path, driver_root: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Run ``kerf mps-daemons`` until the end of the context, when its daemons end, too."""
    command = [
        sys.executable,
        "-m",
        "kerf_dra.driver.cli",
        "mps-daemons",
        f"--folder={root}",
        f"--driver-root={driver_root}",
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            end_daemons(root, driver_root)


def step_until(keeper: DaemonKeeper, condition: Callable[[], bool], *, most: int = 2000) -> None:
    """Let ``keeper`` do what is due until the condition holds; a daemon needs some tenths of a second to start."""
    for _ in range(most):
        keeper.step()
        if condition():
            return
    raise AssertionError("the condition does not hold after all steps")
