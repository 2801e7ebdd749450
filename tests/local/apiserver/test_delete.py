"""Deletion: at once, gracefully, held up by finalizers, and the objects that are deleted with it."""

from typing import Any

import pytest

from tests.local.apiserver.api_client import Api

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
NAMESPACES = "/api/v1/namespaces"


async def config_map(api: Api, name: str, *owners: tuple[Any, bool], **metadata: Any) -> Any:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        for owner, blocks in owners
    ]
    return await api.made(MAPS, {"metadata": {"name": name, "ownerReferences": references, **metadata}})


async def pod(api: Api, node: str = "", **spec: Any) -> Any:
    containers = [{"name": "c", "image": "i"}]
    body = {"metadata": {"name": "p"}, "spec": {"containers": containers, "nodeName": node, **spec}}
    return await api.made(PODS, body)


async def test_a_deletion_answers_with_a_status(api: Api) -> None:
    created = await config_map(api, "a")
    answer = await api.delete(f"{MAPS}/a")
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]},
    }


async def test_kinds_that_return_the_object_return_it_as_it_was(api: Api) -> None:
    classes = "/apis/resource.k8s.io/v1/deviceclasses"
    created = await api.made(classes, {"metadata": {"name": "k"}})
    body = (await api.delete(f"{classes}/k")).body
    assert body["metadata"]["uid"] == created["metadata"]["uid"]
    assert "deletionTimestamp" not in body["metadata"]


@pytest.mark.parametrize(
    ("preconditions", "said"),
    [
        ({"uid": "other"}, "the UID in the precondition (other) does not match the UID in record"),
        (
            {"resourceVersion": "1"},
            "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record",
        ),
    ],
)
async def test_a_precondition_that_does_not_hold_is_a_conflict(api: Api, preconditions: Any, said: str) -> None:
    await config_map(api, "a")
    answer = await api.delete(f"{MAPS}/a", {"preconditions": preconditions})
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert said in answer.body["message"]


async def test_a_precondition_that_holds_is_none(api: Api) -> None:
    metadata = (await config_map(api, "a"))["metadata"]
    preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    assert (await api.delete(f"{MAPS}/a", {"preconditions": preconditions})).status == 200


async def test_finalizers_hold_a_deleted_object(api: Api) -> None:
    await config_map(api, "a", finalizers=["example.com/hold"])
    deleted = (await api.delete(f"{MAPS}/a")).body
    assert deleted["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:00Z"
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 0
    again = await api.post(MAPS, {"metadata": {"name": "a"}})
    assert again.body["message"] == 'object is being deleted: configmaps "a" already exists'
    answer = await api.merge(f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}})
    assert "no new finalizers can be added if the object is being deleted" in answer.causes[0]
    assert (await api.delete(f"{MAPS}/a")).status == 200
    assert (await api.merge(f"{MAPS}/a", {"metadata": {"finalizers": None}})).status == 200
    assert (await api.get(f"{MAPS}/a")).status == 404


async def test_an_unbound_pod_goes_at_once(api: Api) -> None:
    await pod(api)
    await api.delete(f"{PODS}/p")
    assert (await api.get(f"{PODS}/p")).status == 404


async def test_a_bound_pod_waits_for_its_kubelet(api: Api) -> None:
    await pod(api, "n1")
    body = (await api.delete(f"{PODS}/p")).body
    assert body["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:30Z"
    assert body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert body["metadata"]["generation"] == 2
    await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert (await api.get(f"{PODS}/p")).status == 404


async def test_a_deletion_can_be_hastened_but_not_put_off(api: Api) -> None:
    await pod(api, "n1")
    await api.delete(f"{PODS}/p")
    api.clock.advance(5)

    async def deadline(grace_s: int) -> tuple[str, int]:
        metadata = (await api.delete(f"{PODS}/p", {"gracePeriodSeconds": grace_s})).body["metadata"]
        return metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]

    assert await deadline(60) == ("2026-01-01T12:00:30Z", 30)
    assert await deadline(10) == ("2026-01-01T12:00:10Z", 10)
    assert await deadline(2) == ("2026-01-01T12:00:05Z", 1)


async def test_a_finished_pod_goes_at_once(api: Api) -> None:
    await pod(api, "n1")
    await api.merge(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})
    await api.delete(f"{PODS}/p")
    assert (await api.get(f"{PODS}/p")).status == 404


async def test_an_eviction_deletes(api: Api) -> None:
    await pod(api)
    answer = await api.post(f"{PODS}/p/eviction", {"metadata": {"name": "p"}})
    assert (answer.status, answer.body["status"]) == (201, "Success")
    assert (await api.get(f"{PODS}/p")).status == 404


async def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    await config_map(api, "a", labels={"go": "1"})
    await config_map(api, "b", labels={"go": "1"}, finalizers=["example.com/hold"])
    await config_map(api, "c")
    body = (await api.delete(f"{MAPS}?labelSelector=go=1")).body
    assert [item["metadata"]["name"] for item in body["items"]] == ["a", "b"]
    left = (await api.get(MAPS)).body["items"]
    assert [item["metadata"]["name"] for item in left] == ["b", "c"]


async def test_namespaces_are_not_deleted_by_the_collection(api: Api) -> None:
    assert (await api.delete(NAMESPACES)).status == 405


async def test_an_unknown_propagation_is_refused(api: Api) -> None:
    await config_map(api, "a")
    answer = await api.delete(f"{MAPS}/a", {"propagationPolicy": "Sideways"})
    assert answer.status == 422


