"""The API server of a large cluster answers as clients expect it, in equal orders and in shuffled ones."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from kerf_dra.api.core.v1 import NODES, PODS
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from tests.kube.large_cluster import WAITING, serving_large_cluster

CARDS = 2


@pytest.mark.parametrize("shuffled", [False, True])
async def test_a_client_reads_its_lists(tmp_path: Path, *, shuffled: bool) -> None:
    """Its lists once said nothing of their kind, which the client had begun to require: no benchmark ran any more."""
    kubeconfig = tmp_path / "kubeconfig"
    with serving_large_cluster(2, CARDS, kubeconfig, shuffled=shuffled):
        async with Client(await load_access(kubeconfig), user_agent="kerf-test/1") as client:
            nodes = (await client.list(NODES)).items
            pods = (await client.list(PODS)).items
            claims = (await client.list(KINDS.resource_claims)).items
            slices = (await client.list(KINDS.resource_slices)).items
    assert [node.metadata.name for node in nodes] == ["node-00000", "node-00001"]
    assert len(pods) == len(claims) == 2 * CARDS + 1
    assert pods[-1].metadata.name == claims[-1].metadata.name == WAITING
    one, another = (devices_of(slices, node.metadata.name) for node in nodes)
    assert set(one) == set(another)
    assert len(set(one)) == len(one) == 52
    assert one != another


def devices_of(slices: Iterable[ResourceSlice], node: str) -> list[str]:
    return [device.name for slice_ in slices if slice_.spec.node_name == node for device in slice_.spec.devices]
