"""The stand-in keeps the rules that NVML's reference states, and those that listings of real cards show."""

import ctypes
from typing import Any

import pynvml
import pytest

from kerf_dra.driver.testing.nvml import CardDescription
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml
from tests.fakes.nvml_calls import (
    compute_profiles,
    create_gpu_instance,
    destroy_gpu_instance,
    fill_gpu_instance,
    list_gpu_instances,
    placements,
)
from tests.testing.nvml.conftest import MakeMachine

pytestmark = NEEDS_COMPILER

H100 = "h100-80gb-sxm"
A100 = "a100-40gb"
PID = 4711
IDS = {  # size -> start -> id, from listings of nvidia-smi mig -lgi
    8: {0: 0},
    4: {0: 1, 4: 2},
    2: {0: 3, 2: 4, 4: 5, 6: 6},
    1: {0: 7, 1: 8, 2: 9, 3: 10, 4: 11, 5: 12, 6: 13},
}
PROFILES = (19, 15, 14, 9, 5, 0)


def card(index: int = 0) -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def test_the_id_of_an_instance_follows_from_its_placement(make_machine: MakeMachine) -> None:
    with open_nvml(make_machine()):
        for profile in PROFILES:
            for start, size in placements(card(), profile):
                instance = create_gpu_instance(card(), profile, start, size)
                info = pynvml.nvmlGpuInstanceGetInfo(instance)
                assert (info.id, info.profileId) == (IDS[size][start], profile)
                pynvml.nvmlGpuInstanceDestroy(instance)


def test_without_a_placement_the_driver_fills_the_right_half_first(make_machine: MakeMachine) -> None:
    with open_nvml(make_machine()):
        made = [pynvml.nvmlDeviceCreateGpuInstance(card(), 19) for _ in range(7)]
        assert [pynvml.nvmlGpuInstanceGetInfo(one).placement.start for one in made] == [6, 4, 5, 0, 1, 2, 3]
        with pytest.raises(pynvml.NVMLError_InsufficientResources):
            pynvml.nvmlDeviceCreateGpuInstance(card(), 19)


def test_a_placement_in_use_is_insufficient_resources_and_an_illegal_one_an_invalid_argument(
    make_machine: MakeMachine,
) -> None:
    with open_nvml(make_machine()):
        create_gpu_instance(card(), 9, 4, 4)
        for profile, start, size in ((9, 4, 4), (19, 5, 1), (0, 0, 8)):
            with pytest.raises(pynvml.NVMLError_InsufficientResources):
                create_gpu_instance(card(), profile, start, size)
        for profile, start, size in ((9, 2, 4), (9, 0, 3), (77, 0, 1)):
            with pytest.raises(pynvml.NVMLError_InvalidArgument):
                create_gpu_instance(card(), profile, start, size)
        assert list_gpu_instances(card()) == {2: (9, 4, 4)}


def test_instances_compete_for_engines_and_for_the_number_of_their_profile(make_machine: MakeMachine) -> None:
    with open_nvml(make_machine()):
        create_gpu_instance(card(), 20, 0, 1)
        with pytest.raises(pynvml.NVMLError_InsufficientResources):
            create_gpu_instance(card(), 20, 1, 1)
        create_gpu_instance(card(), 19, 1, 1)


def test_the_remaining_capacity_counts_slices_and_may_be_too_large(make_machine: MakeMachine) -> None:
    with open_nvml(make_machine()):
        create_gpu_instance(card(), 19, 1, 1)
        create_gpu_instance(card(), 19, 4, 1)
        assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(card(), 9) == 1  # neither place is free
        with pytest.raises(pynvml.NVMLError_InsufficientResources):
            pynvml.nvmlDeviceCreateGpuInstance(card(), 9)


def test_the_compute_profile_that_fills_an_instance_need_not_have_id_0(make_machine: MakeMachine) -> None:
    with open_nvml(make_machine(CardDescription(model="gh200-96gb", is_mig_on=True))):
        for profile, size, ids in ((19, 1, [0]), (15, 2, [7]), (9, 4, [0, 1, 2]), (0, 8, [0, 1, 2, 3, 4])):
            instance = create_gpu_instance(card(), profile, 0, size)
            assert [one.id for one in compute_profiles(instance)] == ids
            pynvml.nvmlGpuInstanceDestroy(instance)


