"""Killed between any two effects of prepare and unprepare, and started again: the table of ``transitions`` holds.

Real processes, real SIGKILL, real files. What is found after the kill is compared with the table; then each way
to continue is tried from there: prepare again, unprepare, and the claim being gone.
"""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import msgspec
import pytest

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.kubeletplugin.claims.checkpoint import open_checkpoint
from tests.fakes.claims import ref
from tests.fakes.hardware import State
from tests.kubeletplugin.claim_fixture import PluginCore, WatchedCluster, plugin_core
from tests.kubeletplugin.claims import crash_process
from tests.kubeletplugin.claims.crash_process import CLAIM, DEVICES
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.wait import until
from tests.runtime.fork_server import run_in_fork

# What died before which effect leaves: record, number of devices on the hardware, whether the CDI file is there.
PREPARE = {
    1: ("none", 0, False),
    2: ("Started", 0, False),
    3: ("Started", 0, False),
    4: ("Started", 0, False),
    5: ("Started", 1, False),
    6: ("Started", 1, False),
    7: ("Started", 1, False),
    8: ("Started", 2, False),
    9: ("Started", 2, True),
    10: ("Prepared", 2, True),
    11: ("Prepared", 2, True),
}
PREPARE_EFFECTS = [
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
UNPREPARE = {
    1: ("Prepared", 2, True),
    2: ("Releasing", 2, True),
    3: ("Releasing", 2, False),
    4: ("Releasing", 1, False),
    5: ("Releasing", 1, False),
    6: ("Releasing", 0, False),
    7: ("Releasing", 0, False),
}
UNPREPARE_EFFECTS = [
    "record Releasing",
    "remove CDI file",
    "release hardware",
    "clear notes",
    "release hardware",
    "clear notes",
    "drop record",
]
FILE = "k8s.gpu.kerf.dev-claim_uid-of-training.json"


def run(root: Path, operation: str) -> "subprocess.CompletedProcess[str]":
    """Do all of an operation."""
    command = [sys.executable, "-m", "tests.kubeletplugin.claims.crash_process", str(root), operation, "0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def found(root: Path, boot_id: str = "boot-1") -> tuple[str, int, bool]:
    """Record, devices on the hardware, CDI file."""
    with open_checkpoint(root, boot_id=boot_id) as checkpoint:
        records = [record.state.value for record in checkpoint.records.values()]
    hardware = root / "hardware.json"
    made = msgspec.json.decode(hardware.read_bytes(), type=State).made if hardware.exists() else {}
    return (records or ["none"])[0], len(made), (root / "cdi" / FILE).exists()


def shown(core: PluginCore) -> list[str]:
    """The devices that the claim shows as ready, with their data."""
    entries = core.cluster.claims[ref(CLAIM)[:2]].status.devices
    return [entry.device for entry in entries if entry.data and entry.conditions]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an undisturbed prepare leaves."""
    root = tmp_path_factory.mktemp("prepared")
    result = run(root, "prepare")
    assert result.stdout.splitlines() == PREPARE_EFFECTS, result.stderr
    assert found(root) == ("Prepared", 2, True)
    return root


def test_an_undisturbed_unprepare_leaves_nothing(prepared: Path, tmp_path: Path) -> None:
    root = shutil.copytree(prepared, tmp_path / "root")
    assert run(root, "unprepare").stdout.splitlines() == UNPREPARE_EFFECTS
    assert found(root) == ("none", 0, False)


@pytest.mark.parametrize("at", PREPARE)
async def test_killed_during_prepare(at: int, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    assert run_in_fork(crash_process.run, root, "prepare", at) == -signal.SIGKILL
    assert found(root) == PREPARE[at]
    await every_way_on_ends_well(root)


@pytest.mark.parametrize("at", UNPREPARE)
async def test_killed_during_unprepare(at: int, prepared: Path, tmp_path: Path) -> None:
    root = shutil.copytree(prepared, tmp_path / "root")
    assert run_in_fork(crash_process.run, root, "unprepare", at) == -signal.SIGKILL
    assert found(root) == UNPREPARE[at]
    await every_way_on_ends_well(root)


async def every_way_on_ends_well(root: Path) -> None:
    """Record, hardware, file, and what the claim shows become what they should be."""

    async def prepare_again(core: PluginCore, claim: ClaimRef) -> None:
        record = await core.preparer.prepare_claim(claim)
        assert [device.share.id.device for device in record.devices] == list(DEVICES)
        await until(lambda: shown(core) == [*DEVICES])

    async def unprepare(core: PluginCore, claim: ClaimRef) -> None:
        await core.preparer.unprepare_claim(claim)
        await until(lambda: shown(core) == [])

    async def collect(core: PluginCore, claim: ClaimRef) -> None:
        core.cluster.remove(claim)
        core.garbage_collector.check_files()
        for now in (0.0, 1000.0):
            core.clock[0] = now
            await core.garbage_collector.collect(set(core.checkpoint.records))

    for way, expected in (
        (prepare_again, ("Prepared", 2, True)),
        (unprepare, ("none", 0, False)),
        (collect, ("none", 0, False)),
    ):
        for boot_id in ("boot-1", "boot-2"):
            copy = shutil.copytree(root, root.with_name(f"{way.__name__}-{boot_id}"))
            cluster = WatchedCluster(copy)
            cluster.add(CLAIM)
            async with plugin_core(copy, cluster, boot_id=boot_id) as core, anyio.create_task_group() as group:
                if boot_id != "boot-1":
                    core.backend.reboot()
                group.start_soon(core.status_writer.run)
                with anyio.fail_after(LONGEST_S):
                    await way(core, ref(CLAIM))
                group.cancel_scope.cancel()
            assert found(copy, boot_id) == expected, f"{way.__name__} in {boot_id}"
