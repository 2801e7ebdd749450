"""The simulated cards themselves: NVML's rules, and files that change at once under a lock."""

import dataclasses
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_model, gpu_models
from kerf_dra.driver.families.gpu.model import GpuModel
from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError, HardwareConflictError, HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.simulated import fpga
from kerf_dra.driver.kubeletplugin.backends.simulated import gpu as nvml
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shell
from kerf_dra.driver.kubeletplugin.backends.simulated.fpga import FpgaState
from kerf_dra.driver.kubeletplugin.backends.simulated.gpu import GpuInstance, GpuState
from kerf_dra.driver.kubeletplugin.backends.simulated.state_store import StateFile
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Placement, Run
from kerf_dra.driver.partitions.pool_compiler import SliceLayout, compile_pool
from tests.partitions.cards import gpu
from tests.partitions.counters import Counters

H100 = gpu_model("h100-80gb-sxm")
EMPTY = GpuState(model=H100.id, mig=True)


def created(state: GpuState, profile: str, start: int, model: GpuModel = H100) -> GpuState:
    known = model.profile(profile)
    assert known is not None
    placement = next(placement for placement in known.placements if placement.start == start)
    return nvml.create_gpu_instance(state, model, profile, placement)


@given(data=st.data())
def test_the_hardware_accepts_exactly_what_the_published_counters_admit(data: st.DataObject) -> None:
    """The scheduler's arithmetic and NVML's rules were written apart; a claim must not be promised what fails."""
    model = data.draw(st.sampled_from(gpu_models()))
    card = gpu(model)
    compiled = compile_pool("n/gpu", "n", [card], vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT)
    counters, state, taken = Counters(compiled), GpuState(model=model.id, mig=True), list[str]()
    partitions = [partition for partition in compiled.partitions.values() if partition.placement]
    for partition in data.draw(st.lists(st.sampled_from(partitions), max_size=10)):
        assert partition.placement is not None
        together = [*taken, device_name(card, partition)]
        try:
            state = nvml.create_gpu_instance(state, model, partition.profile or "", partition.placement)
        except (HardwareBusyError, HardwareConflictError):
            assert not counters.admit(together)
        else:
            assert counters.admit(together)
            taken = together


@pytest.mark.parametrize("model", gpu_models(), ids=lambda model: model.id)
def test_ids_of_instances_that_may_coexist_differ(model: GpuModel) -> None:
    for profile in model.profiles:
        for other in model.profiles:
            for one in profile.placements:
                for two in other.placements:
                    if not one.overlaps(two):
                        assert nvml.instance_id(model, one) != nvml.instance_id(model, two)


@pytest.mark.parametrize(
    ("profile", "ids"),
    [
        ("7g.80gb", [0]),
        ("3g.40gb", [1, 2]),
        ("4g.40gb", [1]),
        ("2g.20gb", [3, 4, 5]),
        ("1g.20gb", [3, 4, 5, 6]),
        ("1g.10gb", [7, 8, 9, 10, 11, 12, 13]),
    ],
)
def test_instance_ids_are_those_that_drivers_give_on_cards_of_eight_slices(profile: str, ids: list[int]) -> None:
    known = H100.profile(profile)
    assert known is not None
    assert [nvml.instance_id(H100, placement) for placement in known.placements] == ids


def test_no_more_instances_of_a_profile_are_made_than_the_card_says() -> None:
    """A live card may state fewer than its placements allow."""
    fewer = tuple(dataclasses.replace(p, max_instances=1) if p.name == "1g.10gb" else p for p in H100.profiles)
    model = dataclasses.replace(H100, profiles=fewer)
    state = created(EMPTY, "1g.10gb", 0, model)
    with pytest.raises(HardwareBusyError, match="Insufficient Resources"):
        created(state, "1g.10gb", 1, model)


def test_an_instance_is_not_destroyed_while_it_has_a_compute_instance() -> None:
    state = nvml.create_compute_instance(created(EMPTY, "1g.10gb", 0), "GPU-0", 7)
    with pytest.raises(HardwareBusyError, match="nvmlGpuInstanceDestroy: In use by another client"):
        nvml.destroy_gpu_instance(state, 7)
    assert nvml.destroy_gpu_instance(nvml.destroy_compute_instance(state, 7), 7) == EMPTY


def test_a_compute_instance_needs_its_gpu_instance() -> None:
    with pytest.raises(HardwareRefusedError, match="the GPU instance is gone"):
        nvml.create_compute_instance(EMPTY, "GPU-0", 7)


def test_nothing_is_cut_while_mig_mode_is_off() -> None:
    with pytest.raises(HardwareBusyError, match="Insufficient Resources"):
        created(GpuState(model=H100.id), "1g.10gb", 0)


def test_the_same_instance_has_the_same_uuid_in_every_life() -> None:
    def uuid_of(state: GpuState) -> str:
        return nvml.create_compute_instance(state, "GPU-0", state.instances[0].id).instances[0].mig_uuid

    first = uuid_of(created(EMPTY, "1g.10gb", 0))
    assert first.startswith("MIG-")
    assert uuid_of(created(EMPTY, "1g.10gb", 0)) == first
    assert uuid_of(created(EMPTY, "1g.10gb", 1)) != first


@pytest.fixture
def file(tmp_path: Path) -> StateFile[GpuState]:
    return StateFile(tmp_path / "state", "gpu-0", EMPTY)


def test_a_card_that_nothing_was_done_to_is_blank(file: StateFile[GpuState]) -> None:
    assert file.read() == EMPTY


