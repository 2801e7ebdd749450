"""A plugin that is killed, or whose disk fails, at any call: no partition leaks, none is used twice, no claim is lost.

The points are not listed by hand: an operation is done once, its calls are counted, and then each is tried
(``tests/kubeletplugin/fault_points``).
"""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import PROFILE
from tests.fakes.nvml import NEEDS_COMPILER
from tests.fakes.system_calls import build_library
from tests.kubeletplugin.fault_points.scenarios import SCENARIOS

pytestmark = NEEDS_COMPILER

LEAST_OF_A_SCENARIO = 20
"""Points; a stop has the fewest calls."""
LONGEST_S = 1800


def run(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.kubeletplugin.fault_points", *arguments]
    environment = {**os.environ, "LD_PRELOAD": str(build_library())}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_is_lost_whichever_call_is_the_last_or_fails(scenario: str) -> None:
    report = run(scenario, *(["--all"] if PROFILE == "all" else []))
    assert report["wrong"] == []
    assert report["points"] >= LEAST_OF_A_SCENARIO
    assert report["killed"] > 0


def test_nothing_is_lost_at_a_sample_of_calls() -> None:
    report = run("sample")
    assert report["wrong"] == []
    assert report["points"] > report["killed"] > 0
