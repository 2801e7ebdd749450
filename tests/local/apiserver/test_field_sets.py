"""Sets of fields: their form in managedFields, and what differs between two documents."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.local.apiserver.meta.field_sets import (
    FieldPath,
    compare,
    field_set_of,
    format_path,
    from_fields_v1,
    to_fields_v1,
    with_parents,
)
from kerf_dra.driver.local.apiserver.meta.merge_schema import ATOMIC, PLAIN, MergeSchema, build_merge_schema, keyed_list

SHAPE = build_merge_schema(
    {
        "items": keyed_list("name"),
        "ports": keyed_list("port", "protocol", defaults={"protocol": "TCP"}),
        "tags": MergeSchema(unique=True),
        "whole": ATOMIC,
    }
)

STEPS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])
PATHS = st.lists(STEPS, min_size=1, max_size=4).map(tuple)


@given(st.frozensets(PATHS, max_size=8))
def test_a_set_survives_the_form_that_managed_fields_keep_it_in(fields: frozenset[FieldPath]) -> None:
    assert from_fields_v1(to_fields_v1(fields)) == fields


def test_members_with_children_are_marked_by_a_dot() -> None:
    fields = frozenset({("f:a",), ("f:a", "f:b"), ("f:c",)})
    assert to_fields_v1(fields) == {"f:a": {".": {}, "f:b": {}}, "f:c": {}}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"a": 1}, {("f:a",)}),
        ({"a": {"b": 1}}, {("f:a", "f:b")}),
        ({"a": {}}, {("f:a",)}),
        ({"list": [1, 2]}, {("f:list",)}),
        ({"whole": {"x": 1}}, {("f:whole",)}),
        ({"tags": ["x"]}, {("f:tags", 'v:"x"')}),
        (
            {"items": [{"name": "n", "v": 1}]},
            {
                ("f:items", 'k:{"name":"n"}'),
                ("f:items", 'k:{"name":"n"}', "f:name"),
                ("f:items", 'k:{"name":"n"}', "f:v"),
            },
        ),
        (
            {"ports": [{"port": 80}]},
            {
                ("f:ports", 'k:{"port":80,"protocol":"TCP"}'),
                ("f:ports", 'k:{"port":80,"protocol":"TCP"}', "f:port"),
            },
        ),
    ],
)
def test_an_apply_owns_the_leaves_and_items_it_says(document: Any, expected: set[FieldPath]) -> None:
    assert field_set_of(document, SHAPE) == expected


@pytest.mark.parametrize(
    ("old", "new", "added", "modified", "removed"),
    [
        ({"a": 1}, {"a": 1}, set(), set(), set()),
        ({"a": 1}, {"a": 2}, set(), {("f:a",)}, set()),
        ({}, {"a": {"b": 1}}, {("f:a",), ("f:a", "f:b")}, set(), set()),
        ({"a": {"b": 1}}, {}, set(), set(), {("f:a",), ("f:a", "f:b")}),
        ({"a": {}}, {"a": {"b": 1}}, {("f:a", "f:b")}, set(), set()),
        ({"list": [1]}, {"list": [2]}, set(), {("f:list",)}, set()),
        ({"whole": {"x": 1}}, {"whole": {"x": 2}}, set(), {("f:whole",)}, set()),
        ({"tags": ["x"]}, {"tags": ["y"]}, {("f:tags", 'v:"y"')}, set(), {("f:tags", 'v:"x"')}),
        (
            {"items": [{"name": "n", "v": 1}]},
            {"items": [{"name": "n", "v": 2}]},
            set(),
            {("f:items", 'k:{"name":"n"}', "f:v")},
            set(),
        ),
        ({"a": 1}, {"a": {"b": 1}}, {("f:a", "f:b")}, {("f:a",)}, set()),
        ({"a": {"b": 1}}, {"a": 1}, set(), {("f:a",)}, {("f:a", "f:b")}),
    ],
)
def test_a_comparison_says_what_was_added_modified_and_removed(
    old: Any, new: Any, added: set[FieldPath], modified: set[FieldPath], removed: set[FieldPath]
) -> None:
    comparison = compare(old, new, SHAPE)
    found = tuple(map(set, (comparison.added, comparison.modified, comparison.removed)))
    assert found == (added, modified, removed)


NAMES = st.sampled_from("abc")
DOCUMENTS = st.recursive(
    st.integers(0, 3) | st.booleans(), lambda inner: st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
OBJECTS = st.dictionaries(NAMES, DOCUMENTS, max_size=3)


@given(OBJECTS, OBJECTS)
def test_what_one_way_adds_the_other_way_removes(old: dict[str, Any], new: dict[str, Any]) -> None:
    there, back = compare(old, new, PLAIN), compare(new, old, PLAIN)
    assert there.added == back.removed
    assert there.modified == back.modified
    assert (there.added or there.modified or there.removed) or old == new


def test_parents_of_a_path_are_the_fields_that_lead_to_it() -> None:
    path = ("f:a", 'k:{"name":"x"}', "f:b", "f:c")
    expected = {path, ("f:a",), ("f:a", 'k:{"name":"x"}', "f:b")}
    assert with_parents({path}) == expected


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("f:spec", "f:containers", 'k:{"name":"a"}', "f:image"), '.spec.containers[name="a"].image'),
        (("f:ports", 'k:{"port":80,"protocol":"TCP"}'), '.ports[port=80,protocol="TCP"]'),
        (("f:tags", 'v:"x"'), '.tags[="x"]'),
    ],
)
def test_paths_are_shown_as_kubectl_users_know_them(path: FieldPath, text: str) -> None:
    assert format_path(path) == text
