"""The stand-in for nvidia-smi lists the cards of its machine, sets their modes, and resets those at rest."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml
import pytest

from kerf_dra.driver.testing.nvml import CardDescription, NvidiaMachine
from kerf_dra.driver.testing.nvml.machine import MACHINE_VARIABLE
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml, run_smi
from tests.fakes.nvml_calls import create_gpu_instance, fill_gpu_instance, list_gpu_instances
from tests.testing.nvml.conftest import MakeMachine

pytestmark = NEEDS_COMPILER

H100 = "h100-80gb-sxm"
A100 = "a100-40gb"
FIRST, SECOND = "00000000:01:00.0", "00000000:81:00.0"
IN_USE = f"The following GPUs could not be reset:\n  GPU {FIRST}: In use by another client\n\n1 device is currently"


@contextmanager
def hold(machine: NvidiaMachine, card: int) -> Iterator["subprocess.Popen[str]"]:
    """Let another process have a handle of the card, until the end of this or its own."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(machine.library_folder)}
    environment.pop(MACHINE_VARIABLE, None)
    command = [sys.executable, "-m", "tests.testing.nvml.program", "hold", str(card)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("GPU-")
        yield process


@pytest.fixture
def machine(make_machine: MakeMachine) -> NvidiaMachine:
    """Two cards without persistence mode: one with MIG on and two MIG devices, one whose MIG mode is off."""
    made = make_machine(
        CardDescription(model=H100, is_mig_on=True, is_persistent=False),
        CardDescription(model=A100, is_persistent=False),
    )
    with open_nvml(made):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        for profile, start, size in ((19, 0, 1), (9, 4, 4)):
            fill_gpu_instance(create_gpu_instance(card, profile, start, size))
    return made


def read_uuids(machine: NvidiaMachine) -> list[str]:
    with open_nvml(machine):
        return [pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(2)]


# Lists


def test_a_list_has_each_card_and_its_mig_devices(machine: NvidiaMachine) -> None:
    first, second = read_uuids(machine)
    small, large = sorted(machine.list_instances(), key=lambda one: one.profile)
    code, printed = run_smi(machine, "-L")
    assert code == 0
    assert printed.splitlines() == [
        f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {first})",
        f"  MIG 3g.40gb     Device  0: (UUID: {large.uuid})",
        f"  MIG 1g.10gb     Device  1: (UUID: {small.uuid})",
        f"GPU 1: NVIDIA A100-SXM4-40GB (UUID: {second})",
    ]


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        (
            "csv",
            [
                "index, name, memory.total [MiB], mig.mode.current, pci.bus_id",
                f"0, NVIDIA H100 80GB HBM3, 81559 MiB, Enabled, {FIRST}",
                f"1, NVIDIA A100-SXM4-40GB, 40960 MiB, Disabled, {SECOND}",
            ],
        ),
        (
            "csv,noheader,nounits",
            [
                f"0, NVIDIA H100 80GB HBM3, 81559, Enabled, {FIRST}",
                f"1, NVIDIA A100-SXM4-40GB, 40960, Disabled, {SECOND}",
            ],
        ),
    ],
)
def test_fields_of_cards_are_queried_as_csv(machine: NvidiaMachine, form: str, lines: list[str]) -> None:
    code, printed = run_smi(
        machine, "--query-gpu=index,name,memory.total,mig.mode.current,pci.bus_id", f"--format={form}"
    )
    assert (code, printed.splitlines()) == (0, lines)


def test_a_card_is_chosen_by_its_index_uuid_or_address(machine: NvidiaMachine) -> None:
    _, second = read_uuids(machine)
    for name in ("1", second, SECOND):
        assert run_smi(machine, "--query-gpu=uuid", "--format=csv,noheader", "-i", name) == (0, f"{second}\n")


