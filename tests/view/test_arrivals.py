"""The first reading of a cluster: nodes appear as pages of the lists arrive, and nothing is said that is not known."""

import anyio
import pytest

from kerf_dra.driver.allocation import Budget
from kerf_dra.driver.diagnostics.cluster_state import PartialState
from kerf_dra.driver.view.html.page import Page
from kerf_dra.driver.view.page_builder import Target, refuse_form, show_arrived
from kerf_dra.driver.view.server import ViewServer
from kerf_dra.driver.view.snapshot_reader import ClusterReader, SnapshotReader
from kerf_dra.driver.view.snapshots import Snapshots
from tests.fakes.cluster_states import gpu_cluster
from tests.view.clusters import arrive, many_nodes
from tests.view.paged_cluster import PagedCluster, paged_cluster
from tests.view.test_pages import ADDRESSES, read
from tests.view.test_server import IN_TIME_S, TOKEN, Server, watch

EVERY_S = 0.05
"""Between two reads: the test waits for what an open page is sent."""


def show(arrived: PartialState, address: str) -> Page:
    target = Target.parse(address)
    assert target is not None, address
    return show_arrived(arrived, target)


def test_the_cards_of_each_node_are_named_once_all_slices_of_their_pool_have_arrived() -> None:
    found = read(show(arrive(gpu_cluster(3, 2), 3), "/"))
    assert "Reading the cluster: 3 nodes, 3 slices so far." in found.text
    assert "node-1 gpu-0 h100-80gb-sxm gpu-1 h100-80gb-sxm node-2 some of its slices have arrived" in found.text
    assert "node-3" not in found.text
    assert "svg" not in found.tags, "a card without its claims would look free"


def test_before_anything_has_arrived_the_page_says_so() -> None:
    found = read(show(PartialState(), "/"))
    assert "Reading the cluster: 0 nodes, 0 slices so far." in found.text


def test_of_many_nodes_that_have_arrived_a_page_shows_some_and_names_find_others() -> None:
    arrived = arrive(many_nodes(100), 150)
    assert len(arrived.slices) == 150
    assert "Page 3 of 3, 75 nodes" in read(show(arrived, "/?page=3")).text
    found = read(show(arrived, "/?text=node-07"))
    assert "node-074 gpu-0" in found.text
    assert "node-001" not in found.text


@pytest.mark.parametrize("address", ADDRESSES[2:])
def test_a_page_that_needs_the_whole_cluster_says_that_it_is_still_being_read(address: str) -> None:
    page = show(arrive(gpu_cluster(2), 4), address)
    found = read(page)
    assert "The cluster is still being read Reading the cluster: 2 nodes, 4 slices so far." in found.text
    assert (page.status, page.is_live) == (200, True), "it becomes the page when all has been read"
    assert found.links == {}


def test_a_manifest_gets_no_answer_from_a_part_of_the_cluster_and_is_kept() -> None:
    page = refuse_form({"manifest": "kind: Pod", "namespace": "team", "copies": "3"})
    assert "the cluster is still being read: ask again when it has been" in read(page).text
    assert "kind: Pod</textarea>" in page.main
    assert 'value="team"' in page.main
    assert 'value="3"' in page.main


async def test_nodes_appear_on_an_open_page_as_pages_of_the_lists_arrive() -> None:
    api = paged_cluster()
    snapshots = Snapshots(None, Budget(), "Live")
    reader = SnapshotReader(ClusterReader(api.client(), "default"), EVERY_S)
    view = ViewServer(snapshots, TOKEN, reader)
    with anyio.fail_after(IN_TIME_S):
        async with anyio.create_task_group() as tasks:
            server = Server(view, snapshots, await tasks.start(view.serve, 0))
            assert "Reading the cluster: 0 nodes, 0 slices so far" in (await server.get("/"))[1]
            async with watch(server) as events:
                tasks.start_soon(read_all, reader, snapshots)
                while "4 nodes, 3 slices so far" not in str(await events.next()):
                    pass
                await check_part(server)
                api.rest.set()
                while "Live" not in str(await events.next()):
                    pass
            await check_whole(server, api)
            tasks.cancel_scope.cancel()


async def read_all(reader: SnapshotReader, snapshots: Snapshots) -> None:
    snapshots.replace(await reader.read_first(snapshots))
    await reader.follow(snapshots)


async def check_part(server: Server) -> None:
    """Check the pages of a cluster of which the last page of slices is missing."""
    found = (await server.get("/"))[1]
    assert 'node-1</h2><ul class="strips"><li>gpu-0' in found
    assert 'node-2</h2><ul class="strips"><li>some of its slices have arrived' in found
    assert "still being read" in (await server.get("/claims"))[1]
    assert "still being read" in (await server.post({"manifest": "a"}))[1]


async def check_whole(server: Server, api: PagedCluster) -> None:
    """Check the pages once all has arrived, and that each list was read in its two pages."""
    found = (await server.get("/"))[1]
    assert "Reading the cluster" not in found
    assert "4 nodes; 0 of 0 claims have devices" in found
    assert "8 of 8 memory-slice free" in found
    assert "There is no such claim." in (await server.get("/claims"))[1]
    pages = [request.query.get("continue") for request in api.sent("GET") if request.path.endswith("/nodes")]
    assert pages[:2] == [None, "3"]
