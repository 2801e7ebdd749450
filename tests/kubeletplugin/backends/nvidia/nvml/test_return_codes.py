"""The table of NVML's error codes that are an answer: each row is of a function that is called, cited, documented."""

import inspect
import re
from pathlib import Path
from typing import Final

import pynvml
import pytest

from kerf_dra.api.kerf.v1alpha1 import GpuConfig, GpuSharing
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml import library, return_codes, usage_session
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.return_codes import ANSWERS, Answer, Meaning
from kerf_dra.driver.testing.plugin import PluginStandIn
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml
from tests.fakes.nvml_functions import CHANGES, ERRORS, READS, SHARING_CHANGES
from tests.kubeletplugin.backends.nvidia.machine import NvidiaMachineUnderTest
from tools.sources import ROOT

PAGE: Final = (ROOT / "docs/nvidia.md").read_text()
MANY: Final = 1_000_000
"""More calls of one function than a test makes."""
ROWS: Final = pytest.mark.parametrize(("function", "answer"), ANSWERS.items(), ids=ANSWERS)


@ROWS
def test_each_row_is_of_a_function_that_the_library_calls(function: str, answer: Answer) -> None:
    sources = map(inspect.getsource, (library, usage_session))
    assert any(f'"{function}"' in source for source in sources), answer.meaning
    assert callable(getattr(pynvml, function))


@ROWS
def test_each_row_cites_what_nvml_says_of_its_codes(function: str, answer: Answer) -> None:
    assert answer.codes <= {*ERRORS}
    assert answer.source, function
    cited = set(re.findall(r"[A-Z]+(?:_[A-Z]+)+", answer.source))
    assert cited <= answer.codes


@ROWS
def test_each_row_is_in_the_documentation(function: str, answer: Answer) -> None:
    codes = ", ".join(f"`{code}`" for code in sorted(answer.codes - return_codes.LIBRARY_LACKS))
    assert f"| `{function}` | {codes} | {answer.meaning} |" in PAGE


def test_no_code_says_that_a_gpu_instance_is_gone() -> None:
    """A release was done where a code said so, for one of 31 wrongly: the partition stayed, as somebody else's."""
    absent = {function for function, answer in ANSWERS.items() if answer.meaning is Meaning.ABSENT}
    assert absent == {"nvmlDeviceGetHandleByUUID"}
    assert not ANSWERS.keys() & {*CHANGES, "nvmlDeviceGetGpuInstances", "nvmlDeviceGetGpuInstanceById"} - {
        "nvmlDeviceCreateGpuInstanceWithPlacement"
    }


def test_codes_that_concern_all_functions_are_nvmls() -> None:
    codes = {*return_codes.CARD_IS_AWAY, *return_codes.REFUSED, return_codes.IN_USE, return_codes.RESET_REQUIRED}
    assert codes <= {*ERRORS}
    assert not return_codes.CARD_IS_AWAY & return_codes.REFUSED


@NEEDS_COMPILER
@pytest.mark.parametrize("function", [*CHANGES, *SHARING_CHANGES, *READS])
def test_a_fault_of_each_function_can_strike(function: str, tmp_path: Path) -> None:
    """Some had the names that the bindings give them: schedules drew faults that never came."""
    machine = NvidiaMachineUnderTest(tmp_path, sharing_folder=str(tmp_path / "sharing"))
    machine.hardware.add_fault(function, error=pynvml.NVML_ERROR_UNKNOWN, skip=MANY)
    plugin = PluginStandIn(machine, GPU)
    partition, whole = plugin.machine.partitions(plugin.cards[0])[0], plugin.machine.partitions(plugin.cards[1])[-1]
    records = [plugin.allocate(partition, "one"), plugin.allocate(whole, "two")]
    sharing = GpuSharing(strategy="TimeSlicing")
    records[1].config = GpuConfig(api_version="kerf.dev/v1alpha1", sharing=sharing)
    with open_nvml(machine.hardware):
        pynvml.nvmlDeviceSetComputeMode(pynvml.nvmlDeviceGetHandleByIndex(1), pynvml.NVML_COMPUTEMODE_PROHIBITED)
    for record in records:
        plugin.prepare(record)
    plugin.backend.wait_for_events(0.0)
    plugin.restart()
    plugin.backend.wait_for_events(0.01)
    plugin.backend.wait_for_events(0.01)
    plugin.restart()
    for record in records:
        plugin.backend.unprepare(record.handle or {})
    assert machine.hardware.count_left(function) < MANY
