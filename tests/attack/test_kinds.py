"""The table of kinds names tests that exist, and every test of attacks has a row."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.attack.conftest import build_table
from tests.attack.kinds import AttackTest, load_tests

LEAST = {"API server": 40, "watches": 20, "configuration": 40, "files and sockets": 30, "damaged state": 15}
"""The kinds that each of these groups has at least."""
PAGE = Path(__file__).parents[2] / "docs/reliability.md"
OWN = Path(__file__).name


def find_tests() -> dict[str, Any]:
    """The test functions of this folder, by their node id below it."""
    found: dict[str, Any] = {}
    for file in Path(__file__).parent.glob("test_*.py"):
        module = importlib.import_module(f"tests.attack.{file.stem}")
        found |= {f"{file.name}::{name}": value for name, value in vars(module).items() if name.startswith("test_")}
    return {name: value for name, value in found.items() if not name.startswith(OWN)}


def parameters_of(function: Any) -> list[str]:
    """The ids of the parameters of a test that has one mark with ids."""
    (mark,) = (mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize")
    return list(mark.kwargs.get("ids") or (getattr(value, "id", None) or str(value) for value in mark.args[1]))


def test_every_row_names_a_test_and_every_test_has_a_row() -> None:
    assert sorted(one.test for one in load_tests()) == sorted(find_tests())


@pytest.mark.parametrize("one", [one for one in load_tests() if len(one.kinds) > 1], ids=lambda one: one.test)
def test_a_test_with_several_kinds_has_each_as_a_parameter(one: AttackTest) -> None:
    assert parameters_of(find_tests()[one.test]) == list(one.kinds)


def test_every_kind_says_what_is_tried_and_is_tried_once() -> None:
    tried = [row["tries"] for one in load_tests() for row in one.kinds.values()]
    assert len(set(tried)) == len(tried)
    assert all(one.kinds and one.holds for one in load_tests())


@pytest.mark.parametrize("group", LEAST)
def test_a_group_has_as_many_kinds_as_it_should(group: str) -> None:
    assert sum(len(one.kinds) for one in load_tests() if one.group == group) >= LEAST[group]


def test_the_table_counts_what_was_tried_and_what_held() -> None:
    first, second, *_ = ((one.test, kind) for one in load_tests() for kind in one.kinds)
    *_, last = build_table({first: True, second: False})
    assert last.split()[2:] == ["2", "1"]


def test_the_page_has_the_table_of_today() -> None:
    everything = {(one.test, kind): True for one in load_tests() for kind in one.kinds}
    assert "\n".join(build_table(everything)) in PAGE.read_text()
