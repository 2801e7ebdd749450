"""What befalls a machine: other processes, deaths, faults, errors of cards, boots, missing drivers."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from signal import SIGKILL

import pynvml
import pytest

from kerf_dra.driver.testing.nvml import (
    CardDescription,
    Death,
    InstanceOnCard,
    MachineDescription,
    NvidiaMachine,
)
from kerf_dra.driver.testing.nvml.description import UnsuitableDescriptionError
from kerf_dra.driver.testing.nvml.machine import EVERY_FUNCTION, MACHINE_VARIABLE
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml
from tests.fakes.nvml_calls import create_gpu_instance, fill_gpu_instance, list_gpu_instances
from tests.gpu.cards import is_of_stand_in
from tests.testing.nvml.conftest import MakeMachine

pytestmark = NEEDS_COMPILER

CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
H100 = "h100-80gb-sxm"


def start(machine: NvidiaMachine, *arguments: int) -> "subprocess.Popen[str]":
    """Start a program that finds the library as any other does, and its machine by the library's own place."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(machine.library_folder)}
    environment.pop(MACHINE_VARIABLE, None)
    command = [sys.executable, "-m", "tests.testing.nvml.program", "create", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def capabilities(machine: NvidiaMachine) -> set[str]:
    root = machine.folder / "proc/driver/nvidia/capabilities"
    return {str(path.parent.relative_to(root)) for path in root.rglob("access")}


def test_processes_see_the_same_cards_and_the_kernel_shows_their_instances(make_machine: MakeMachine) -> None:
    machine = make_machine()
    programs = [start(machine, 0, 19, 0, 1, 19, 1, 1), start(machine, 0, 9, 4, 4)]
    printed = [json.loads(line) for one in programs for line in one.communicate(timeout=240)[0].splitlines()]
    with open_nvml(machine):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert {*list_gpu_instances(card)} == {2, 7, 8} == {id_ for id_, _ in printed}
        for id_, uuid in printed:
            assert pynvml.nvmlDeviceGetGpuInstanceId(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == id_
    assert {(one.id, one.uuid) for one in machine.list_instances()} == {(id_, uuid) for id_, uuid in printed}
    assert machine.list_instances()[0] == InstanceOnCard(
        card=0, id=2, profile="3g.40gb", start=4, uuid=dict(map(tuple, printed))[2]
    )
    assert capabilities(machine) == {f"gpu0/mig/gi{id_}{ci}" for id_ in (2, 7, 8) for ci in ("", "/ci0")}
    listed = (machine.folder / "proc/driver/nvidia-caps/mig-minors").read_text()
    minor = next(line.split()[1] for line in listed.splitlines() if line.startswith("gpu0/gi7/ci0/"))
    access = (machine.folder / "proc/driver/nvidia/capabilities/gpu0/mig/gi7/ci0/access").read_text()
    assert f"DeviceFileMinor: {minor}\n" in access
    assert (machine.folder / f"dev/nvidia-caps/nvidia-cap{minor}").exists()


@pytest.mark.parametrize(("death", "made"), [(Death.BEFORE, {}), (Death.HALFWAY, {}), (Death.AFTER, {8: (19, 1, 1)})])
def test_a_process_killed_in_the_middle_leaves_all_of_a_change_or_nothing(
    make_machine: MakeMachine, death: Death, made: dict[int, tuple[int, int, int]]
) -> None:
    machine = make_machine()
    machine.add_fault(CREATE, death=death, skip=1)
    program = start(machine, 0, 19, 0, 1, 19, 1, 1)
    program.communicate(timeout=240)
    assert program.returncode == -SIGKILL
    with open_nvml(machine):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert list_gpu_instances(card) == {7: (19, 0, 1), **made}
        assert capabilities(machine) == {"gpu0/mig/gi7", "gpu0/mig/gi7/ci0", *(f"gpu0/mig/gi{id_}" for id_ in made)}
        fill_gpu_instance(create_gpu_instance(card, 19, 2, 1))


def test_faults_strike_the_calls_that_they_are_for(make_machine: MakeMachine) -> None:
    machine = make_machine()
    machine.add_fault(CREATE, error=pynvml.NVML_ERROR_UNKNOWN, skip=1, times=2)
    machine.add_fault("nvmlDeviceGetUUID", error=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, times=None)
    machine.add_fault("nvmlDeviceGetName", delay_s=0.001)
    with open_nvml(machine):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetName(card) == "NVIDIA H100 80GB HBM3"
        create_gpu_instance(card, 19, 0, 1)
        for _ in range(2):
            with pytest.raises(pynvml.NVMLError_Unknown):
                create_gpu_instance(card, 19, 1, 1)
        create_gpu_instance(card, 19, 1, 1)
        for _ in range(3):
            with pytest.raises(pynvml.NVMLError_FunctionNotFound):
                pynvml.nvmlDeviceGetUUID(card)
        machine.clear_faults()
        assert pynvml.nvmlDeviceGetUUID(card).startswith("GPU-")


def test_programs_find_what_they_look_for_in_proc_devices_and_in_the_drivers_dev(make_machine: MakeMachine) -> None:
    """dra-driver-nvidia-gpu needs both sections, and nodes below the driver's root that open."""
    machine = make_machine(CardDescription(model=H100, minor=4), CardDescription(model=H100))
    characters, _, blocks = (machine.folder / "proc/devices").read_text().partition("\n\nBlock devices:\n")
    assert characters.startswith("Character devices:\n195 nvidia-frontend\n")
    assert blocks == "  8 sd\n259 blkext\n"
    dev = machine.driver_root / "dev"
    with open_nvml(machine):
        found = {path.name: path.stat() for path in dev.iterdir()}
    assert {*found} == {"nvidia1", "nvidia4", "nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools"}
    assert {(stat.S_ISCHR(one.st_mode), one.st_rdev) for one in found.values()} == {
        (True, Path(os.devnull).stat().st_rdev)
    }
    machine.remove_card(0)
    with open_nvml(machine):
        assert pynvml.nvmlDeviceGetCount() == 1
    assert not (dev / "nvidia4").exists()


def test_a_card_that_falls_off_the_bus_is_lost_and_says_so_once(make_machine: MakeMachine) -> None:
    machine = make_machine(CardDescription(model=H100), CardDescription(model=H100))
    with open_nvml(machine):
        first, second = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2))
        events = pynvml.nvmlEventSetCreate()
        for card in (first, second):
            pynvml.nvmlDeviceRegisterEvents(card, pynvml.nvmlEventTypeXidCriticalError, events)
        with pytest.raises(pynvml.NVMLError_Timeout):
            pynvml.nvmlEventSetWait(events, 0)
        machine.report_xid(1, 43, gpu_instance=7, compute_instance=0)
        machine.drop_card(0)
        seen = [pynvml.nvmlEventSetWait(events, 1000) for _ in range(2)]
        assert [(one.eventData, one.gpuInstanceId) for one in seen] == [(43, 7), (79, 0xFFFFFFFF)]
        for function, *arguments in (
            (pynvml.nvmlEventSetWait, events, 0),
            (pynvml.nvmlDeviceGetUUID, first),
            (pynvml.nvmlDeviceGetHandleByIndex, 0),
        ):
            with pytest.raises(pynvml.NVMLError_GpuIsLost):
                function(*arguments)
        assert pynvml.nvmlDeviceGetCount() == 2
        machine.restore_card(0)
        assert pynvml.nvmlDeviceGetUUID(first) != pynvml.nvmlDeviceGetUUID(second)
        pynvml.nvmlEventSetFree(events)


