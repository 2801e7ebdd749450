"""The table says where the kernel and its stand-in differ, and what ended before it was tried."""

import json

import pytest

from tests.kernel_dfl.cases import NAMES
from tests.kernel_dfl.report import KNOWN, Row, compare, format_table, parse_results

KNOWN_CASE = min(KNOWN)


@pytest.mark.parametrize(
    ("case", "kernel", "stand_in", "is_wrong"),
    [
        ("a load", "ok", "ok", False),
        ("a load", "EIO", "ok", True),
        ("a load", "", "ok", True),
        (KNOWN_CASE, "EBUSY", "no id", False),
        (KNOWN_CASE, "EBUSY", "EBUSY", True),
    ],
    ids=["same", "differs", "no answer", "known difference", "known difference that is gone"],
)
def test_a_row_is_wrong_where_the_answers_are_not_as_expected(
    case: str, kernel: str, stand_in: str, is_wrong: bool
) -> None:
    assert Row(case=case, kernel=kernel, stand_in=stand_in).is_wrong is is_wrong


def test_each_known_difference_is_of_a_case() -> None:
    assert {*KNOWN} <= {*NAMES}


def test_a_trial_that_was_cut_short_counts_as_far_as_it_came() -> None:
    lines = json.dumps({"case": "a load", "seen": "ok"}) + '\n{"case": "a reset", "se'
    rows = compare(["a load", "a reset"], parse_results(lines), {"a load": "ok", "a reset": "ok, EINVAL"})
    assert [row.is_wrong for row in rows] == [False, True]
    assert "ended before this case did" in format_table(rows)


def test_the_table_fits_into_80_columns_and_shows_what_differs() -> None:
    rows = [
        Row(case="a load", kernel="ok; " * 40, stand_in="EIO"),
        Row(case=KNOWN_CASE, kernel="EBUSY", stand_in="no id"),
    ]
    table = format_table(rows)
    assert max(map(len, table.splitlines())) <= 80
    assert "! a load" in table
    assert f"  {KNOWN_CASE}" in table
    assert "2 cases, 1 of them (!) not as expected" in table
