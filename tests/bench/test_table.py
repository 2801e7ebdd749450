"""The printed table of a benchmark, and the choice of benchmarks by name."""

import inspect
from importlib import import_module
from xml.etree import ElementTree as ET

import pytest

from tests.bench import noise
from tests.bench.__main__ import MODULES, SETS
from tests.bench.many_nodes import BYTES, METRIC, REQUESTS, VERB
from tests.bench.measurement import Row
from tests.bench.plot import draw_ratios


@pytest.mark.parametrize("name", [*MODULES, *(name for names in SETS.values() for name in names)])
def test_every_module_that_can_be_named_measures(name: str) -> None:
    assert inspect.iscoroutinefunction(import_module(f"tests.bench.{name}").measure)


def test_a_row_is_told_by_its_median_beside_that_of_its_baseline() -> None:
    row = Row(name="prepare", unit="ms", samples=[3, 1, 2], baseline_name="bare", baseline=[4, 4], goal="<= 1")
    assert row.cells() == ("prepare", "2.00 ms", "1.00-3.00", "4.00 ms (bare)", "0.50", "<= 1")
    assert row.document() == {
        "name": "prepare",
        "unit": "ms",
        "goal": "<= 1",
        "count": 3,
        "median": 2,
        "min": 1,
        "p99": 3,
        "baseline": {"name": "bare", "count": 2, "median": 4, "min": 4, "p99": 4},
        "ratio": 0.5,
    }


def test_a_row_without_a_baseline_has_no_ratio() -> None:
    row = Row(name="memory", unit="MB", samples=[64.0])
    assert row.cells() == ("memory", "64.0 MB", "64.0-64.0", "", "", "")
    assert "ratio" not in row.document()


def test_a_row_beside_a_baseline_of_zero_has_no_ratio() -> None:
    row = Row(name="failed", unit="calls", samples=[0.0, 2.0], baseline_name="other", baseline=[0.0, 0.0])
    assert row.cells() == ("failed", "1.00 calls", "0.00-2.00", "0.00 calls (other)", "", "")


def test_a_steady_machine_has_ratio_one() -> None:
    assert noise.row([10.0, 10.0, 10.0]).ratio == 1
    assert noise.row([10.0, 15.0, 20.0]).ratio == 1.5


def test_what_the_api_server_counts_of_slices_is_found_in_its_metrics() -> None:
    metrics = f"""\
# HELP {REQUESTS} [STABLE] Counter of apiserver requests
{REQUESTS}{{code="201",group="resource.k8s.io",resource="resourceslices",verb="POST",version="v1"}} 1000
{REQUESTS}{{code="201",group="",resource="pods",verb="POST",version="v1"}} 7
{BYTES}{{group="resource.k8s.io",resource="resourceslices",verb="create"}} 4.4e+07
{BYTES}{{group="resource.k8s.io",resource="resourceclaims",verb="create"}} 9
"""
    found = [(name, VERB.findall(labels), float(value)) for name, labels, value in METRIC.findall(metrics)]
    assert found == [(REQUESTS, ["POST"], 1000.0), (BYTES, ["create"], 4.4e7)]


def test_rows_with_a_baseline_are_drawn_to_the_left_of_it_or_to_the_right() -> None:
    rows = [
        Row(name="less <b>", unit="ms", samples=[1.0], baseline_name="peer", baseline=[4.0]),
        Row(name="more", unit="ms", samples=[400.0], baseline_name="peer", baseline=[4.0]),
        Row(name="alone", unit="ms", samples=[1.0]),
        Row(name="failed", unit="ms", samples=[1.0], baseline_name="peer", baseline=[0.0]),
    ]
    root = ET.fromstring(draw_ratios(rows))
    bars = [(each.get("class"), float(each.get("x", "0"))) for each in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert [kind for kind, _ in bars] == ["less", "more"]
    assert bars[0][1] < bars[1][1]
    assert "less <b> / peer" in [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