@pytest.mark.parametrize("options", [None, {"propagationPolicy": "Background"}, {"orphanDependents": False}])
async def test_dependents_follow_their_owner(api: Api, options: Any) -> None:
    owner = await config_map(api, "owner")
    child = await config_map(api, "child", (owner, True))
    await config_map(api, "grandchild", (child, False))
    await api.delete(f"{MAPS}/owner", options)
    await api.gone(f"{MAPS}/child")
    await api.gone(f"{MAPS}/grandchild")


async def test_a_dependent_of_two_owners_stays_with_the_second(api: Api) -> None:
    first, second = await config_map(api, "first"), await config_map(api, "second")
    await config_map(api, "child", (first, True), (second, True))
    await api.delete(f"{MAPS}/first")
    body = await api.until(f"{MAPS}/child", lambda body: len(body["metadata"]["ownerReferences"]) == 1)
    assert body["metadata"]["ownerReferences"][0]["uid"] == second["metadata"]["uid"]
    await api.delete(f"{MAPS}/second")
    await api.gone(f"{MAPS}/child")


@pytest.mark.parametrize("options", [{"propagationPolicy": "Orphan"}, {"orphanDependents": True}])
async def test_orphans_stay_without_owner(api: Api, options: Any) -> None:
    owner = await config_map(api, "owner")
    await config_map(api, "child", (owner, True))
    await api.delete(f"{MAPS}/owner", options)
    await api.gone(f"{MAPS}/owner")
    body = await api.until(f"{MAPS}/child", lambda body: "ownerReferences" not in body["metadata"])
    assert "deletionTimestamp" not in body["metadata"]


async def test_a_foreground_deletion_waits_for_dependents_that_block_it(api: Api) -> None:
    owner = await config_map(api, "owner")
    await config_map(api, "blocking", (owner, True), finalizers=["example.com/hold"])
    await config_map(api, "other", (owner, False), finalizers=["example.com/hold"])
    deleted = (await api.delete(f"{MAPS}/owner", {"propagationPolicy": "Foreground"})).body
    assert deleted["metadata"]["finalizers"] == ["foregroundDeletion"]
    await api.until(f"{MAPS}/blocking", lambda body: "deletionTimestamp" in body["metadata"])
    assert (await api.get(f"{MAPS}/owner")).status == 200
    await api.merge(f"{MAPS}/blocking", {"metadata": {"finalizers": None}})
    await api.gone(f"{MAPS}/owner")
    assert "deletionTimestamp" in (await api.get(f"{MAPS}/other")).body["metadata"]


async def test_an_object_whose_owner_never_was_goes(api: Api) -> None:
    absent = {"metadata": {"name": "ghost", "uid": "never"}}
    await config_map(api, "child", (absent, False))
    await api.gone(f"{MAPS}/child")


async def test_an_owner_in_another_namespace_is_none(api: Api) -> None:
    await api.made(NAMESPACES, {"metadata": {"name": "other"}})
    owner = await api.made("/api/v1/namespaces/other/configmaps", {"metadata": {"name": "owner"}})
    await config_map(api, "child", (owner, False))
    await api.gone(f"{MAPS}/child")


async def test_a_cluster_scoped_owner_may_have_dependents_everywhere(api: Api) -> None:
    node = await api.made("/api/v1/nodes", {"metadata": {"name": "n"}})
    await config_map(api, "child", (node, False))
    await config_map(api, "ghost", ({"metadata": {"name": "x", "uid": "never"}}, False))
    await api.gone(f"{MAPS}/ghost")  # the collector has been here, and left the other one alone
    assert (await api.get(f"{MAPS}/child")).status == 200
    await api.delete("/api/v1/nodes/n")
    await api.gone(f"{MAPS}/child")


async def test_a_namespace_goes_after_its_content(api: Api) -> None:
    await api.made(NAMESPACES, {"metadata": {"name": "tenant"}})
    maps = "/api/v1/namespaces/tenant/configmaps"
    await api.made(maps, {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}})
    await api.made(maps, {"metadata": {"name": "free"}})
    deleted = (await api.delete(f"{NAMESPACES}/tenant")).body
    assert deleted["status"]["phase"] == "Terminating"
    await api.gone(f"{maps}/free")
    answer = await api.post(maps, {"metadata": {"name": "late"}})
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    why = "unable to create new content in namespace tenant because it is being terminated"
    assert answer.body["message"] == f'configmaps "late" is forbidden: {why}'
    assert answer.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await api.merge(f"{maps}/held", {"metadata": {"finalizers": None}})
    await api.gone(f"{NAMESPACES}/tenant")


async def test_an_empty_namespace_goes_by_itself(api: Api) -> None:
    await api.made(NAMESPACES, {"metadata": {"name": "tenant"}})
    await api.delete(f"{NAMESPACES}/tenant")
    await api.gone(f"{NAMESPACES}/tenant")


async def test_a_namespace_with_another_finalizer_of_its_spec_waits_for_it(api: Api) -> None:
    spec = {"finalizers": ["example.com/hold"]}
    await api.made(NAMESPACES, {"metadata": {"name": "tenant"}, "spec": spec})
    await api.delete(f"{NAMESPACES}/tenant")
    await api.until(f"{NAMESPACES}/tenant", lambda body: body["spec"] == spec)
    await api.put(f"{NAMESPACES}/tenant/finalize", {"metadata": {"name": "tenant"}, "spec": {}})
    await api.gone(f"{NAMESPACES}/tenant")
