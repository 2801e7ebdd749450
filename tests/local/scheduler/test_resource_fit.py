"""The embedded schedulers place no pod on a node without room for its CPU, memory and extended resources."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from kerf_dra.driver.local.cluster import ClusterSettings, LocalCluster
from tests.contract.documents import namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document

RESOURCE = "example.com/gpu"
NODES = ("node-1", "node-2")


@pytest.fixture(params=[True, False], ids=["classic", "structured"])
def classic(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder whose path is short enough for the sockets of kubelets."""
    with TemporaryDirectory(prefix="kr", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
async def api(root: Path, classic: bool) -> AsyncIterator[Api]:
    """A cluster with two nodes, which no driver serves, and the namespace "team"."""
    settings = ClusterSettings(root=root, nodes=NODES, classic=classic)
    cluster = LocalCluster(settings, share_id=lambda: str(uuid.uuid4()), boot_id=lambda: str(uuid.uuid4()))
    async with anyio.create_task_group() as tasks:
        await tasks.start(cluster.run)
        async with Api(cluster.kubeconfig) as api:
            await api.create(namespace("team"))
            yield api
        tasks.cancel_scope.cancel()


def pod(name: str, **limits: str) -> Document:
    container = {"name": "main", "image": "i", "resources": {"limits": limits}}
    metadata = {"name": name, "namespace": "team"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


async def wait_for_event(api: Api, name: str, text: str) -> None:
    async def is_reported() -> bool:
        events = await api.list("v1", "Event", "team")
        return any(text in each["message"] for each in events if each["involvedObject"]["name"] == name)

    await eventually(f"an event about {name} says {text}", is_reported)


async def wait_bound(api: Api, *names: str) -> list[Document]:
    async def are_bound() -> bool:
        return all([(await api.get("v1", "Pod", name, "team"))["spec"].get("nodeName") for name in names])

    await eventually(f"{', '.join(names)} are bound", are_bound)
    return [await api.get("v1", "Pod", name, "team") for name in names]


async def test_a_node_has_fixed_amounts_which_pods_share(api: Api) -> None:
    """`kubectl describe node` once gave -9223372036854775808% of a node without CPU and memory."""
    [amounts, _] = [node["status"]["allocatable"] for node in await api.list("v1", "Node")]
    assert {"cpu": "64", "memory": "512Gi", "pods": "110"}.items() <= amounts.items()
    for name in ("a", "b", "c"):
        await api.create(pod(name, cpu="40"))
    a, b = await wait_bound(api, "a", "b")
    assert {a["spec"]["nodeName"], b["spec"]["nodeName"]} == {*NODES}
    await wait_for_event(api, "c", "2 Insufficient cpu")
    await api.delete("v1", "Pod", "a", "team")
    await wait_bound(api, "c")


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpus", "hwchiu/test-dev"])
async def test_a_pod_waits_for_an_extended_resource_that_nothing_offers(api: Api, resource: str) -> None:
    """Such a pod once ran, without a device."""
    await api.create(pod("p", **{resource: "1"}))
    await wait_for_event(api, "p", f"2 Insufficient {resource}")
    assert "nodeName" not in (await api.get("v1", "Pod", "p", "team"))["spec"]


@pytest.mark.parametrize("classic", [False], ids=["structured"], indirect=True)
async def test_a_pod_that_came_before_the_class_of_its_resource_gets_its_claim_once_the_class_is_there(
    api: Api, classic: bool
) -> None:
    """Such a pod once ran without a claim, because the DeviceClass came a moment later."""
    await api.create(pod("p", **{RESOURCE: "1"}))
    await wait_for_event(api, "p", f"2 Insufficient {RESOURCE}")
    pool = {"name": "node-2", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example", "nodeName": "node-2", "pool": pool, "devices": [{"name": "gpu-0"}]}
    await api.create(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}
    )
    metadata = {"name": "gpu"}
    class_ = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata}
    await api.create({**class_, "spec": {"extendedResourceName": RESOURCE}})
    [bound] = await wait_bound(api, "p")
    assert bound["spec"]["nodeName"] == "node-2"
    [mapping] = bound["status"]["extendedResourceClaimStatus"]["requestMappings"]
    assert (mapping["containerName"], mapping["resourceName"]) == ("main", RESOURCE)
