"""A process that prepares or unprepares one claim and is killed by SIGKILL right before effect number AT.

``python -m tests.kubeletplugin.crash_process ROOT prepare|unprepare AT``; prints its effects if it lives to the end.
"""

import os
import signal
import sys
from pathlib import Path

import anyio

from tests.fakes.claims import claim, ref
from tests.kubeletplugin.claim_fixture import Effects, WatchedCluster, plugin_core

DEVICES = ("gpu-0-1g-1gb-at-0", "gpu-0-1g-1gb-at-1")
"""Of one card, so that they are worked on one after the other."""
CLAIM = claim("training", *DEVICES)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(root: Path, operation: str, at: int) -> None:
    effects = Effects(at, kill)
    cluster = WatchedCluster(root, effects)
    cluster.add(CLAIM)
    async with plugin_core(root, cluster, effects) as core:
        await (core.preparer.prepare(ref(CLAIM)) if operation == "prepare" else core.preparer.unprepare(ref(CLAIM)))
    print("\n".join(effects.seen))


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
