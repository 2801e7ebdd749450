"""Strategic merge patch: lists of items with identity, and its directives."""

from typing import Any

import pytest

from kerf_dra.driver.local.apiserver.kinds import builtin_merge_schemas as merge_schemas
from kerf_dra.driver.local.apiserver.meta.merge_schema import MergeSchema, build_merge_schema, keyed_list
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError
from kerf_dra.driver.local.apiserver.meta.strategic_merge import apply_strategic_merge_patch

SHAPE = build_merge_schema(
    {
        "items": keyed_list("name"),
        "items[].env": keyed_list("name"),
        "names": MergeSchema(unique=True, patch_key="*"),
        "volumes": keyed_list("name"),
    }
)
ITEMS = [{"name": "a", "v": 1}, {"name": "b", "v": 2}]


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}, id="null removes a field"),
        pytest.param({"plain": [1, 2]}, {"plain": [3]}, {"plain": [3]}, id="a list without identity is replaced"),
        pytest.param(
            {"items": ITEMS},
            {"items": [{"name": "b", "v": 3}]},
            {"items": [{"name": "a", "v": 1}, {"name": "b", "v": 3}]},
            id="items merge by key",
        ),
        pytest.param(
            {"items": ITEMS},
            {"items": [{"name": "c"}]},
            {"items": [{"name": "c"}, *ITEMS]},
            id="a new item comes before those that nobody mentions",
        ),
        pytest.param(
            {"items": ITEMS},
            {"items": [{"name": "a", "$patch": "delete"}]},
            {"items": [{"name": "b", "v": 2}]},
            id="an item is deleted",
        ),
        pytest.param(
            {"items": ITEMS},
            {"items": [{"name": "z"}, {"$patch": "replace"}]},
            {"items": [{"name": "z"}]},
            id="a list is replaced",
        ),
        pytest.param(
            {"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}, id="an object is replaced"
        ),
        pytest.param(
            {"a": {"b": 1}, "x": 1}, {"a": {"$patch": "delete"}}, {"a": {}, "x": 1}, id="an object is emptied"
        ),
        pytest.param(
            {"names": ["a", "b"]}, {"names": ["c", "a"]}, {"names": ["c", "a", "b"]}, id="values are added once"
        ),
        pytest.param(
            {"names": ["a", "b"]}, {"$deleteFromPrimitiveList/names": ["a"]}, {"names": ["b"]}, id="values are deleted"
        ),
        pytest.param(
            {"items": ITEMS},
            {"$setElementOrder/items": [{"name": "b"}, {"name": "a"}]},
            {"items": [{"name": "b", "v": 2}, {"name": "a", "v": 1}]},
            id="an order is set",
        ),
        pytest.param(
            {"items": [{"name": "a"}, {"name": "server"}, {"name": "b"}]},
            {"$setElementOrder/items": [{"name": "b"}, {"name": "c"}, {"name": "a"}], "items": [{"name": "c"}]},
            {"items": [{"name": "server"}, {"name": "b"}, {"name": "c"}, {"name": "a"}]},
            id="an item that the order does not name stays before what it preceded",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]},
            {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
            id="only retained keys stay",
        ),
        pytest.param(
            {"items": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]},
            {"items": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]},
            {"items": [{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]}]},
            id="lists inside items merge too",
        ),
    ],
)
def test_a_strategic_merge_patch_gives(document: Any, patch: Any, expected: Any) -> None:
    before = repr(document)
    assert apply_strategic_merge_patch(document, patch, SHAPE) == expected
    assert repr(document) == before


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ({"items": [{"v": 1}]}, "does not contain declared merge key: name"),
        ({"a": {"$patch": "explode"}}, "unknown patch type found: explode"),
        ({"$retainKeys": ["a"], "b": 1}, "retainKeys"),
    ],
)
def test_a_patch_that_does_not_fit_the_kind_is_refused(patch: Any, said: str) -> None:
    with pytest.raises(ApiStatusError, match=said):
        apply_strategic_merge_patch({"items": ITEMS}, patch, SHAPE)


def test_conditions_of_a_pod_merge_by_type() -> None:
    pod = {"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Other", "status": "True"}]}}
    patch = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    patched = apply_strategic_merge_patch(pod, patch, merge_schemas.POD)
    assert patched["status"]["conditions"] == [
        {"type": "Ready", "status": "True"},
        {"type": "Other", "status": "True"},
    ]
