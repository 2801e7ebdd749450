"""What the backend does with answers of NVML that contradict each other, on stand-ins of cards."""

from contextlib import suppress
from pathlib import Path

import pynvml
import pytest

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError, HardwareHeldError
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.testing.plugin import PluginStandIn
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.machine import (
    TWICE_1G,
    NvidiaMachineUnderTest,
    allocate,
    machine_of,
    plugin_on,
    survey,
)

pytestmark = NEEDS_COMPILER


@pytest.mark.parametrize("function", ["nvmlGpuInstanceGetInfo", "nvmlComputeInstanceGetInfo_v2"])
@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT])
def test_instances_are_listed_again_when_one_goes_while_it_is_read(tmp_path: Path, function: str, error: int) -> None:
    """Another program destroyed its instance: the survey failed for good, and a prepare elsewhere on the card with it.

    A survey without the instance was no better: where the error was wrong, a release took its own for gone.
    """
    plugin = plugin_on(tmp_path)
    plugin.prepare(allocate(plugin, *TWICE_1G))
    before = survey(plugin)
    machine_of(plugin).hardware.add_fault(function, error=error, times=2)
    assert survey(plugin) == before
    machine_of(plugin).hardware.add_fault(function, error=error, times=3)
    with pytest.raises(HardwareBusyError, match="NVML lists some that it denies"):
        survey(plugin)


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT])
def test_an_instance_that_nvml_denies_right_after_it_was_made_is_taken_back(tmp_path: Path, error: int) -> None:
    """What the program raised was an error of the program."""
    plugin = plugin_on(tmp_path)
    record = allocate(plugin, *TWICE_1G)
    machine_of(plugin).hardware.add_fault("nvmlGpuInstanceGetInfo", error=error)
    with pytest.raises(HardwareBusyError, match="was destroyed meanwhile"):
        plugin.prepare(record)
    assert [one.profile for one in survey(plugin).partitions] == ["1g.20gb"]
    plugin.release(record)
    assert plugin.is_empty


@pytest.mark.parametrize("times", [1, 2])
def test_placements_that_nvml_counts_and_does_not_list_are_no_placements_of_no_size(tmp_path: Path, times: int) -> None:
    """The card had partitions of no units, and could not be published; it is left out until it answers."""
    machine = NvidiaMachineUnderTest(tmp_path)
    function = "nvmlDeviceGetGpuInstancePossiblePlacements_v2"
    machine.hardware.add_fault(function, error=pynvml.NVML_ERROR_NOT_SUPPORTED, skip=1, times=times)
    plugin = PluginStandIn(machine, GPU)
    assert [card.index for card in plugin.cards] == [1]
    machine.hardware.clear_faults()
    assert [card.index for card in plugin.backend.discover()] == [0, 1]


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_compute_profile_that_was_missed_is_asked_for_again_when_the_fault_has_ended(
    tmp_path: Path, skip: int
) -> None:
    """All that a process remembered were the profiles of before the fault: each release failed until a discovery."""
    plugin = plugin_on(tmp_path)
    record, other = allocate(plugin, "3g.40gb", Placement(4, 4)), allocate(plugin, *TWICE_1G)
    plugin.prepare(record)
    plugin.prepare(other)
    plugin.restart()
    for function in ("nvmlGpuInstanceGetComputeInstanceProfileInfoV", "nvmlGpuInstanceGetComputeInstanceProfileInfo"):
        machine_of(plugin).hardware.add_fault(function, error=pynvml.NVML_ERROR_NOT_SUPPORTED, skip=skip, times=None)
    with suppress(KerfError):
        plugin.release(record)
    machine_of(plugin).hardware.clear_faults()
    assert {one.profile for one in survey(plugin).partitions} == {"3g.40gb", "1g.20gb"}
    plugin.release(record)
    plugin.release(other)
    assert plugin.is_empty


@pytest.mark.parametrize("function", ["nvmlGpuInstanceDestroy", "nvmlComputeInstanceDestroy"])
def test_an_instance_that_nvml_does_not_find_is_released_when_the_card_does_not_list_it(
    tmp_path: Path, function: str
) -> None:
    plugin = plugin_on(tmp_path)
    record = allocate(plugin, *TWICE_1G)
    plugin.prepare(record)
    machine_of(plugin).hardware.add_fault(function, error=pynvml.NVML_ERROR_NOT_FOUND)
    with pytest.raises(HardwareBusyError, match="Not Found"):
        plugin.release(record)
    assert [one.profile for one in survey(plugin).partitions] == ["1g.20gb"]
    plugin.release(record)
    assert plugin.is_empty


@pytest.mark.parametrize("function", ["nvmlGpuInstanceDestroy", "nvmlComputeInstanceDestroy"])
def test_what_is_no_use_by_others_is_not_said_to_be_one(tmp_path: Path, function: str) -> None:
    """Each error of a destroy was told as "in use, a monitor such as DCGM may hold it", and ended the claim."""
    plugin = plugin_on(tmp_path)
    record = allocate(plugin, *TWICE_1G)
    plugin.prepare(record)
    machine_of(plugin).hardware.add_fault(function, error=pynvml.NVML_ERROR_UNKNOWN)
    with pytest.raises(HardwareBusyError, match=f"{function}: Unknown Error") as error:
        plugin.release(record)
    assert not isinstance(error.value, HardwareHeldError)
    assert machine_of(plugin).waits == []
    plugin.release(record)
    assert plugin.is_empty
