"""The use and the energy of cards are what the controls say, on the cards for which NVML reports them."""

import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pynvml
import pytest

from kerf_dra.driver.testing.nvml import CardDescription, GpmActivity, NvidiaMachine
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml, run_smi
from tests.fakes.nvml_calls import create_gpu_instance, destroy_gpu_instance, fill_gpu_instance
from tests.testing.nvml.conftest import MakeMachine

pytestmark = NEEDS_COMPILER

H100 = "h100-80gb-sxm"
A100 = "a100-40gb"
GIB = 2**30
BUSY = GpmActivity(graphics=80, sm=60, occupancy=40, tensor=20, dram=10)
QUIET = GpmActivity(graphics=20, sm=10)
METRICS = (
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    pynvml.NVML_GPM_METRIC_SM_UTIL,
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
)
UNKNOWN_METRIC = pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC


def card(index: int = 0) -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


@pytest.fixture
def cut(make_machine: MakeMachine) -> Iterator[NvidiaMachine]:
    """An open machine whose first card has the GPU instances 2 and 7, with a MIG device each; its second has none."""
    machine = make_machine(CardDescription(model=H100, is_mig_on=True), CardDescription(model=H100))
    with open_nvml(machine):
        for profile, start, size in ((9, 4, 4), (19, 0, 1)):
            fill_gpu_instance(create_gpu_instance(card(), profile, start, size))
        yield machine


@contextmanager
def two_samples() -> Iterator[tuple[Any, Any]]:
    samples = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    yield samples
    for sample in samples:
        pynvml.nvmlGpmSampleFree(sample)


def read_metrics(first: Any, second: Any, *metrics: int) -> list[tuple[int, float]]:
    """Return the code and the value of each metric between two samples."""
    asked = pynvml.c_nvmlGpmMetricsGet_t(
        version=pynvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(metrics), sample1=first, sample2=second
    )
    for row, metric in zip(asked.metrics, metrics, strict=False):
        row.metricId = metric
    pynvml.nvmlGpmMetricsGet(asked)
    return [(row.nvmlReturn, row.value) for row in asked.metrics[: len(metrics)]]


def values(metrics: list[tuple[int, float]]) -> list[float]:
    assert {code for code, _ in metrics} == {pynvml.NVML_SUCCESS}
    return [value for _, value in metrics]


# Utilization


def test_utilization_rates_are_those_of_a_card_outside_mig_mode(cut: NvidiaMachine) -> None:
    for number in range(2):
        cut.set_utilization(number, gpu_percent=37, memory_percent=12)
    rates = pynvml.nvmlDeviceGetUtilizationRates(card(1))
    assert (rates.gpu, rates.memory) == (37, 12)
    for device in (card(), pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card(), 0)):
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetUtilizationRates(device)
    query = ("--query-gpu=utilization.gpu,utilization.memory", "--format=csv,noheader")
    assert run_smi(cut, *query) == (0, "[N/A], [N/A]\n37 %, 12 %\n")


def test_the_utilization_of_processes_is_sampled_outside_mig_mode(cut: NvidiaMachine) -> None:
    for pid, number in ((11, 1), (12, 1), (13, 1), (14, 0)):
        cut.start_process(number, pid)
        cut.set_process_use(pid, sm_percent=pid, memory_percent=1)
    cut.set_process_use(12)  # it has become idle
    samples = pynvml.nvmlDeviceGetProcessUtilization(card(1), 0)
    assert [(one.pid, one.smUtil, one.memUtil) for one in samples] == [(11, 11, 1), (13, 13, 1)]
    cut.pass_time(0)
    (first, *_) = pynvml.nvmlDeviceGetProcessUtilization(card(1), 0)
    with pytest.raises(pynvml.NVMLError_NotFound):  # no sample is newer than the last one
        pynvml.nvmlDeviceGetProcessUtilization(card(1), first.timeStamp)
    cut.pass_time(1)
    assert len(pynvml.nvmlDeviceGetProcessUtilization(card(1), first.timeStamp)) == 2
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetProcessUtilization(card(), 0)
    for pid in (11, 13):
        cut.end_process(pid)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetProcessUtilization(card(1), 0)


# Memory and processes


