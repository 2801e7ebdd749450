"""kube-scheduler asks Kerf's extender for scores, and schedules by its own where it gets no answer.

The nodes have no kubelet: a pod is judged by where the scheduler binds it.
"""

from pathlib import Path
from typing import Final

import pytest

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from tests.controller.structured.placement.certificates import Certificates, make_certificates
from tests.e2e import pods
from tests.e2e.extender_replica import extender, scheduler_entry
from tests.e2e.wait import eventually
from tests.fakes import published_slices as published
from tools.realcluster.api import Api, Document
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import Kerf
from tools.realcluster.paths import free_port

BARE_NODES = ("bare1", "bare2")
CLASS: Final = "kerf-gpu"
SPACE: Final = "default"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
async def nodes(cluster: Cluster, api: Api, installation: Kerf, certificates: Certificates, port: int) -> Kerf:
    """Two nodes with one H100 each, a class of all GPUs, and a scheduler that knows the extender."""
    selectors = [{"cel": {"expression": f'device.driver == "{GPU.driver}"'}}]
    await api.create(
        {
            "apiVersion": pods.RESOURCE,
            "kind": "DeviceClass",
            "metadata": {"name": CLASS},
            "spec": {"selectors": selectors},
        }
    )
    async with Client(await load_access(cluster.kubeconfig), user_agent="tests") as client:
        features = await discover(client)
        for node in BARE_NODES:
            for one in published.slices(node, published.gpus("h100-80gb-sxm")):
                await client.create(features.resource.resource_slices, one)
    await cluster.configure_scheduler([{"schedulerName": "default-scheduler"}], [scheduler_entry(certificates, port)])
    return installation


async def schedule(api: Api, name: str, profile: str, *, cpu: str = "1", node: str = "") -> str:
    """Create a pod with a claim for ``profile``, and return the node that the scheduler binds it to."""
    expression = f'device.attributes["{GPU.driver}"].profile == "{profile}"'
    request = pods.exactly("gpu", CLASS, selectors=[{"cel": {"expression": expression}}])
    selector: Document = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    claim = pods.claim(name, pods.devices(request))
    bound = pods.pod(name, {"gpu": pods.by_name(name)}, limits={"cpu": cpu, "memory": "1Gi"}, **selector)
    for document in (claim, bound):
        document["metadata"]["namespace"] = SPACE
        await api.create(document)

    async def find_node() -> str:
        return str((await api.get("v1", "Pod", name, SPACE))["spec"].get("nodeName") or "")

    return await eventually(f"a node for {name}", find_node)


async def test_the_scheduler_follows_the_scores_and_without_an_extender_its_own(
    cluster: Cluster, api: Api, nodes: Kerf, certificates: Certificates, port: int, tmp_path: Path
) -> None:
    """By CPU and memory alone each pod would go to bare2, of which less is requested."""
    async with extender(cluster, certificates, port, tmp_path):
        assert await schedule(api, "first", "4g.40gb", cpu="16", node="bare1") == "bare1"
        assert await schedule(api, "beside", "1g.10gb") == "bare1"
        assert await schedule(api, "large", "7g.80gb") == "bare2"
    await api.delete("v1", "Pod", "large", SPACE, grace_s=0)
    await api.delete(pods.RESOURCE, "ResourceClaim", "large", SPACE)

    async def is_gone() -> bool:
        return await api.find(pods.RESOURCE, "ResourceClaim", "large", SPACE) is None

    await eventually("the end of the claim large", is_gone)
    assert await schedule(api, "alone", "1g.10gb") == "bare2"
