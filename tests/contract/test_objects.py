"""Objects: names, versions, conflicts, patches, field ownership, subresources, selectors, pages, ends."""

from typing import Any

import pytest

from tests.contract.documents import DRIVER, RESOURCE, claim, config_map, exactly, slice_of
from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document, StatusError

APPLY = "application/apply-patch+yaml"
T = "2026-01-01T00:00:00Z"


async def refused(call: Any) -> StatusError:
    with pytest.raises(StatusError) as info:
        await call
    return info.value


async def read(server: Api, space: str, name: str) -> Document:
    return await server.get("v1", "ConfigMap", name, space)


async def apply(server: Api, document: Document, manager: str, *, force: bool = False) -> Document:
    path = await server.path("v1", "ConfigMap", document["metadata"]["namespace"], document["metadata"]["name"])
    query = {"fieldManager": manager, "force": str(force).lower()}
    return await server.request("PATCH", path, document, query=query, content_type=APPLY)


async def test_what_is_created_has_an_identity_and_a_version(server: Api, space: str) -> None:
    made = (await server.create(config_map("a", space)))["metadata"]
    assert made.keys() >= {"uid", "resourceVersion", "creationTimestamp"}
    assert (await read(server, space, "a"))["metadata"] == made


async def test_a_name_can_be_generated(server: Api, space: str) -> None:
    document = config_map("", space)
    document["metadata"] = {"generateName": "made-", "namespace": space}
    name = (await server.create(document))["metadata"]["name"]
    assert name.startswith("made-")
    assert len(name) == len("made-") + 5


async def test_an_object_is_created_once(server: Api, space: str) -> None:
    await server.create(config_map("a", space))
    error = await refused(server.create(config_map("a", space)))
    assert (error.code, error.reason, error.message) == (409, "AlreadyExists", 'configmaps "a" already exists')


async def test_what_is_not_there_is_not_found(server: Api, space: str) -> None:
    error = await refused(read(server, space, "a"))
    assert (error.code, error.reason, error.message) == (404, "NotFound", 'configmaps "a" not found')


async def test_a_write_that_knows_an_old_version_is_a_conflict(server: Api, space: str) -> None:
    old = await server.create(config_map("a", space))
    path = await server.path("v1", "ConfigMap", space, "a")
    await server.patch("v1", "ConfigMap", "a", {"data": {"x": "1"}}, space)
    errors = [
        await refused(server.request("PUT", path, old)),
        await refused(server.patch("v1", "ConfigMap", "a", old, space)),
        await refused(server.request("DELETE", path, {"preconditions": {"resourceVersion": "1"}})),
    ]
    assert [(error.code, error.reason) for error in errors] == [(409, "Conflict")] * 3
    assert "the object has been modified; please apply your changes to the latest version" in errors[0].message


async def test_a_delete_may_be_for_one_incarnation_only(server: Api, space: str) -> None:
    await server.create(config_map("a", space))
    path = await server.path("v1", "ConfigMap", space, "a")
    error = await refused(server.request("DELETE", path, {"preconditions": {"uid": "another"}}))
    assert (error.code, error.reason) == (409, "Conflict")
    assert "the UID in the precondition (another) does not match the UID in record" in error.message


async def test_a_write_that_changes_nothing_makes_no_version(server: Api, space: str) -> None:
    before = await server.create(config_map("a", space, {"x": "1"}))
    after = await server.patch("v1", "ConfigMap", "a", {"data": {"x": "1"}}, space)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_merge_patch_removes_with_null(server: Api, space: str) -> None:
    await server.create(config_map("a", space, {"x": "1", "y": "2"}))
    patched = await server.patch("v1", "ConfigMap", "a", {"data": {"x": None, "z": "3"}}, space)
    assert patched["data"] == {"y": "2", "z": "3"}