def test_a_card_that_is_taken_out_is_no_longer_listed(make_machine: MakeMachine) -> None:
    machine = make_machine(CardDescription(model=H100), CardDescription(model=H100))
    with open_nvml(machine):
        kept = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(1))
        machine.remove_card(0)
        assert pynvml.nvmlDeviceGetCount() == 1
        assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)) == kept
        assert not (machine.folder / "dev/nvidia0").exists()


def test_a_boot_ends_instances_processes_and_the_sessions_of_programs(make_machine: MakeMachine) -> None:
    machine = make_machine(CardDescription(model="a100-40gb", is_mig_on=True))
    with open_nvml(machine):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        fill_gpu_instance(create_gpu_instance(card, 19, 0, 1))
        machine.start_process(0, 1, gpu_instance=7, compute_instance=0)
        machine.reboot()
        with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
            pynvml.nvmlDeviceGetMigMode(card)
    with open_nvml(machine):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetMigMode(card) == [1, 1]
        assert list_gpu_instances(card) == {}
        assert pynvml.nvmlDeviceGetComputeRunningProcesses(card) == []
    assert capabilities(machine) == set()


def test_without_a_driver_or_with_another_one_nvml_cannot_be_opened(make_machine: MakeMachine) -> None:
    machine = make_machine()
    machine.unload_driver()
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded), open_nvml(machine):
        pass
    machine.reload_driver("570.1")
    with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch), open_nvml(machine):
        pass
    machine.reload_driver()
    with open_nvml(machine):
        assert pynvml.nvmlSystemGetDriverVersion() == "580.95.05"
        assert pynvml.nvmlSystemGetCudaDriverVersion() == 13000


@pytest.mark.parametrize(
    "cards",
    [(CardDescription(model=H100, minor=1), CardDescription(model=H100)), (CardDescription(model=H100, minor=32),)],
    ids=["one-minor-twice", "minor-too-large"],
)
def test_a_machine_that_cannot_be_is_refused(tmp_path: Path, cards: tuple[CardDescription, ...]) -> None:
    with pytest.raises(UnsuitableDescriptionError):
        NvidiaMachine.create(tmp_path / "machine", MachineDescription(cards=(*cards, CardDescription(model=H100))))
    assert not (tmp_path / "machine").exists()


def test_a_machine_is_not_made_over_another_one(make_machine: MakeMachine) -> None:
    make_machine()
    with pytest.raises(FileExistsError):
        make_machine()


def test_a_fault_of_every_function_counts_the_calls_before_it(make_machine: MakeMachine) -> None:
    machine = make_machine()
    with open_nvml(machine):
        machine.add_fault(EVERY_FUNCTION, error=pynvml.NVML_ERROR_UNKNOWN, skip=2)
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert machine.count_left(EVERY_FUNCTION) == 1
        pynvml.nvmlDeviceGetName(card)
        with pytest.raises(pynvml.NVMLError_Unknown):
            pynvml.nvmlDeviceGetUUID(card)
        assert machine.count_left(EVERY_FUNCTION) == 0
        assert pynvml.nvmlDeviceGetUUID(card)


@pytest.mark.parametrize(
    "library", ["/usr/lib64/libnvidia-ml.so.1", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "/l"]
)
def test_a_drivers_own_library_is_no_stand_ins_wherever_it_is(library: str) -> None:
    """In /usr/lib64 the question failed, and all tests on real cards with it."""
    assert not is_of_stand_in(library)


def test_a_library_in_the_driver_root_of_a_stand_in_is_one(tmp_path: Path) -> None:
    machine = NvidiaMachine.create(
        tmp_path / "machine", MachineDescription(cards=(CardDescription(model="h100-80gb-sxm"),))
    )
    assert is_of_stand_in(str(machine.driver_root / "usr/lib64" / "libnvidia-ml.so.1"))
