"""CustomResourceDefinitions and the objects they define, over HTTP.

Expected texts are those of kube-apiserver 1.37.
"""

from typing import Any

import pytest

from tests.local.apiserver.api_client import TABLE, Api

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/widgets.test.dev"
WIDGETS = "/apis/test.dev/v1/namespaces/default/widgets"
SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1},
        "mode": {"type": "string", "enum": ["A", "B"], "default": "A"},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["n"],
            "items": {
                "type": "object",
                "required": ["n"],
                "properties": {"n": {"type": "integer"}, "v": {"type": "string", "default": "x"}},
            },
        },
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "order": {"type": "array", "items": {"type": "string"}},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
    },
    "x-kubernetes-validations": [
        {"rule": "self.size < 9", "message": "size too big"},
        {"rule": "self.size >= oldSelf.size", "message": "size cannot shrink"},
    ],
}
STATUS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "phase": {"type": "string", "enum": ["X", "Y"]},
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["type"],
                "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
            },
        },
    },
}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
]


def version(spec: object = SPEC, **changes: Any) -> dict[str, Any]:
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": STATUS}}
    return {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": COLUMNS,
        **changes,
    }


def definition(*versions: dict[str, Any], name: str = "widgets.test.dev", **spec: Any) -> dict[str, Any]:
    names = {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]}
    return {
        "metadata": {"name": name},
        "spec": {
            "group": "test.dev",
            "scope": "Namespaced",
            "names": names,
            "versions": list(versions or [version()]),
            **spec,
        },
    }


def widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "test.dev/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def widgets(api: Api) -> Api:
    await api.made(DEFINITIONS, definition())
    return api


async def test_a_definition_is_established_at_once(api: Api) -> None:
    assert (await api.get(WIDGETS)).status == 404
    body = await api.made(DEFINITIONS, definition())
    assert body["spec"]["names"] == {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
        "shortNames": ["wd"],
    }
    assert body["spec"]["conversion"] == {"strategy": "None"}
    assert {each["type"]: each["status"] for each in body["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert body["status"]["storedVersions"] == ["v1"]
    assert (await api.get(WIDGETS)).body["kind"] == "WidgetList"


async def test_what_is_defined_is_discovered(widgets: Api) -> None:
    (group,) = [each for each in (await widgets.get("/apis")).body["groups"] if each["name"] == "test.dev"]
    assert group["preferredVersion"] == {"groupVersion": "test.dev/v1", "version": "v1"}
    rows = (await widgets.get("/apis/test.dev/v1")).body["resources"]
    assert [(row["name"], row["kind"], row.get("shortNames")) for row in rows] == [
        ("widgets", "Widget", ["wd"]),
        ("widgets/status", "Widget", None),
    ]
    document = (await widgets.get("/openapi/v3/apis/test.dev/v1")).body
    schema = document["components"]["schemas"]["dev.test.v1.Widget"]
    assert schema["properties"]["spec"]["properties"]["mode"]["enum"] == ["A", "B"]


SCHEMA_OF_SPEC = "spec.validation.openAPIV3Schema.properties[spec]"


def without_schema() -> dict[str, Any]:
    return {key: value for key, value in version().items() if key != "schema"}


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (
            definition(name="foo.test.dev"),
            'metadata.name: Invalid value: "foo.test.dev": must be spec.names.plural+"."+spec.group',
        ),
        (
            definition(group="nodot"),
            'spec.group: Invalid value: "nodot": should be a domain with at least one dot',
        ),
        (definition(scope=""), "spec.scope: Required value"),
        (
            definition(scope="Global"),
            'spec.scope: Unsupported value: "Global": supported values: "Cluster", "Namespaced"',
        ),
        (definition(names={"plural": "widgets", "kind": ""}), "spec.names.kind: Required value"),
        (definition(without_schema()), "spec.versions[0].schema.openAPIV3Schema: Required value"),
        (
            definition(version({"type": "object", "properties": {"a": {}}})),
            f"{SCHEMA_OF_SPEC}.properties[a].type: Required value: must not be empty for specified object fields",
        ),
        (
            definition(version({"type": "object", "x-kubernetes-validations": [{"rule": ""}]})),
            f"{SCHEMA_OF_SPEC}.x-kubernetes-validations[0].rule: Required value: rule is not specified",
        ),
        (
            definition(version(additionalPrinterColumns=[{"name": "A", "type": "string"}])),
            "spec.versions[0].additionalPrinterColumns[0].jsonPath: Required value",
        ),
    ],
)
async def test_a_wrong_definition_is_refused(api: Api, body: dict[str, Any], cause: str) -> None:
    answer = await api.post(DEFINITIONS, body)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert cause in answer.causes
    assert (await api.get(WIDGETS)).status == 404


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (definition(version(storage=False)), "spec.versions"),
        (definition(version(), version(name="v2")), "spec.versions"),
        (definition(conversion={"strategy": "Webhook"}), "spec.conversion.strategy"),
        (
            definition(version({"type": "object", "x-kubernetes-validations": [{"rule": "self.size =="}]})),
            f"{SCHEMA_OF_SPEC}.x-kubernetes-validations[0].rule",
        ),
        (
            definition(version(additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": ".a[?(@.b>1)]"}])),
            "spec.versions[0].additionalPrinterColumns[0].jsonPath",
        ),
    ],
)
async def test_a_definition_that_cannot_be_followed_is_refused(api: Api, body: dict[str, Any], path: str) -> None:
    answer = await api.post(DEFINITIONS, body)
    assert (answer.status, [cause["field"] for cause in answer.body["details"]["causes"]]) == (422, [path])


