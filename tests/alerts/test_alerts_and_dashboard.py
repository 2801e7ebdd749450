"""Alerts and dashboard name metrics and labels that there are, and say what to do."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tools.generate.metrics import find_metrics
from tools.generate.promql import parse

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "deploy/monitoring/rules.yaml"
DASHBOARD: Final = ROOT / "deploy/monitoring/dashboard.json"
RULE_TESTS: Final = Path(__file__).with_name("rules_test.yaml")
OTHERS: Final[Mapping[str, frozenset[str]]] = {
    "kube_pod_container_state_started": frozenset({"namespace", "pod", "container"}),
    "container_gpu_allocation": frozenset({"namespace", "pod", "container", "instance", "node", "uid"}),
    "node_gpu_hourly_cost": frozenset({"instance", "node", "uid"}),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": frozenset({"UUID", "GPU_I_ID", "GPU_I_PROFILE"}),
}
"""Metrics of kube-state-metrics, OpenCost and dcgm-exporter, with the labels that are used here."""
SEVERITIES: Final = {"critical", "warning", "info"}


@cache
def catalog() -> dict[str, frozenset[str]]:
    """The labels of every series, by name."""
    found = dict(OTHERS)
    for metric in (each for package in ("controller", "kubeletplugin", "kube") for each in find_metrics(package)):
        labels = frozenset({*metric.labels, "instance"})
        if metric.kind == "histogram":
            found |= {f"{metric.name}_sum": labels, f"{metric.name}_count": labels}
            found[f"{metric.name}_bucket"] = labels | {"le"}
        else:
            found[metric.name] = labels
    return found


def rules() -> list[dict[str, Any]]:
    """The alerts and the records."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def panels() -> Iterator[dict[str, Any]]:
    yield from json.loads(DASHBOARD.read_text())["panels"]


def expressions() -> Iterator[tuple[str, str]]:
    """Each expression with the name of its alert or panel."""
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
    for panel in panels():
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def faults(text: str) -> Iterator[str]:
    """What an expression names that is not there."""
    known, expression = catalog(), parse(text)
    for name, labels in expression.selectors:
        if name not in known:
            yield f"metric {name}"
        else:
            yield from (f"label {label} of {name}" for label in labels - known[name])
    every = {label for name in expression.metrics for label in known.get(name, ())} | expression.made
    yield from (f"label {label}" for label in expression.grouped - every)


@pytest.mark.parametrize(("title", "text"), [*expressions()], ids=lambda each: each[:40])
def test_an_expression_names_what_there_is(title: str, text: str) -> None:
    assert parse(text).metrics, title
    assert not [*faults(text)]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("sum(kerf_no_such) > 0", "metric kerf_no_such"),
        ('kerf_claims{fase="running"}', "label fase of kerf_claims"),
        ("sum by (shelf) (kerf_free_units)", "label shelf"),
        ("rate(kerf_claim_seconds[5m])", "metric kerf_claim_seconds"),
        ("kerf_leader + on (rack) kerf_leader", "label rack"),
    ],
)
def test_a_name_that_is_not_there_is_found(text: str, fault: str) -> None:
    assert fault in [*faults(text)]


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_where_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["alert"].startswith("Kerf")
    assert rule["labels"]["severity"] in SEVERITIES
    assert rule["annotations"].keys() == {"summary", "description"}
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    expression = parse(rule["expr"])
    known = {label for name in expression.metrics for label in catalog()[name]}
    assert used <= (expression.grouped if " by (" in rule["expr"] else known)
    assert all((ROOT / page).is_file() for page in re.findall(r"docs/[\w-]+\.md", rule["annotations"]["description"]))


def test_alerts_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names)


def test_panels_do_not_overlap_and_say_what_they_show() -> None:
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    for panel in panels():
        place = panel["gridPos"]
        cells = {(place["x"] + column, place["y"] + line) for column in range(place["w"]) for line in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"], panel["title"]


def test_every_alert_is_tried_by_promtool() -> None:
    tried = {case["alertname"] for test in load_rule_tests()["tests"] for case in test.get("alert_rule_test", ())}
    assert tried == {rule["alert"] for rule in alerts()}


def test_every_record_is_tried_by_promtool_with_the_labels_and_the_value_of_its_series() -> None:
    tried = {
        sample["labels"].partition("{")[0]
        for test in load_rule_tests()["tests"]
        for case in test.get("promql_expr_test", ())
        for sample in case["exp_samples"]
    }
    assert tried - {""} == {rule["record"] for rule in rules() if "record" in rule}


def load_rule_tests() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(RULE_TESTS.read_text())
    return document
