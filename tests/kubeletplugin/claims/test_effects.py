"""The effects of prepare and unprepare, and their order, by which every kill between two of them can be made good.

What comes of a kill before each effect, ``tests/kubeletplugin/claims/test_any_history.py`` tries, and of one at each
call of the operating system and of NVML, ``tests/kubeletplugin/fault_points``.
"""

from pathlib import Path
from typing import Final

import anyio

from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from kerf_dra.driver.runtime.worker_threads import Work
from tests.fakes.claims import claim, ref
from tests.kubeletplugin.claim_fixture import Effects, WatchedCluster, plugin_core
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.wait import until

CLAIM: Final = claim("training", "gpu-0-1g-1gb-at-0", "gpu-0-1g-1gb-at-1")
"""Its devices are of one card, so that they are worked on one after the other."""
PREPARE: Final = [
    "record Started",
    "sync records",
    "note",
    "prepare hardware",
    "sync records",
    "note",
    "prepare hardware",
    "write CDI file",
    "record Prepared",
    "write status",
    "status written",
]
UNPREPARE: Final = [
    "record Releasing",
    "remove CDI file",
    "release hardware",
    "clear notes",
    "release hardware",
    "clear notes",
    "drop record",
]


def write_at_once(work: Work) -> None:
    work()()


async def effects_of(root: Path, operation: str) -> list[str]:
    """What a process does for one call; after a prepare, what claims show is written until the claim shows it."""
    effects = Effects()
    cluster = WatchedCluster(root, effects)
    cluster.add(CLAIM)
    async with plugin_core(root, cluster, effects, start=write_at_once) as core, anyio.create_task_group() as group:
        if operation == "unprepare":
            await core.preparer.unprepare_claim(ref(CLAIM))
        else:
            group.start_soon(core.status_writer.run)
            await core.preparer.prepare_claim(ref(CLAIM))
            with anyio.fail_after(LONGEST_S):
                await until(lambda: "status written" in effects.seen)
        group.cancel_scope.cancel()
    return effects.seen


async def test_prepare_and_unprepare_have_their_effects_in_the_order_of_the_transitions(tmp_path: Path) -> None:
    assert await effects_of(tmp_path, "prepare") == PREPARE
    assert await effects_of(tmp_path, "unprepare") == UNPREPARE
    with open_checkpoint(tmp_path, boot_id="boot-1") as checkpoint:
        assert not checkpoint.records
