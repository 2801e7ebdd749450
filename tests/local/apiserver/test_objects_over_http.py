"""Create, read, update, patch and delete, with the answers of a real API server.

Codes, reasons and messages are those that kube-apiserver 1.37 gave to the same requests.
"""

from typing import Any

import pytest

from kerf_dra.driver.local.apiserver.meta.protobuf_messages import message_types
from tests.local.apiserver.api_client import APPLY, JSON_PATCH, MERGE, STRATEGIC, TABLE, Api, Cluster

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def config_map(name: str = "c", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_a_created_object_has_what_the_server_adds(api: Api) -> None:
    answer = await api.post(MAPS, config_map(k="v"))
    assert answer.status == 201
    assert answer.body == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {
            "name": "c",
            "namespace": "default",
            "uid": answer.body["metadata"]["uid"],
            "resourceVersion": "6",
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "managedFields": [
                {
                    "manager": "tester",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": "2026-01-01T12:00:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:data": {".": {}, "f:k": {}}},
                }
            ],
        },
        "data": {"k": "v"},
    }
    assert (await api.get(f"{MAPS}/c")).body == answer.body


async def test_unknown_fields_of_built_in_kinds_survive(api: Api) -> None:
    await api.made(CLAIMS, {"metadata": {"name": "c"}, "spec": {"futureField": {"x": [1, {"y": None}]}}})
    await api.merge(f"{CLAIMS}/c", {"metadata": {"labels": {"a": "b"}}})
    body = (await api.get(f"{CLAIMS}/c")).body
    assert body["spec"]["futureField"] == {"x": [1, {}]}
    assert body["metadata"]["labels"] == {"a": "b"}


async def test_yaml_is_taken_too(api: Api) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: {k: v}\n"
    assert (await api.post(MAPS, text, content_type="application/yaml")).body["data"] == {"k": "v"}


async def test_generated_names_are_short_and_differ(api: Api) -> None:
    body = {"metadata": {"generateName": "x" * 70 + "-"}}
    first, second = await api.made(MAPS, body), await api.made(MAPS, body)
    names = {first["metadata"]["name"], second["metadata"]["name"]}
    assert len(names) == 2
    assert all(len(name) == 63 and name.startswith("x" * 58) for name in names)


REFUSALS = [
    pytest.param("GET", f"{MAPS}/nope", None, 404, "NotFound", 'configmaps "nope" not found', id="no object"),
    pytest.param(
        "GET",
        f"{CLAIMS}/nope",
        None,
        404,
        "NotFound",
        'resourceclaims.resource.k8s.io "nope" not found',
        id="no object of a group",
    ),
    pytest.param(
        "GET", "/api/v1/nopes", None, 404, "NotFound", "the server could not find the requested resource", id="no kind"
    ),
    pytest.param(
        "POST",
        "/api/v1/namespaces/none/configmaps",
        config_map(),
        404,
        "NotFound",
        'namespaces "none" not found',
        id="no namespace",
    ),
    pytest.param(
        "POST",
        MAPS,
        {**config_map(), "metadata": {"name": "c", "namespace": "other"}},
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
        id="another namespace",
    ),
    pytest.param(
        "POST",
        MAPS,
        {**config_map(), "apiVersion": "v2"},
        400,
        "BadRequest",
        "the API version in the data (v2) does not match the expected API version (v1)",
        id="another version",
    ),
    pytest.param(
        "POST",
        MAPS,
        {**config_map(), "metadata": {"name": "c", "resourceVersion": "1"}},
        500,
        None,
        "resourceVersion should not be set on objects to be created",
        id="a revision at creation",
    ),
    pytest.param("POST", MAPS, b"{", 400, "BadRequest", "couldn't get version/kind; json parse error", id="no JSON"),
    pytest.param("POST", MAPS, b"[1]", 400, "BadRequest", "the body of the request is no object", id="no object given"),
    pytest.param(
        "POST",
        "/api/v1/configmaps",
        config_map(),
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        id="a creation without namespace",
    ),
    pytest.param("PUT", MAPS, config_map(), 405, "MethodNotAllowed", "does not allow", id="an update without name"),
    pytest.param(
        "POST", f"{MAPS}/c", config_map(), 405, "MethodNotAllowed", "does not allow", id="a creation with name"
    ),
    pytest.param(
        "PUT", f"{MAPS}/c", config_map(), 404, "NotFound", 'configmaps "c" not found', id="no create on update"
    ),
    pytest.param("DELETE", f"{MAPS}/c", None, 404, "NotFound", 'configmaps "c" not found', id="nothing to delete"),
    pytest.param("GET", f"{MAPS}/c/status", None, 404, "NotFound", "could not find the requested", id="no subresource"),
    pytest.param(
        "GET",
        f"{MAPS}?limit=x",
        None,
        400,
        "BadRequest",
        'strconv.ParseInt: parsing "x": invalid syntax',
        id="no number",
    ),
    pytest.param(
        "GET",
        f"{MAPS}?fieldSelector=spec.x=1",
        None,
        400,
        "BadRequest",
        '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        id="no selectable field",
    ),
    pytest.param(
        "GET",
        f"{PODS}?fieldSelector=spec.x=1",
        None,
        400,
        "BadRequest",
        "field label not supported: spec.x",
        id="no selectable field of a pod",
    ),
    pytest.param(
        "GET",
        "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.x=1",
        None,
        400,
        "BadRequest",
        "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.x",
        id="no selectable field of a slice",
    ),
    pytest.param(
        "POST",
        f"{MAPS}?dryRun=maybe",
        config_map(),
        422,
        "Invalid",
        'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["maybe"]: supported values: "All"',
        id="no dry run like that",
    ),
]


