"""The discovery documents that a client reads before its first request."""

from typing import Any

import pytest

from tests.local.apiserver.api_client import Api, Cluster

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
# What client-go 1.32 and later send: the newest form first, plain JSON last.
CLIENT_GO = f"{AGGREGATED},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_the_server_is_well(api: Api, path: str) -> None:
    answer = await api.get(path)
    assert (answer.status, answer.body) == (200, "ok")


@pytest.mark.parametrize("version", [(1, 37), (1, 32)])
async def test_the_version_is_as_set(cluster: Cluster, version: tuple[int, int]) -> None:
    async with cluster(kubernetes=version) as api:
        body = (await api.get("/version")).body
        assert (body["major"], body["minor"]) == tuple(map(str, version))
        assert body["gitVersion"].startswith(f"v{version[0]}.{version[1]}.0")


async def test_the_root_lists_what_there_is(api: Api) -> None:
    paths = (await api.get("/")).body["paths"]
    assert {"/api/v1", "/apis/resource.k8s.io/v1beta1", "/healthz", "/version"} <= set(paths)
    for path in paths:
        assert (await api.get(path)).status == 200, path


async def test_groups_and_their_versions_are_listed(api: Api) -> None:
    assert (await api.get("/api")).body["versions"] == ["v1"]
    groups = {group["name"]: group for group in (await api.get("/apis")).body["groups"]}
    assert set(groups) == {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apps",
        "batch",
        "coordination.k8s.io",
        "events.k8s.io",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
    }
    resource = groups["resource.k8s.io"]
    assert [each["version"] for each in resource["versions"]] == ["v1", "v1beta2", "v1beta1"]
    assert resource["preferredVersion"] == {"groupVersion": "resource.k8s.io/v1", "version": "v1"}
    alone = (await api.get("/apis/resource.k8s.io")).body
    assert alone == {"kind": "APIGroup", "apiVersion": "v1", **resource}


async def test_only_set_versions_are_served(cluster: Cluster) -> None:
    async with cluster(resource_versions=("v1beta1",)) as api:
        group = (await api.get("/apis/resource.k8s.io")).body
        assert [each["version"] for each in group["versions"]] == ["v1beta1"]
        assert (await api.get("/apis/resource.k8s.io/v1")).status == 404
        assert (await api.get("/apis/resource.k8s.io/v1beta1/resourceslices")).status == 200


@pytest.mark.parametrize(
    ("path", "row"),
    [
        (
            "/api/v1",
            {
                "name": "pods",
                "singularName": "pod",
                "namespaced": True,
                "kind": "Pod",
                "verbs": VERBS,
                "shortNames": ["po"],
                "categories": ["all"],
            },
        ),
        (
            "/api/v1",
            {
                "name": "pods/binding",
                "singularName": "",
                "namespaced": True,
                "kind": "Binding",
                "verbs": ["create"],
            },
        ),
        (
            "/apis/resource.k8s.io/v1beta2",
            {
                "name": "resourceslices",
                "singularName": "resourceslice",
                "namespaced": False,
                "kind": "ResourceSlice",
                "verbs": VERBS,
            },
        ),
        (
            "/apis/resource.k8s.io/v1",
            {
                "name": "resourceclaims/status",
                "singularName": "",
                "namespaced": True,
                "kind": "ResourceClaim",
                "verbs": ["get", "patch", "update"],
            },
        ),
    ],
)
async def test_a_kind_is_described(api: Api, path: str, row: dict[str, Any]) -> None:
    rows = (await api.get(path)).body["resources"]
    assert [each for each in rows if each["name"] == row["name"]] == [row]


@pytest.mark.parametrize("path", ["/apis/no.such", "/apis/no.such/v1", "/api/v2", "/apis/resource.k8s.io/v9", "/else"])
async def test_what_is_not_served_is_not_found(api: Api, path: str) -> None:
    answer = await api.get(path)
    assert (answer.status, answer.body) == (404, "404 page not found\n")


@pytest.mark.parametrize("accept", [AGGREGATED, CLIENT_GO])
async def test_everything_can_be_discovered_in_two_requests(api: Api, accept: str) -> None:
    core, others = await api.get("/api", accept=accept), await api.get("/apis", accept=accept)
    for answer in (core, others):
        assert answer.headers["Content-Type"] == AGGREGATED
        assert (answer.body["kind"], answer.body["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    (group,) = core.body["items"]
    (pods,) = [row for row in group["versions"][0]["resources"] if row["resource"] == "pods"]
    assert pods == {
        "resource": "pods",
        "responseKind": {"group": "", "version": "v1", "kind": "Pod"},
        "scope": "Namespaced",
        "singularResource": "pod",
        "verbs": VERBS,
        "shortNames": ["po"],
        "categories": ["all"],
        "subresources": [
            {
                "subresource": name,
                "responseKind": {"group": "", "version": "v1", "kind": kind},
                "verbs": verbs,
            }
            for name, kind, verbs in (
                ("status", "Pod", ["get", "patch", "update"]),
                ("binding", "Binding", ["create"]),
                ("eviction", "Eviction", ["create"]),
            )
        ],
    }


async def test_both_ways_of_discovery_say_the_same(api: Api) -> None:
    plain = set()
    for group in (await api.get("/apis")).body["groups"]:
        for version in group["versions"]:
            rows = (await api.get(f"/apis/{version['groupVersion']}")).body["resources"]
            plain |= {(version["groupVersion"], row["name"], tuple(row["verbs"])) for row in rows}
    aggregated = set()
    for group in (await api.get("/apis", accept=AGGREGATED)).body["items"]:
        for version in group["versions"]:
            group_version = f"{group['metadata']['name']}/{version['version']}"
            for row in version["resources"]:
                aggregated.add((group_version, row["resource"], tuple(row["verbs"])))
                for sub in row.get("subresources", []):
                    aggregated.add((group_version, f"{row['resource']}/{sub['subresource']}", tuple(sub["verbs"])))
    assert plain == aggregated


async def test_a_client_of_the_beta_form_gets_the_plain_one(api: Api) -> None:
    beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    assert (await api.get("/apis", accept=beta)).body["kind"] == "APIGroupList"


async def test_schemas_are_indexed_by_version_with_their_digests(api: Api) -> None:
    first = (await api.get("/openapi/v3")).body["paths"]
    assert {"api/v1", "apis/resource.k8s.io/v1", "apis/apiextensions.k8s.io/v1"} <= set(first)
    for entry in first.values():
        assert (await api.get(entry["serverRelativeURL"])).body["openapi"] == "3.0.0"
    assert (await api.get("/openapi/v3")).body["paths"] == first
    assert (await api.get("/openapi/v3/apis/no.such/v1")).status == 404


async def test_patches_are_said_to_be_validated_by_the_server(api: Api) -> None:
    paths = (await api.get("/openapi/v3/api/v1")).body["paths"]
    patch = paths["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert "/api/v1/nodes/{name}" in paths
