"""A disk that takes seconds for a sync, or never answers: the event loop goes on, and with it the kubelet's probes."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from prometheus_client import CollectorRegistry

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.cdi.store import Filesystem
from kerf_dra.driver.runtime.probes import Probes
from tests.attack.test_connections import is_alive
from tests.fakes.cards import gpu
from tests.fakes.claims import claim
from tests.fakes.cluster import FakeCluster
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.claim_fixture import plugin_core

CLAIMS = 8
LONGEST_S = 120.0
"""A loop that waits for the disk answers nobody for so long; then the call fails, and with it the test."""


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
