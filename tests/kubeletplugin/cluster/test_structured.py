"""What a node finds out of its API server when it starts, where the scheduler allocates."""

from collections.abc import AsyncIterator

import anyio
import pytest

from kerf_dra.api.core.v1 import EVENTS, NODES, PODS, Node
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kubeletplugin.cluster.base import claim_reference
from kerf_dra.driver.kubeletplugin.cluster.node_watch import NodeWatch
from kerf_dra.driver.kubeletplugin.cluster.resource_classes import ResourceClassWatch
from kerf_dra.driver.kubeletplugin.cluster.structured import StructuredCluster
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.local.apiserver import ApiServer
from tests.fakes.claims import claim
from tests.kubeletplugin.harness import LONGEST_S


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    server = ApiServer()
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        async with Client(Access(server=server.url), user_agent="test") as client:
            yield client
        tasks.cancel_scope.cancel()


async def connect(client: Client, family: Family) -> StructuredCluster:
    features = await discover(client)
    node = await client.create(NODES, Node(metadata=ObjectMeta(name="node-1")))
    settings = Settings(node_name="node-1", family=family, backends=())
    classes = ResourceClassWatch(client)
    return await StructuredCluster.connect(client, features, NodeWatch(client, node), settings, classes)


@pytest.mark.parametrize("family", [GPU, SHARED], ids=lambda family: family.name)
async def test_a_family_publishes_its_own_devices_or_those_of_the_network(client: Client, family: Family) -> None:
    cluster = await connect(client, family)
    assert (cluster.target.driver, cluster.target.node) == (family.driver, "node-1")
    assert cluster.target.is_network_attached is (family is SHARED)
    assert cluster.target.keeps_counters


async def test_an_event_is_about_a_claim_or_else_about_the_node(client: Client) -> None:
    cluster = await connect(client, GPU)
    claims = [claim_reference(claim(name)) for name in ("one", "two")]
    async with anyio.create_task_group() as group:
        group.start_soon(cluster.run, lambda: None)
        for about in (claims[0], None, claims[1]):
            cluster.report(about, type="Warning", reason="DeviceRefused", message="the hardware keeps refusing")
        with anyio.fail_after(LONGEST_S):
            while len(found := (await client.list(EVENTS)).items) < 3:  # noqa: ASYNC110  (as elsewhere)
                await anyio.sleep(0.005)
        group.cancel_scope.cancel()
    involved = {(event.involved_object.kind, event.involved_object.name) for event in found}
    assert involved == {("ResourceClaim", "one"), ("Node", "node-1"), ("ResourceClaim", "two")}


async def test_a_pod_is_read_or_not_there(client: Client) -> None:
    cluster = await connect(client, GPU)
    ref = ObjectRef("default", "web")
    assert await cluster.read_pod(ref) is None
    spec = {"containers": [{"name": "main", "image": "web"}]}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"}, "spec": spec}
    await client.apply(PODS, document, field_manager="test")
    found = await cluster.read_pod(ref)
    assert found is not None
    assert found.metadata.name == "web"
