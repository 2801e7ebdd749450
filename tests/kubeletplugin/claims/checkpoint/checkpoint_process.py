"""Opens a checkpoint with each of its system calls failing once, and prints what became of each as a line of JSON.

``python -m tests.kubeletplugin.claims.checkpoint.checkpoint_process FOLDER``, with the library of
``tests.fakes.system_calls``.
"""

import json
import sys
from itertools import count
from pathlib import Path

from kerf_dra.api.checkpoint.v1 import CheckpointError
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from tests.fakes.system_calls import CallFault, SystemCalls
from tests.kubeletplugin.records import BOOT, record


def open_once(folder: Path, calls: SystemCalls, at: int) -> str:
    """Return how the opening, or the first write after it, fails; empty: it does not."""
    calls.arm(CallFault.FAIL, at)
    try:
        with open_checkpoint(folder, boot_id=BOOT) as checkpoint:
            calls.disarm()
            checkpoint.put(record())
    except CheckpointError as error:
        return str(error)
    finally:
        calls.disarm()
    return ""


def main(root: Path) -> None:
    folder, log = root / "state", root / "calls"
    folder.mkdir()
    calls = SystemCalls([folder], log)
    with open_checkpoint(folder, boot_id=BOOT) as checkpoint:
        checkpoint.put(record())
    for at in count(1):
        message = open_once(folder, calls, at)
        lines = log.read_text().splitlines()
        if len(lines) < at:
            return
        print(json.dumps([lines[at - 1].replace(f"{root}/", ""), message.replace(f"{root}/", "")]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