@pytest.mark.parametrize(("method", "path", "body", "code", "reason", "message"), REFUSALS)
async def test_a_request_is_refused_as_a_real_server_would(
    api: Api, method: str, path: str, body: object, code: int, reason: str | None, message: str
) -> None:
    answer = await api(method, path, body)
    assert answer.status == code
    assert (answer.body["kind"], answer.body["status"], answer.body["code"]) == ("Status", "Failure", code)
    assert answer.body.get("reason") == reason
    assert message in answer.body["message"]


async def test_an_unserved_group_is_answered_in_plain_text(api: Api) -> None:
    answer = await api.get("/apis/nope/v1/things")
    assert (answer.status, answer.body) == (404, "404 page not found\n")


async def test_a_body_of_an_unknown_type_is_unsupported(api: Api) -> None:
    assert (await api.post(MAPS, b"x", content_type="text/plain")).status == 415
    assert (await api("PATCH", f"{MAPS}/c", b"x", content_type="text/plain")).status == 415


async def test_a_body_in_protobuf_is_read_where_its_kind_is_known(api: Api) -> None:
    typed = "application/vnd.kubernetes.protobuf"
    map_m = bytes.fromhex("6b3873000a0f0a0276311209436f6e6669674d617012050a030a016d")
    assert (await api.post(MAPS, map_m, content_type=typed)).body["metadata"]["name"] == "m"
    assert (await api.post(MAPS, map_m.replace(b"ConfigMap", b"ConfigMop"), content_type=typed)).status == 415
    assert (await api.post(MAPS, b"x", content_type=typed)).status == 400


def nested_claim(levels: int) -> bytes:
    """A claim in protobuf with parameters of so many levels; their JSON is made as text, which has no limit."""
    claim: Any = message_types()["resource.v1.ResourceClaim"].make()
    claim.metadata.name = f"c-{levels}"
    opaque = claim.spec.devices.config.add().DeviceConfiguration.opaque
    opaque.driver, opaque.parameters.raw = "gpu.example.com", b'{"x":' + b"[" * levels + b"]" * levels + b"}"
    wrapper: Any = message_types()["Unknown"].make(raw=claim.SerializeToString())
    wrapper.typeMeta.apiVersion, wrapper.typeMeta.kind = "resource.k8s.io/v1", "ResourceClaim"
    return b"k8s\x00" + bytes(wrapper.SerializeToString())


@pytest.mark.parametrize(("levels", "status"), [(10, 201), (150, 400), (200_000, 400)])
async def test_parameters_in_protobuf_have_no_more_levels_than_in_json(levels: int, status: int, api: Api) -> None:
    """Those of 150 levels were stored, and code that walks over them has a stack for 100."""
    answer = await api.post(CLAIMS, nested_claim(levels), content_type="application/vnd.kubernetes.protobuf")
    assert answer.status == status, answer.body