async def test_an_applied_field_belongs_to_who_applied_it(server: Api, space: str) -> None:
    await apply(server, config_map("a", space, {"mine": "1", "ours": "1"}), "me")
    error = await refused(apply(server, config_map("a", space, {"ours": "2"}), "you"))
    assert (error.code, error.reason) == (409, "Conflict")
    assert error.message == 'Apply failed with 1 conflict: conflict with "me": .data.ours'
    forced = await apply(server, config_map("a", space, {"ours": "2"}), "you", force=True)
    assert forced["data"] == {"mine": "1", "ours": "2"}
    owners = {one["manager"]: one["fieldsV1"]["f:data"] for one in forced["metadata"]["managedFields"]}
    assert owners == {"me": {"f:mine": {}}, "you": {"f:ours": {}}}


async def test_what_is_no_longer_applied_goes_unless_another_has_it(server: Api, space: str) -> None:
    await apply(server, config_map("a", space, {"x": "1", "y": "1"}), "me")
    await apply(server, config_map("a", space, {"y": "1"}), "you")
    applied = await apply(server, config_map("a", space, {}), "me")
    assert applied["data"] == {"y": "1"}


async def test_status_is_written_by_its_subresource_only(server: Api, space: str) -> None:
    document = claim("c", space, exactly("r", "any"))
    conditions = [{"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": T}]
    status = {"status": {"devices": [{"driver": DRIVER, "pool": "p", "device": "d", "conditions": conditions}]}}
    made = await server.create({**document, **status})
    assert "devices" not in made.get("status", {})
    patched = await server.patch(RESOURCE, "ResourceClaim", "c", status, space)
    assert "devices" not in patched.get("status", {})
    both = {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": []}}, "status": {}}
    patched = await server.patch(RESOURCE, "ResourceClaim", "c", both, space, subresource="status")
    assert patched["spec"] == made["spec"]


async def test_generation_counts_changes_of_the_spec(server: Api) -> None:
    made = await server.create(slice_of("generations", "n", [{"name": "d"}]))
    labelled = await server.patch(RESOURCE, "ResourceSlice", "generations", {"metadata": {"labels": {"a": "b"}}})
    changed = await server.patch(RESOURCE, "ResourceSlice", "generations", {"spec": {"devices": [{"name": "e"}]}})
    assert [one["metadata"]["generation"] for one in (made, labelled, changed)] == [1, 1, 2]
    await server.delete(RESOURCE, "ResourceSlice", "generations")


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("zone=east", ["a"]),
        ("zone!=east", ["b", "c"]),
        ("zone in (east,west)", ["a", "b"]),
        ("zone", ["a", "b"]),
        ("!zone", ["c"]),
        ("zone,tier notin (x)", ["a"]),
    ],
)
async def test_a_list_may_select_by_label(server: Api, space: str, selector: str, found: list[str]) -> None:
    for name, labels in {"a": {"zone": "east"}, "b": {"zone": "west", "tier": "x"}, "c": {}}.items():
        await server.create(config_map(name, space, labels=labels))
    chosen = await server.list("v1", "ConfigMap", space, labelSelector=selector)
    assert [one["metadata"]["name"] for one in chosen if one["metadata"]["name"] in "abc"] == found


async def test_slices_can_be_selected_by_node_and_driver(server: Api) -> None:
    for node in ("n1", "n2"):
        await server.create(slice_of(f"of-{node}", node, [{"name": "d"}]))
    chosen = await server.list(RESOURCE, "ResourceSlice", fieldSelector=f"spec.nodeName=n1,spec.driver={DRIVER}")
    assert [one["metadata"]["name"] for one in chosen] == ["of-n1"]
    error = await refused(server.list(RESOURCE, "ResourceSlice", fieldSelector="spec.flavour=odd"))
    assert error.code == 400
    for node in ("n1", "n2"):
        await server.delete(RESOURCE, "ResourceSlice", f"of-{node}")