async def test_what_a_definition_defines_cannot_be_changed_to_something_else(widgets: Api) -> None:
    names = {"names": {"plural": "gadgets", "kind": "Gadget"}}
    answer = await widgets.merge(DEFINITION, {"spec": {"group": "other.dev", "scope": "Cluster", **names}})
    assert answer.status == 422
    assert set(answer.causes) == {
        'spec.group: Invalid value: "other.dev": field is immutable',
        'spec.scope: Invalid value: "Cluster": field is immutable',
        'spec.names.kind: Invalid value: "Gadget": field is immutable',
        'spec.names.plural: Invalid value: "gadgets": field is immutable',
    }


async def test_a_changed_definition_holds_from_the_next_request(widgets: Api) -> None:
    await widgets.made(WIDGETS, widget(size=2))
    more = {**SPEC, "properties": {**SPEC["properties"], "color": {"type": "string", "default": "red"}}}
    both = [version(more), version(more, name="v2", storage=False, deprecated=True)]
    assert (await widgets.merge(DEFINITION, {"spec": {"versions": both}})).status == 200
    assert (await widgets.made(WIDGETS, widget("new", size=2)))["spec"]["color"] == "red"
    answer = await widgets.get(f"{WIDGETS}/w".replace("v1", "v2"))
    assert answer.body["apiVersion"] == "test.dev/v2"
    assert answer.warnings == ['299 - "test.dev/v2 Widget is deprecated"']


async def test_versions_in_which_objects_were_stored_are_remembered(widgets: Api) -> None:
    both = [version(storage=False), version(name="v2")]
    body = (await widgets.merge(DEFINITION, {"spec": {"versions": both}})).body
    assert body["status"]["storedVersions"] == ["v1", "v2"]


async def test_a_deleted_definition_takes_its_objects_with_it(widgets: Api) -> None:
    await widgets.made(WIDGETS, {**widget(size=2), "metadata": {"name": "w", "finalizers": ["test.dev/hold"]}})
    await widgets.made(WIDGETS, widget("free", size=2))
    assert (await widgets.delete(DEFINITION)).status == 200
    await widgets.gone(f"{WIDGETS}/free")
    body = (await widgets.get(DEFINITION)).body
    assert body["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert "Terminating" in [each["type"] for each in body["status"]["conditions"]]
    await widgets.merge(f"{WIDGETS}/w", {"metadata": {"finalizers": None}})
    await widgets.gone(DEFINITION)
    answer = await widgets.get(WIDGETS)
    assert (answer.status, answer.body) == (404, "404 page not found\n")


async def test_defaults_are_filled_in_and_generation_starts_at_one(widgets: Api) -> None:
    body = await widgets.made(WIDGETS, widget(size=2, ports=[{"n": 1}]))
    assert body["spec"] == {"size": 2, "mode": "A", "ports": [{"n": 1, "v": "x"}]}
    assert body["metadata"]["generation"] == 1


TOO_BIG = "spec: Invalid value: size too big"
NOT_CHECKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        (widget(), ["spec.size: Required value", NOT_CHECKED]),
        (
            widget(size="x"),
            [
                'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"',
                NOT_CHECKED,
            ],
        ),
        (
            widget(size=0),
            ["spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"],
        ),
        (
            widget(size=2, mode="C"),
            ['spec.mode: Unsupported value: "C": supported values: "A", "B"', NOT_CHECKED],
        ),
        (
            widget(size=2, tags=["a", "a"]),
            ['spec.tags[1]: Duplicate value: "a"'],
        ),
        (widget(size=9), [TOO_BIG]),
    ],
)
async def test_an_object_that_does_not_fit_is_refused(widgets: Api, body: dict[str, Any], causes: list[str]) -> None:
    answer = await widgets.post(WIDGETS, body)
    assert (answer.status, answer.body["details"]["kind"]) == (422, "Widget")
    assert sorted(answer.causes) == sorted(causes)


