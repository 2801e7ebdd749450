"""Where drivers allocate, the plugin publishes its cards in a NodeInventory, and serves what its kubelet can call."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
import yaml
from msgspec.structs import replace as replace_struct

from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS, NODES, Node, NodeStatus, NodeSystemInfo
from kerf_dra.api.dra import v1alpha3, v1alpha4
from kerf_dra.api.errors import UnsupportedError
from kerf_dra.api.kerf.node_inventory import NODE_INVENTORIES, NodeInventory
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef, DriverName
from kerf_dra.api.resource.v1alpha2 import KINDS
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.discovery import ClassicFeatures, discover_classic
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.errors import NotFoundError
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice
from kerf_dra.driver.kubeletplugin.cluster.classic import RENEW_S, ClassicCluster
from kerf_dra.driver.kubeletplugin.cluster.node_watch import NodeWatch
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from tests.fakes.cards import gpu
from tests.kube.memory_server import MemoryServer, hanging
from tests.runtime.virtual_time import VIRTUAL_TIME

CRD = Path(__file__).parents[3] / "deploy" / "crds" / "kerf.dev_nodeinventories.yaml"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    server = ApiServer(settings=ApiServerSettings(kubernetes=(1, 30), resource_versions=("v1alpha2",)))
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        async with Client(Access(server=server.url), user_agent="test") as client:
            await client.apply(CUSTOM_RESOURCE_DEFINITIONS, yaml.safe_load(CRD.read_text()), field_manager="test")
            yield client
        tasks.cancel_scope.cancel()


def node(kubelet: str = "v1.30.14") -> Node:
    info = NodeSystemInfo(kubelet_version=kubelet)
    return Node(metadata=ObjectMeta(name="node-1", uid="1"), status=NodeStatus(node_info=info))


def settings(driver: str = "gpu.kerf.dev") -> Settings:
    choice = BackendChoice(name="simulated", config=None)
    return Settings(node_name="node-1", family=replace(GPU, driver=DriverName(driver)), backends=(choice,))


async def cluster_of(client: Client, kubelet: str = "v1.30.14", driver: str = "gpu.kerf.dev") -> ClassicCluster:
    features = await discover_classic(client)
    assert features is not None
    created = await client.create(NODES, node(kubelet))
    held = replace_struct(created, status=node(kubelet).status)
    return ClassicCluster(client, features, NodeWatch(client, held), settings(driver), now=lambda: NOON)


async def inventory(client: Client) -> NodeInventory:
    """Wait for the inventory, and return it."""
    while True:
        try:
            return await client.get(NODE_INVENTORIES, "node-1-gpu.kerf.dev")
        except NotFoundError:
            await anyio.sleep(0.01)


async def test_the_inventory_says_what_there_is_and_at_the_end_that_nobody_is_there(client: Client) -> None:
    #
    cluster = await cluster_of(client)
    health_tracker = DeviceHealthTracker(driver=DriverName("gpu.kerf.dev"), now=lambda: 0.0)
    stock = build_device_set(cluster.target, {"simulated": [gpu(0), gpu(1)]}, (), health_tracker, DeviceSet())
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            cluster.publish(stock)
            tasks.start_soon(cluster.run, lambda: None)
            found = await inventory(client)
            tasks.cancel_scope.cancel()
    assert (found.spec.ready, found.spec.driver, found.spec.renewed_at) == (
        True,
        "gpu.kerf.dev",
        "2024-05-01T12:00:00.000000Z",
    )
    assert [card.index for card in found.spec.cards] == [0, 1]
    assert len(found.spec.geometries) == 1, "each geometry once"
    assert [owner.name for owner in found.metadata.owner_references] == ["node-1"]
    after = await inventory(client)
    assert not after.spec.ready
    assert after.spec.cards == found.spec.cards


@pytest.mark.parametrize(
    ("kubelet", "service"),
    [("v1.30.14", v1alpha3.SERVICE), ("v1.31.0", v1alpha4.SERVICE), ("v1.28.3", v1alpha3.SERVICE)],
)
async def test_the_kubelets_version_decides_which_answers_it_gets(
    client: Client, kubelet: str, service: object
) -> None:
    assert (await cluster_of(client, kubelet)).kubelet_services.services[0] is service


async def test_a_driver_name_that_old_kubelets_cannot_handle_is_refused(client: Client) -> None:
    # K-14
    with pytest.raises(UnsupportedError, match="at most 26"):
        await cluster_of(client, driver="a-rather-long-driver-name.example.com")


async def test_a_claim_that_is_not_there_is_none(client: Client) -> None:
    assert await (await cluster_of(client)).read_claim(ClaimRef("default", "claim", "1")) is None


@pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME], ids=["virtual time"])
async def test_an_api_server_that_hangs_keeps_no_plugin_from_ending(anyio_backend: object) -> None:
    server = MemoryServer()
    server.put("nodeinventories", {"metadata": {"name": "node-1-gpu.kerf.dev"}})
    features = ClassicFeatures(kubernetes=(1, 30), resource=KINDS)
    async with anyio.create_task_group() as tasks:
        cluster = ClassicCluster(
            server.client(), features, NodeWatch(server.client(), node()), settings(), now=lambda: NOON
        )
        tasks.start_soon(cluster.run, lambda: None)
        await anyio.sleep(1)
        server.faults.append(hanging)
        ends_at = anyio.current_time()
        tasks.cancel_scope.cancel()
    assert anyio.current_time() - ends_at <= 5


@pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME], ids=["virtual time"])
async def test_an_inventory_that_does_not_change_is_written_once_a_minute(anyio_backend: object) -> None:
    """A loop that did not wait wrote it all the time. Before its cards are known a node says that it has none."""
    server = MemoryServer()
    server.put("nodeinventories", {"metadata": {"name": "node-1-gpu.kerf.dev"}})  # the server does not create by PATCH
    features = ClassicFeatures(kubernetes=(1, 30), resource=KINDS)
    client = server.client()
    async with anyio.create_task_group() as tasks:
        cluster = ClassicCluster(client, features, NodeWatch(client, node()), settings(), now=lambda: NOON)
        tasks.start_soon(cluster.run, lambda: None)
        await anyio.sleep(10 * RENEW_S + 1)
        assert len(server.sent("PATCH")) == 11
        tasks.cancel_scope.cancel()
    ((_, _, name), written), *others = server.objects.items()
    assert (name, written["spec"].get("cards", []), others) == ("node-1-gpu.kerf.dev", [], [])
