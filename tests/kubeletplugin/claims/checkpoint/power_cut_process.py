"""A process that prepares and unprepares claims on a recording disk, and says before each effect that it comes.

``python -m tests.kubeletplugin.claims.checkpoint.power_cut_process ROOT ELSEWHERE [sync]``: it goes on when it reads a
line. With "sync" all that was written before is on the disk then, as after any pause. ELSEWHERE has the state of the
cluster.
"""

import os
import sys
from pathlib import Path

import anyio

from tests.fakes.claims import claim, config, ref
from tests.kubeletplugin.claim_fixture import Effects, WatchedCluster, plugin_core

METADATA = config({"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "deviceMetadata": True})
CLAIMS = (
    claim("one", "gpu-0-1g-1gb-at-0", "gpu-0-1g-1gb-at-1", configs=[METADATA]),
    claim("two", "gpu-0-1g-1gb-at-2"),
    claim("three", "gpu-1"),
)
OPERATIONS = ("prepare one", "prepare two", "unprepare one", "prepare three", "unprepare two", "prepare one")


def tell(event: str) -> None:
    """Say ``event``, and wait until whoever reads it has noted what is on the disk."""
    if "sync" in sys.argv:
        os.sync()
    print(event, flush=True)
    sys.stdin.readline()


async def main(root: Path, elsewhere: Path) -> None:
    effects = Effects(1, lambda: tell(effects.seen[-1]))
    cluster = WatchedCluster(elsewhere)
    for one in CLAIMS:
        cluster.add(one)
    async with plugin_core(root, cluster, effects) as core:
        for operation in OPERATIONS:
            tell(f"begin {operation}")
            verb, name = operation.split()
            (chosen,) = (one for one in CLAIMS if one.metadata.name == name)
            await (
                core.preparer.prepare_claim(ref(chosen))
                if verb == "prepare"
                else core.preparer.unprepare_claim(ref(chosen))
            )
            tell(f"end {operation}")


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), Path(sys.argv[2]))