async def test_a_client_that_prefers_protobuf_gets_it_of_objects_and_lists_and_json_of_all_else(api: Api) -> None:
    accept = "application/vnd.kubernetes.protobuf"
    created = await api.post(MAPS, config_map("a", k="v"), accept=f"{accept},application/json")
    await api.made(MAPS, config_map("b", k="w"))
    assert created.headers["Content-Type"] == accept
    assert created.body == (await api.get(f"{MAPS}/a")).body
    listed = await api.get(MAPS, accept=accept)
    assert (listed.status, listed.headers["Content-Type"]) == (200, accept)
    assert listed.body == (await api.get(MAPS)).body
    absent = await api.get(f"{MAPS}/c", accept=accept)
    assert (absent.status, absent.body["reason"]) == (404, "NotFound")


async def test_protobuf_alone_cannot_be_answered_of_a_kind_that_has_none(api: Api) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    accept = "application/vnd.kubernetes.protobuf"
    assert (await api.get(definitions, accept=accept)).status == 406
    assert (await api.get(definitions, accept=f"{accept},application/json")).status == 200


async def test_a_document_of_the_wrong_shape_is_a_bad_request(api: Api) -> None:
    for body in ({"metadata": "x"}, {"metadata": {"name": "c", "labels": "x"}}, {"metadata": {"name": 7}}):
        assert (await api.post(MAPS, body)).status == 400


async def test_a_body_that_is_too_large_is_refused(cluster: Cluster) -> None:
    async with cluster(max_body_bytes=1000) as api:
        answer = await api.post(MAPS, config_map(k="x" * 1000))
        assert (answer.status, answer.body["reason"]) == (413, "RequestEntityTooLarge")


async def test_a_second_object_of_the_name_exists_already(api: Api) -> None:
    await api.made(MAPS, config_map())
    answer = await api.post(MAPS, config_map())
    assert (answer.status, answer.body["reason"]) == (409, "AlreadyExists")
    assert answer.body["message"] == 'configmaps "c" already exists'
    assert answer.body["details"] == {"name": "c", "kind": "configmaps"}


async def test_a_get_may_ask_for_a_state_that_is_not_older_than_a_revision(api: Api) -> None:
    created = await api.made(MAPS, config_map())
    now = int(created["metadata"]["resourceVersion"])
    for version in (0, now):
        assert (await api.get(f"{MAPS}/c?resourceVersion={version}")).status == 200
    later = await api.get(f"{MAPS}/c?resourceVersion={now + 1000}")
    assert (later.status, later.body["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")
    assert (await api.get(f"{MAPS}/c?resourceVersion=x")).status == 400


async def test_an_update_must_know_the_latest_revision(api: Api) -> None:
    created = await api.made(MAPS, config_map(k="1"))
    assert (await api.put(f"{MAPS}/c", {**created, "data": {"k": "2"}})).status == 200
    answer = await api.put(f"{MAPS}/c", {**created, "data": {"k": "3"}})
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert answer.body["message"] == (
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_an_update_may_leave_out_the_revision_except_where_it_must_not(api: Api) -> None:
    await api.made(MAPS, config_map(k="1"))
    assert (await api.put(f"{MAPS}/c", config_map(k="2"))).status == 200
    await api.made(LEASES, {"metadata": {"name": "l"}, "spec": {}})
    answer = await api.put(f"{LEASES}/l", {"metadata": {"name": "l"}, "spec": {}})
    assert answer.causes == ["metadata.resourceVersion: Invalid value: 0: must be specified for an update"]


async def test_a_lease_may_be_created_by_an_update(api: Api) -> None:
    answer = await api.put(f"{LEASES}/l", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}})
    assert answer.status == 201


async def test_an_update_of_another_incarnation_is_a_conflict(api: Api) -> None:
    await api.made(MAPS, config_map())
    answer = await api.put(f"{MAPS}/c", {**config_map(), "metadata": {"name": "c", "uid": "other"}})
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: other" in answer.body["message"]


async def test_an_update_that_changes_nothing_writes_nothing(api: Api) -> None:
    created = await api.made(MAPS, config_map(k="1"))
    api.clock.advance(60)
    answer = await api.put(f"{MAPS}/c", created)
    assert answer.body == created
    assert (await api.merge(f"{MAPS}/c", {"data": {"k": "1"}})).body == created