async def test_rules_about_changes_compare_with_the_old_object(widgets: Api) -> None:
    await widgets.made(WIDGETS, widget(size=3))
    answer = await widgets.merge(f"{WIDGETS}/w", {"spec": {"size": 2}})
    assert answer.causes == ["spec: Invalid value: size cannot shrink"]
    assert (await widgets.merge(f"{WIDGETS}/w", {"spec": {"size": 4}})).body["metadata"]["generation"] == 2


async def test_what_was_wrong_before_the_schema_became_stricter_may_stay(widgets: Api) -> None:
    await widgets.made(WIDGETS, widget(size=3))
    stricter = {**SPEC, "properties": {**SPEC["properties"], "size": {"type": "integer", "minimum": 5}}}
    await widgets.merge(DEFINITION, {"spec": {"versions": [version(stricter)]}})
    assert (await widgets.merge(f"{WIDGETS}/w", {"spec": {"mode": "B"}})).status == 200
    answer = await widgets.merge(f"{WIDGETS}/w", {"spec": {"size": 4}})
    assert answer.causes == ["spec.size: Invalid value: 4: spec.size in body should be greater than or equal to 5"]


async def test_unknown_fields_are_dropped_with_a_warning(widgets: Api) -> None:
    answer = await widgets.post(WIDGETS, widget(size=2, foo=1, any={"x": {"y": 1}}, ports=[{"n": 1, "q": 2}]))
    assert answer.body["spec"] == {"size": 2, "mode": "A", "any": {"x": {"y": 1}}, "ports": [{"n": 1, "v": "x"}]}
    assert answer.warnings == [
        '299 - "unknown field \\"spec.foo\\""',
        '299 - "unknown field \\"spec.ports[0].q\\""',
    ]


async def test_unknown_fields_are_refused_or_ignored_on_request(widgets: Api) -> None:
    strict = await widgets.post(f"{WIDGETS}?fieldValidation=Strict", widget(size=2, foo=1))
    assert (strict.status, strict.body["message"]) == (
        400,
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.foo"',
    )
    ignored = await widgets.post(f"{WIDGETS}?fieldValidation=Ignore", widget(size=2, foo=1))
    assert (ignored.status, ignored.warnings, ignored.body["spec"]) == (201, [], {"size": 2, "mode": "A"})


async def test_a_definition_may_leave_its_objects_open(api: Api) -> None:
    open_schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    await api.made(DEFINITIONS, definition(version(schema=open_schema)))
    answer = await api.post(WIDGETS, widget(anything={"at": ["all"]}))
    assert (answer.status, answer.warnings, answer.body["spec"]) == (201, [], {"anything": {"at": ["all"]}})


async def test_status_is_written_through_its_subresource_only(widgets: Api) -> None:
    made = await widgets.made(WIDGETS, {**widget(size=2), "status": {"phase": "X"}})
    assert "status" not in made
    body = (await widgets.merge(f"{WIDGETS}/w/status", {"status": {"phase": "X"}, "spec": {"size": 5}})).body
    assert (body["spec"]["size"], body["status"], body["metadata"]["generation"]) == (2, {"phase": "X"}, 1)
    assert (await widgets.merge(f"{WIDGETS}/w", {"status": {"phase": "Y"}})).body["status"] == {"phase": "X"}
    answer = await widgets.merge(f"{WIDGETS}/w/status", {"status": {"phase": "Z"}})
    assert 'status.phase: Unsupported value: "Z": supported values: "X", "Y"' in answer.causes


