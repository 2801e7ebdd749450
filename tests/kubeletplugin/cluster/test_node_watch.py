"""A Node that is deleted and created again, labelled, or whose kubelet is upgraded, while its plugin runs.

Two families of one process are on it, with an embedded API server whose garbage collector runs, under virtual time.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, NODES, Node, NodeStatus, NodeSystemInfo
from kerf_dra.api.kerf.v1alpha1 import DEVICE_PLUGIN, RESOURCE_CLASSES, ResourceClassObject, ResourceClassStatus
from kerf_dra.api.model.metadata import Condition, ObjectMeta
from kerf_dra.api.model.names import DriverName
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.api.resource.v1alpha2 import KINDS as CLASSIC_KINDS
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.api_changes import ApiChangedError
from kerf_dra.driver.kube.discovery import ClassicFeatures
from kerf_dra.driver.kube.http.client import PatchType
from kerf_dra.driver.kube.http.errors import UnreachableError
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.kubeletplugin.app import ClusterConnector
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster
from kerf_dra.driver.kubeletplugin.cluster.classic import RENEW_S, ClassicCluster, KubeletChangedError
from kerf_dra.driver.kubeletplugin.cluster.node_watch import LOOKS, NodeWatch
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from tests.attack.twisted_server import TwistedServer
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import NODE
from tests.runtime.virtual_time import VIRTUAL_TIME
from tools.generate import crds

LOOK_S = LOOKS.limit_s * (1 + LOOKS.jitter) + 10
"""Longer than from one look at the Node to what follows from the next."""
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
CARDS = {GPU.name: gpu(0), FPGA.name: fpga(0)}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@dataclass
class RecordingServer(TwistedServer):
    """The API server, which notes the requests of the plugin, and is away when it should be."""

    requests: list[HttpRequest] = field(default_factory=list)
    is_away: bool = False

    async def call(self, request: HttpRequest) -> bytes:
        self.requests.append(request)
        if self.is_away:
            raise UnreachableError(str(request), "connection refused")
        return await super().call(request)

    def count(self, method: str, plural: str) -> int:
        return sum((one.method, one.resource) == (method, plural) for one in self.requests)


def node(kubelet: str = "v1.37.0", **labels: str) -> Node:
    info = NodeSystemInfo(kubelet_version=kubelet)
    return Node(metadata=ObjectMeta(name=NODE, labels=labels), status=NodeStatus(node_info=info))


@dataclass
class LivingNode:
    """A Node with a plugin of two families."""

    server: RecordingServer
    connector: ClusterConnector
    clusters: dict[str, Cluster]
    changes: list[str] = field(default_factory=list)
    """The families whose target has changed."""

    def __post_init__(self) -> None:
        self.admin = TwistedServer(self.server.server).client()

    async def owners(self) -> set[tuple[str, str]]:
        """The driver and the UID of the owner of each slice."""
        listed = (await self.admin.list(KINDS.resource_slices)).items
        return {(one.spec.driver, owner.uid) for one in listed for owner in one.metadata.owner_references}

    async def reasons(self) -> list[str]:
        return sorted(event.reason for event in (await self.admin.list(EVENTS)).items)

    async def patch_node(self, patch: dict[str, Any], subresource: str = "") -> None:
        await self.admin.patch(NODES, NODE, patch, type=PatchType.MERGE, subresource=subresource)


async def publish(cluster: Cluster, family: Family) -> None:
    health = DeviceHealthTracker(driver=DriverName(family.driver), now=lambda: 0.0)
    cluster.publish(build_device_set(cluster.target, {"simulated": [CARDS[family.name]]}, (), health, DeviceSet()))
    await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def living_node() -> AsyncIterator[LivingNode]:
    server = RecordingServer(ApiServer())
    connector = ClusterConnector(server.client(), NODE)
    await TwistedServer(server.server).client().create(NODES, node())
    families = (GPU, FPGA)
    clusters = {
        one.name: await connector.connect(Settings(node_name=NODE, family=one, backends=())) for one in families
    }
    place = LivingNode(server, connector, clusters)
    async with anyio.create_task_group() as group:
        group.start_soon(server.server._garbage_collector.run)
        group.start_soon(connector.run)
        for family in families:
            await publish(clusters[family.name], family)
            group.start_soon(clusters[family.name].run, partial(place.changes.append, family.name))
        await anyio.sleep(10)
        yield place
        group.cancel_scope.cancel()


async def uid_of_node(place: LivingNode) -> str:
    return (await place.admin.get(NODES, NODE)).metadata.uid


async def test_the_slices_of_a_node_that_is_created_again_are_owned_by_the_new_one() -> None:
    """Slices with the UID of the old one were created and garbage-collected every few seconds, without a word, until
    the plugin was started again."""
    async with living_node() as place:
        before = await uid_of_node(place)
        assert await place.owners() == {(GPU.driver, before), (FPGA.driver, before)}
        await place.admin.delete(NODES, NODE)
        await place.admin.create(NODES, node())
        await anyio.sleep(30)
        after = await uid_of_node(place)
        assert after != before
        assert await place.owners() == {(GPU.driver, after), (FPGA.driver, after)}
        assert (await place.reasons()).count("NodeReplaced") == 1
        written = place.server.count("POST", "resourceslices")
        await anyio.sleep(3600)
        assert place.server.count("POST", "resourceslices") == written


async def test_while_a_node_is_absent_nothing_is_written_and_that_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with living_node() as place:
        await place.admin.delete(NODES, NODE)
        await anyio.sleep(30)
        assert await place.owners() == set()
        written = place.server.count("POST", "resourceslices")
        await anyio.sleep(3600)
        assert place.server.count("POST", "resourceslices") == written <= 8
        assert caplog.text.count(f"Node {NODE} has been deleted while its kubelet plugin runs") == 1
        await place.admin.create(NODES, node())
        await anyio.sleep(10)
        new = await uid_of_node(place)
        assert await place.owners() == {(GPU.driver, new), (FPGA.driver, new)}
        assert await place.reasons() == ["NodeDeleted", "NodeReplaced"]


async def test_a_node_that_cannot_be_read_again_stays_what_it_was(caplog: pytest.LogCaptureFixture) -> None:
    async with living_node() as place:
        before = await place.owners()
        place.server.is_away = True
        await anyio.sleep(3600)
        place.server.is_away = False
        assert await place.owners() == before
        assert caplog.text.count(f"cannot read Node {NODE} again") == 1


async def test_a_node_that_does_not_change_is_read_about_once_a_minute() -> None:
    async with living_node() as place:
        before = place.server.count("GET", "nodes")
        await anyio.sleep(3600)
        assert 3600 / LOOK_S < place.server.count("GET", "nodes") - before <= 60


@pytest.mark.parametrize(
    ("change", "is_changed"),
    [
        (lambda place: place.patch_node({"metadata": {"labels": {"rack": "r1"}}}), True),
        (lambda place: place.patch_node({"status": {"nodeInfo": {"kubeletVersion": "v1.31.0"}}}, "status"), True),
        (lambda place: place.patch_node({"metadata": {"annotations": {"a": "b"}}}), False),
    ],
    ids=["labels", "the kubelet", "an annotation"],
)
async def test_what_the_plugin_decides_by_is_noticed_when_it_changes(
    change: Callable[[LivingNode], Any], is_changed: bool
) -> None:
    async with living_node() as place:
        watch = place.connector._node
        assert watch is not None
        noticed = watch.changed.next_event
        await change(place)
        await anyio.sleep(LOOK_S)
        assert noticed.is_set() == is_changed


async def test_a_label_of_the_node_decides_which_resources_it_offers() -> None:
    """The labels were those of the plugin's start."""
    async with living_node() as place:
        for document in crds.documents():
            await place.admin.apply(CUSTOM_RESOURCE_DEFINITIONS, document, field_manager="admin")
        plugin = {"resource": "kerf.dev/small", "perNode": 1}
        spec = {"device": "gpu", "nodes": {"matchLabels": {"rack": "r1"}}, "devicePlugin": plugin}
        held = await place.admin.create(
            RESOURCE_CLASSES, ResourceClassObject(metadata=ObjectMeta(name="small"), spec=spec)
        )
        is_free = Condition(
            type=DEVICE_PLUGIN,
            status="True",
            reason="NameIsFree",
            message="",
            observed_generation=held.metadata.generation,
            last_transition_time="2026-01-01T00:00:00Z",
        )
        status = ResourceClassStatus(conditions=(is_free,))
        await place.admin.update(RESOURCE_CLASSES, replace(held, status=status), subresource="status")
        await anyio.sleep(120)

        def offered() -> list[tuple[str, list[str]]]:
            found = {name: cluster.target.plugin_resources for name, cluster in place.clusters.items()}
            return [(name, [one.name for one in resources]) for name, resources in found.items()]

        assert offered() == [(GPU.name, []), (FPGA.name, [])]
        place.changes.clear()
        await place.patch_node({"metadata": {"labels": {"rack": "r1"}}})
        await anyio.sleep(LOOK_S)
        assert offered() == [(GPU.name, ["kerf.dev/small"]), (FPGA.name, [])]
        assert place.changes == [GPU.name]
        await place.patch_node({"metadata": {"labels": {"rack": None}}})
        await anyio.sleep(LOOK_S)
        assert offered() == [(GPU.name, []), (FPGA.name, [])]


