"""Each line of docs/upstream-issues.md has tests that exist, and the tests for a thread name it."""

import ast
import re
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tools.sources import ROOT, tree

_PAGE: Final = ROOT / "docs/upstream-issues.md"
_TEST: Final = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
_THREAD: Final = re.compile(r"(?:[\w-]+/[\w-]+)?#[0-9]+")
_UNREAD: Final = "could not be read"
SUITES: Final = {
    "dynamic MIG": 5,
    "robustness": 8,
    "basic": 5,
    "updates": 3,
    "shares": 3,
    "extended resource": 1,
}
"""How many scenarios each of NVIDIA's suites has, at the commit that the page names."""


class Row(NamedTuple):
    section: str
    cells: tuple[str, ...]

    @property
    def tests(self) -> list[tuple[str, str]]:
        return _TEST.findall(self.cells[-1])


def rows() -> list[Row]:
    """The rows of the page's tables, without their heads."""
    found: list[Row] = []
    section = ""
    for line in _PAGE.read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if line.startswith("| "):
            found.append(Row(section, tuple(cell.strip() for cell in line.strip("|").split("|"))))
    return [row for row in found if row.cells[-1] != "tests"]


def docstring(path: str, test: str) -> str:
    """The docstring of a test, with that of its module."""
    module = tree(Path(path))
    (function,) = (
        node for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == test
    )
    return f"{ast.get_docstring(module)} {ast.get_docstring(function)}"


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.cells[0])
def test_every_line_has_tests_that_exist_unless_its_thread_could_not_be_read(row: Row) -> None:
    assert bool(row.tests) != (_UNREAD in row.cells)
    assert all(docstring(*test) for test in row.tests)


@pytest.mark.parametrize(
    "row", [row for row in rows() if any("/nvidia/" in path for path, _ in row.tests)], ids=lambda row: row.cells[0]
)
def test_the_tests_for_a_thread_on_nvidia_cards_name_it(row: Row) -> None:
    if row.section == "Reports":
        told = " ".join(docstring(*test) for test in row.tests)
        assert [thread for thread in _THREAD.findall(row.cells[0]) if thread in told] != []


def test_every_scenario_of_nvidias_suites_has_a_line() -> None:
    assert Counter(row.cells[0] for row in rows() if row.section == "NVIDIA's suites") == SUITES
