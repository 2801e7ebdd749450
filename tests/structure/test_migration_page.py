"""The rows of docs/migrating.md: each feature of a replaced system has a test that exists, or a reason why not."""

import re
from functools import cache
from typing import Final

import pytest

from kerf_dra.driver.local.kubelet.device_allocations import REJECTED
from tools.sources import ROOT, files, text

PAGES: Final = ("docs/migrating.md", "docs/write-a-discovery-handler.md")
ROWS: Final = {"AK": 33, "DP": 16, "RM": 17, "GS": 7}
"""The rows of each system: Akri, the device plugin interface, Intel's resource manager and its GPU-aware scheduling."""
_ROW: Final = re.compile(r"^\| ((?:AK|DP|RM|GS)-[-\w, ]+?) \|.*\| (.+) \|$", re.MULTILINE)
_ID: Final = re.compile(r"(?:AK|DP|RM|GS)-\d\d")
_TEST: Final = re.compile(r"`(test_\w+)`")
_DEFINITION: Final = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
_WITHOUT: Final = re.compile(r"\bmoot\b|\bno test|\bnot possible\b|\bno counterpart\b")
_NAMED: Final = re.compile(r"\btests/|`test_|\]\(")
"""A test, or a page that has the row's."""


def rows() -> list[tuple[str, str]]:
    """The ids and the last cell of each row."""
    return [found for page in PAGES for found in _ROW.findall((ROOT / page).read_text())]


@cache
def list_tests() -> frozenset[str]:
    """The names of all tests."""
    paths = (path for path in files() if path.parts[0] == "tests" and path.name.startswith("test_"))
    return frozenset(name for path in paths for name in _DEFINITION.findall(text(path)))


def test_each_feature_of_each_replaced_system_has_a_row() -> None:
    found = {one for ids, _ in _ROW.findall((ROOT / PAGES[0]).read_text()) for one in _ID.findall(ids)}
    assert found == {f"{system}-{number:02}" for system, last in ROWS.items() for number in range(1, last + 1)}


@pytest.mark.parametrize(("ids", "cell"), rows())
def test_a_row_names_tests_that_exist_or_says_why_there_is_none(ids: str, cell: str) -> None:
    assert _NAMED.search(cell) or _WITHOUT.search(cell), "neither a test nor a reason"
    for name in _TEST.findall(cell):
        assert any(f"{one}_".startswith(f"{name}_") for one in list_tests()), f"{name} does not exist"


def test_the_row_about_admission_says_when_the_kubelet_rejects_a_pod() -> None:
    """It said that none is rejected, which is so of claims, and not of what a pod has in its limits."""
    [cell] = [cell for ids, cell in rows() if ids == "RM-10"]
    assert f"`{REJECTED}`" in cell
    assert "`limits`" in cell
