"""The table of judges has each backend, each rule of the stand-in for NVML and each oracle, with what really runs."""

import re
from datetime import date
from typing import Any, Final

import pytest

from tests.oracle.__main__ import CASES, SHORT
from tests.oracle.monitors.test_monitors import MONITORS
from tests.structure.test_backends_share_code import BACKENDS, SHARED
from tools.generate.judges import list_rules, read_judges
from tools.realcluster.versions import CONTAINERD, EXAMPLE_DRIVER, NEWEST, NVIDIA_DRIVER
from tools.sources import ROOT

TABLE: Final[Any] = read_judges()
JUDGES: Final = {judge["id"]: judge for judge in TABLE["judges"]}
JUDGED: Final = [one for key in ("backends", "rules", "stand_ins", "parts") for one in TABLE[key]]
CLUSTERS: Final = "make e2e"
EACH_CHANGE: Final = "each change"
_ORACLES: Final = re.compile(r"make oracle ARGS=([\w-]+)")
_MODULE: Final = re.compile(r"^\s*(?:require )?(\S+) v([0-9.]+)(?: //.*)?$", re.MULTILINE)


def find_module(file: str, module: str) -> str:
    """The version of a Go module that a ``go.mod`` requires."""
    return str(dict(_MODULE.findall((ROOT / file).read_text()))[module])


def find_crate(file: str, crate: str) -> str:
    """The version of a Rust crate that a ``Cargo.toml`` pins."""
    return str(re.findall(rf'^{crate} = "=(\S+)"$', (ROOT / file).read_text(), re.MULTILINE)[0])


VERSIONS: Final = {
    "nvidia-driver": [NVIDIA_DRIVER],
    "toolkit": [find_module("tools/image/cdi_hook/go.mod", "github.com/NVIDIA/nvidia-container-toolkit")],
    "monitors": [*MONITORS.values(), find_crate("tests/oracle/monitors/nvml_wrapper/Cargo.toml", "nvml-wrapper")],
    "kubernetes": [NEWEST.release, CONTAINERD],
    "drivers": [EXAMPLE_DRIVER, NVIDIA_DRIVER],
    "sanity": [EXAMPLE_DRIVER, NVIDIA_DRIVER],
    "allocator": [find_module("tests/oracle/allocator/go.mod", "k8s.io/dynamic-resource-allocation")],
    "cel": [find_module("tests/oracle/cel/go.mod", "k8s.io/dynamic-resource-allocation")],
    "protobuf": [find_module("tests/oracle/protobuf/go.mod", "k8s.io/api")],
    "cdi": [
        find_module(f"tests/oracle/cdi/{file}", "tags.cncf.io/container-device-interface")
        for file in ("go.mod", "release-1.1.0.mod")
    ],
    "helm": [find_module("tools/helm/go.mod", "helm.sh/helm/v3")],
}
"""The versions that are built and run, by judge; those of distributions and of cards are written by hand."""


def list_backends() -> set[str]:
    return {path.parent.name for path in (ROOT / BACKENDS).glob("*/backend.py")} - SHARED


def test_each_backend_is_in_the_table_and_no_other() -> None:
    assert {one["name"] for one in TABLE["backends"]} == list_backends() > {"nvidia", "dfl"}


@pytest.mark.parametrize("one", JUDGED, ids=lambda one: one["name"])
def test_what_no_judge_has_judged_has_a_sentence_why_and_nothing_else_has(one: dict[str, Any]) -> None:
    assert set(one["judged"]) <= set(JUDGES)
    assert all(what.strip() for what in one["judged"].values())
    assert one.get("ours", "").strip() or "rows" in one
    assert bool(one["judged"]) != bool(re.fullmatch(r"[A-Z].*\.", one.get("why", "")))


def test_each_judge_has_judged_something() -> None:
    assert {judge for one in JUDGED for judge in one["judged"]} == set(JUDGES)


@pytest.mark.parametrize("rule", [rule for rule, _ in list_rules()])
def test_each_rule_of_the_stand_in_belongs_to_one_group(rule: str) -> None:
    assert len([group for group in TABLE["rules"] if rule.startswith(tuple(group["rows"]))]) == 1


def test_no_group_names_a_rule_that_is_not_there() -> None:
    rules = [rule for rule, _ in list_rules()]
    rows = [row for group in TABLE["rules"] for row in group["rows"]]
    assert [row for row in rows if not any(rule.startswith(row) for rule in rules)] == []


def test_each_kind_of_oracle_is_a_judge() -> None:
    commands = "\n".join(judge["how"] for judge in TABLE["judges"])
    assert sorted(_ORACLES.findall(commands)) == sorted(CASES)


@pytest.mark.parametrize("judge", TABLE["judges"], ids=lambda judge: judge["id"])
def test_a_judge_of_each_change_is_one_that_ci_runs_and_any_other_has_a_date(judge: dict[str, str]) -> None:
    oracle = _ORACLES.findall(judge["how"])
    if judge["how"] == f"`{CLUSTERS}`" or (oracle and oracle[0] in SHORT):
        assert judge["when"] == EACH_CHANGE
        assert CLUSTERS in (ROOT / ".ci/run").read_text()
    else:
        assert str(date.fromisoformat(judge["when"])) == judge["when"]


@pytest.mark.parametrize(("judge", "versions"), VERSIONS.items(), ids=VERSIONS)
def test_a_judge_has_the_versions_that_run(judge: str, versions: list[str]) -> None:
    assert re.findall(r"[0-9]+(?:\.[0-9]+)+", JUDGES[judge]["version"]) == versions
