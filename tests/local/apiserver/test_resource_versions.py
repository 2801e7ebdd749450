"""One store, several versions and releases of ``resource.k8s.io``."""

from tests.local.apiserver.api_client import Api, Cluster
from tests.local.apiserver.resources import CLAIMS, GROUP, SLICES, TAINTED, device, slice_of


async def test_a_claim_is_one_object_in_every_version(api: Api) -> None:
    old = f"{GROUP}/v1beta1/namespaces/default/resourceclaims"
    await api.made(
        old, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "gpu"}]}}}
    )
    (shown,) = (await api.get(f"{old}/c")).body["spec"]["devices"]["requests"]
    assert shown == {"name": "r", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    (shown,) = (await api.get(f"{CLAIMS}/c")).body["spec"]["devices"]["requests"]
    assert shown == {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}


async def test_old_versions_warn(api: Api) -> None:
    answer = await api.get(f"{GROUP}/v1beta1/namespaces/default/resourceclaims")
    assert answer.warnings == [
        '299 - "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+"'
    ]
    assert (await api.get(CLAIMS)).warnings == []


async def test_an_older_cluster_is_imitated(cluster: Cluster) -> None:
    async with cluster(kubernetes=(1, 32), resource_versions=("v1beta1",)) as api:
        assert (await api.get("/version")).body["gitVersion"].startswith("v1.32.")
        assert (await api.get(CLAIMS)).status == 404
        assert (await api.get(f"{GROUP}/v1beta1/namespaces/default/resourceclaims")).warnings == []
        assert (await api.get(f"{GROUP}/v1beta1/devicetaintrules")).status == 404
        group = (await api.get(GROUP)).body
        assert [version["version"] for version in group["versions"]] == ["v1beta1"]


async def test_a_cluster_without_the_group_has_none_of_it(cluster: Cluster) -> None:
    async with cluster(resource_versions=()) as api:
        assert (await api.get(CLAIMS)).status == 404
        assert GROUP.removeprefix("/apis/") not in str((await api.get("/apis")).body)


async def test_fields_behind_closed_gates_are_dropped_silently(cluster: Cluster) -> None:
    dropped = {
        "resourceslices": ("spec.devices[].taints", "spec.devices[].attributes{}.version", "spec.sharedCounters")
    }
    async with cluster(dropped_fields=dropped) as api:
        attributes = {"a": {"string": "x", "version": "1.0.0"}}
        body = await api.made(SLICES, slice_of(device(attributes=attributes, **TAINTED), sharedCounters=[]))
        assert body["spec"]["devices"] == [{"name": "d", "attributes": {"a": {"string": "x"}}}]
        assert "sharedCounters" not in body["spec"]


async def test_gates_that_are_closed_in_this_release_are_closed(api: Api) -> None:
    body = await api.made(SLICES, slice_of(device(nodeAllocatableResources={"cpu": {}}), skipNodeOperations=["*"]))
    assert "skipNodeOperations" not in body["spec"]
    assert body["spec"]["devices"] == [{"name": "d"}]