def test_memory_and_processes_are_those_of_the_mig_device_or_of_the_whole_card(cut: NvidiaMachine) -> None:
    for pid, instance, memory in ((11, 2, GIB), (12, 2, 2 * GIB), (13, 7, 4 * GIB)):
        cut.start_process(0, pid, gpu_instance=instance, compute_instance=0, memory_bytes=memory)
    cut.start_process(1, 21, memory_bytes=8 * GIB)
    cut.set_process_use(12, memory_bytes=3 * GIB)
    large, small = (pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card(), index) for index in range(2))
    seen = {}
    for name, device in (("large", large), ("small", small), ("first", card()), ("second", card(1))):
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
        used = pynvml.nvmlDeviceGetMemoryInfo(device).used
        assert used == sum(one.usedGpuMemory for one in processes)
        seen[name] = ({one.pid for one in processes}, used // GIB)
    assert seen == {"large": ({11, 12}, 4), "small": ({13}, 4), "first": ({11, 12, 13}, 8), "second": ({21}, 8)}


# Energy


def test_energy_is_counted_for_the_whole_card_in_millijoules(cut: NvidiaMachine) -> None:
    cut.add_energy(0, 1.5)
    cut.add_energy(0, 2.25)
    cut.add_energy(1, 5_000_000)  # 5 GJ are more millijoules than 32 bits count
    assert [pynvml.nvmlDeviceGetTotalEnergyConsumption(card(index)) for index in range(2)] == [3750, 5_000_000_000]
    (field,) = pynvml.nvmlDeviceGetFieldValues(card(1), [pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION])
    assert (field.valueType, field.value.ullVal) == (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, 5_000_000_000)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card(), 0))


def reset_by_smi(machine: NvidiaMachine) -> None:
    assert run_smi(machine, "-pm", "0", "-i", "0")[0] == 0
    assert run_smi(machine, "-r", "-i", "0")[0] == 0


def reset_by_hand(machine: NvidiaMachine) -> None:
    machine.reset_card(0)


def switch_mig_mode(machine: NvidiaMachine) -> None:
    with open_nvml(machine):
        assert pynvml.nvmlDeviceSetMigMode(card(), 1) == pynvml.NVML_SUCCESS


def reload_driver(machine: NvidiaMachine) -> None:
    machine.reload_driver()


@pytest.mark.parametrize(
    ("restart", "is_left"),
    [(reset_by_smi, True), (reset_by_hand, True), (switch_mig_mode, True), (reload_driver, False)],
)
def test_energy_and_utilization_begin_at_0_with_a_reset_or_a_loaded_driver(
    make_machine: MakeMachine, restart: Callable[[NvidiaMachine], None], is_left: bool
) -> None:
    """To switch MIG mode of an Ampere card is a reset, too; other cards have what they had unless the driver is loaded
    again.
    """
    machine = make_machine(CardDescription(model=A100), CardDescription(model=A100))
    for number in range(2):
        machine.add_energy(number, 7)
        machine.set_utilization(number, gpu_percent=50, memory_percent=50)
    restart(machine)
    with open_nvml(machine):
        assert pynvml.nvmlDeviceGetTotalEnergyConsumption(card()) == 0
        if not pynvml.nvmlDeviceGetMigMode(card())[0]:
            assert pynvml.nvmlDeviceGetUtilizationRates(card()).gpu == 0
        assert pynvml.nvmlDeviceGetTotalEnergyConsumption(card(1)) == (7000 if is_left else 0)


# GPM


@pytest.mark.parametrize(("model", "is_supported"), [(A100, 0), (H100, 1), ("b200", 1), ("rtx-pro-6000", 1)])
def test_gpm_is_there_from_hopper_on(make_machine: MakeMachine, model: str, is_supported: int) -> None:
    with open_nvml(make_machine(CardDescription(model=model))), two_samples() as (sample, _):
        assert pynvml.nvmlGpmQueryDeviceSupport(card()).isSupportedDevice == is_supported
        if not is_supported:
            for function, *arguments in ((pynvml.nvmlGpmSampleGet,), (pynvml.nvmlGpmMigSampleGet, 7)):
                with pytest.raises(pynvml.NVMLError_NotSupported):
                    function(card(), *arguments, sample)


def test_each_instance_and_each_card_has_metrics_of_its_own(cut: NvidiaMachine) -> None:
    cut.set_activity(0, BUSY, gpu_instance=2)
    cut.set_activity(0, QUIET, gpu_instance=7)
    cut.set_activity(1, QUIET)
    with two_samples() as large, two_samples() as small, two_samples() as whole:
        for which in range(2):
            pynvml.nvmlGpmMigSampleGet(card(), 2, large[which])
            pynvml.nvmlGpmMigSampleGet(card(), 7, small[which])
            pynvml.nvmlGpmSampleGet(card(1), whole[which])
            cut.pass_time(10)
        assert values(read_metrics(*large, *METRICS)) == pytest.approx([80, 60, 40, 20, 10])
        assert values(read_metrics(*small, *METRICS)) == pytest.approx([20, 10, 0, 0, 0])
        assert values(read_metrics(*whole, *METRICS[:1])) == pytest.approx([20])


