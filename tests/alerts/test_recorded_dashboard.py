"""The dashboard is drawn with what its expressions give for a recorded run, as Prometheus would evaluate them."""

import json
from typing import Any, Final

import pytest

from tools.generate.dashboard import evaluate_panel
from tools.generate.promql_evaluation import UnsupportedExpressionError, evaluate
from tools.generate.recorded_metrics import DASHBOARD, RecordedSeries, Recording, read_recording

RECORDING: Final = read_recording()
PANELS: Final = [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]
WITHOUT_LINES: Final = {
    "Activity of partitions, by pod": "dcgm-exporter has its metric",
    "Calls of the kubelet that failed": "none fails in the demo",
    "CardMaintenances by phase": "the recorded demo has no reclaimer",
    "Cards that need a repair": "the recorded demo has no reclaimer",
}


def series(name: str, values: list[float | None], **labels: str) -> RecordedSeries:
    return RecordedSeries(name=name, labels=labels, values=values)


SMALL: Final = Recording(
    interval_s=15.0,
    samples=3,
    series={
        "free": [series("free", [8, 6, 2], node="a", card="0"), series("free", [4, 4, 1], node="b", card="0")],
        "all": [series("all", [8, 8, 8], node="a", card="0"), series("all", [4, 4, 4], node="b", card="0")],
        "none": [series("none", [0, 0, 0], node="a"), series("none", [None, None, 0], node="b")],
        "calls": [series("calls", [1, 31, 5], code="200"), series("calls", [0, 0, 3], code="404")],
        "s_bucket": [
            series("s_bucket", [0, 10, 20], le="0.1"),
            series("s_bucket", [0, 10, 60], le="0.5"),
            series("s_bucket", [0, 10, 100], le="+Inf"),
        ],
    },
)


def evaluated(expression: str, sample: int = 2) -> dict[str, float]:
    """The values by their labels, without names."""
    return {
        ",".join(value for _, value in sorted(key)): round(value, 6)
        for key, value in evaluate(expression, SMALL, sample).items()
    }


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("free", {"0,a": 2, "0,b": 1}),
        ('free{node="a"}', {"0,a": 2}),
        ('free{node!="a"}', {"0,b": 1}),
        ('free{node=~"a|c", card=~".*"}', {"0,a": 2}),
        ('free{node!~"a|c"}', {"0,b": 1}),
        ("count(free)", {"": 2}),
        ("max by (node) (free)", {"a": 2, "b": 1}),
        ("min by (card) (free)", {"0": 1}),
        ("sum by (card) (all) - sum by (card) (free)", {"0": 9}),
        ("1 - sum(free) / sum(all)", {"": 0.75}),
        ("(1 - 3) * 2 + 10 / 4", {"": -1.5}),
        ("free / none", {}),
        ("sum(missing) or vector(7)", {"": 7}),
        ("sum(free) or vector(7)", {"": 3}),
        # 30 were added before the program began again, and 5 since.
        ("rate(calls[1m])", {"200": round(35 / 60, 6), "404": 0.05}),
        ("rate(calls[15s])", {"200": round(5 / 15, 6), "404": 0.2}),
        # Of 100, 60 are at most 0.5: the quarter is an eighth of the way from 0.1, behind which 20 are.
        ("histogram_quantile(0.25, rate(s_bucket[1m]))", {"": 0.15}),
        ("histogram_quantile(0.95, rate(s_bucket[1m]))", {"": 0.5}),
    ],
)
def test_an_expression_has_the_value_that_prometheus_documents(expression: str, values: dict[str, float]) -> None:
    assert evaluated(expression) == values


def test_what_is_not_there_at_a_sample_has_no_value() -> None:
    assert evaluated("none", 0) == {"a": 0}


@pytest.mark.parametrize("expression", ["avg(free)", "free[5m]", "sum(free", "free ? 1", "free offset 5m", ""])
def test_what_the_dashboard_does_not_need_is_refused(expression: str) -> None:
    with pytest.raises(UnsupportedExpressionError):
        evaluated(expression)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_has_values_in_the_recorded_run(panel: dict[str, Any]) -> None:
    has_values = any(
        any(vector.values()) or (vector and panel["type"] == "stat")
        for sample in range(RECORDING.samples)
        for vector in evaluate_panel(panel, RECORDING, sample)
    )
    shows_labels = panel["type"] == "table" and any(evaluate_panel(panel, RECORDING, RECORDING.samples - 1))
    assert has_values != (panel["title"] in WITHOUT_LINES)
    assert shows_labels == (panel["type"] == "table")


def test_the_recorded_run_ends_with_claims_that_have_devices() -> None:
    [panel] = [panel for panel in PANELS if panel["title"] == "Claims with devices"]
    [vector] = evaluate_panel(panel, RECORDING, RECORDING.samples - 1)
    assert next(iter(vector.values())) > 10