def test_an_instance_with_a_compute_instance_or_a_process_is_in_use(make_machine: MakeMachine) -> None:
    machine = make_machine()
    with open_nvml(machine):
        instance = create_gpu_instance(card(), 9, 0, 4)
        compute = fill_gpu_instance(instance)
        with pytest.raises(pynvml.NVMLError_InUse, match="In use by another client"):
            pynvml.nvmlGpuInstanceDestroy(instance)
        machine.start_process(0, PID, gpu_instance=1, compute_instance=0, memory_bytes=2**30)
        device = pynvml.nvmlComputeInstanceGetInfo(compute).device
        (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
        assert (process.pid, process.gpuInstanceId, process.usedGpuMemory) == (PID, 1, 2**30)
        assert pynvml.nvmlDeviceGetMemoryInfo(device).used == 2**30
        with pytest.raises(pynvml.NVMLError_InUse):
            pynvml.nvmlComputeInstanceDestroy(compute)
        machine.end_process(PID)
        pynvml.nvmlComputeInstanceDestroy(compute)
        pynvml.nvmlGpuInstanceDestroy(instance)
        for function, handle in ((pynvml.nvmlGpuInstanceDestroy, instance), (pynvml.nvmlDeviceGetUUID, device)):
            with pytest.raises(pynvml.NVMLError_InvalidArgument):
                function(handle)


def test_a_handle_of_an_instance_that_is_gone_is_not_the_next_one_with_its_id(make_machine: MakeMachine) -> None:
    with open_nvml(make_machine()):
        old = create_gpu_instance(card(), 9, 0, 4)
        pynvml.nvmlGpuInstanceDestroy(old)
        create_gpu_instance(card(), 9, 0, 4)
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlGpuInstanceDestroy(old)


def test_a_mig_device_made_anew_at_its_place_has_its_old_uuid(make_machine: MakeMachine) -> None:
    with open_nvml(make_machine()):
        seen = []
        for _ in range(2):
            compute = fill_gpu_instance(create_gpu_instance(card(), 9, 0, 4))
            device = pynvml.nvmlComputeInstanceGetInfo(compute).device
            seen.append(pynvml.nvmlDeviceGetUUID(device))
            found = pynvml.nvmlDeviceGetHandleByUUID(seen[-1])
            assert pynvml.nvmlDeviceIsMigDeviceHandle(found).value == 1
            assert (pynvml.nvmlDeviceGetGpuInstanceId(found), pynvml.nvmlDeviceGetComputeInstanceId(found)) == (1, 0)
            parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(found)
            assert pynvml.nvmlDeviceGetUUID(parent) == pynvml.nvmlDeviceGetUUID(card())
            assert pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card(), 0).contents is not None
            attributes = pynvml.nvmlDeviceGetAttributes(found)
            assert (attributes.gpuInstanceSliceCount, attributes.memorySizeMB) == (3, 40448)
            destroy_gpu_instance(card(), 1)
        assert len({*seen}) == 1
        with pytest.raises(pynvml.NVMLError_NotFound):
            pynvml.nvmlDeviceGetHandleByUUID(seen[0])


# MIG mode


def test_hopper_switches_at_once_and_forgets_its_mode_at_a_boot(make_machine: MakeMachine) -> None:
    machine = make_machine(CardDescription(model=H100, is_passthrough=True))
    with open_nvml(machine):
        with pytest.raises(pynvml.NVMLError_NotSupported):
            create_gpu_instance(card(), 19, 0, 1)
        assert pynvml.nvmlDeviceSetMigMode(card(), 1) == pynvml.NVML_SUCCESS
        assert pynvml.nvmlDeviceGetMigMode(card()) == [1, 1]
    machine.reboot()
    with open_nvml(machine):
        assert pynvml.nvmlDeviceGetMigMode(card()) == [0, 0]


def test_an_idle_ampere_card_is_reset_by_the_call_and_may_get_another_minor_number(make_machine: MakeMachine) -> None:
    machine = make_machine(CardDescription(model=A100, minor_after_reset=3))
    with open_nvml(machine):
        assert pynvml.nvmlDeviceGetMinorNumber(card()) == 0
        assert pynvml.nvmlDeviceSetMigMode(card(), 1) == pynvml.NVML_SUCCESS
        assert pynvml.nvmlDeviceGetMinorNumber(card()) == 3
    assert (machine.folder / "dev/nvidia3").exists()
    assert not (machine.folder / "dev/nvidia0").exists()
    machine.reboot()
    with open_nvml(machine):
        assert pynvml.nvmlDeviceGetMigMode(card()) == [1, 1]


@pytest.mark.parametrize("model", [A100, H100])
def test_a_card_in_use_does_not_switch_but_the_mode_is_pending(make_machine: MakeMachine, model: str) -> None:
    machine = make_machine(CardDescription(model=model))
    machine.start_process(0, PID)
    with open_nvml(machine):
        assert pynvml.nvmlDeviceSetMigMode(card(), 1) == pynvml.NVML_ERROR_IN_USE
        assert pynvml.nvmlDeviceGetMigMode(card()) == [0, 1]
        machine.end_process(PID)
        assert pynvml.nvmlDeviceSetMigMode(card(), 1) == pynvml.NVML_SUCCESS


