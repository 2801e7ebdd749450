"""The stand-in reports every model of Kerf's table as NVML would."""

import ctypes
from pathlib import Path
from typing import Any, ClassVar

import pynvml
import pytest

from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.families.gpu.model import GpuModel
from kerf_dra.driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine
from kerf_dra.driver.testing.nvml.layout import MAX_CARDS
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml
from tests.fakes.nvml_calls import placements

pytestmark = NEEDS_COMPILER

MODELS = gpu_models()


def profiles_of(card: Any) -> dict[int, Any]:
    found = {}
    for enum in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            found[enum] = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(card, enum)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue
    return found


def check_card(card: Any, model: GpuModel) -> None:
    assert pynvml.nvmlDeviceGetName(card) == model.product
    assert pynvml.nvmlDeviceGetMemoryInfo(card).total == model.memory_bytes
    assert pynvml.nvmlDeviceGetMemoryInfo(card, pynvml.nvmlMemory_v2).total == model.memory_bytes
    assert ".".join(map(str, pynvml.nvmlDeviceGetCudaComputeCapability(card))) == model.cuda_compute_capability
    pci = pynvml.nvmlDeviceGetPciInfo(card)
    assert not model.pci_device_ids or f"{pci.pciDeviceId >> 16:04x}" == model.pci_device_ids[0]
    found = profiles_of(card)
    assert {*found} == {profile.gi_profile_enum for profile in model.profiles}
    for profile in model.profiles:
        info = found[profile.gi_profile_enum]
        engines = (info.copyEngineCount, info.decoderCount, info.encoderCount, info.jpegCount, info.ofaCount)
        wanted = profile.engines
        assert info.name == f"MIG {profile.name}"
        assert profile.gi_profile_id in (None, info.id)
        assert (info.sliceCount, info.instanceCount) == (profile.compute_slices, profile.max_instances)
        assert (info.multiprocessorCount, info.memorySizeMB << 20) == (profile.multiprocessors, profile.memory_bytes)
        assert engines == (wanted.copy, wanted.decoders, wanted.encoders, wanted.jpeg, wanted.ofa)
        assert placements(card, info.id) == [place.run for place in profile.placements]
        by_id = pynvml.nvmlDeviceGetGpuInstanceProfileInfoById(card, info.id)
        oldest = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(card, profile.gi_profile_enum, version=1)
        assert by_id.name == info.name
        assert (oldest.id, oldest.memorySizeMB) == (info.id, info.memorySizeMB)
    ids = [info.id for info in found.values()]
    assert len({*ids}) == len(ids)


@pytest.mark.parametrize("first", range(0, len(MODELS), MAX_CARDS))
def test_every_model_of_the_table_is_reported_as_the_table_says(tmp_path: Path, first: int) -> None:
    models = MODELS[first : first + MAX_CARDS]
    cards = tuple(CardDescription(model=model.id) for model in models)
    with open_nvml(NvidiaMachine.create(tmp_path / "machine", MachineDescription(cards=cards))):
        assert pynvml.nvmlDeviceGetCount() == len(models)
        for index, model in enumerate(models):
            check_card(pynvml.nvmlDeviceGetHandleByIndex(index), model)


def test_the_table_has_all_models_that_are_tried_here() -> None:
    assert len(MODELS) == 22


class ProfileInfo3(ctypes.Structure):
    """``nvmlGpuInstanceProfileInfo_v3_t``, which the bindings do not have (nvml.h)."""

    _fields_: ClassVar = [
        *((name, ctypes.c_uint) for name in ("version", "id", "sliceCount", "instanceCount", "multiprocessorCount")),
        *((f"{name}Count", ctypes.c_uint) for name in ("copyEngine", "decoder", "encoder", "jpeg", "ofa")),
        ("memorySizeMB", ctypes.c_ulonglong),
        ("name", ctypes.c_char * 96),
        ("capabilities", ctypes.c_uint),
    ]


def test_the_third_version_of_a_profile_is_there_for_other_programs(tmp_path: Path) -> None:
    machine = NvidiaMachine.create(
        tmp_path / "machine", MachineDescription(cards=(CardDescription(model="h100-80gb"),))
    )
    with open_nvml(machine):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        info = ProfileInfo3(version=ctypes.sizeof(ProfileInfo3) | 3 << 24)
        assert pynvml.nvmlLib.nvmlDeviceGetGpuInstanceProfileInfoV(card, 2, ctypes.byref(info)) == 0
        assert (info.id, info.ofaCount, info.memorySizeMB, info.name) == (9, 0, 40448, b"MIG 3g.40gb")
        info.version = 7
        wrong = pynvml.nvmlLib.nvmlDeviceGetGpuInstanceProfileInfoV(card, 2, ctypes.byref(info))
        assert wrong == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_what_else_a_program_may_ask_of_a_card_is_answered(tmp_path: Path) -> None:
    cards = (CardDescription(model="h100-80gb", minor=4), CardDescription(model="gh200-96gb"))
    machine = NvidiaMachine.create(tmp_path / "machine", MachineDescription(cards=cards))
    with open_nvml(machine):
        card, grace = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2))
        address = pynvml.nvmlDeviceGetPciInfo(grace).busId
        assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId(address)) == 1
        assert pynvml.nvmlDeviceGetMinorNumber(card) == 4
        assert pynvml.nvmlDeviceGetArchitecture(card) == pynvml.NVML_DEVICE_ARCH_HOPPER
        assert pynvml.nvmlDeviceGetBrand(card) == pynvml.NVML_BRAND_NVIDIA
        assert pynvml.nvmlDeviceGetPersistenceMode(card) == 1
        assert pynvml.nvmlDeviceGetEccMode(card) == [1, 1]
        assert [*pynvml.nvmlDeviceGetMemoryAffinity(grace, 1, 0)] == [0b10]
        assert pynvml.nvmlDeviceGetNumaNodeId(grace) == 3
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetNumaNodeId(card)
        pynvml.nvmlDeviceSetComputeMode(card, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
        assert pynvml.nvmlDeviceGetComputeMode(card) == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
        assert pynvml.nvmlDeviceGetComputeRunningProcesses(card) == []
        assert pynvml.nvmlDeviceGetGraphicsRunningProcesses(card) == []
        assert pynvml.nvmlSystemGetNVMLVersion() == "13.580.95.05"
        for wrong in ("GPU-unknown", "MIG-unknown"):
            with pytest.raises(pynvml.NVMLError_NotFound):
                pynvml.nvmlDeviceGetHandleByUUID(wrong)
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetHandleByIndex(2)
