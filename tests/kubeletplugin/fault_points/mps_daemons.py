"""Answers requests for MPS control daemons at once, in a process of its own that outlives plugins; no daemon starts.

A daemon takes some tenths of a second to start, which would be most of a trial.
``python -m tests.kubeletplugin.fault_points.mps_daemons ROOT`` goes on until it is killed.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

from kerf_dra.driver.kubeletplugin.backends.nvidia.sharing import device_sharing
from kerf_dra.driver.mps.documents import (
    LOCK,
    DaemonFolder,
    DaemonState,
    list_folders,
    remove_document,
    write_document,
)
from kerf_dra.driver.runtime import file_lock
from tests.kubeletplugin.fault_points.node import LONGEST_S, PAUSE, SHARING

_POLL_S: Final = 0.003
"""Seconds between two looks at requests, and at the answers to them."""
_PID: Final = 4242
"""What a state has as its daemon's number, for people."""


@contextmanager
def answered(root: Path) -> Iterator[None]:
    """Have requests of the node in ``root`` answered until the end of the context."""
    lock = root / SHARING / LOCK
    lock.parent.mkdir()
    command = [sys.executable, "-m", "tests.kubeletplugin.fault_points.mps_daemons", str(root)]
    often = patch.object(device_sharing, "_POLL_S", _POLL_S)  # what the plugin waits would be most of a trial, too
    with often, subprocess.Popen(command) as process:
        try:
            end = time.monotonic() + LONGEST_S
            while not file_lock.is_held(lock):
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(_POLL_S)
            yield
        finally:
            process.kill()


def _answer(folder: DaemonFolder) -> None:
    request = folder.read_request()
    if request is None:
        remove_document(folder.state)
        return
    state = folder.read_state()
    if state is None or state.request != request.id:
        write_document(folder.state, DaemonState(request=request.id, is_ready=True, pid=_PID))


def _run(root: Path) -> None:
    with file_lock.acquire(root / SHARING / LOCK):
        while True:
            with file_lock.acquire(root / PAUSE):
                for folder in list_folders(root / SHARING):
                    _answer(folder)
            time.sleep(_POLL_S)


if __name__ == "__main__":
    _run(Path(sys.argv[1]))
