"""JSON patch and merge patch: the examples of their RFCs, and what must hold for any document."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.local.apiserver.meta.patches import MAX_OPERATIONS, json_patched, merge_patched
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError

NAMES = st.sampled_from(["a", "b", "c/d", "e~f"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("xy", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, JSON, max_size=4)


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [  # RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_the_rfc_shows(document: Any, patch: Any, expected: Any) -> None:
    assert merge_patched(document, patch) == expected


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_applied_twice_is_applied_once(document: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge_patched(document, patch)
    assert merge_patched(once, patch) == once


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The smallest merge patch from one document without nulls to another."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(name), dict):
            patch[name] = difference(old[name], value)
        elif name not in old or old[name] != value or type(old[name]) is not type(value):
            patch[name] = value
    return patch


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(child) for name, child in value.items() if child is not None}
    return value


@given(OBJECTS.map(without_nulls), OBJECTS.map(without_nulls))
def test_a_difference_as_merge_patch_gives_the_other_document(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert merge_patched(old, difference(old, new)) == new


@pytest.mark.parametrize(
    ("document", "operations", "expected"),
    [  # RFC 6902, appendix A
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"foo": "bar", "baz": "qux"}),
        ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["a", "b", "c"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["a", "c"]}),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        (
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
        ),
        (
            {"foo": ["a", "b", "c", "d"]},
            [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
            {"foo": ["a", "c", "d", "b"]},
        ),
        ({"foo": {"a": 1}}, [{"op": "copy", "from": "/foo", "path": "/bar"}], {"foo": {"a": 1}, "bar": {"a": 1}}),
        ({"foo": 1}, [{"op": "test", "path": "/foo", "value": 1.0}], {"foo": 1}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
    ],
)
def test_a_json_patch_does_what_the_rfc_shows(document: Any, operations: Any, expected: Any) -> None:
    assert json_patched(document, operations) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "test", "path": "/flag", "value": 1},
        {"op": "remove", "path": "/missing"},
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "add", "path": "/missing/x", "value": 1},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "add", "path": "/list/01", "value": 1},
        {"op": "add", "path": "/a/x", "value": 1},
        {"op": "move", "from": "/object", "path": "/object/x"},
        {"op": "move", "from": "/missing", "path": "/a"},
        {"op": "copy", "from": "/missing", "path": "/a"},
        {"op": "copy", "from": "/list/-", "path": "/b"},
        {"op": "replace", "path": "/list/-", "value": 1},
        {"op": "test", "path": "/list/-", "value": 1},
        {"op": "remove", "path": "/list/-"},
        {"op": "add", "path": "/list/" + "9" * 5000, "value": 1},
        {"op": "invent", "path": "/a"},
        {"op": ["add"], "path": "/a"},
        {"path": "/a"},
    ],
)
def test_a_json_patch_that_does_not_fit_is_refused_as_invalid(operation: dict[str, Any]) -> None:
    document = {"a": 1, "flag": True, "list": [1], "object": {"x": 1}}
    with pytest.raises(ApiStatusError) as refusal:
        json_patched(document, [operation])
    assert refusal.value.code == 422


@pytest.mark.parametrize(
    "operations",
    [
        {"op": "add"},
        "add",
        [1],
        [{"op": "add", "path": "no-slash", "value": 1}],
        [{"op": "add", "path": "/a"}],
        [{"op": "add", "path": 1, "value": 1}],
        [{"op": "add", "value": 1}],
        [{"op": "remove", "path": "/~2"}],
        [{"op": "move", "path": "/a"}],
        [{"op": "copy", "from": None, "path": "/a"}],
    ],
)
def test_what_is_no_json_patch_is_a_bad_request(operations: Any) -> None:
    with pytest.raises(ApiStatusError) as refusal:
        json_patched({"a": 1}, operations)
    assert refusal.value.code == 400


def test_a_json_patch_of_too_many_operations_is_too_large() -> None:
    with pytest.raises(ApiStatusError) as refusal:
        json_patched({}, [{"op": "test", "path": "", "value": {}}] * (MAX_OPERATIONS + 1))
    assert refusal.value.code == 413


def test_copies_that_double_a_document_again_and_again_are_refused() -> None:
    operations = [{"op": "copy", "from": "", "path": f"/{number}"} for number in range(64)]
    with pytest.raises(ApiStatusError) as refusal:
        json_patched({"a": "b"}, operations)
    assert refusal.value.code == 422


def test_a_document_that_is_nested_too_deep_is_refused() -> None:
    value: dict[str, Any] = {}
    for _ in range(399):
        value = {"a": value}
    operations = [{"op": "add", "path": "/a" * depth, "value": value} for depth in range(1, 2000, 400)]
    with pytest.raises(ApiStatusError) as refusal:
        json_patched({}, [*operations, {"op": "copy", "from": "/a", "path": "/b"}])
    assert refusal.value.code == 422


def test_operations_after_a_scalar_root_do_not_fit() -> None:
    with pytest.raises(ApiStatusError) as refusal:
        json_patched({}, [{"op": "replace", "path": "", "value": 1}, {"op": "add", "path": "/a", "value": 1}])
    assert refusal.value.code == 422


def pointer(*steps: str) -> str:
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


@given(OBJECTS, NAMES, JSON)
def test_adding_and_removing_a_field_leaves_the_rest(document: dict[str, Any], name: str, value: Any) -> None:
    added = json_patched(document, [{"op": "add", "path": pointer(name), "value": value}])
    assert added == {**document, name: value}
    removed = json_patched(added, [{"op": "remove", "path": pointer(name)}])
    assert removed == {key: child for key, child in document.items() if key != name}


@given(OBJECTS, NAMES, JSON)
def test_the_patched_document_is_not_the_given_one(document: dict[str, Any], name: str, value: Any) -> None:
    before = repr(document)
    json_patched(document, [{"op": "add", "path": pointer(name), "value": value}])
    merge_patched(document, {name: value})
    assert repr(document) == before
