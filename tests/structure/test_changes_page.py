"""docs/changes.md has each fact that a program reads when it starts, and a test of how its change is noticed."""

import ast
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from tests.structure.references import missing
from tools.sources import ROOT, tree

PAGE: Final = ROOT / "docs/changes.md"
_SPAN: Final = re.compile(r"`([^`]+)`")
_READS: Final = re.compile(r"(read|load|discover|probe|find|acquire|services_for|installed|watch|list)_\w+")
"""The names of functions by which the starts of programs read facts."""
STARTS: Final = {
    "driver/controller/app.py": (),
    "driver/kubeletplugin/app.py": (),
    "driver/kubeletplugin/cluster/classic.py": ("__init__",),
    "driver/kubeletplugin/cluster/structured.py": ("__init__", "connect"),
}
"""The modules in which programs start, and the functions that do; empty: all."""
NO_FACTS: Final = {
    "list_services": "what the plugin does beside its work on claims",
    "watch_features": "notices the changes of what discover_any has read",
}
"""Names in those functions that read nothing of their own, and what they are."""


class Row(NamedTuple):
    fact: str
    read_by: str
    noticed: str
    shown_by: str


def rows() -> list[Row]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines[2:]]


ROWS: Final = rows()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.fact)
def test_a_row_says_who_reads_the_fact_and_names_tests_that_are_there(row: Row) -> None:
    assert re.match("both|plugin|controller", row.read_by)
    assert row.noticed
    tests = [span for span in _SPAN.findall(row.shown_by) if span.startswith("tests/")]
    assert tests
    paths = [span for span in _SPAN.findall(row.read_by) if "/" in span]
    assert [name for span in (*tests, *paths) for name in missing(span)] == []


def test_no_fact_is_there_twice() -> None:
    assert len({row.fact for row in ROWS}) == len(ROWS) > 20


def read_at_starts() -> Iterator[str]:
    for path, starts in STARTS.items():
        for node in ast.walk(tree(ROOT / path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (not starts or node.name in starts):
                yield from (name for name in _names(node) if _READS.fullmatch(name))


def _names(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr


def test_everything_that_starts_read_is_on_the_page() -> None:
    told = {span for row in ROWS for span in _SPAN.findall(row.read_by)}
    read = {*read_at_starts()}
    assert len(read) > 8
    assert read - told - {*NO_FACTS} == set()
    assert {*NO_FACTS} <= read, "a name that is gone"
