"""All missing requirements of a machine are reported at once, and no test is skipped."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.realcluster.requirements import TOOLS, Facts, problems

GOOD = Facts(platform="linux", is_root=True, may_unshare=True, has_go=True, missing=())


def test_a_machine_that_has_everything_has_no_problem() -> None:
    assert list(problems(GOOD)) == []


@pytest.mark.parametrize(
    ("lacks", "told"),
    [
        ({"platform": "darwin"}, "it needs Linux, this is darwin"),
        ({"is_root": False, "may_unshare": False}, "it needs root"),
        ({"may_unshare": False}, "a container must be privileged"),
        ({"has_go": False}, "it needs Go as new as go.mod says, on PATH: see https://go.dev/dl"),
        ({"missing": TOOLS[:1]}, "runc is missing: install the package runc"),
    ],
)
def test_each_thing_that_is_missing_is_named_with_what_to_do(lacks: dict[str, Any], told: str) -> None:
    (problem,) = problems(replace(GOOD, **lacks))
    assert told in problem


def test_everything_that_is_missing_is_told_at_once() -> None:
    nothing = Facts(platform="darwin", is_root=False, may_unshare=False, has_go=False, missing=TOOLS)
    assert len(list(problems(nothing))) == 3 + len(TOOLS)


@pytest.mark.parametrize("command", [["tools.realcluster", "build"], ["tests.bench", "realcluster"]])
def test_without_go_and_packages_a_command_fails_in_clear_words(tmp_path: Path, command: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command],
        env={**os.environ, "PATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "a real cluster cannot run here:" in result.stderr
    assert re.search(r"^- it needs Go as new as go.mod says", result.stderr, re.MULTILINE)
    assert re.search(r"^- runc is missing: install the package runc", result.stderr, re.MULTILINE)
    assert "Traceback" not in result.stderr
