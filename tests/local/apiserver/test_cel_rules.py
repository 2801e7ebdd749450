"""CEL rules of custom resources, and printer columns."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kerf_dra.driver.local.apiserver.admission.cel import RuleError, compile_expression
from kerf_dra.driver.local.apiserver.crd.cel_rules import VARIABLES, escape_name, has_rules, validate_rules
from kerf_dra.driver.local.apiserver.crd.printer_columns import (
    UnsupportedJsonPathError,
    build_printer_columns,
    evaluate_json_path,
    parse_json_path,
)


def schema(*rules: dict[str, Any], **properties: Any) -> dict[str, Any]:
    fields = {"size": {"type": "integer"}, "name": {"type": "string"}, **properties}
    spec = {"type": "object", "properties": fields, "x-kubernetes-validations": list(rules)}
    return {"type": "object", "properties": {"spec": spec}}


def told(rule: dict[str, Any], spec: dict[str, Any], old: dict[str, Any] | None = None, **properties: Any) -> list[str]:
    before = None if old is None else {"spec": old}
    return [str(error) for error in validate_rules({"spec": spec}, schema(rule, **properties), before)]


@pytest.mark.parametrize(
    ("rule", "spec", "expected"),
    [
        ({"rule": "self.size < 9", "message": "too big"}, {"size": 8}, []),
        ({"rule": "self.size < 9", "message": "too big"}, {"size": 9}, ["spec: Invalid value: too big"]),
        ({"rule": "self.size < 9"}, {"size": 9}, ["spec: Invalid value: failed rule: self.size < 9"]),
        (
            {"rule": "!has(self.name)", "messageExpression": "'not ' + self.name", "message": "m"},
            {"name": "x"},
            ["spec: Invalid value: not x"],
        ),
        (
            {"rule": "has(self.name)", "fieldPath": ".name", "reason": "FieldValueRequired", "message": "say it"},
            {"size": 1},
            ["spec.name: Required value: say it"],
        ),
        (
            {"rule": "false", "reason": "FieldValueForbidden", "message": "no"},
            {"size": 1},
            ["spec: Forbidden: no"],
        ),
        ({"rule": "false", "reason": "FieldValueDuplicate"}, {"size": 1}, ["spec: Duplicate value"]),
    ],
)
def test_a_rule_tells_its_message_at_its_place(rule: dict[str, Any], spec: dict[str, Any], expected: list[str]) -> None:
    assert told(rule, spec) == expected


def test_a_rule_that_fails_to_evaluate_is_an_error() -> None:
    (error,) = told({"rule": "self.missing == 1", "message": "m"}, {"size": 1})
    assert "Key not found" in error
    assert "evaluating rule: m" in error


@pytest.mark.parametrize(("most", "expected"), [(3, []), (4, ["spec: Invalid value: m"])])
def test_a_bound_name_keeps_its_value_after_a_loop_that_ends_early(most: int, expected: list[str]) -> None:
    """Google's engine took the loop's variable for it: the rule below failed for every object."""
    rule = {"rule": "self.parts.exists(p, p == 1) && cel.bind(top, self.size, top == 3)", "message": "m"}
    parts = {"type": "array", "items": {"type": "integer"}}
    assert told(rule, {"size": most, "parts": [1, 2]}, parts=parts) == expected


def test_a_bound_name_that_cannot_be_replaced_is_refused() -> None:
    with pytest.raises(RuleError, match=r"cel\.bind over a name that a loop in its result binds again"):
        compile_expression("[3].exists(z, cel.bind(x, z, [1].exists(z, z + 2 == x)))", VARIABLES)


def test_a_transition_rule_runs_on_updates_only() -> None:
    rule = {"rule": "self.size >= oldSelf.size", "message": "cannot shrink"}
    assert told(rule, {"size": 1}) == []
    assert told(rule, {"size": 1}, {"size": 2}) == ["spec: Invalid value: cannot shrink"]
    assert told(rule, {"size": 3}, {"size": 2}) == []


def test_a_rule_on_an_item_of_a_keyed_list_sees_the_old_item() -> None:
    item = {
        "type": "object",
        "properties": {"n": {"type": "string"}, "v": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "shrank"}],
    }
    items = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"], "items": item}
    old = {"items": [{"n": "a", "v": 1}, {"n": "b", "v": 5}]}
    new = {"items": [{"n": "b", "v": 4}, {"n": "c", "v": 0}, {"n": "a", "v": 1}]}
    assert told({"rule": "true"}, new, old, items=items) == ["spec.items[0]: Invalid value: shrank"]


def test_scalars_are_shown_and_objects_are_not() -> None:
    scalar = {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 3", "message": "big"}]}
    assert told({"rule": "true"}, {"n": 5}, n=scalar) == ["spec.n: Invalid value: 5: big"]


def test_a_rule_in_an_unset_field_is_not_run() -> None:
    scalar = {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 3", "message": "big"}]}
    assert told({"rule": "true"}, {}, n=scalar) == []


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("plain", "plain"),
        ("namespace", "__namespace__"),
        ("a-b", "a__dash__b"),
        ("a.b/c", "a__dot__b__slash__c"),
        ("a__b", "a__underscores__b"),
    ],
)
def test_field_names_are_spelled_so_that_expressions_can_say_them(name: str, spelled: str) -> None:
    assert escape_name(name) == spelled
    rule = {"rule": f"self.{spelled} == 'x'", "message": "m"}
    assert told(rule, {name: "x"}, **{name: {"type": "string"}}) == []


def test_keys_of_maps_are_not_respelled() -> None:
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    assert told({"rule": "'a-b' in self.labels"}, {"labels": {"a-b": "x"}}, labels=labels) == []


def test_an_expression_that_does_not_compile_says_why() -> None:
    with pytest.raises(RuleError, match="undeclared reference"):
        compile_expression("nonsense(self)", VARIABLES)


def test_a_schema_says_whether_it_has_rules() -> None:
    assert has_rules(schema({"rule": "true"}))
    assert not has_rules({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}})


DOCUMENT = {
    "metadata": {"name": "w", "creationTimestamp": "2026-01-01T11:59:00Z", "labels": {"a.b/c": "x"}},
    "spec": {"size": 3, "flag": True, "list": ["a", "b"], "object": {"k": 1}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.size", [3]),
        (".spec.missing", []),
        (".spec.list[1]", ["b"]),
        (".spec.list[-1]", ["b"]),
        (".spec.list[7]", []),
        (".spec.list[*]", ["a", "b"]),
        ("['spec']['size']", [3]),
        (r".metadata.labels.a\.b/c", ["x"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type == 'Other')].status", ["False"]),
        ('.status.conditions[?(@.type=="None")].status', []),
    ],
)
def test_a_json_path_finds(path: str, expected: list[Any]) -> None:
    assert evaluate_json_path(DOCUMENT, parse_json_path(path)) == expected


@pytest.mark.parametrize("path", [".a[", ".a[?(@.b>1)]", "a b", "..x"])
def test_a_json_path_that_is_not_supported_is_refused(path: str) -> None:
    with pytest.raises(UnsupportedJsonPathError, match="cannot read the JSONPath"):
        parse_json_path(path)


def test_columns_show_values_of_their_type_only() -> None:
    rows: list[dict[str, Any]] = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Wrong", "type": "integer", "jsonPath": ".spec.flag"},
        {"name": "Number", "type": "number", "jsonPath": ".spec.size"},
        {"name": "Flag", "type": "boolean", "jsonPath": ".spec.flag"},
        {"name": "Text", "type": "string", "jsonPath": ".spec.flag"},
        {"name": "Object", "type": "string", "jsonPath": ".spec.object", "priority": 1},
        {"name": "Missing", "type": "string", "jsonPath": ".spec.missing"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    now = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    shown = {column.name: column.cell(DOCUMENT, now) for column in build_printer_columns(rows)}
    assert shown == {
        "Name": "w",
        "Size": 3,
        "Wrong": None,
        "Number": 3.0,
        "Flag": True,
        "Text": "true",
        "Object": '{"k":1}',
        "Missing": None,
        "Age": "60s",
    }


def test_without_columns_name_and_age_are_shown() -> None:
    assert [column.name for column in build_printer_columns([])] == ["Name", "Age"]
