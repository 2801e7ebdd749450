"""The power fails at any moment of prepare and unprepare: the plugin starts, and has no claim forgotten.

A real ext4 on a disk that records writes and flushes (``tests.fakes.disk_recorder``), cut at each of them, with any of
the writes that were not flushed. What a boot then finds is the durable part of the plugin's state; hardware is as after
any boot.
"""

import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import FILE_NAME, open_checkpoint
from tests.fakes.claims import ref
from tests.fakes.disk_recorder import NEEDS, RecordingDisk, mounted_copy, recording_disk
from tests.kubeletplugin.claim_fixture import WatchedCluster, plugin_core
from tests.kubeletplugin.claims.checkpoint.power_cut_process import CLAIMS, OPERATIONS
from tests.kubeletplugin.harness import LONGEST_S

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(path.exists() for path in NEEDS),
        reason="a disk is recorded by root with /dev/fuse, loop devices and mkfs.ext4",
    ),
]
MODULE = "tests.kubeletplugin.claims.checkpoint.power_cut_process"
DEVICES = 4
"""Of all claims together."""
SUBSETS = 3
"""Random choices of the writes that were not flushed, for each cut."""


class Event(NamedTuple):
    """What the process said, and the number of writes and flushes by then."""

    at: int
    what: str
    operation: str


class History(NamedTuple):
    """What the process did, and what reached the disk."""

    disk: RecordingDisk
    events: tuple[Event, ...]

    def must_have(self, at: int) -> set[str]:
        """The claims whose hardware may have been changed by then, and whose release had not begun."""
        held: set[str] = set()
        for event in self.events:
            verb, name = event.operation.split()
            if event.at > at:
                break
            if event.what == "prepare hardware":
                held.add(name)
            if event.what == "record Releasing" or (verb, event.what) == ("unprepare", "drop record"):
                held.discard(name)
        return held


@pytest.fixture(scope="module", params=["", "sync"], ids=["as the plugin syncs", "synced at every effect"])
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> History:
    folder = tmp_path_factory.mktemp("disk")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    synced = [request.param] if request.param else []
    with recording_disk(folder) as (disk, root):
        command = [sys.executable, "-m", MODULE, str(root), str(elsewhere), *synced]
        events = tuple(follow(command, disk))
        recorded = RecordingDisk(disk.first_content)
        recorded.log = list(disk.log)  # without what unmounting adds
    assert [event.what for event in events if event.what.startswith("end ")] == [f"end {one}" for one in OPERATIONS]
    return History(recorded, events)


def follow(command: list[str], disk: RecordingDisk) -> Iterator[Event]:
    """Run the process, and note how far the disk is at each thing that it says."""
    operation = "none none"
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            what = line.strip()
            if what.startswith("begin "):
                operation = what.removeprefix("begin ")
            yield Event(len(disk.log), what, operation)
            process.stdin.write("\n")
            process.stdin.flush()
    assert process.returncode == 0


def cuts(disk: RecordingDisk) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield where the power fails, and which of the writes since the last flush the disk has nevertheless."""
    chance = random.Random(1)
    for at in range(len(disk.log) + 1):
        pending = disk.count_pending(at)
        is_flush = at == len(disk.log) or disk.log[at].data is None
        if pending == 0 or not is_flush:
            continue  # what is pending before the last write of a group is among the choices from the whole group
        yield at, ()
        yield at, tuple(range(pending))
        for _ in range(SUBSETS):
            yield at, tuple(index for index in range(pending) if chance.random() < 0.5)
        yield at, tuple(range(pending // 2))


async def test_after_any_power_cut_the_plugin_starts_and_knows_every_claim_whose_hardware_was_begun(
    history: History, tmp_path: Path
) -> None:
    tried = 0
    for number, (at, kept) in enumerate(cuts(history.disk)):
        with mounted_copy(history.disk.content_after_cut(at, kept), tmp_path) as root:
            with anyio.fail_after(LONGEST_S):
                await judge(root, history.must_have(at), tmp_path / f"elsewhere-{number}", f"cut {at}, kept {kept}")
        tried += 1
    print(f"{tried} power cuts, {len(history.disk.log)} writes and flushes")
    assert tried > len(history.events)


async def judge(root: Path, must_have: set[str], elsewhere: Path, where: str) -> None:
    elsewhere.mkdir()
    (root / "hardware.json").unlink(missing_ok=True)  # partitions do not survive a boot
    for path in (root / "cdi").glob("*.json"):
        assert json.loads(path.read_bytes())["devices"], f"{where}: a half-written CDI file"
    if (root / FILE_NAME).exists():
        with open_checkpoint(root, boot_id="boot-2") as checkpoint:
            known = {record.claim.name for record in checkpoint.records.values()}
            assert known >= must_have, where
    else:
        assert must_have == set(), where
    cluster = WatchedCluster(elsewhere)
    for claim in CLAIMS:
        cluster.add(claim)
    async with plugin_core(root, cluster, boot_id="boot-2") as core:
        core.garbage_collector.check_files()
        for claim in CLAIMS:
            await core.preparer.prepare_claim(ref(claim))
        assert len(core.backend.made) == DEVICES, where
        for claim in CLAIMS:
            await core.preparer.unprepare_claim(ref(claim))
        assert (dict(core.checkpoint.records), core.backend.made) == ({}, {}), where
    left = [path.name for path in itertools.chain((root / "cdi").glob("*.json"), (root / "metadata").glob("*"))]
    assert left == [], where