def test_metrics_are_the_average_between_two_samples(cut: NvidiaMachine) -> None:
    cut.pass_time(0)
    cut.set_activity(0, BUSY, gpu_instance=7)
    with two_samples() as samples:
        pynvml.nvmlGpmMigSampleGet(card(), 7, samples[0])
        cut.pass_time(10)
        cut.set_activity(0, QUIET, gpu_instance=7)
        cut.pass_time(30)
        pynvml.nvmlGpmMigSampleGet(card(), 7, samples[1])
        assert values(read_metrics(*samples, *METRICS[:2])) == pytest.approx([35, 22.5])


def test_samples_less_than_100_ms_apart_have_the_values_of_a_card_under_load_that_was_seen(cut: NvidiaMachine) -> None:
    """An H100 under load: success, but 0, and for the bandwidth of the memory not a number."""
    cut.pass_time(0)
    cut.set_activity(1, BUSY)
    with two_samples() as samples:
        pynvml.nvmlGpmSampleGet(card(1), samples[0])
        for seconds, expected in ((0.0, [0, math.nan]), (0.099, [0, math.nan]), (0.001, [80, 10])):
            cut.pass_time(seconds)
            pynvml.nvmlGpmSampleGet(card(1), samples[1])
            found = read_metrics(*samples, METRICS[0], METRICS[-1])
            assert values(found) == pytest.approx(expected, nan_ok=True)


def test_a_metric_that_the_stand_in_lacks_is_not_supported_and_the_others_are_there(cut: NvidiaMachine) -> None:
    cut.pass_time(0)
    cut.set_activity(1, BUSY)
    with two_samples() as samples:
        pynvml.nvmlGpmSampleGet(card(1), samples[0])
        cut.pass_time(1)
        pynvml.nvmlGpmSampleGet(card(1), samples[1])
        missing, there = read_metrics(*samples, UNKNOWN_METRIC, METRICS[0])
    assert missing[0] == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert values([there]) == pytest.approx([80])


def take_of_another_card(machine: NvidiaMachine, sample: Any) -> None:
    pynvml.nvmlGpmSampleGet(card(1), sample)


def take_of_the_whole_card(machine: NvidiaMachine, sample: Any) -> None:
    pynvml.nvmlGpmSampleGet(card(), sample)


def take_of_another_instance(machine: NvidiaMachine, sample: Any) -> None:
    pynvml.nvmlGpmMigSampleGet(card(), 2, sample)


def take_of_the_next_instance_there(machine: NvidiaMachine, sample: Any) -> None:
    destroy_gpu_instance(card(), 7)
    create_gpu_instance(card(), 19, 0, 1)
    pynvml.nvmlGpmMigSampleGet(card(), 7, sample)


def take_none(machine: NvidiaMachine, sample: Any) -> None:
    return


@pytest.mark.parametrize(
    "take",
    [
        take_of_another_card,
        take_of_the_whole_card,
        take_of_another_instance,
        take_of_the_next_instance_there,
        take_none,
    ],
)
def test_two_samples_are_of_one_card_or_instance(
    cut: NvidiaMachine, take: Callable[[NvidiaMachine, Any], None]
) -> None:
    with two_samples() as samples:
        pynvml.nvmlGpmMigSampleGet(card(), 7, samples[0])
        cut.pass_time(1)
        take(cut, samples[1])
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            read_metrics(*samples, METRICS[0])


def test_a_sample_from_before_a_reset_is_of_no_use(make_machine: MakeMachine) -> None:
    machine = make_machine(CardDescription(model=H100), CardDescription(model=H100))
    with open_nvml(machine), two_samples() as samples:
        for number in range(2):
            machine.set_activity(number, BUSY)
        pynvml.nvmlGpmSampleGet(card(), samples[0])
        machine.pass_time(1)
        machine.reset_card(0)
        pynvml.nvmlGpmSampleGet(card(), samples[1])
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            read_metrics(*samples, METRICS[0])
        pynvml.nvmlGpmSampleGet(card(), samples[0])
        machine.pass_time(1)
        pynvml.nvmlGpmSampleGet(card(), samples[1])
        assert values(read_metrics(*samples, METRICS[0])) == [0]


def test_an_instance_that_is_not_there_and_a_card_without_mig_mode_have_no_samples(cut: NvidiaMachine) -> None:
    with two_samples() as (sample, _):
        for number, instance, error in ((0, 8, pynvml.NVMLError_NotFound), (1, 7, pynvml.NVMLError_NotSupported)):
            with pytest.raises(error):
                pynvml.nvmlGpmMigSampleGet(card(number), instance, sample)


def test_another_version_of_a_structure_is_refused(cut: NvidiaMachine) -> None:
    support = pynvml.c_nvmlGpmSupport_t(version=2)
    asked = pynvml.c_nvmlGpmMetricsGet_t(version=2)
    for code in (
        pynvml.nvmlLib.nvmlGpmQueryDeviceSupport(card(), ctypes.byref(support)),
        pynvml.nvmlLib.nvmlGpmMetricsGet(ctypes.byref(asked)),
    ):
        assert code == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
