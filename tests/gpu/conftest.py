"""Each test of this folder runs on stand-ins, and with ``-m gpu`` on the cards of this machine.

What was seen of real cards is printed at the end, and written after each test to the file that the variable
``KERF_GPU_REPORT`` names: a run that is cut short leaves what it has seen.
"""

import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.kubeletplugin.backends.nvidia.geometry import build_model
from tests.fakes.nvml import NEEDS_COMPILER
from tests.gpu.cards import REAL, Cards, real_cards, stand_ins

_SEEN: Final = pytest.StashKey[list[str]]()
"""What the end of a run says of the cards that it has seen."""
_REPORT: Final = pytest.StashKey[dict[str, Any]]()
"""What the report has: the cards, how each test ended, and what tests note besides."""
_REPORT_FILE: Final = os.environ.get("KERF_GPU_REPORT", "")


@pytest.fixture(
    params=[
        pytest.param("stand-in", marks=NEEDS_COMPILER),
        REAL,
    ]
)
def cards(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cards]:
    """The cards, which are after the test as they were before."""
    with (stand_ins if request.param == "stand-in" else real_cards)(tmp_path) as opened:
        before = opened.describe_modes()
        if opened.are_real:
            request.config.stash.setdefault(_SEEN, _describe(opened))
        yield opened
        assert opened.describe_modes() == before, "a test of this folder changes nothing"


@pytest.fixture
def report(request: pytest.FixtureRequest, cards: Cards) -> dict[str, Any]:
    """The report of what is seen of real cards; of stand-ins it is lost."""
    return request.config.stash.setdefault(_REPORT, {}) if cards.are_real else {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    done = yield
    if "gpu" in item.keywords and (done.when == "call" or not done.passed):
        report = item.config.stash.setdefault(_REPORT, {})
        report["cards"] = item.config.stash.get(_SEEN, [])
        report.setdefault("tests", {})[item.name] = done.outcome
        if _REPORT_FILE:
            Path(_REPORT_FILE).write_text(json.dumps(report, indent=1) + "\n")
    return done


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_SEEN, []):
        terminalreporter.write_line(line)


def _describe(cards: Cards) -> list[str]:
    """Return what to record of a machine: each card with its driver and mode, and what Kerf's table has otherwise."""
    lines: list[str] = []
    for reading in cards.library.list_cards():
        mode = cards.library.read_mig_mode(reading.uuid)
        lines.append(
            f"seen: {reading.product} (PCI device {reading.pci_device_id}), driver {reading.driver_version}, CUDA "
            f"{reading.cuda_driver_version}, compute capability {reading.cuda_compute_capability}, {mode or 'no MIG'}"
        )
        _, differences = build_model(reading, cards.library.read_profiles(reading.uuid), gpu_models())
        lines += [f"  Kerf's table is another: {difference}" for difference in differences]
    return lines