async def test_what_the_server_keeps_cannot_be_changed_by_an_update(api: Api) -> None:
    created = await api.made(MAPS, config_map())
    wanted = {
        **created["metadata"],
        "creationTimestamp": "2000-01-01T00:00:00Z",
        "deletionTimestamp": "x",
        "generation": 9,
    }
    body = (await api.put(f"{MAPS}/c", {**created, "metadata": wanted, "data": {"k": "v"}})).body
    assert body["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]
    assert "deletionTimestamp" not in body["metadata"]
    assert "generation" not in body["metadata"]


async def test_a_patch_to_another_name_or_identity_is_refused(api: Api) -> None:
    await api.made(MAPS, config_map())
    answer = await api.merge(f"{MAPS}/c", {"metadata": {"name": "d"}})
    assert answer.body["message"] == "the name of the object (d) does not match the name on the URL (c)"
    answer = await api.merge(f"{MAPS}/c", {"metadata": {"uid": "other"}})
    assert answer.causes == ['metadata.uid: Invalid value: "other": field is immutable']
    assert (await api.merge(f"{MAPS}/c", {"metadata": {"resourceVersion": "1"}})).status == 409


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        (MERGE, {"data": {"a": None, "b": "2"}}),
        (STRATEGIC, {"data": {"a": None, "b": "2"}}),
        (JSON_PATCH, [{"op": "remove", "path": "/data/a"}, {"op": "add", "path": "/data/b", "value": "2"}]),
    ],
)
async def test_every_kind_of_patch_changes_the_object(api: Api, content_type: str, patch: object) -> None:
    await api.made(MAPS, config_map(a="1"))
    answer = await api("PATCH", f"{MAPS}/c", patch, content_type=content_type)
    assert (answer.status, answer.body["data"]) == (200, {"b": "2"})


async def test_a_json_patch_that_does_not_fit_is_invalid(api: Api) -> None:
    await api.made(MAPS, config_map(a="1"))
    patch = [{"op": "test", "path": "/data/a", "value": "2"}]
    answer = await api("PATCH", f"{MAPS}/c", patch, content_type=JSON_PATCH)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")


@pytest.mark.parametrize(
    ("query", "content_type", "said"),
    [
        ("", APPLY, "fieldManager: Required value: is required for apply patch"),
        ("?force=true", MERGE, "force: Forbidden: may not be specified for non-apply patch"),
    ],
)
async def test_options_of_an_apply_belong_to_an_apply(api: Api, query: str, content_type: str, said: str) -> None:
    answer = await api("PATCH", f"{MAPS}/c{query}", config_map(), content_type=content_type)
    assert (answer.status, answer.causes) == (422, [said])


async def test_a_dry_run_answers_and_stores_nothing(api: Api) -> None:
    answer = await api.post(f"{MAPS}?dryRun=All", config_map(k="1"))
    assert (answer.status, answer.body["data"]) == (201, {"k": "1"})
    assert (await api.get(f"{MAPS}/c")).status == 404
    await api.made(MAPS, config_map(k="1"))
    assert (await api("PATCH", f"{MAPS}/c?dryRun=All", {"data": {"k": "2"}}, content_type=MERGE)).body["data"] == {
        "k": "2"
    }
    assert (await api.delete(f"{MAPS}/c?dryRun=All")).status == 200
    assert (await api.get(f"{MAPS}/c")).body["data"] == {"k": "1"}


async def test_status_and_the_rest_are_written_apart(api: Api) -> None:
    await api.made(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    body = (await api.merge(f"{PODS}/p", {"status": {"phase": "Failed"}, "metadata": {"labels": {"a": "b"}}})).body
    assert (body["status"]["phase"], body["metadata"]["labels"]) == ("Pending", {"a": "b"})
    patch = {"status": {"phase": "Running"}, "metadata": {"labels": {"a": "c"}}, "spec": {"restartPolicy": "Never"}}
    body = (await api.merge(f"{PODS}/p/status", patch)).body
    assert (body["status"]["phase"], body["metadata"]["labels"]) == ("Running", {"a": "b"})
    assert body["spec"]["restartPolicy"] == "Always"


async def test_generation_counts_changes_of_the_spec_only(api: Api) -> None:
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    created = await api.made(
        slices, {"metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n", "pool": pool}}
    )
    assert created["metadata"]["generation"] == 1
    labelled = (await api.merge(f"{slices}/s", {"metadata": {"labels": {"a": "b"}}})).body
    assert labelled["metadata"]["generation"] == 1
    changed = (await api.merge(f"{slices}/s", {"spec": {"pool": {"generation": 2}}})).body
    assert changed["metadata"]["generation"] == 2


