"""What docs/reliability.md says of defects, of what judges a change, and of limits is so."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.oracle.__main__ import main as run_oracles
from tests.structure.references import missing
from tools.sources import ROOT

PAGE: Final = ROOT / "docs/reliability.md"
_TEST: Final = re.compile(r"`(tests/[\w/]+\.py::test_\w+)`")
_TARGET: Final = re.compile(r"\bmake ([\w-]+)")
_CI_COMMAND: Final = re.compile(r"^(?:failing_once )?make ([\w-]+)", re.MULTILINE)
_PROGRAMS: Final = (
    *("manifests/10-controller.yaml", "manifests/20-kubelet-plugin.yaml"),
    *("nvidia/20-kubelet-plugin.yaml", "nvidia/mps-daemons.yaml", "fpga/20-kubelet-plugin.yaml"),
)


def rows(heading: str) -> list[tuple[str, ...]]:
    """The rows of the tables below a heading, without their heads."""
    section = re.split(r"\n###? ", PAGE.read_text().partition(f"## {heading}\n")[2])[0]
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in section.splitlines() if "|" in line]
    return [row for row in cells if not is_head(row)]


def is_head(row: tuple[str, ...]) -> bool:
    return row[0] in {"what was found", "command"} or set(row[0]) == {"-"}


FOUND: Final = rows("What was found, and the test that keeps it")


@pytest.mark.parametrize("row", FOUND, ids=lambda row: row[0])
def test_each_thing_that_was_found_has_a_test_that_keeps_it(row: tuple[str, ...]) -> None:
    found, kept_by = row
    assert found
    tests = _TEST.findall(kept_by)
    assert tests
    assert [name for test in tests for name in missing(test)] == []


def test_nothing_is_found_twice() -> None:
    assert len({found for found, _ in FOUND}) == len(FOUND) > 1


def test_what_the_page_says_ci_runs_is_what_it_runs() -> None:
    told = [row[0] for row in rows("What judges a change") if "`.ci/run`" in row[-1]]
    run = _CI_COMMAND.findall((ROOT / ".ci/run").read_text())
    assert list(dict.fromkeys(target for cell in told for target in _TARGET.findall(cell))) == list(dict.fromkeys(run))


def test_without_go_the_oracles_are_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="2"):
        run_oracles(["cdi", "--short"])
    assert "there is no go on the PATH" in capsys.readouterr().err


@pytest.mark.parametrize("file", _PROGRAMS)
def test_every_program_of_deploy_has_a_limit_of_memory(file: str) -> None:
    documents: list[Any] = list(yaml.safe_load_all((ROOT / "deploy" / file).read_text()))
    (workload,) = (one for one in documents if one["kind"] in {"Deployment", "DaemonSet"})
    for container in workload["spec"]["template"]["spec"]["containers"]:
        assert re.fullmatch("[0-9]+[MG]i", container["resources"]["limits"]["memory"])
