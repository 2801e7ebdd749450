"""Custom resources against their schema: what is dropped, filled in and refused.

The messages are those that kube-apiserver 1.37 gave for the same documents.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.local.apiserver.crd.object_validation import validate_object
from kerf_dra.driver.local.apiserver.crd.schema_validation import validate_structural_schema
from kerf_dra.driver.local.apiserver.crd.structural_schema import default, prune
from kerf_dra.driver.local.apiserver.meta.documents import deep_copy

SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "name": {"type": "string", "maxLength": 5, "minLength": 2, "pattern": "^[a-z]+$"},
        "mode": {"type": "string", "enum": ["A", "B"], "default": "A"},
        "flag": {"type": "boolean"},
        "num": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 5, "exclusiveMaximum": True},
        "even": {"type": "integer", "multipleOf": 2},
        "tags": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "maxItems": 2,
            "x-kubernetes-list-type": "set",
        },
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
        "labels": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "minProperties": 1,
            "maxProperties": 2,
        },
        "any": {"x-kubernetes-preserve-unknown-fields": True},
        "open": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"k": {"type": "string"}},
        },
        "port": {"x-kubernetes-int-or-string": True},
        "maybe": {"type": "string", "nullable": True},
        "when": {"type": "string", "format": "date-time"},
        "small": {"type": "integer", "format": "int32"},
        "sub": {"type": "object", "default": {}, "properties": {"a": {"type": "integer", "default": 7}}},
        "one": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        "some": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        "every": {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "allOf": [{"required": ["a"]}],
        },
        "none": {"type": "object", "properties": {"a": {"type": "string"}}, "not": {"required": ["a"]}},
        "template": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "properties": {"spec": {"type": "object"}},
        },
    },
}
SCHEMA: dict[str, Any] = {"type": "object", "required": ["spec"], "properties": {"spec": SPEC}}


def widget(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "w"}, "spec": spec}


def told(document: dict[str, Any]) -> list[str]:
    return [str(error) for error in validate_object(document, SCHEMA)]


@pytest.mark.parametrize(
    "spec",
    [
        {"size": 1},
        {"size": 10.0},
        {"size": 1, "name": "abc", "mode": "B", "flag": True, "num": 0.5, "even": 4},
        {"size": 1, "tags": ["a", "b"], "ports": [{"n": 1}, {"n": 2}], "labels": {"x": "y"}},
        {"size": 1, "any": {"x": [1, None]}, "open": {"k": "v", "z": 1}, "port": "http"},
        {"size": 1, "port": 80, "maybe": None, "when": "2026-01-01T00:00:00.5+02:00", "small": -1},
        {"size": 1, "one": {"a": "x"}, "some": {"b": "x"}, "every": {"a": "x"}, "none": {}},
        {"size": 1, "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}},
    ],
)
def test_what_fits_the_schema_is_accepted(spec: dict[str, Any]) -> None:
    assert told(widget(**spec)) == []


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "spec.size: Required value"),
        ({"size": "x"}, 'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"'),
        ({"size": 1.5}, 'spec.size: Invalid value: "number": spec.size in body must be of type integer: "number"'),
        ({"size": None}, 'spec.size: Invalid value: "null": spec.size in body must be of type integer: "null"'),
        ({"size": 0}, "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        ({"size": 11}, "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"),
        ({"num": 0}, "spec.num: Invalid value: 0: spec.num in body should be greater than 0"),
        ({"num": 5}, "spec.num: Invalid value: 5: spec.num in body should be less than 5"),
        ({"even": 3}, "spec.even: Invalid value: 3: spec.even in body should be a multiple of 2"),
        ({"name": "toolong"}, "spec.name: Too long: may not be more than 5 bytes"),
        ({"name": "a"}, 'spec.name: Invalid value: "a": spec.name in body should be at least 2 chars long'),
        ({"name": "AB"}, "spec.name: Invalid value: \"AB\": spec.name in body should match '^[a-z]+$'"),
        ({"name": "ab\n"}, "spec.name: Invalid value: \"ab\\n\": spec.name in body should match '^[a-z]+$'"),
        ({"mode": "C"}, 'spec.mode: Unsupported value: "C": supported values: "A", "B"'),
        ({"flag": 1}, 'spec.flag: Invalid value: "integer": spec.flag in body must be of type boolean: "integer"'),
        ({"size": True}, 'spec.size: Invalid value: "boolean": spec.size in body must be of type integer: "boolean"'),
        ({"tags": []}, "spec.tags: Invalid value: 0: spec.tags in body should have at least 1 items"),
        ({"tags": ["a", "b", "c"]}, "spec.tags: Too many: 3: must have at most 2 items"),
        ({"tags": ["a", "a"]}, 'spec.tags[1]: Duplicate value: "a"'),
        (
            {"tags": [1]},
            'spec.tags[0]: Invalid value: "integer": spec.tags[0] in body must be of type string: "integer"',
        ),
        ({"ports": [{"n": 1}, {"n": 1}]}, 'spec.ports[1]: Duplicate value: {"n":1}'),
        ({"ports": [{}]}, "spec.ports[0].n: Required value"),
        ({"labels": {}}, "spec.labels: Invalid value: 0: spec.labels in body should have at least 1 properties"),
        ({"labels": {"a": "1", "b": "2", "c": "3"}}, "spec.labels: Too many: 3: must have at most 2 items"),
        (
            {"labels": {"a": 1}},
            'spec.labels.a: Invalid value: "integer": spec.labels.a in body must be of type string: "integer"',
        ),
        (
            {"port": True},
            'spec.port: Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"',
        ),
        (
            {"when": "yesterday"},
            'spec.when: Invalid value: "yesterday": spec.when in body must be of type date-time: "yesterday"',
        ),
        (
            {"small": 2**31},
            '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.small',
        ),
        (
            {"one": {}},
            '<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found none valid',
        ),
        (
            {"one": {"a": "x", "b": "y"}},
            '"spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives',
        ),
        ({"some": {}}, '<nil>: Invalid value: "": "spec.some" must validate at least one schema (anyOf)'),
        (
            {"every": {}},
            '<nil>: Invalid value: "": "spec.every" must validate all the schemas (allOf). None validated',
        ),
        ({"none": {"a": "x"}}, '<nil>: Invalid value: "": "spec.none" must not validate the schema (not)'),
    ],
)
def test_what_does_not_fit_is_told_with_its_path(spec: dict[str, Any], said: str) -> None:
    document = widget(**({"size": 1} | spec if spec else {}))
    assert any(each.endswith(said) for each in told(document))


def test_every_problem_is_told() -> None:
    assert len(told(widget(size="x", name="A", mode="C", flag=1, tags=["a", "a"]))) == 5


def test_an_absent_spec_is_required() -> None:
    assert told({"metadata": {"name": "w"}}) == ["spec: Required value"]


def test_unknown_fields_are_dropped_and_named() -> None:
    document = widget(
        size=1,
        foo=1,
        sub={"a": 1, "q": 2},
        ports=[{"n": 1, "zz": 1}],
        any={"x": {"y": 1}},
        open={"k": "v", "z": 1},
        labels={"free": "1"},
        template={"apiVersion": "v1", "kind": "Pod", "metadata": {"x": 1}, "spec": {}, "zz": 1},
    )
    assert prune(document, SCHEMA) == ["spec.foo", "spec.sub.q", "spec.ports[0].zz", "spec.template.zz"]
    assert document["spec"] == {
        "size": 1,
        "sub": {"a": 1},
        "ports": [{"n": 1}],
        "any": {"x": {"y": 1}},
        "open": {"k": "v", "z": 1},
        "labels": {"free": "1"},
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"x": 1}, "spec": {}},
    }


def test_defaults_are_filled_in_at_every_depth() -> None:
    document = widget(size=1, ports=[{"n": 1}, {"n": 2, "v": "y"}])
    default(document, SCHEMA)
    assert document["spec"] == {
        "size": 1,
        "mode": "A",
        "sub": {"a": 7},
        "ports": [{"n": 1, "v": "x"}, {"n": 2, "v": "y"}],
    }


def test_null_counts_as_absent_where_it_is_not_allowed() -> None:
    document = widget(size=1, mode=None, name=None, maybe=None)
    default(document, SCHEMA)
    assert document["spec"] == {"size": 1, "mode": "A", "maybe": None, "sub": {"a": 7}}


def test_two_defaulted_objects_share_nothing() -> None:
    first, second = widget(size=1), widget(size=1)
    default(first, SCHEMA)
    default(second, SCHEMA)
    first["spec"]["sub"]["a"] = 8
    assert second["spec"]["sub"] == {"a": 7}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.sampled_from(["a", "abc", "A"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "n", "zz"]), inner, max_size=2),
    max_leaves=4,
)
ANY_WIDGET = st.dictionaries(st.sampled_from([*SPEC["properties"], "unknown"]), JSON, max_size=5).map(
    lambda spec: widget(**spec)
)


@given(ANY_WIDGET)
def test_pruning_and_defaulting_twice_changes_nothing_more(document: dict[str, Any]) -> None:
    prune(document, SCHEMA)
    default(document, SCHEMA)
    once = deep_copy(document)
    assert prune(document, SCHEMA) == []
    default(document, SCHEMA)
    assert document == once


@given(ANY_WIDGET)
def test_validation_never_trips_and_never_changes_its_document(document: dict[str, Any]) -> None:
    before = deep_copy(document)
    list(validate_object(document, SCHEMA))
    assert document == before


def listed(kind: str | None, items: dict[str, Any], *keys: str) -> dict[str, Any]:
    """A schema with one list."""
    extensions = {"x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": list(keys)}
    given = {name: value for name, value in extensions.items() if value}
    return {"type": "object", "properties": {"a": {"type": "array", "items": items, **given}}}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "string"}, 's.type: Invalid value: "string": must be object at the root'),
        (
            {"type": "object", "properties": {"a": {}}},
            "s.properties[a].type: Required value: must not be empty for specified object fields",
        ),
        ({"type": "object", "properties": {"a": {"type": "foo"}}}, 's.properties[a].type: Unsupported value: "foo"'),
        (
            {"type": "object", "properties": {"a": {"type": "array"}}},
            "s.properties[a].items: Required value: must be specified",
        ),
        ({"type": "object", "properties": {"a": {"type": "object", "$ref": "#/x"}}}, "s.properties[a].$ref: Forbidden"),
        ({"type": "object", "uniqueItems": True}, "s.uniqueItems: Forbidden"),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
            "s.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-int-or-string": True}}},
            "must be empty if x-kubernetes-int-or-string is true",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
            "s.properties[a].pattern: Invalid value",
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map"}},
            },
            "x-kubernetes-list-map-keys: Required value",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-list-type": "set"}}},
            's.properties[a].type: Invalid value: "string": must be array if x-kubernetes-list-type is specified',
        ),
        (listed("bag", {"type": "string"}), 'x-kubernetes-list-type: Unsupported value: "bag"'),
        (
            listed("map", {"type": "string"}, "k"),
            's.properties[a].items.type: Invalid value: "string": must be object if parent array\'s',
        ),
        (
            listed("map", {"type": "object"}, "k"),
            's.properties[a].x-kubernetes-list-map-keys: Invalid value: ["k"]: entries must all be names of item',
        ),
        (
            listed("map", {"type": "object", "properties": {"k": {"type": "string"}}}, "k"),
            "s.properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-",
        ),
        (
            listed("map", {"type": "object", "required": ["k"], "properties": {"k": {"type": "object"}}}, "k"),
            "s.properties[a].items.properties[k].type: Invalid value",
        ),
        (
            listed(None, {"type": "object"}, "k"),
            "s.properties[a].x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is",
        ),
        (listed("set", {"type": "object"}, "k"), 's.properties[a].x-kubernetes-list-type: Invalid value: "set"'),
        (
            {"type": "object", "properties": {"a": {"type": "object", "x-kubernetes-embedded-resource": True}}},
            "s.properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "object", "default": {"x": 1}}}},
            's.properties[a].default: Invalid value: {"x":1}: must not have unknown fields',
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string", "default": 1}}},
            's.properties[a].default: Invalid value: "integer":  in body must be of type string: "integer"',
        ),
        (
            {
                "type": "object",
                "properties": {
                    "a": {"type": "object", "default": {}, "required": ["b"], "properties": {"b": {"type": "string"}}}
                },
            },
            "s.properties[a].default.b: Required value",
        ),
        ({"type": "object", "x-kubernetes-validations": [{"rule": ""}]}, "rule: Required value: rule is not specified"),
        (
            {"type": "object", "x-kubernetes-validations": [{"rule": "self.x =="}]},
            "compilation failed: ERROR: <input>:1:10",
        ),
        (
            {"type": "object", "x-kubernetes-validations": [{"rule": "quantity(self.x) == 1"}]},
            "undeclared reference to 'quantity'",
        ),
        (
            {"type": "object", "x-kubernetes-validations": [{"rule": "true", "reason": "X"}]},
            'reason: Unsupported value: "X"',
        ),
    ],
)
def test_a_schema_that_is_not_structural_is_refused(schema: dict[str, Any], said: str) -> None:
    assert any(said in str(error) for error in validate_structural_schema(schema, "s"))


def test_this_tests_schema_is_structural() -> None:
    assert list(validate_structural_schema(SCHEMA, "s")) == []


UUID = "11111111-1111-4111-8111-111111111111"


@pytest.mark.parametrize(
    ("format_", "good", "bad"),
    [
        ("byte", ["YQ==", ""], ["a===", "!"]),
        ("cidr", ["10.0.0.0/8", "fd00::/8"], ["10.0.0.0", "x", "10.0.0.0/99"]),
        ("date", ["2026-01-01"], ["2026-13-01", "20260101", "x"]),
        (
            "date-time",
            ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5+01:00", "2026-01-01t00:00:00z"],
            ["2026-01-01", "2026-01-01T25:00:00Z", "x"],
        ),
        ("duration", ["1h30m", "1d", "0"], ["1x", "5", "x"]),
        ("email", ["a@b.c"], ["a", "@b"]),
        ("hostname", ["a", "a-b", "a.bc"], ["-a", "a_b", "a.b"]),
        ("ipv4", ["1.2.3.4"], ["::1", "1.2.3"]),
        ("ipv6", ["::1"], ["1.2.3.4", "x"]),
        ("uuid", [UUID, UUID.replace("-", "")], ["1", f"{UUID}0"]),
        ("unheard-of", ["anything"], []),
    ],
)
def test_formats_are_checked(format_: str, good: list[str], bad: list[str]) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "format": format_}}}
    assert [text for text in good if list(validate_object({"a": text}, schema))] == []
    for text in bad:
        said = f'a: Invalid value: "{text}": a in body must be of type {format_}: "{text}"'
        assert [str(error) for error in validate_object({"a": text}, schema)] == [said]