async def test_without_the_subresource_status_is_a_field_like_others(api: Api) -> None:
    await api.made(DEFINITIONS, definition(version(subresources={})))
    assert (await api.made(WIDGETS, {**widget(size=2), "status": {"phase": "X"}}))["status"] == {"phase": "X"}
    assert (await api.get(f"{WIDGETS}/w/status")).status == 404


async def test_declared_columns_are_shown(widgets: Api) -> None:
    await widgets.made(WIDGETS, widget(size=2))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert (await widgets.merge(f"{WIDGETS}/w/status", ready)).status == 200
    table = (await widgets.get(WIDGETS, accept=TABLE)).body
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size", "Ready"]
    assert [row["cells"] for row in table["rows"]] == [["w", 2, "True"]]


async def test_an_update_needs_the_revision_it_is_based_on(widgets: Api) -> None:
    made = await widgets.made(WIDGETS, widget(size=2))
    answer = await widgets.put(f"{WIDGETS}/w", widget(size=3))
    assert answer.causes == ["metadata.resourceVersion: Invalid value: 0: must be specified for an update"]
    metadata = {"name": "w", "resourceVersion": made["metadata"]["resourceVersion"]}
    assert (await widgets.put(f"{WIDGETS}/w", {**widget(size=3), "metadata": metadata})).status == 200


async def test_strategic_merge_needs_a_built_in_kind(widgets: Api) -> None:
    await widgets.made(WIDGETS, widget(size=2))
    answer = await widgets.strategic(f"{WIDGETS}/w", {"spec": {"size": 3}})
    assert (answer.status, answer.body["reason"]) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [("kind", "Foo", 422), ("apiVersion", "test.dev/v2", 400)],
)
async def test_an_object_of_another_kind_is_refused(widgets: Api, field: str, value: str, code: int) -> None:
    answer = await widgets.post(WIDGETS, {**widget(size=2), field: value})
    assert (answer.status, value in answer.body["message"]) == (code, True)


async def test_items_of_keyed_lists_have_their_own_appliers(widgets: Api) -> None:
    path = f"{WIDGETS}/w"
    assert (await widgets.apply(path, widget(size=5, ports=[{"n": 1}, {"n": 2, "v": "y"}]), "a")).status == 201
    conflict = await widgets.apply(path, widget(size=5, ports=[{"n": 2, "v": "z"}]), "b")
    assert conflict.causes == ['.spec.ports[n=2].v: conflict with "a"']
    assert (await widgets.apply(path, widget(size=5, ports=[{"n": 3}]), "b")).status == 200
    body = (await widgets.apply(path, widget(size=5, ports=[{"n": 2, "v": "y"}]), "a")).body
    assert [port["n"] for port in body["spec"]["ports"]] == [2, 3]


async def test_a_list_without_keys_is_applied_as_a_whole(widgets: Api) -> None:
    path = f"{WIDGETS}/w"
    await widgets.apply(path, widget(size=5, order=["a", "b"], tags=["a"]), "a")
    conflict = await widgets.apply(path, widget(size=5, order=["c"]), "b")
    assert conflict.causes == ['.spec.order: conflict with "a"']
    body = (await widgets.apply(path, widget(size=5, tags=["b"]), "b")).body
    assert (body["spec"]["order"], body["spec"]["tags"]) == (["a", "b"], ["a", "b"])


async def test_only_declared_fields_can_be_applied(widgets: Api) -> None:
    answer = await widgets.apply(f"{WIDGETS}/w", widget(size=5, zzz=1), "a")
    assert answer.status == 500
    assert answer.body["message"] == (
        "failed to create typed patch object (/w; test.dev/v1, Kind=Widget): .spec.zzz: field not declared in schema"
    )


async def test_a_watch_of_a_deleted_kind_hears_its_last_objects_go(widgets: Api) -> None:
    await widgets.made(WIDGETS, widget(size=2))
    async with widgets.watch(WIDGETS) as stream:
        assert await stream.some(1) == [("ADDED", "w")]
        await widgets.delete(DEFINITION)
        assert await stream.some(1) == [("DELETED", "w")]


async def test_cluster_scoped_kinds_live_outside_namespaces(api: Api) -> None:
    await api.made(DEFINITIONS, definition(scope="Cluster"))
    body = await api.made("/apis/test.dev/v1/widgets", widget(size=2))
    assert "namespace" not in body["metadata"]
    assert (await api.get(f"{WIDGETS}/w")).status == 404