def test_what_a_card_does_not_have_is_not_available(make_machine: MakeMachine) -> None:
    machine = make_machine(CardDescription(model=H100, is_mig_capable=False))
    query = ("--query-gpu=mig.mode.current,mig.mode.pending,persistence_mode", "--format=csv,noheader")
    assert run_smi(machine, *query) == (0, "[N/A], [N/A], Enabled\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 1, "usage: nvidia-smi"),
        (["-L", "-r"], 1, "usage: nvidia-smi"),
        (["--fly"], 1, "usage: nvidia-smi"),
        (["--query-gpu=color", "--format=csv"], 2, 'Field "color" is not a valid field to query.'),
        (["--query-gpu=name", "--format=xml"], 2, "--format= is csv"),
        (["-pm", "2"], 2, "Invalid persistence mode: 2"),
        (["-c", "EXCLUSIVE_THREAD"], 2, "Invalid compute mode: EXCLUSIVE_THREAD"),
        (["-c", "0", "-i", "GPU-none"], 6, "Unable to determine the device handle for GPU GPU-none: Not Found"),
        (["-r", "-i", "7"], 2, "Unable to determine the device handle for GPU 7: Invalid Argument"),
        (["-r", "-i", "GPU-none"], 6, "Unable to determine the device handle for GPU GPU-none: Not Found"),
    ],
)
def test_a_wrong_argument_is_refused_and_changes_nothing(
    machine: NvidiaMachine, arguments: list[str], code: int, said: str
) -> None:
    before = (machine.folder / "state").read_bytes()
    exit_code, printed = run_smi(machine, *arguments)
    assert (exit_code, printed.startswith(said)) == (code, True), printed
    assert (machine.folder / "state").read_bytes() == before


def test_the_program_is_for_its_own_machine_whatever_the_variable_says(
    machine: NvidiaMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MACHINE_VARIABLE, "/nowhere")
    assert run_smi(machine, "-L")[0] == 0


def test_without_a_driver_the_program_says_why(machine: NvidiaMachine) -> None:
    machine.unload_driver()
    assert run_smi(machine, "-L") == (9, "Failed to initialize NVML: Driver Not Loaded\n")
    (machine.library_folder / "libnvidia-ml.so.1").unlink()
    code, printed = run_smi(machine, "-L")
    assert (code, printed.startswith("NVIDIA-SMI couldn't find libnvidia-ml.so library")) == (12, True)


# Persistence mode


def test_persistence_mode_is_set_for_the_chosen_card_until_the_driver_is_loaded_again(machine: NvidiaMachine) -> None:
    assert run_smi(machine, "-pm", "1", "-i", "1") == (0, f"Enabled persistence mode for GPU {SECOND}.\nAll done.\n")
    assert run_smi(machine, "-pm", "1", "-i", "1")[1].startswith(
        f"Persistence mode is already Enabled for GPU {SECOND}."
    )
    query = ("--query-gpu=persistence_mode", "--format=csv,noheader")
    assert run_smi(machine, *query) == (0, "Disabled\nEnabled\n")
    machine.reload_driver()
    assert run_smi(machine, *query) == (0, "Disabled\nDisabled\n")


def test_a_service_of_the_machine_sets_persistence_mode_at_each_boot(make_machine: MakeMachine) -> None:
    machine = make_machine(CardDescription(model=H100))
    with open_nvml(machine):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlDeviceSetPersistenceMode(card, 0)
        assert pynvml.nvmlDeviceGetPersistenceMode(card) == 0
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceSetPersistenceMode(card, 2)
    machine.reboot()
    with open_nvml(machine):
        assert pynvml.nvmlDeviceGetPersistenceMode(pynvml.nvmlDeviceGetHandleByIndex(0)) == 1


# Compute mode


@pytest.mark.parametrize("mode", ["EXCLUSIVE_PROCESS", "3"])
def test_the_compute_mode_is_set_for_the_card_that_a_uuid_names(machine: NvidiaMachine, mode: str) -> None:
    """NVIDIA's DRA driver sets DEFAULT so when a claim on a whole card ends: without it no such claim ever ended."""
    _, uuid = read_uuids(machine)
    said = f"Set compute mode to EXCLUSIVE_PROCESS for GPU {SECOND}.\nAll done.\n"
    assert run_smi(machine, "-i", uuid, "-c", mode) == (0, said)
    with open_nvml(machine):
        modes = [pynvml.nvmlDeviceGetComputeMode(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(2)]
    assert modes == [pynvml.NVML_COMPUTEMODE_DEFAULT, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS]


def test_the_compute_mode_of_a_card_in_mig_mode_cannot_be_set(machine: NvidiaMachine) -> None:
    said = f"Unable to set the compute mode of GPU {FIRST}: Not Supported\n"
    assert run_smi(machine, "-c", "DEFAULT", "-i", "0") == (3, said)


# Resets


def test_a_reset_of_a_card_at_rest_ends_its_instances_and_remaps_its_rows(machine: NvidiaMachine) -> None:
    machine.remap_rows(0, uncorrectable=1, is_pending=True)
    machine.set_recovery_action(0, pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET)
    assert run_smi(machine, "--gpu-reset", "-i", "0") == (0, f"GPU {FIRST} was successfully reset.\nAll done.\n")
    with open_nvml(machine):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetMigMode(card) == [1, 1]
        assert pynvml.nvmlDeviceGetRemappedRows(card) == (0, 1, 0, 0)
    assert machine.list_instances() == []


def test_a_reset_takes_the_pending_mode(machine: NvidiaMachine) -> None:
    machine.start_process(1, os.getpid())
    with open_nvml(machine):
        pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByIndex(1), 1)
    machine.end_process(os.getpid())
    assert run_smi(machine, "--gpu-reset", "-i", "1")[0] == 0
    with open_nvml(machine):
        assert pynvml.nvmlDeviceGetMigMode(pynvml.nvmlDeviceGetHandleByIndex(1)) == [1, 1]


