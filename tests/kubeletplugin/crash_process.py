"""A process that prepares or unprepares one claim and is killed by SIGKILL right before effect number AT.

``python -m tests.kubeletplugin.crash_process ROOT OPERATION AT``, with an operation of ``OPERATIONS``; prints its
effects if it lives to the end. Files and status are written at the same time: here one before the other.
"""

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from driver.runtime.worker_threads import Work
from tests.fakes.claims import claim, ref
from tests.kubeletplugin.claim_fixture import Effects, WatchedCluster, plugin_core

DEVICES = ("gpu-0-1g-1gb-at-0", "gpu-0-1g-1gb-at-1")
"""Of one card, so that they are worked on one after the other."""
CLAIM = claim("training", *DEVICES)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


OPERATIONS: Final = ("prepare", "prepare with a slow disk", "unprepare")


def write_at_once(work: Work) -> None:
    work()()


def write_after_status(effects: Effects, work: Work) -> None:
    if "status written" in effects.seen:
        work()()
    else:
        asyncio.get_running_loop().call_soon(write_after_status, effects, work)


async def main(root: Path, operation: str, at: int) -> None:
    effects = Effects(at, kill)
    cluster = WatchedCluster(root, effects)
    cluster.add(CLAIM)
    start = partial(write_after_status, effects) if "slow" in operation else write_at_once
    async with plugin_core(root, cluster, effects, start=start) as core:
        preparer = core.preparer
        await (preparer.unprepare(ref(CLAIM)) if operation == "unprepare" else preparer.prepare(ref(CLAIM)))
    print("\n".join(effects.seen))


def run(root: Path, operation: str, at: int) -> None:
    anyio.run(main, root, operation, at)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
