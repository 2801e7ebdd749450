"""The table of NVML's error codes that are an answer: each row is of a function that is called, cited, documented."""

import inspect
import re
from typing import Final

import pynvml
import pytest

from kerf_dra.driver.kubeletplugin.backends.nvidia import library
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml import return_codes
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.return_codes import ANSWERS, Answer, Meaning
from tests.fakes.nvml_functions import CHANGES, ERRORS, READS, SHARING_CHANGES
from tools.sources import ROOT

PAGE: Final = (ROOT / "docs/nvidia.md").read_text()
STAND_IN: Final = ROOT / "driver/testing/nvml/source"
OF_THE_LIBRARY: Final = {"FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH"}
"""Codes that any function may give, because the library is older than the function or its structure."""
ROWS: Final = pytest.mark.parametrize(("function", "answer"), ANSWERS.items(), ids=ANSWERS)


@ROWS
def test_each_row_is_of_a_function_that_the_library_calls(function: str, answer: Answer) -> None:
    assert f'"{function}"' in inspect.getsource(library), answer.meaning
    assert callable(getattr(pynvml, function))


@ROWS
def test_each_row_cites_what_nvml_says_of_its_codes(function: str, answer: Answer) -> None:
    assert answer.codes <= {*ERRORS}
    assert answer.source, function
    cited = set(re.findall(r"[A-Z]+(?:_[A-Z]+)+", answer.source))
    assert cited <= answer.codes


@ROWS
def test_each_row_is_in_the_documentation(function: str, answer: Answer) -> None:
    codes = ", ".join(f"`{code}`" for code in sorted(answer.codes - OF_THE_LIBRARY))
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


def test_a_fault_of_each_function_can_strike() -> None:
    """Two of them had the names that the bindings give them: schedules drew faults that never came."""
    exported = {
        name
        for source in STAND_IN.glob("*.c")
        for name in re.findall(r"^EXPORT nvmlReturn_t (\w+)\(", source.read_text(), re.MULTILINE)
    }
    assert {*CHANGES, *SHARING_CHANGES, *READS} <= exported
