"""When the cluster is read: while a page is open, at most a tenth of the time, and again after an outage."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from kerf_dra.api.errors import TransientError
from kerf_dra.driver.allocation import Budget
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.collector import ListArrivals
from kerf_dra.driver.view.snapshot_reader import ClusterReader, SnapshotReader
from kerf_dra.driver.view.snapshots import Snapshots
from tests.kube.memory_server import unreachable
from tests.runtime.virtual_time import VIRTUAL_TIME, pass_time
from tests.view.clusters import two_nodes
from tests.view.paged_cluster import is_second_page, paged_cluster


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


class Cluster:
    """Implements ``StateReader``: a cluster whose API server may be away, and takes its time."""

    def __init__(self) -> None:
        self.reads = 0
        self.takes_s = 0.0
        self.error: Exception | None = None

    async def read(self, arrivals: ListArrivals | None = None) -> ClusterState:
        self.reads += 1
        await anyio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error
        return two_nodes()


@asynccontextmanager
async def following(cluster: Cluster, watchers: int = 1) -> AsyncIterator[tuple[SnapshotReader, Snapshots]]:
    snapshots = Snapshots(two_nodes(), Budget(), "Live")
    reader = SnapshotReader(cluster, 2.0)
    reader.watchers = watchers
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.follow, snapshots)
        yield reader, snapshots
        tasks.cancel_scope.cancel()


async def test_a_first_reading_that_fails_in_the_middle_is_said_and_tried_again_until_it_succeeds() -> None:
    api = paged_cluster()
    api.rest.set()
    api.faults.append(lambda request: unreachable(request) if is_second_page(request) else None)
    snapshots = Snapshots(None, Budget(), "Live")
    reader = SnapshotReader(ClusterReader(api.client(), "default"), 2.0)
    reader.watchers = 1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_whole, reader, snapshots)
        await pass_time(60)
        assert "The cluster could not be read yet, and is read again: " in snapshots.state_line
        assert "connection refused" in snapshots.state_line
        api.faults.clear()
        await pass_time(20)
        assert "Live" in snapshots.state_line


async def read_whole(reader: SnapshotReader, snapshots: Snapshots) -> None:
    snapshots.replace(await reader.read_first(snapshots))


async def test_a_page_does_not_wait_for_the_end_of_the_first_reading() -> None:
    cluster = Cluster()
    cluster.takes_s = 60.0
    reader = SnapshotReader(cluster, 2.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.read_first, Snapshots(None, Budget(), "Live"))
        await pass_time(30)
        began = anyio.current_time()
        await reader.ask()
        assert anyio.current_time() == began
        tasks.cancel_scope.cancel()


async def test_an_open_page_has_the_cluster_read_every_two_seconds() -> None:
    cluster = Cluster()
    async with following(cluster):
        await pass_time(21)
    assert cluster.reads == 10


async def test_a_large_cluster_is_read_for_a_tenth_of_the_time() -> None:
    cluster = Cluster()
    cluster.takes_s = 3.0
    async with following(cluster):
        await pass_time(2 + 4 * 30)
    assert cluster.reads == 5


async def test_nobody_looks_and_nothing_is_read() -> None:
    cluster = Cluster()
    async with following(cluster, watchers=0) as (reader, _):
        await pass_time(600)
        reads = cluster.reads
        assert reads < 20, "those of the first half minute"
        await pass_time(3600)
        assert cluster.reads == reads
        await reader.ask()
        assert cluster.reads == reads + 1, "a page that is asked for then is of now"
        await reader.ask()
        assert cluster.reads == reads + 1


async def test_a_page_does_not_wait_for_a_cluster_that_does_not_answer() -> None:
    cluster = Cluster()
    async with following(cluster, watchers=0) as (reader, _):
        await pass_time(600)
        cluster.takes_s = 1000.0
        began = anyio.current_time()
        await reader.ask()
        assert anyio.current_time() - began == 3.0


@pytest.mark.parametrize("is_group", [True, False])
async def test_an_outage_is_named_and_ends(is_group: bool) -> None:
    cluster = Cluster()
    error = TransientError("connection refused")
    cluster.error = ExceptionGroup("lists", [error, error]) if is_group else error
    async with following(cluster) as (_, snapshots):
        await pass_time(600)
        assert "Not current since 2026-11-21T08:00:00+00:00: connection refused<" in snapshots.state_line
        assert 600 / 18 - 10 < cluster.reads < 60, "with pauses of up to 18 s"
        cluster.error = None
        await pass_time(20)
        assert "Live" in snapshots.state_line


async def test_a_fault_of_kerf_itself_ends_the_command() -> None:
    cluster = Cluster()
    cluster.error = ExceptionGroup("lists", [TransientError("away"), ZeroDivisionError()])
    with pytest.raises(ExceptionGroup) as raised:
        async with following(cluster):
            await pass_time(10)
    assert raised.group_contains(ZeroDivisionError)