def test_a_reset_is_refused_while_a_process_computes_on_the_card(machine: NvidiaMachine) -> None:
    machine.start_process(0, 4711, gpu_instance=2, compute_instance=0)
    code, printed = run_smi(machine, "-r", "-i", "0")
    assert (code, printed.startswith(IN_USE)) == (255, True)
    machine.end_process(4711)
    assert run_smi(machine, "-r", "-i", "0")[0] == 0


def test_a_reset_is_refused_while_persistence_mode_is_on(machine: NvidiaMachine) -> None:
    """NVIDIA/NVSentinel#1690: it counts as a process that has the card open."""
    run_smi(machine, "-pm", "1", "-i", "0")
    code, printed = run_smi(machine, "-r", "-i", "0")
    assert (code, printed.startswith(IN_USE)) == (255, True)
    assert len(machine.list_instances()) == 2
    run_smi(machine, "-pm", "0", "-i", "0")
    assert run_smi(machine, "-r", "-i", "0")[0] == 0


def test_a_reset_is_refused_while_another_process_has_a_handle_of_the_card(machine: NvidiaMachine) -> None:
    with hold(machine, 0):
        code, printed = run_smi(machine, "-r")
        assert code == 255
        assert printed.startswith(f"GPU {SECOND} was successfully reset.\n{IN_USE}")
    assert run_smi(machine, "-r")[0] == 0


def test_a_process_that_was_killed_has_no_card_open(machine: NvidiaMachine) -> None:
    with hold(machine, 0) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=240)
        assert run_smi(machine, "-r", "-i", "0")[0] == 0


def test_the_node_of_a_card_that_a_process_has_open_shows_in_proc(machine: NvidiaMachine) -> None:
    """By it programs name who keeps a card from its reset."""
    with hold(machine, 1) as process:
        links = {str(link.readlink()) for link in Path(f"/proc/{process.pid}/fd").iterdir()}
        assert links & {str(path) for path in (machine.folder / "dev").glob("nvidia?")} == {
            str(machine.folder / "dev/nvidia1")
        }


def test_a_process_keeps_a_card_open_whose_number_has_changed(make_machine: MakeMachine) -> None:
    machine = make_machine(CardDescription(model=A100, minor_after_reset=3, is_persistent=False))
    with open_nvml(machine):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceSetMigMode(card, 1) == pynvml.NVML_SUCCESS
        assert pynvml.nvmlDeviceGetMinorNumber(card) == 3
        assert run_smi(machine, "-r")[0] == 255
    assert run_smi(machine, "-r")[0] == 0


def test_a_card_that_fell_off_the_bus_is_not_reset(machine: NvidiaMachine) -> None:
    first, _ = read_uuids(machine)
    machine.drop_card(0)
    reason = "GPU is lost.  Reboot the system to recover this GPU"
    assert run_smi(machine, "-r", "-i", first) == (
        15,
        f"Unable to determine the device handle for GPU {first}: {reason}\n",
    )


def test_a_card_of_a_virtual_machine_cannot_be_reset(make_machine: MakeMachine) -> None:
    machine = make_machine(CardDescription(model=A100, is_passthrough=True, is_persistent=False))
    assert run_smi(machine, "-r") == (3, f"Resetting GPU {FIRST} is not supported.\n")


def test_a_reset_that_fails_changes_nothing(machine: NvidiaMachine) -> None:
    machine.add_fault("kerfResetCard", error=pynvml.NVML_ERROR_UNKNOWN)
    assert run_smi(machine, "-r", "-i", "0") == (999 & 0xFF, f"GPU {FIRST} could not be reset: Unknown Error\n")
    with open_nvml(machine):
        assert {*list_gpu_instances(pynvml.nvmlDeviceGetHandleByIndex(0))} == {2, 7}
    assert run_smi(machine, "-r", "-i", "0")[0] == 0
