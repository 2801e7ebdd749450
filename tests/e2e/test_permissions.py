"""The limits of Kerf's service accounts, enforced by RBAC and the slice policy of ``deploy/``."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.realcluster.api import Api, Document, StatusError
from tests.realcluster.cluster import Cluster
from tests.realcluster.kerf import CONTROLLER, DEPLOY, NAMESPACE, PLUGIN, Kerf, manifests

BARE_NODES = ("bare1",)
RESOURCE = "resource.k8s.io/v1"


def slice_of(node: str) -> Document:
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceSlice",
        "metadata": {"name": f"by-hand-{node}"},
        "spec": {
            "driver": "gpu.kerf.dev",
            "nodeName": node,
            "pool": {"name": f"by-hand-{node}", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d"}],
        },
    }


async def user(cluster: Cluster, kerf: Kerf, name: str, account: str, bound_to: Document | None) -> Api:
    return Api(cluster.write_kubeconfig(name, {"token": await kerf.token(account, bound_to)}))


@pytest.fixture(scope="module")
async def plugin(cluster: Cluster, kerf: Kerf) -> AsyncIterator[Api]:
    """A client with the permissions of the plugin on node1, by a token bound to a pod there."""
    async with await user(cluster, kerf, "plugin-of-node1", PLUGIN, await kerf.plugin_pod("node1")) as api:
        yield api


@pytest.fixture(scope="module")
async def bare_plugin(cluster: Cluster, api: Api, kerf: Kerf) -> AsyncIterator[Api]:
    """A client with the permissions of the plugin on bare1, by a token bound to the node."""
    node = await api.get("v1", "Node", "bare1")
    async with await user(cluster, kerf, "plugin-of-bare1", PLUGIN, node) as own:
        yield own


async def refused(call: Any) -> str:
    with pytest.raises(StatusError) as info:
        await call
    assert info.value.code == 403
    return info.value.message


async def test_a_plugin_writes_the_slices_of_its_own_node_only(plugin: Api, bare_plugin: Api) -> None:
    await bare_plugin.create(slice_of("bare1"))
    assert 'may not write a ResourceSlice of node "bare1"' in await refused(plugin.create(slice_of("bare1")))
    held = await plugin.list(RESOURCE, "ResourceSlice", fieldSelector="spec.nodeName=bare1")
    stolen = {**held[0], "spec": {**held[0]["spec"], "devices": []}}
    path = await plugin.path(RESOURCE, "ResourceSlice", name="by-hand-bare1")
    assert "may not write" in await refused(plugin.request("PUT", path, stolen))
    assert "may not write" in await refused(plugin.request("DELETE", path))
    await bare_plugin.request("DELETE", path)


async def test_a_slice_for_all_nodes_is_nobodys(plugin: Api) -> None:
    document = slice_of("node1")
    del document["spec"]["nodeName"]
    document["spec"]["allNodes"] = True
    assert "may not write" in await refused(plugin.create(document))


async def test_a_token_that_names_no_node_writes_no_slices(cluster: Cluster, kerf: Kerf) -> None:
    async with await user(cluster, kerf, "plugin-of-nowhere", PLUGIN, None) as nowhere:
        assert "names no node" in await refused(nowhere.create(slice_of("node1")))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
        ("GET", "/api/v1/pods"),
        ("GET", "/api/v1/nodes"),
        ("DELETE", "/api/v1/nodes/node1"),
        ("POST", f"/apis/{RESOURCE}/deviceclasses"),
        ("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{PLUGIN}/token"),
    ],
)
async def test_a_plugin_may_not(plugin: Api, method: str, path: str) -> None:
    assert "cannot" in await refused(plugin.request(method, path, {} if method == "POST" else None))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/pods"),
        ("POST", f"/apis/{RESOURCE}/resourceslices"),
        ("DELETE", f"/apis/{RESOURCE}/deviceclasses/any"),
        ("PATCH", "/apis/kerf.dev/v1alpha1/resourceclasses/any"),
        ("GET", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/any"),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"),
    ],
)
async def test_the_controller_may_not(cluster: Cluster, kerf: Kerf, method: str, path: str) -> None:
    async with await user(cluster, kerf, "controller", CONTROLLER, None) as controller:
        assert "cannot" in await refused(controller.request(method, path, {} if method in {"POST", "PATCH"} else None))


def test_no_role_of_deploy_has_a_wildcard() -> None:
    rules = [rule for document in manifests(DEPLOY / "manifests") for rule in document.get("rules", ())]
    assert rules
    assert not [rule for rule in rules if "*" in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])]