async def test_whether_the_kubelet_lists_claims_follows_its_version() -> None:
    async with living_node() as place:
        assert [one.kubelet_lists_claims for one in place.clusters.values()] == [True, True]
        await place.patch_node({"status": {"nodeInfo": {"kubeletVersion": "v1.33.2"}}}, "status")
        await anyio.sleep(LOOK_S)
        assert [one.kubelet_lists_claims for one in place.clusters.values()] == [False, False]


async def test_an_api_server_that_is_upgraded_ends_the_plugin_with_a_sentence() -> None:
    async def run() -> None:
        async with living_node() as place:
            place.server.server.settings = ApiServerSettings(kubernetes=(1, 38))
            await anyio.sleep(3600)

    with pytest.raises(ExceptionGroup) as raised:
        await run()
    said = r"was Kubernetes 1\.37\.0 .* is Kubernetes 1\.38\.0"
    assert raised.group_contains(ApiChangedError, match=said, depth=None)


async def test_where_a_controller_allocates_a_kubelet_that_needs_other_answers_starts_the_plugin_again() -> None:
    server = RecordingServer(ApiServer(settings=ApiServerSettings(kubernetes=(1, 30))))
    watch = NodeWatch(server.client(), node("v1.30.14"))
    settings = Settings(node_name=NODE, family=GPU, backends=())
    features = ClassicFeatures(kubernetes=(1, 30), resource=CLASSIC_KINDS)
    cluster = ClassicCluster(server.client(), features, watch, settings, now=lambda: NOON)

    async def upgrade() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(cluster._follow_node)
            for kubelet in ("v1.30.15", "v1.31.0"):
                await anyio.sleep(1)
                assert cluster.kubelet_lists_claims is False
                watch.node = node(kubelet)
                watch.changed.notify()

    with pytest.raises(ExceptionGroup) as raised:
        await upgrade()
    assert raised.group_contains(KubeletChangedError, match=r"the kubelet is v1\.31\.0 now", depth=None)


async def test_an_inventory_is_written_for_the_node_that_there_is() -> None:
    server = RecordingServer(ApiServer())
    watch = NodeWatch(server.client(), node("v1.30.14"))
    watch.is_absent = True
    settings = Settings(node_name=NODE, family=GPU, backends=())
    features = ClassicFeatures(kubernetes=(1, 30), resource=CLASSIC_KINDS)
    cluster = ClassicCluster(server.client(), features, watch, settings, now=lambda: NOON)
    async with anyio.create_task_group() as group:
        group.start_soon(cluster.run, lambda: None)
        await anyio.sleep(10 * RENEW_S)
        assert server.count("PATCH", "nodeinventories") == 0
        watch.node, watch.is_absent = replace(watch.node, metadata=ObjectMeta(name=NODE, uid="second")), False
        watch.changed.notify()
        await anyio.sleep(1)
        written = next(one for one in reversed(server.requests) if one.resource == "nodeinventories")
        assert b'"uid":"second"' in (written.body or b"")
        group.cancel_scope.cancel()
