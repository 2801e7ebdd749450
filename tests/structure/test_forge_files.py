"""Files for forges and for Krew: what they name is there, and a proposed change gets no rights by them."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kerf_dra.driver.families.registry import BUILT_IN
from tools.generate.chart_values import list_values
from tools.helm.chart import CHART, PROFILES
from tools.sources import ROOT, text

WORKFLOWS: Final = sorted(Path(".github/workflows").glob("*.yaml"))
FORMS: Final = sorted(Path(".github/ISSUE_TEMPLATE").glob("[0-9]-*.yml"))
KREW: Final = Path("deploy/krew/kerf.yaml")
FEATURES: Final = Path("docs/features.md")


def load(path: Path) -> Any:
    return yaml.safe_load(text(path))


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in load(path)["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=str)
def test_a_workflow_may_read_the_repository_and_nothing_else(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow[True].keys() <= {"push", "pull_request"}, "YAML 1.1 reads the key `on` as true"
    assert "secrets" not in text(path)
    assert all(step["with"] == {"persist-credentials": False} for step in steps(path) if "checkout@" in str(step))


@pytest.mark.parametrize("path", WORKFLOWS, ids=str)
def test_a_workflow_runs_targets_of_the_makefile_in_a_limited_time(path: Path) -> None:
    made = {
        name
        for step in steps(path)
        for run in [step.get("run", "")]
        if run.startswith("make ")
        for name in run.split()[1:]
    }
    assert made <= set(re.findall(r"^([a-z][a-z-]*):", text(Path("Makefile")), re.MULTILINE))
    assert made, "it checks something of Kerf"
    assert all(job["timeout-minutes"] <= 60 for job in load(path)["jobs"].values())


def test_the_workflows_check_what_a_change_must_pass() -> None:
    made = {name for path in WORKFLOWS for step in steps(path) for name in step.get("run", "").split()}
    assert {"lint", "types", "tests", "docs", "image"} <= made


@pytest.mark.parametrize("path", FORMS, ids=str)
def test_a_form_asks_for_something_and_each_question_has_a_name_of_its_own(path: Path) -> None:
    form = load(path)
    assert form.keys() == {"name", "description", "labels", "body"}
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in asked}) == len(asked)
    assert all(part["attributes"]["label"] for part in asked)
    assert any(part.get("validations", {}).get("required") for part in asked)


def test_krews_manifest_is_of_this_version_and_names_the_program_that_the_folder_has() -> None:
    manifest = load(KREW)
    version = tomllib.loads(text(Path("pyproject.toml")))["project"]["version"]
    assert manifest["metadata"]["name"] == KREW.stem
    assert manifest["spec"]["version"] == f"v{version}"
    for platform in manifest["spec"]["platforms"]:
        program = ROOT / KREW.parent / platform["bin"]
        assert program.stat().st_mode & 0o111, "it can be executed"
        assert (platform["uri"], platform["sha256"]) == ("${URI}", "${SHA256}"), "no archive is published"


def test_the_page_of_features_has_every_backend_and_every_switch_of_the_chart() -> None:
    page = text(FEATURES)
    schema = load(CHART.relative_to(ROOT) / "values.schema.json")
    switches = {each.path for each in list_values(schema) if each.path.endswith(".enabled")}
    backends = {
        name
        for path in PROFILES.glob("*.yaml")
        for each in load(path.relative_to(ROOT))["plugins"]
        for name in each["backends"]
    }
    assert len(switches) > 4
    assert {name for name in switches if f"`{name}`" not in page} == set()
    assert {name for name in backends - {"simulated"} if not re.search(rf"\.{name}`", page)} == set()
    assert len(backends) >= len(BUILT_IN)


def test_a_feature_has_one_of_the_stages_that_the_page_defines() -> None:
    stages, features = text(FEATURES).split("| feature |")
    defined = set(re.findall(r"^\| (\w+) \|", stages, re.MULTILINE)) - {"stage"}
    found = re.findall(r"^\|[^|]*\| (\w+) \|", features.partition("\n|---")[2], re.MULTILINE)
    assert len(found) > 15
    assert set(found) <= defined == {"alpha", "beta", "stable"}
