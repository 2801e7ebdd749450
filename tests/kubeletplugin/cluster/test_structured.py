"""What a node finds out of its API server when it starts, where the scheduler allocates."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import anyio
import pytest

from kerf_dra.api.core.v1 import EVENTS, NODES, PODS, Node
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.wire import Kind
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kubeletplugin.cluster.base import claim_reference, describe_other_claim
from kerf_dra.driver.kubeletplugin.cluster.node_watch import NodeWatch
from kerf_dra.driver.kubeletplugin.cluster.resource_classes import ResourceClassWatch
from kerf_dra.driver.kubeletplugin.cluster.structured import StructuredCluster
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.local.apiserver import ApiServer
from tests.fakes.claims import claim
from tests.kubeletplugin.deviceplugin.node import resource_class
from tests.kubeletplugin.harness import LONGEST_S


class CountingClient(Client):
    """A client that notes of which kinds it has created objects."""

    def __init__(self, access: Access) -> None:
        super().__init__(access, user_agent="test")
        self.created: set[str] = set()

    async def create(self, kind: Kind[Any], *arguments: Any, **options: Any) -> Any:
        self.created.add(kind.plural)
        return await super().create(kind, *arguments, **options)


@pytest.fixture
async def client() -> AsyncIterator[CountingClient]:
    server = ApiServer()
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        async with CountingClient(Access(server=server.url)) as client:
            yield client
        tasks.cancel_scope.cancel()


async def connect(client: Client, family: Family, classes: ResourceClassWatch | None = None) -> StructuredCluster:
    features = await discover(client)
    node = await client.create(NODES, Node(metadata=ObjectMeta(name="node-1")))
    settings = Settings(node_name="node-1", family=family, backends=())
    classes = classes or ResourceClassWatch(client)
    return await StructuredCluster.connect(client, features, NodeWatch(client, node), settings, classes)


class ListedClasses(ResourceClassWatch):
    """Classes that were listed, and whose watch a test lets begin."""

    synced = False
    classes: Sequence[ResourceClassObject] = ()

    def __init__(self, client: Client, *listed: ResourceClassObject) -> None:
        super().__init__(client)
        self.listed = listed
        self.on_change: Callable[[], None] = lambda: None

    async def list_now(self) -> Sequence[ResourceClassObject]:
        await anyio.lowlevel.checkpoint()
        return self.listed

    async def follow(self, on_change: Callable[[], None], *, poll_s: float) -> None:
        del poll_s
        self.on_change = on_change
        await anyio.sleep_forever()


async def test_what_listed_classes_offer_stays_until_their_watch_is_complete(client: Client) -> None:
    """A class that is missing may still come: pods would lose the resource of their node for a moment."""
    small, large = resource_class("1g.1gb", "kerf.dev/small", 2), resource_class("2g.2gb", "kerf.dev/large", 1)
    classes = ListedClasses(client, small, large)
    cluster = await connect(client, GPU, classes)

    def offered() -> set[tuple[str, int]]:
        return {(each.name, each.per_node) for each in cluster.target.plugin_resources}

    async with anyio.create_task_group() as group:
        group.start_soon(cluster.run, lambda: None)
        await anyio.wait_all_tasks_blocked()
        classes.classes = [resource_class("2g.2gb", "kerf.dev/large", 3)]
        classes.on_change()
        assert offered() == {("kerf.dev/small", 2), ("kerf.dev/large", 3)}
        classes.synced = True
        classes.on_change()
        assert offered() == {("kerf.dev/large", 3)}
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("family", "probes"), [(GPU, True), (SHARED, False)], ids=["devices of a node", "devices of the network"]
)
async def test_what_the_api_server_drops_is_asked_for_devices_of_nodes_only(
    client: CountingClient, family: Family, probes: bool
) -> None:
    """Those of the network have no counters, and policies refuse slices of theirs that a node writes."""
    await connect(client, family)
    assert ("resourceslices" in client.created) is probes


def test_a_claim_is_named_to_readers_of_its_own_namespace_only() -> None:
    other = ObjectRef("tenant", "training")
    assert describe_other_claim(other, "tenant") == "claim tenant/training"
    assert describe_other_claim(other, "default") == "a claim of another namespace"


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
