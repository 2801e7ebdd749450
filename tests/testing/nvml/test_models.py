"""The stand-in reports every model of Kerf's table as NVML would."""

from pathlib import Path
from typing import Any

import pynvml
import pytest

from driver.families.gpu.catalog import gpu_models
from driver.families.gpu.model import GpuModel
from driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine
from driver.testing.nvml.layout import MAX_CARDS
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml
from tests.fakes.nvml_calls import placements

pytestmark = NEEDS_COMPILER

MODELS = gpu_models()


def profiles_of(card: Any) -> dict[int, Any]:
    found = {}
    for enum in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            found[enum] = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(card, enum)
        except pynvml.NVMLError_NotSupported:
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
        assert placements(card, info.id) == [*profile.placements]
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
