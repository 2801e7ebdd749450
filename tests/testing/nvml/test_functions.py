"""The stand-in answers every function of NVML that the bindings for Python and Go call."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from kerf_dra.driver.testing.nvml import CardDescription
from kerf_dra.driver.testing.nvml.machine import MACHINE_VARIABLE
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml
from tests.testing.nvml.conftest import MakeMachine
from tools.generate import nvml_functions

DOCUMENTED = {
    getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_") and name != "NVML_ERROR_UNKNOWN"
} | {pynvml.NVML_SUCCESS}
H100 = "h100-80gb-sxm"


def call_every(make_machine: MakeMachine, way: str, card: CardDescription) -> dict[str, int]:
    machine = make_machine(card)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(machine.library_folder)}
    environment.pop(MACHINE_VARIABLE, None)
    command = [sys.executable, "-m", "tests.testing.nvml.every_function", way]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    answers = dict(json.loads(line) for line in done.stdout.splitlines())
    assert done.returncode == 0, f"{done.stderr}\nended after {[*answers][-1:]}"
    return answers


@NEEDS_COMPILER
@pytest.mark.parametrize(
    "card",
    [CardDescription(model=H100, is_mig_on=True), CardDescription(model=H100, is_mig_capable=False)],
    ids=["with MIG", "without MIG"],
)
def test_every_function_answers_with_a_documented_code_and_ends_no_process(
    make_machine: MakeMachine, card: CardDescription
) -> None:
    answers = call_every(make_machine, "symbols", card)
    assert {*answers} == nvml_functions.list_named() - {"nvmlShutdown", "nvmlErrorString"}
    assert {*answers.values()} <= DOCUMENTED
    go = nvml_functions.read_go_bindings()
    for name in nvml_functions.list_named() - nvml_functions.list_modeled():
        is_later = name in go.later
        expected = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND if is_later else pynvml.NVML_ERROR_NOT_SUPPORTED
        assert answers[name] == expected, name


@NEEDS_COMPILER
def test_every_function_of_the_python_bindings_can_be_called(make_machine: MakeMachine) -> None:
    answers = call_every(make_machine, "bindings", CardDescription(model=H100, is_mig_on=True))
    assert len(answers) > len(nvml_functions.list_modeled())
    assert {*answers.values()} <= DOCUMENTED
    assert answers["nvmlDeviceGetVirtualizationMode"] == pynvml.NVML_SUCCESS
    assert answers["nvmlDeviceGetFanSpeed"] == pynvml.NVML_ERROR_NOT_SUPPORTED


@NEEDS_COMPILER
def test_a_function_that_the_stand_in_lacks_checks_the_session_and_has_faults(make_machine: MakeMachine) -> None:
    machine = make_machine()
    with open_nvml(machine):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        machine.add_fault("nvmlDeviceGetFanSpeed", error=pynvml.NVML_ERROR_NO_PERMISSION)
        for expected in (pynvml.NVMLError_NoPermission, pynvml.NVMLError_NotSupported):
            with pytest.raises(expected):
                pynvml.nvmlDeviceGetFanSpeed(card)
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetFanSpeed(card)


def test_the_generated_list_is_that_of_the_bindings(tmp_path: Path) -> None:
    (path,) = nvml_functions.generate(tmp_path)
    assert (nvml_functions.ROOT / path).read_text() == (tmp_path / path).read_text(), "run `make generate`"
    assert len(nvml_functions.list_named()) == 428


def test_the_names_of_the_go_bindings_are_of_the_version_that_the_image_is_built_with() -> None:
    go = nvml_functions.read_go_bindings()
    assert f"{go.module} {go.version}" in (nvml_functions.ROOT / "tools/image/cdi_hook/go.mod").read_text()
    assert go.later <= nvml_functions.list_named()
