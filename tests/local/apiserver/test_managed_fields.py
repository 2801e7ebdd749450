"""Ownership of fields: updates take over the fields that they change, applies own their whole configuration."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.local.apiserver.meta.field_sets import field_set_of, from_fields_v1
from kerf_dra.driver.local.apiserver.meta.managed_fields import FieldManager, apply, is_unchanged, record_update
from kerf_dra.driver.local.apiserver.meta.merge_schema import build_merge_schema, keyed_list
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError

SHAPE = build_merge_schema({"items": keyed_list("name")})
NOW = "2026-01-01T00:00:00Z"


def manager_named(name: str, subresource: str = "") -> FieldManager:
    return FieldManager(name=name, api_version="v1", subresource=subresource, time=NOW)


def document(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, **fields}


def owned(live: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
    """Manager and operation to the last step of each path they own, for short assertions."""
    return {
        (entry["manager"], entry["operation"]): {"/".join(path) for path in from_fields_v1(entry["fieldsV1"])}
        for entry in live["metadata"].get("managedFields", [])
    }


def applied(live: dict[str, Any] | None, said: dict[str, Any], manager: str, *, force: bool = False) -> dict[str, Any]:
    return apply(live, said, by=manager_named(manager), schema=SHAPE, force=force)


def updated(old: dict[str, Any] | None, new: dict[str, Any], manager: str) -> dict[str, Any]:
    entries = record_update(old, new, by=manager_named(manager), schema=SHAPE, zero={})
    return {**new, "metadata": {**new["metadata"], "managedFields": entries}}


def test_a_creation_is_owned_by_its_creator_but_names_by_nobody() -> None:
    live = updated(None, document(a=1, b={"c": 2}), "creator")
    assert owned(live) == {("creator", "Update"): {"f:a", "f:b", "f:b/f:c"}}


def test_an_update_takes_what_it_changes_and_nothing_else() -> None:
    live = updated(None, document(a=1, b=1), "creator")
    later = updated(live, {**live, "a": 2}, "editor")
    assert owned(later) == {("creator", "Update"): {"f:b"}, ("editor", "Update"): {"f:a"}}


def test_a_removed_field_is_owned_by_nobody() -> None:
    live = updated(None, document(a=1, b=1), "creator")
    without_b = {name: value for name, value in live.items() if name != "b"}
    assert owned(updated(live, without_b, "editor")) == {("creator", "Update"): {"f:a"}}


def test_an_object_without_owners_gets_none_by_an_update() -> None:
    assert record_update(document(a=1), document(a=2), by=manager_named("x"), schema=SHAPE, zero={}) == []


def test_owners_are_reset_by_one_empty_entry() -> None:
    live = updated(None, document(a=1), "creator")
    wanted = {**live, "metadata": {"name": "x", "managedFields": [{}]}}
    assert record_update(live, wanted, by=manager_named("x"), schema=SHAPE, zero={}) == []


def test_the_first_apply_gives_present_fields_a_collective_owner() -> None:
    live = applied(document(a=1, b=2), document(b=2), "applier")
    assert owned(live) == {
        ("applier", "Apply"): {"f:b"},
        ("before-first-apply", "Update"): {"f:a", "f:b"},
    }


def test_two_appliers_may_say_the_same() -> None:
    live = applied(None, document(a=1), "one")
    live = applied(live, document(a=1), "two")
    assert owned(live) == {("one", "Apply"): {"f:a"}, ("two", "Apply"): {"f:a"}}


def test_saying_something_else_than_another_owner_is_a_conflict() -> None:
    live = applied(None, document(a=1, items=[{"name": "n", "v": 1}]), "one")
    with pytest.raises(ApiStatusError) as refusal:
        applied(live, document(a=2, items=[{"name": "n", "v": 2}]), "two")
    assert refusal.value.code == 409
    assert refusal.value.details == {
        "causes": [
            {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".a"},
            {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": '.items[name="n"].v'},
        ]
    }
    assert refusal.value.message == ('Apply failed with 2 conflicts: conflicts with "one":\n- .a\n- .items[name="n"].v')


def test_a_conflict_names_version_and_subresource_of_its_owner() -> None:
    live = document(status={"a": 1})
    entries = record_update(None, live, by=manager_named("kubelet", "status"), schema=SHAPE, zero={})
    live["metadata"]["managedFields"] = entries
    with pytest.raises(
        ApiStatusError, match=r'conflict with "kubelet" with subresource "status" using v1: [.]status[.]a'
    ):
        applied(live, document(status={"a": 2}), "other")


def test_force_takes_the_field() -> None:
    live = applied(None, document(a=1, b=1), "one")
    live = applied(live, document(a=2), "two", force=True)
    assert live["a"] == 2
    assert owned(live) == {("one", "Apply"): {"f:b"}, ("two", "Apply"): {"f:a"}}


def test_what_an_applier_no_longer_says_goes_unless_another_owns_it() -> None:
    live = applied(None, document(a=1, b=1, c={"d": 1}), "one")
    live = applied(live, document(b=1), "two")
    live = applied(live, document(a=1), "one")
    assert {name: live[name] for name in live if name != "metadata"} == {"a": 1, "b": 1}


def test_an_items_last_owner_takes_it_away() -> None:
    live = applied(None, document(items=[{"name": "n", "v": 1}, {"name": "m"}]), "one")
    live = applied(live, document(items=[{"name": "n", "w": 2}]), "two")
    live = applied(live, document(items=[{"name": "m"}]), "one")
    assert live["items"] == [{"name": "n", "w": 2}, {"name": "m"}]
    live = applied(live, document(), "two")
    assert live["items"] == [{"name": "m"}]


def test_an_update_is_never_undone_by_an_apply_that_says_nothing_of_it() -> None:
    live = applied(None, document(a=1), "one")
    live = updated(live, {**live, "b": 2}, "editor")
    live = applied(live, document(), "one")
    assert "a" not in live
    assert live["b"] == 2


def test_items_keep_their_order_and_new_ones_stand_where_they_were_said() -> None:
    live = document(items=[{"name": name} for name in "abc"])
    live = applied(live, document(items=[{"name": name} for name in "xcy"]), "one")
    assert [item["name"] for item in live["items"]] == ["a", "b", "x", "c", "y"]


def test_managed_fields_cannot_be_applied() -> None:
    with pytest.raises(ApiStatusError, match="managedFields must be nil"):
        applied(None, {"metadata": {"name": "x", "managedFields": []}}, "one")


def test_a_newer_time_stamp_alone_is_no_change() -> None:
    live = applied(None, document(a=1), "one")
    later = apply(
        live,
        document(a=1),
        by=FieldManager(name="one", api_version="v1", subresource="", time="2027-01-01T00:00:00Z"),
        schema=SHAPE,
        force=False,
    )
    assert later == live
    assert is_unchanged(later, live)
    assert not is_unchanged({**live, "a": 2}, live)


VALUES = st.integers(0, 2)
INNER = st.dictionaries(st.sampled_from("xy"), VALUES, min_size=1, max_size=2)
# As in a real kind, a name always has the same type.
CONFIGS = st.fixed_dictionaries({}, optional={"a": VALUES, "b": VALUES, "c": INNER})
STEPS = st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), CONFIGS), max_size=6)


def body_of(live: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in live.items() if name != "metadata"}


@given(STEPS)
def test_after_any_applies_the_last_one_stands_and_owners_own_what_is_there(steps: list[tuple[str, Any]]) -> None:
    live: dict[str, Any] | None = None
    for manager, config in steps:
        live = applied(live, document(**config), manager, force=True)
        there = field_set_of(body_of(live), SHAPE)
        mine = field_set_of(config, SHAPE)
        assert mine <= there, "what was applied is there"
        for (name, _), paths in owned(live).items():
            expected = {"/".join(path) for path in mine}
            assert paths == expected if name == manager else True
        again = applied(live, document(**config), manager)
        assert again == live, "an apply repeated changes nothing"


@given(STEPS)
def test_when_every_applier_has_left_nothing_is_left(steps: list[tuple[str, Any]]) -> None:
    live: dict[str, Any] | None = None
    for manager, config in steps:
        live = applied(live, document(**config), manager, force=True)
    for manager in ("one", "two", "three"):
        live = applied(live, document(), manager, force=True)
    assert live is not None
    assert field_set_of(body_of(live), SHAPE) == frozenset()
    assert owned(live) == {}


@given(CONFIGS, CONFIGS)
def test_without_force_others_values_are_never_changed(first: dict[str, Any], second: dict[str, Any]) -> None:
    live = applied(None, document(**first), "one")
    try:
        after = applied(live, document(**second), "two")
    except ApiStatusError:
        return
    for path in field_set_of(first, SHAPE):
        assert value_at(after, path) == value_at(live, path)


def value_at(live: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        live = live[step.removeprefix("f:")]
    return live
