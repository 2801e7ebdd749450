"""A process that prepares or unprepares one claim and is killed by SIGKILL right before effect number AT.

``python -m tests.kubeletplugin.claims.crash_process ROOT OPERATION AT``, with an operation of ``OPERATIONS``; prints
its effects if it lives to the end. After a prepare the claim's status is written, too.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Final

import anyio

from kerf_dra.driver.runtime.worker_threads import Work
from tests.fakes.claims import claim, ref
from tests.kubeletplugin.claim_fixture import Effects, WatchedCluster, plugin_core, write_status

DEVICES = ("gpu-0-1g-1gb-at-0", "gpu-0-1g-1gb-at-1")
"""Of one card, so that they are worked on one after the other."""
CLAIM = claim("training", *DEVICES)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


OPERATIONS: Final = ("prepare", "unprepare")


def write_at_once(work: Work) -> None:
    work()()


async def main(root: Path, operation: str, at: int) -> None:
    effects = Effects(at, kill)
    cluster = WatchedCluster(root, effects)
    cluster.add(CLAIM)
    async with plugin_core(root, cluster, effects, start=write_at_once) as core:
        if operation == "unprepare":
            await core.preparer.unprepare_claim(ref(CLAIM))
        else:
            await core.preparer.prepare_claim(ref(CLAIM))
            await write_status(core, lambda: "status written" in effects.seen)
    print("\n".join(effects.seen))


def run(root: Path, operation: str, at: int) -> None:
    anyio.run(main, root, operation, at)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