@pytest.mark.parametrize("model", [A100, H100])
def test_the_mode_of_a_card_with_instances_cannot_be_switched_and_nothing_is_pending(
    make_machine: MakeMachine, model: str
) -> None:
    """With a mode that was pending, NVIDIA's driver could not end the pod with two partitions of its own suite."""
    with open_nvml(make_machine(CardDescription(model=model, is_mig_on=True))):
        create_gpu_instance(card(), 19, 0, 1)
        with pytest.raises(pynvml.NVMLError_InUse):
            pynvml.nvmlDeviceSetMigMode(card(), 0)
        assert pynvml.nvmlDeviceGetMigMode(card()) == [1, 1]
        assert pynvml.nvmlDeviceSetMigMode(card(), 1) == pynvml.NVML_SUCCESS


def test_in_a_virtual_machine_ampere_waits_for_a_boot(make_machine: MakeMachine) -> None:
    machine = make_machine(CardDescription(model=A100, is_passthrough=True))
    with open_nvml(machine):
        assert pynvml.nvmlDeviceSetMigMode(card(), 1) == pynvml.NVML_ERROR_RESET_REQUIRED
        assert pynvml.nvmlDeviceGetMigMode(card()) == [0, 1]
    machine.reboot()
    with open_nvml(machine):
        assert pynvml.nvmlDeviceGetMigMode(card()) == [1, 1]


def test_a_card_without_mig_says_that_it_is_not_supported(make_machine: MakeMachine) -> None:
    with open_nvml(make_machine(CardDescription(model=H100, product="NVIDIA L40S", is_mig_capable=False))):
        assert pynvml.nvmlDeviceGetName(card()) == "NVIDIA L40S"
        for function, *arguments in (
            (pynvml.nvmlDeviceGetMigMode,),
            (pynvml.nvmlDeviceSetMigMode, 1),
            (pynvml.nvmlDeviceGetGpuInstanceProfileInfo, 0),
        ):
            with pytest.raises(pynvml.NVMLError_NotSupported):
                function(card(), *arguments)
        assert pynvml.nvmlDeviceGetMaxMigDeviceCount(card()) == 0


def test_a_card_without_mig_answers_as_one_was_measured(make_machine: MakeMachine) -> None:
    """A GeForce RTX 3060: each profile that NVML knows is not supported, others are no profiles; outputs are left."""
    with open_nvml(make_machine(CardDescription(model=H100, is_mig_capable=False), driver_version="590.48.01")):
        answers = []
        for profile in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT + 2):
            info = pynvml.c_nvmlGpuInstanceProfileInfo_t()
            answers.append(
                pynvml.nvmlLib.nvmlDeviceGetGpuInstanceProfileInfo(card(), ctypes.c_uint(profile), ctypes.byref(info))
            )
        assert answers == 0x12 * [pynvml.NVML_ERROR_NOT_SUPPORTED] + 2 * [pynvml.NVML_ERROR_INVALID_ARGUMENT]
        untouched = ctypes.c_void_p(0x5A5A)
        for index in range(2):
            code = pynvml.nvmlLib.nvmlDeviceGetMigDeviceHandleByIndex(
                card(), ctypes.c_uint(index), ctypes.byref(untouched)
            )
            assert (code, untouched.value) == (pynvml.NVML_ERROR_NOT_FOUND, 0x5A5A)
        assert pynvml.nvmlDeviceGetMaxMigDeviceCount(card()) == 0


def test_a_driver_of_release_580_knows_17_profiles_and_leaves_their_version_tags_0(make_machine: MakeMachine) -> None:
    """An H200 with driver 580.159.04: what reuses a structure for the next profile must set the tag again."""
    with open_nvml(make_machine(CardDescription(model="h200-141gb"))):
        codes = []
        for profile in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            info = pynvml.c_nvmlGpuInstanceProfileInfo_v2_t()
            function = pynvml.nvmlLib.nvmlDeviceGetGpuInstanceProfileInfoV
            codes.append(function(card(), ctypes.c_uint(profile), ctypes.byref(info)))
            assert info.version == (0 if codes[-1] == pynvml.NVML_SUCCESS else pynvml.nvmlGpuInstanceProfileInfo_v2)
        known = {profile for profile, code in enumerate(codes) if code == pynvml.NVML_SUCCESS}
        assert known == {0, 1, 2, 3, 4, 7, 9}
        assert set(codes[:17]) == {pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_SUPPORTED}
        assert codes[17] == pynvml.NVML_ERROR_INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("is_passthrough", "mode"),
    [
        (False, pynvml.NVML_GPU_VIRTUALIZATION_MODE_NONE),
        (True, pynvml.NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH),
    ],
)
def test_a_card_says_whether_it_is_passed_through(make_machine: MakeMachine, is_passthrough: bool, mode: int) -> None:
    with open_nvml(make_machine(CardDescription(model=A100, is_passthrough=is_passthrough))):
        assert pynvml.nvmlDeviceGetVirtualizationMode(card()) == mode
