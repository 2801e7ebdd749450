from typing import Any

import pytest
from hypothesis import given

from kerf_dra.driver.kube.dropped_fields import find_dropped_fields
from tests.strategies import JSON_OBJECTS


@pytest.mark.parametrize(
    ("sent", "kept", "dropped"),
    [
        ({"a": 1}, {}, ("a",)),
        ({"a": 1}, {"a": 2}, ("a",)),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {}}}, ("a.b.c",)),
        ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{}, {}]}, ("a[].b",)),
        ({"a": [1, 2]}, {"a": [1]}, ("a",)),
        ({"a": {"b": 1}}, {"a": None}, ("a",)),
        ({"a": {}, "b": [], "c": None}, {}, ()),
        ({"a": 1}, {"a": 1, "defaulted": True}, ()),
        ({"a": [{"t": 1}]}, {"a": [{"t": 1, "timeAdded": "now"}]}, ()),
    ],
)
def test_what_is_missing_or_different_is_lost_and_what_is_added_is_not(
    sent: Any, kept: Any, dropped: tuple[str, ...]
) -> None:
    assert find_dropped_fields(sent, kept) == dropped


@given(JSON_OBJECTS)
def test_nothing_is_lost_from_what_came_back_as_it_was(value: Any) -> None:
    assert find_dropped_fields(value, value) == ()