async def test_a_list_comes_in_pages_of_one_moment(server: Api, space: str) -> None:
    for name in "edcba":
        await server.create(config_map(name, space, labels={"of": space}))
    path = await server.path("v1", "ConfigMap", space)
    query = {"limit": "2", "labelSelector": f"of={space}"}
    first = await server.request("GET", path, query=query)
    await server.create(config_map("late", space, labels={"of": space}))
    pages = [first]
    while token := pages[-1]["metadata"].get("continue"):
        pages.append(await server.request("GET", path, query={**query, "continue": token}))
    names = [[one["metadata"]["name"] for one in page["items"]] for page in pages]
    assert names == [["a", "b"], ["c", "d"], ["e"]]
    assert len({page["metadata"]["resourceVersion"] for page in pages}) == 1


async def test_what_has_a_finalizer_goes_when_the_last_one_is_taken_away(server: Api, space: str) -> None:
    await server.create(config_map("a", space, finalizers=["example.com/wait"]))
    await server.delete("v1", "ConfigMap", "a", space)
    held = await read(server, space, "a")
    assert held["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["example.com/wait", "example.com/more"]}}
    error = await refused(server.patch("v1", "ConfigMap", "a", more, space))
    assert (error.code, error.reason) == (422, "Invalid")
    assert "no new finalizers can be added if the object is being deleted" in error.message
    await server.patch("v1", "ConfigMap", "a", {"metadata": {"finalizers": None}}, space)
    assert await server.find("v1", "ConfigMap", "a", space) is None


async def test_what_is_owned_goes_with_the_last_of_its_owners(server: Api, space: str) -> None:
    owners = [(await server.create(config_map(name, space)))["metadata"] for name in ("one", "two")]
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]} for owner in owners
    ]
    await server.create(config_map("both", space, ownerReferences=references))
    await server.create(config_map("first", space, ownerReferences=references[:1]))
    await server.delete("v1", "ConfigMap", "one", space)

    async def is_gone(name: str) -> bool:
        return await server.find("v1", "ConfigMap", name, space) is None

    await eventually("the owned object is gone", lambda: is_gone("first"))
    assert not await is_gone("both")
    await server.delete("v1", "ConfigMap", "two", space)
    await eventually("the object of two owners is gone", lambda: is_gone("both"))


async def test_what_an_earlier_incarnation_owned_goes(server: Api, space: str) -> None:
    await server.create(config_map("owner", space))
    stale = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "11111111-1111-1111-1111-111111111111"}
    await server.create(config_map("orphan", space, ownerReferences=[stale]))

    async def is_gone() -> bool:
        return await server.find("v1", "ConfigMap", "orphan", space) is None

    await eventually("the orphan is gone", is_gone)
    assert await server.find("v1", "ConfigMap", "owner", space) is not None


async def test_an_unknown_field_is_refused_when_a_client_wants_it_so_else_dropped(server: Api, space: str) -> None:
    document = {
        "apiVersion": "kerf.dev/v1alpha1",
        "kind": "ResourceClass",
        "metadata": {"name": space},
        "spec": {"device": "gpu", "cut": "Whole", "flavour": "odd"},
    }
    error = await refused(server.create(document))
    assert error.code == 400
    assert 'unknown field "spec.flavour"' in error.message
    made = await server.create(document, fieldValidation="Ignore")
    assert "flavour" not in made["spec"]


async def test_a_namespace_takes_all_that_is_in_it(server: Api, space: str) -> None:
    name = f"{space}-inner"
    await server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await server.create(config_map("a", name))
    await server.create(claim("c", name, exactly("r", "any")))
    await server.delete("v1", "Namespace", name)

    async def is_gone() -> bool:
        return await server.find("v1", "Namespace", name) is None

    await eventually("the namespace is gone", is_gone)
    assert await server.find("v1", "ConfigMap", "a", name) is None
    assert await server.find(RESOURCE, "ResourceClaim", "c", name) is None
