"""Server-side apply over HTTP.

Expected texts are those of kube-apiserver 1.37.
"""

from typing import Any

import pytest

from tests.local.apiserver.api_client import APPLY, Api, Clock

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def config_map(**data: str) -> dict[str, Any]:
    content = {"data": data} if data else {}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, **content}


def pod(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": list(containers)}}


def container(name: str, image: str = "b:1", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": image, **more}


def status(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": fields}


def managers(body: dict[str, Any]) -> list[tuple[str, str, str]]:
    entries = body["metadata"]["managedFields"]
    return [(entry["manager"], entry["operation"], entry.get("subresource", "")) for entry in entries]


async def test_an_apply_creates_and_then_changes(api: Api) -> None:
    first = await api.apply(f"{MAPS}/c", config_map(a="1", b="2"))
    assert (first.status, first.body["data"]) == (201, {"a": "1", "b": "2"})
    second = await api.apply(f"{MAPS}/c", config_map(a="3"))
    assert (second.status, second.body["data"]) == (200, {"a": "3"})
    (entry,) = second.body["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["fieldsV1"]) == (
        "applier",
        "Apply",
        {"f:data": {"f:a": {}}},
    )


async def test_an_apply_that_changes_nothing_writes_nothing(api: Api, clock: Clock) -> None:
    first = await api.apply(f"{MAPS}/c", config_map(a="1"))
    clock.advance(60)
    second = await api.apply(f"{MAPS}/c", config_map(a="1"))
    assert second.body["metadata"] == first.body["metadata"]


async def test_yaml_can_be_applied(api: Api) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  a: '1'\n"
    answer = await api("PATCH", f"{MAPS}/c?fieldManager=applier", text, content_type=APPLY)
    assert (answer.status, answer.body["data"]) == (201, {"a": "1"})


async def test_a_dry_apply_stores_nothing(api: Api) -> None:
    answer = await api("PATCH", f"{MAPS}/c?fieldManager=a&dryRun=All", config_map(a="1"), content_type=APPLY)
    assert answer.status == 201
    assert (await api.get(f"{MAPS}/c")).status == 404


async def test_a_conflict_names_every_field_and_its_owner(api: Api) -> None:
    await api.apply(f"{MAPS}/c", config_map(a="1", b="2"), "first")
    answer = await api.apply(f"{MAPS}/c", config_map(a="9", b="9"), "second")
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert answer.body["message"] == ('Apply failed with 2 conflicts: conflicts with "first":\n- .data.a\n- .data.b')
    assert answer.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "first"', "field": ".data.a"},
        {"reason": "FieldManagerConflict", "message": 'conflict with "first"', "field": ".data.b"},
    ]
    assert (await api.get(f"{MAPS}/c")).body["data"] == {"a": "1", "b": "2"}


async def test_an_updates_conflict_names_its_version(api: Api) -> None:
    await api.made(MAPS, config_map(a="1"))
    answer = await api.apply(f"{MAPS}/c", config_map(a="2"))
    assert answer.causes == ['.data.a: conflict with "tester" using v1']


async def test_force_takes_the_fields_from_their_owner(api: Api) -> None:
    await api.apply(f"{MAPS}/c", config_map(a="1", b="2"), "first")
    body = (await api.apply(f"{MAPS}/c", config_map(a="9"), "second", force=True)).body
    assert body["data"] == {"a": "9", "b": "2"}
    assert {entry["manager"]: entry["fieldsV1"] for entry in body["metadata"]["managedFields"]} == {
        "first": {"f:data": {"f:b": {}}},
        "second": {"f:data": {"f:a": {}}},
    }


async def test_a_shared_field_stays_until_its_last_owner_leaves_it(api: Api) -> None:
    for manager in ("first", "second"):
        await api.apply(f"{MAPS}/c", config_map(a="1"), manager)
    assert (await api.apply(f"{MAPS}/c", config_map(), "first")).body["data"] == {"a": "1"}
    assert "data" not in (await api.apply(f"{MAPS}/c", config_map(), "second")).body


async def test_containers_and_their_lists_are_applied_by_key(api: Api) -> None:
    path = f"{PODS}/p"
    env, port = {"name": "X", "value": "1"}, {"containerPort": 80}
    first = await api.apply(path, pod(container("a"), container("b", env=[env], ports=[port])), "first")
    assert first.body["spec"]["containers"][1]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    answer = await api.apply(path, pod(container("a", "b:2")), "second")
    assert answer.causes == ['.spec.containers[name="a"].image: conflict with "first"']
    body = (await api.apply(path, pod(container("a", "b:2")), "second", force=True)).body
    assert [each["image"] for each in body["spec"]["containers"]] == ["b:2", "b:1"]


async def test_status_is_owned_apart_from_the_rest(api: Api) -> None:
    await api.apply(f"{PODS}/p", pod(container("a")), "author")
    ready, other = {"type": "Ready", "status": "True"}, {"type": "Other", "status": "True"}
    await api.apply(f"{PODS}/p/status", status(phase="Running", conditions=[ready]), "kubelet")
    body = (await api.apply(f"{PODS}/p/status", status(conditions=[other]), "plugin")).body
    assert [each["type"] for each in body["status"]["conditions"]] == ["Ready", "Other"]
    assert sorted(managers(body)) == [
        ("author", "Apply", ""),
        ("kubelet", "Apply", "status"),
        ("plugin", "Apply", "status"),
    ]
    body = (await api.apply(f"{PODS}/p/status", status(), "plugin")).body
    assert [each["type"] for each in body["status"]["conditions"]] == ["Ready"]
    assert body["status"]["phase"] == "Running"


async def test_status_in_an_apply_of_the_object_is_passed_over(api: Api) -> None:
    await api.apply(f"{PODS}/p", {**pod(container("a")), "status": {"phase": "Failed"}}, "author")
    body = (await api.get(f"{PODS}/p")).body
    assert body["status"]["phase"] == "Pending"
    assert "f:status" not in body["metadata"]["managedFields"][0]["fieldsV1"]


async def test_status_of_nothing_cannot_be_applied(api: Api) -> None:
    answer = await api.apply(f"{PODS}/p/status", status(phase="Running"))
    assert (answer.status, answer.body["message"]) == (404, 'pods "p" not found')


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (
            {"kind": "ConfigMap", "metadata": {"name": "c"}},
            400,
            "Incorrect version specified in apply patch. Specified patch version: , expected: v1",
        ),
        (
            {**config_map(), "apiVersion": "v2"},
            400,
            "Incorrect version specified in apply patch. Specified patch version: v2, expected: v1",
        ),
        (
            {**config_map(), "metadata": {"name": "other"}},
            400,
            "the name of the object (other) does not match the name on the URL (c)",
        ),
        (
            {**config_map(), "metadata": {"name": "c", "managedFields": [{"manager": "x"}]}},
            400,
            "metadata.managedFields must be nil",
        ),
    ],
)
async def test_what_cannot_be_applied_is_refused(api: Api, body: dict[str, Any], code: int, said: str) -> None:
    answer = await api.apply(f"{MAPS}/c", body)
    assert (answer.status, answer.body["message"]) == (code, said)


async def test_an_apply_may_insist_on_a_revision(api: Api) -> None:
    made = await api.made(MAPS, config_map(a="1"))
    stale = {**config_map(z="1"), "metadata": {"name": "c", "resourceVersion": "1"}}
    assert (await api.apply(f"{MAPS}/c", stale)).status == 409
    current = {"name": "c", "resourceVersion": made["metadata"]["resourceVersion"]}
    assert (await api.apply(f"{MAPS}/c", {**config_map(z="1"), "metadata": current})).status == 200


async def test_ownership_can_be_reset(api: Api) -> None:
    await api.apply(f"{MAPS}/c", config_map(a="1"), "first")
    body = (await api.merge(f"{MAPS}/c", {"metadata": {"managedFields": [{}]}})).body
    assert "managedFields" not in body["metadata"]
    body = (await api.apply(f"{MAPS}/c", config_map(b="2"), "second")).body
    assert sorted(managers(body)) == [("before-first-apply", "Update", ""), ("second", "Apply", "")]