def test_a_change_is_seen_by_the_next_reader(file: StateFile[GpuState], tmp_path: Path) -> None:
    file.change(lambda state: created(state, "3g.40gb", 4))
    again = StateFile(tmp_path / "state", "gpu-0", EMPTY)
    assert again.read().instances == (GpuInstance(id=2, profile="3g.40gb", run=Run(4, 4)),)


def test_a_placement_is_written_as_earlier_versions_read_it(file: StateFile[GpuState], tmp_path: Path) -> None:
    """After a rollback the cards of a node could not be read: a placement had got two fields more."""
    file.change(lambda state: created(state, "3g.40gb", 4))
    [written] = json.loads((tmp_path / "state" / "gpu-0.json").read_text())["instances"]
    assert written["placement"] == [4, 4]


def test_a_change_that_raises_changes_nothing(file: StateFile[GpuState]) -> None:
    file.change(lambda state: created(state, "3g.40gb", 4))
    before = file.read()
    with pytest.raises(HardwareConflictError):
        file.change(lambda state: created(state, "1g.10gb", 5))
    assert file.read() == before


def test_nobody_else_can_change_the_hardware_during_a_change(file: StateFile[GpuState], tmp_path: Path) -> None:
    def intrude(state: GpuState) -> GpuState:
        descriptor = os.open(tmp_path / "state", os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)
        return state

    file.change(intrude)


def test_what_a_dead_writer_left_is_passed_over(file: StateFile[GpuState], tmp_path: Path) -> None:
    file.change(lambda state: created(state, "3g.40gb", 4))
    (tmp_path / "state" / ".gpu-0.json.tmp").write_text("{half a docu")
    assert len(file.read().instances) == 1
    file.change(lambda state: nvml.destroy_gpu_instance(state, 2))
    assert file.read() == EMPTY


def test_a_state_that_cannot_be_read_is_named_and_never_taken_for_blank(
    file: StateFile[GpuState], tmp_path: Path
) -> None:
    path = tmp_path / "state" / "gpu-0.json"
    path.write_text("{half a docu")
    with pytest.raises(HardwareRefusedError, match=str(path)):
        file.read()
    with pytest.raises(HardwareRefusedError, match=str(path)):
        file.change(lambda state: state)


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 131_072, 200_000])
def test_a_state_of_any_size_is_read_whole(file: StateFile[GpuState], tmp_path: Path, size: int) -> None:
    state = file.change(lambda state: created(state, "3g.40gb", 4))
    path = tmp_path / "state" / "gpu-0.json"
    path.write_bytes(path.read_bytes().strip().rjust(size))
    assert (path.stat().st_size, file.read()) == (size, state)


# FPGAs

QUAD = shell("quad")
ZSTD = QUAD.functions[1]
SLOT = Placement(0, 1)
BLANK = FpgaState(shell="quad")


def running(state: FpgaState, image: Placement, function: str) -> FpgaState:
    return fpga.enable_bridges(fpga.program(state, image, function), image)


@pytest.mark.parametrize(
    "step",
    [
        lambda state: fpga.program(state, SLOT, "zstd"),
        lambda state: fpga.enable_bridges(state, SLOT),
        lambda state: fpga.read_back(state, SLOT, ZSTD),
    ],
)
def test_a_load_ends_where_the_slots_were_emptied_meanwhile(step: Callable[[FpgaState], FpgaState]) -> None:
    with pytest.raises(HardwareRefusedError, match="emptied meanwhile"):
        step(BLANK)


def test_slots_that_report_another_function_are_refused() -> None:
    reserved = fpga.reserve(BLANK, SLOT, SLOT, "zstd")
    right = running(reserved, SLOT, "zstd")
    assert fpga.read_back(right, SLOT, ZSTD) == right
    for wrong in (reserved, fpga.program(reserved, SLOT, "zstd"), running(reserved, SLOT, "aes-gcm")):
        with pytest.raises(HardwareRefusedError, match=f"do not report {ZSTD.afu_id}"):
            fpga.read_back(wrong, SLOT, ZSTD)


def test_a_function_behind_closed_bridges_is_not_loaded() -> None:
    half = fpga.program(fpga.reserve(BLANK, SLOT, SLOT, "zstd"), SLOT, "zstd")
    assert half.loaded == {}
    assert fpga.reserve(half, SLOT, SLOT, "zstd").regions[0].function == "", "it is loaded anew"


def test_emptying_blank_slots_changes_nothing() -> None:
    assert fpga.blank(BLANK, SLOT) == BLANK


def test_a_function_holds_only_the_slots_of_its_image() -> None:
    loaded = running(fpga.reserve(BLANK, Placement(0, 4), SLOT, "zstd"), SLOT, "zstd")
    assert fpga.reserve(loaded, Placement(1, 3), Placement(1, 2), "fft-large").loaded == {SLOT: "zstd"}
    assert fpga.reserve(loaded, Placement(0, 2), Placement(0, 2), "fft-large").loaded == {}, "it gives way"


def test_slots_that_a_process_uses_are_neither_reserved_nor_emptied() -> None:
    used = FpgaState(shell="quad", in_use=(Placement(1, 2),))
    with pytest.raises(HardwareConflictError, match="a process outside of Kerf uses slots 1-2"):
        fpga.reserve(used, Placement(0, 2), SLOT, "zstd")
    with pytest.raises(HardwareConflictError, match="a process outside of Kerf uses slots 1-2"):
        fpga.blank(used, Placement(2, 1))
    assert fpga.reserve(used, SLOT, SLOT, "zstd").regions
