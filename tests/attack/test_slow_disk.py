"""A disk that takes seconds for a sync, or never answers: the event loop goes on, and with it the kubelet's probes."""

import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TextIO

import anyio
import anyio.to_thread
import pytest
import yaml
from prometheus_client import CollectorRegistry

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.cdi.store import Filesystem
from kerf_dra.driver.runtime.probes import Probes
from tests.attack.slow_start_process import ENDED, STARTED
from tests.attack.test_connections import is_alive
from tests.fakes.cards import gpu
from tests.fakes.claims import claim
from tests.fakes.cluster import FakeCluster
from tests.fakes.hardware import FakeBackend
from tests.fakes.nvml import NEEDS_COMPILER
from tests.fakes.system_calls import build_library
from tests.kubeletplugin.claim_fixture import plugin_core
from tests.runtime.ports import reserved_port

DEPLOY = Path(__file__).parents[2] / "deploy"
CLAIMS = 8
LONGEST_S = 120.0
"""A loop that waits for the disk answers nobody for so long; then the call fails, and with it the test."""
FAMILIES = 2
FOLDER = "the folder"
SYNCED_AT_START = ["checkpoint.db.new", "checkpoint.digest.new", FOLDER, "checkpoint.db-wal", FOLDER]
"""What a family syncs at its first start: its two files, the beginning of its log, and the folder with their names."""
SYNCED_AT_END = ["checkpoint.db-wal", "checkpoint.db"]
"""What SQLite syncs as it moves its log into the database."""


class Disk(Filesystem):
    """A disk that hangs in one kind of call, while it is told to."""

    def __init__(self, hangs_in: str) -> None:
        self._hangs_in = hangs_in
        self.answers = threading.Event()
        self.is_asked = threading.Event()

    def call(self, name: str) -> None:
        if name == self._hangs_in:
            self.is_asked.set()
            if not self.answers.wait(LONGEST_S):
                raise OSError("everybody waited for the disk")

    def fdatasync(self, _: int) -> None:
        self.call("sync of the records")

    def create(self, path: Path) -> int:
        self.call("creation of a file")
        return super().create(path)

    def rename(self, source: Path, target: Path) -> None:
        self.call("rename of a file")
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self.call("sync of a folder")
        super().sync_directory(path)

    def unlink(self, path: Path) -> None:
        self.call("removal of a file")
        super().unlink(path)


@asynccontextmanager
async def probes() -> AsyncIterator[int]:
    async with anyio.create_task_group() as group:
        address = await group.start(Probes(CollectorRegistry()).serve, "127.0.0.1:0")
        yield int(address.rpartition(":")[2])
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    "hangs_in",
    ["sync of the records", "creation of a file", "rename of a file", "sync of a folder", "removal of a file"],
)
async def test_a_disk_that_hangs_while_eight_claims_come_and_go_keeps_no_probe_waiting(
    hangs_in: str, tmp_path: Path
) -> None:
    disk, cluster = Disk(hangs_in), FakeCluster()
    backend = FakeBackend([gpu(number) for number in range(CLAIMS)], tmp_path / "hardware.json")
    refs = [cluster.add(claim(f"c{number}", f"gpu-{number}-1g-1gb-at-0")) for number in range(CLAIMS)]
    done: list[str] = []
    async with (
        plugin_core(tmp_path, cluster, other_backend=backend, fdatasync=disk.fdatasync, filesystem=disk) as plugin,
        probes() as port,
        anyio.create_task_group() as group,
    ):
        if hangs_in == "removal of a file":
            for ref in refs:
                await plugin.preparer.prepare_claim(ref)

        async def run(ref: ClaimRef) -> None:
            await (
                plugin.preparer.unprepare_claim if hangs_in == "removal of a file" else plugin.preparer.prepare_claim
            )(ref)
            done.append(ref.name)

        for ref in refs:
            group.start_soon(run, ref)
        assert await anyio.to_thread.run_sync(disk.is_asked.wait, LONGEST_S)
        assert await is_alive(port)
        assert done == []
        disk.answers.set()
    assert len(done) == CLAIMS


@contextmanager
def starting_plugin(port: int) -> Iterator[tuple[TextIO, int]]:
    """Start a plugin each of whose syncs writes a line to the first pipe and waits for a byte from the second."""
    (lines, log), (gate, release) = os.pipe(), os.pipe()
    command = [sys.executable, "-m", "tests.attack.slow_start_process", str(port), str(log), str(gate)]
    environment = {**os.environ, "LD_PRELOAD": str(build_library())}
    with os.fdopen(lines) as reader, subprocess.Popen(command, pass_fds=(log, gate), env=environment) as process:
        os.close(log)
        try:
            yield reader, release
        finally:
            os.close(gate)
            os.close(release)  # syncs wait no longer
            process.kill()


@NEEDS_COMPILER
async def test_a_first_start_on_a_disk_that_hangs_in_any_sync_keeps_no_probe_waiting() -> None:
    """It made 22 syncs a family in the event loop: at 700 ms each the kubelet killed the container at every start."""
    with reserved_port() as port, starting_plugin(port) as (lines, release), anyio.fail_after(LONGEST_S):

        async def follow_syncs(last: str) -> list[str]:
            """Let each sync go on once the probes have answered; returns what was synced before the line ``last``."""
            synced: list[str] = []
            while (line := (await anyio.to_thread.run_sync(lines.readline, abandon_on_cancel=True)).strip()) != last:
                assert line, f"the plugin has ended before it said {last}"
                assert await is_alive(port), f"nothing answers during {line}"
                synced.append(name if (name := Path(line).name).startswith("checkpoint.") else FOLDER)
                os.write(release, b" ")
            return synced

        assert sorted(await follow_syncs(STARTED)) == sorted(SYNCED_AT_START * FAMILIES)
        assert (await follow_syncs(ENDED))[-2:] == SYNCED_AT_END


@pytest.mark.parametrize("folder", ["manifests", "nvidia", "fpga", "intel", "discovered"])
def test_a_plugin_has_minutes_to_load_its_libraries(folder: str) -> None:
    """Before it has, nothing answers: without this probe the kubelet ended it after 30 s, whatever it waited for."""
    documents = yaml.safe_load_all((DEPLOY / folder / "20-kubelet-plugin.yaml").read_text())
    (workload,) = (document for document in documents if document["kind"] == "DaemonSet")
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    probe = container["startupProbe"]
    assert probe["httpGet"] == container["livenessProbe"]["httpGet"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 300