async def test_a_list_has_a_revision_and_items_without_kind(api: Api) -> None:
    await api.made(MAPS, config_map("b"))
    await api.made(MAPS, config_map("a"))
    body = (await api.get(MAPS)).body
    assert (body["kind"], body["apiVersion"], body["metadata"]) == ("ConfigMapList", "v1", {"resourceVersion": "7"})
    assert [item["metadata"]["name"] for item in body["items"]] == ["a", "b"]
    assert "kind" not in body["items"][0]


async def test_a_list_over_all_namespaces_has_them_all(api: Api) -> None:
    await api.made("/api/v1/namespaces", {"metadata": {"name": "other"}})
    await api.made(MAPS, config_map())
    await api.made("/api/v1/namespaces/other/configmaps", config_map())
    items = (await api.get("/api/v1/configmaps")).body["items"]
    assert [item["metadata"]["namespace"] for item in items] == ["default", "other"]


async def test_lists_are_selected_by_labels_and_fields(api: Api) -> None:
    for name, node in (("a", "n1"), ("b", "n2"), ("c", "n1")):
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": node}
        await api.made(PODS, {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})

    async def names(query: str) -> list[str]:
        return [item["metadata"]["name"] for item in (await api.get(f"/api/v1/pods?{query}")).body["items"]]

    assert await names("labelSelector=app in (a,b)") == ["a", "b"]
    assert await names("fieldSelector=spec.nodeName=n1") == ["a", "c"]
    assert await names("fieldSelector=spec.nodeName=n1&labelSelector=app!=a") == ["c"]
    assert await names("fieldSelector=status.phase=Running") == []
    assert await names("fieldSelector=metadata.namespace=default,metadata.name=b") == ["b"]


async def test_events_are_selected_by_what_they_are_about_in_both_groups(api: Api) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": "default", "uid": "u1"}
    path = "/api/v1/namespaces/default/events"
    await api.made(path, {"metadata": {"name": "e"}, "involvedObject": about, "message": "m", "reason": "R"})
    assert len((await api.get(f"{path}?fieldSelector=involvedObject.uid=u1,reason=R")).body["items"]) == 1
    assert (await api.get(f"{path}?fieldSelector=involvedObject.uid=u2")).body["items"] == []
    body = (await api.get("/apis/events.k8s.io/v1/namespaces/default/events/e")).body
    assert (body["apiVersion"], body["regarding"], body["note"]) == ("events.k8s.io/v1", about, "m")


async def test_a_table_has_a_row_for_each_object(api: Api) -> None:
    await api.made(CLAIMS, {"metadata": {"name": "c"}, "spec": {}})
    api.clock.advance(90)
    body = (await api.get(CLAIMS, accept=f"{TABLE},application/json")).body
    assert body["kind"] == "Table"
    assert [column["name"] for column in body["columnDefinitions"]] == ["Name", "State", "Age"]
    assert body["rows"][0]["cells"] == ["c", "pending", "90s"]
    assert body["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


@pytest.mark.parametrize(("include", "kind"), [("None", None), ("Object", "ResourceClaim")])
async def test_a_tables_rows_carry_what_is_asked_for(api: Api, include: str, kind: str | None) -> None:
    await api.made(CLAIMS, {"metadata": {"name": "c"}, "spec": {}})
    row = (await api.get(f"{CLAIMS}?includeObject={include}", accept=TABLE)).body["rows"][0]
    assert row.get("object", {}).get("kind") == kind


async def test_metadata_alone_can_be_asked_for(api: Api) -> None:
    await api.made(MAPS, config_map(k="v"))
    one = (await api.get(f"{MAPS}/c", accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")).body
    assert (one["kind"], one["metadata"]["name"], "data" in one) == ("PartialObjectMetadata", "c", False)
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    many = (await api.get(MAPS, accept=accept)).body
    assert (many["kind"], len(many["items"])) == ("PartialObjectMetadataList", 1)
