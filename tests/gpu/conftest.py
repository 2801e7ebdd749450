"""Each test of this folder runs on stand-ins, and with ``-m gpu`` on the cards of this machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.kubeletplugin.backends.nvidia.geometry import build_model
from tests.fakes.nvml import NEEDS_COMPILER
from tests.gpu.cards import CONTROL_NODE, Cards, real_cards, stand_ins

_SEEN: Final = pytest.StashKey[list[str]]()
"""What the end of a run says of the cards that it has seen."""
_NEEDS_CARD: Final = pytest.mark.skipif(
    not CONTROL_NODE.exists(), reason=f"there is no NVIDIA card here: no {CONTROL_NODE}"
)


@pytest.fixture(
    params=[
        pytest.param("stand-in", marks=NEEDS_COMPILER),
        pytest.param("real", marks=[pytest.mark.gpu, _NEEDS_CARD]),
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
