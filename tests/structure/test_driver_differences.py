"""The table of differences between NVIDIA's DRA driver and Kerf is complete, and explains only what its rows name."""

import dataclasses
import re
from collections import Counter
from datetime import date

import pytest

from tests.oracle.nvidia_driver.differences import (
    Comparison,
    DifferenceTable,
    KnownDifference,
    Verdict,
    compare_mappings,
    read_table,
)
from tools.realcluster.versions import NVIDIA_DRIVER

TABLE = read_table()
ROW = KnownDifference(
    aspect="capacity (a|b)",
    model="h100.*",
    nvidia="-",
    what="amounts",
    nvidia_does="has none",
    kerf_does="has some",
    right="both",
    source="none",
)


@pytest.mark.parametrize("row", TABLE.differences, ids=lambda row: row.what)
def test_a_row_says_who_differs_how_who_is_right_and_by_which_source(row: KnownDifference) -> None:
    for field in ("what", "nvidia_does", "kerf_does", "right", "source"):
        assert getattr(row, field).strip(), field
    assert re.match(r"(Kerf|NVIDIA|both|open)\b", row.right), "it begins with who is right"


def test_the_table_is_of_the_release_that_is_built_and_names_each_difference_once() -> None:
    assert TABLE.version == f"v{NVIDIA_DRIVER}"
    assert str(date.fromisoformat(TABLE.date)) == TABLE.date
    assert set(Counter(row.what for row in TABLE.differences).values()) == {1}


@pytest.mark.parametrize(
    ("model", "row"),
    [
        ("a100-40gb", Comparison("x", "capacity a", "-", "1")),
        ("h100-nvl-94gb", Comparison("x", "capacity c", "-", "1")),
        ("h100-nvl-94gb", Comparison("x", "capacity a", "2", "1")),
        ("h100-nvl-94gb", Comparison("x", "the capacity a", "-", "1")),
    ],
)
def test_a_difference_of_another_model_aspect_or_value_is_not_explained(model: str, row: Comparison) -> None:
    verdict = Verdict(DifferenceTable(module="m", version="v1", date="2026-11-27", differences=[ROW]))
    assert verdict.add(model, [row]) == [row]
    assert verdict.unused == ["amounts"]
    assert verdict.models == {model}


def test_equal_rows_and_explained_ones_are_counted() -> None:
    verdict = Verdict(DifferenceTable(module="m", version="v1", date="2026-11-27", differences=[ROW]))
    rows = [*compare_mappings("x", "capacity", {"c": "3"}, {"a": "1", "b": "2", "c": "3"})]
    assert verdict.add("h100-nvl-94gb", rows) == []
    assert str(verdict) == "3 rows compared, 1 equal, 2 explained by the table"
    assert verdict.unused == []


def test_a_row_has_only_fields_that_the_table_knows() -> None:
    with pytest.raises(TypeError):
        KnownDifference(**{**dataclasses.asdict(ROW), "who": "both"})
