"""What cards and their devices are used for is what the stand-in's controls say, in few calls of NVML."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pynvml
import pytest

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, CardSample, DeviceSample, HardwareBusyError
from kerf_dra.driver.kubeletplugin.backends.nvidia import NvidiaBackend
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.testing.nvml import CardDescription, GpmActivity, NvidiaMachine
from kerf_dra.driver.testing.nvml.machine import EVERY_FUNCTION
from kerf_dra.driver.testing.plugin import DeviceRecord, PluginStandIn
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml
from tests.fakes.nvml_calls import destroy_gpu_instance
from tests.fakes.nvml_functions import USAGE_READS
from tests.kubeletplugin.backends.nvidia.machine import H100, NvidiaMachineUnderTest, allocate

pytestmark = NEEDS_COMPILER

A100 = "a100-40gb"
GIB = 2**30
HANGS_S = 5.0
"""Seconds for which a call of NVML hangs: many times what a prepare takes here."""
MANY = 1_000_000
"""More calls of NVML than a test makes."""
PROCESSES = "nvmlDeviceGetComputeRunningProcesses_v3"
SMALL, LARGE = ("1g.10gb", Placement(0, 1)), ("3g.40gb", Placement(4, 4))


@dataclass
class Node:
    """A node whose time the test passes, and what its claims have."""

    machine: NvidiaMachineUnderTest
    plugin: PluginStandIn
    clock: list[float]
    records: list[DeviceRecord] = field(default_factory=list)

    @property
    def hardware(self) -> NvidiaMachine:
        return self.machine.hardware

    def prepare(self, profile: str | None = None, placement: Placement | None = None) -> int:
        """Prepare a part of the first card, or all of it; returns the id of its GPU instance."""
        record = allocate(self.plugin, profile, placement)
        self.plugin.prepare(record)
        self.records.append(record)
        assert record.handle is not None
        instance = record.handle.get("instance")
        return instance if isinstance(instance, int) else -1

    def sample(self, after_s: float = 15.0, *, twice: bool = False) -> CardSample:
        """Let time pass and sample the first card; ``twice``: each device has two shares."""
        backend = self.plugin.backend
        assert isinstance(backend, NvidiaBackend)
        self.pass_time(after_s)
        handles = [record.handle or {} for record in self.records]
        sample = backend.sample(self.plugin.cards[0].uuid, handles * 2 if twice else handles)
        return replace(sample, devices=tuple(map(round_busy, sample.devices)))

    def pass_time(self, seconds: float) -> None:
        self.clock[0] += seconds
        self.hardware.pass_time(seconds)

    def count_calls(self, after_s: float = 15.0) -> int:
        """Return how many functions of the library a sample calls."""
        self.hardware.add_fault(EVERY_FUNCTION, error=pynvml.NVML_ERROR_UNKNOWN, skip=MANY)
        before = self.hardware.count_left(EVERY_FUNCTION)
        self.sample(after_s)
        calls = before - self.hardware.count_left(EVERY_FUNCTION)
        self.hardware.clear_faults()
        return calls


def round_busy(device: DeviceSample) -> DeviceSample:
    """Leave out what sums of times in microseconds are wrong by."""
    return replace(device, busy=None if device.busy is None else round(device.busy, 6))


def build(folder: Path, model: str, *, is_mig_on: bool = False) -> Node:
    clock = [1000.0]
    card = CardDescription(model=model, is_mig_on=is_mig_on)
    machine = NvidiaMachineUnderTest(folder, card, card, now=lambda: clock[0])
    return Node(machine, PluginStandIn(machine, GPU), clock)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node with two H100."""
    made = build(tmp_path, H100)
    yield made
    made.plugin.close()


def busy(percent: float) -> GpmActivity:
    return GpmActivity(graphics=percent, sm=percent / 2)


def test_each_instance_has_its_own_memory_processes_and_activity(node: Node) -> None:
    small, large = node.prepare(*SMALL), node.prepare(*LARGE)
    for pid, instance, memory in ((11, small, GIB), (12, large, 2 * GIB), (13, large, 3 * GIB)):
        node.hardware.start_process(0, pid, gpu_instance=instance, compute_instance=0, memory_bytes=memory)
    node.hardware.start_process(1, 21, memory_bytes=8 * GIB)
    node.hardware.set_activity(0, busy(75), gpu_instance=small)
    first = node.sample()
    assert [one.busy for one in first.devices] == [None, None], "there is no time to compare with"
    node.hardware.set_activity(0, busy(25), gpu_instance=large)
    assert node.sample().devices == (
        DeviceSample(memory_bytes=GIB, processes=1, busy=0.75),
        DeviceSample(memory_bytes=5 * GIB, processes=2, busy=0.25),
    )
    node.hardware.set_activity(0, busy(0), gpu_instance=small)
    assert [one.busy for one in node.sample().devices] == [0, 0.25]


def test_energy_is_that_of_the_whole_card_and_begins_at_0_again_after_a_reset(node: Node) -> None:
    node.hardware.add_energy(0, 12.5)
    node.hardware.add_energy(1, 99)
    assert node.sample() == CardSample(energy_mj=12500)
    node.hardware.reset_card(0)
    node.hardware.add_energy(0, 1)
    assert node.sample().energy_mj == 1000


def test_a_whole_card_is_measured_by_gpm(node: Node) -> None:
    node.prepare()
    node.hardware.start_process(0, 11, memory_bytes=GIB)
    node.hardware.set_activity(0, busy(40))
    node.hardware.set_utilization(0, gpu_percent=99, memory_percent=99)
    node.sample()
    assert node.sample().devices == (DeviceSample(memory_bytes=GIB, processes=1, busy=0.4),)


def test_before_hopper_a_whole_card_has_rates(tmp_path: Path) -> None:
    node = build(tmp_path, A100)
    node.prepare()
    node.hardware.set_utilization(0, gpu_percent=37, memory_percent=12)
    assert node.sample().devices == (DeviceSample(memory_bytes=0, processes=0, busy=0.37),)
    node.plugin.close()


def test_before_hopper_what_instances_do_is_unknown(tmp_path: Path) -> None:
    node = build(tmp_path, A100, is_mig_on=True)
    node.hardware.set_activity(0, busy(50), gpu_instance=node.prepare("1g.5gb", Placement(0, 1)))
    for _ in range(2):
        assert node.sample().devices == (DeviceSample(memory_bytes=0, processes=0),)
    node.plugin.close()


def test_two_samples_within_a_moment_say_nothing_of_the_activity(node: Node) -> None:
    node.hardware.set_activity(0, busy(50), gpu_instance=node.prepare(*SMALL))
    node.sample()
    assert node.sample(after_s=0.05).devices[0].busy is None
    assert node.sample(after_s=10).devices[0].busy == 0.5, "compared with the first one"


def test_an_instance_that_was_made_anew_is_not_compared_with_the_one_before(node: Node) -> None:
    node.hardware.set_activity(0, busy(50), gpu_instance=node.prepare(*SMALL))
    node.sample()
    node.plugin.release(node.records.pop())
    node.hardware.set_activity(0, busy(20), gpu_instance=node.prepare(*SMALL))
    assert node.sample().devices[0].busy is None
    assert node.sample().devices[0].busy == 0.2


def test_a_device_that_is_gone_says_nothing_and_the_others_are_measured(node: Node) -> None:
    small = node.prepare(*SMALL)
    node.hardware.set_activity(0, busy(50), gpu_instance=node.prepare(*LARGE))
    node.sample()
    with open_nvml(node.hardware):
        destroy_gpu_instance(pynvml.nvmlDeviceGetHandleByIndex(0), small)
    gone, there = node.sample().devices
    assert gone == DeviceSample()
    assert there.busy == 0.5


@pytest.mark.parametrize("uses", [False, True])
def test_of_shares_of_one_device_it_is_known_only_that_none_is_used(node: Node, uses: bool) -> None:
    node.prepare()
    if uses:
        node.hardware.start_process(0, 11, memory_bytes=GIB)
    known = DeviceSample() if uses else DeviceSample(processes=0)
    assert node.sample(twice=True).devices == (known, known)


def test_that_no_process_is_listed_says_nothing_where_not_all_can_be_seen(node: Node) -> None:
    """NVML may leave out those of other PID namespaces: without the machine's every instance would be idle."""
    small, _ = node.prepare(*SMALL), node.prepare(*LARGE)
    node.hardware.start_process(0, 11, gpu_instance=small, compute_instance=0)
    node.machine.enter_namespace("pid:[4026532000]")
    assert [one.processes for one in node.sample().devices] == [1, None]
    node.machine.enter_namespace("pid:[4026531836]")
    assert [one.processes for one in node.sample().devices] == [1, 0]


def test_samples_go_on_after_the_driver_was_loaded_anew(node: Node) -> None:
    node.prepare()
    node.hardware.set_activity(0, busy(50))
    node.sample()
    node.hardware.reload_driver()
    with pytest.raises(CardAbsentError):
        node.sample()
    node.hardware.set_activity(0, busy(30))
    assert node.sample().devices[0].busy is None
    assert node.sample().devices[0].busy == 0.3


def test_a_lost_card_is_absent(node: Node) -> None:
    node.prepare(*SMALL)
    node.hardware.drop_card(0)
    with pytest.raises(CardAbsentError):
        node.sample()


@pytest.mark.parametrize("function", ["nvmlDeviceGetTotalEnergyConsumption", PROCESSES])
def test_a_card_that_cannot_be_read_fails(node: Node, function: str) -> None:
    node.prepare(*SMALL)
    node.hardware.add_fault(function, error=pynvml.NVML_ERROR_UNKNOWN)
    with pytest.raises(HardwareBusyError, match=function):
        node.sample()


@pytest.mark.parametrize("function", [*USAGE_READS, PROCESSES, "nvmlDeviceGetMemoryInfo"])
@pytest.mark.parametrize("code", ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND"])
def test_what_the_library_lacks_is_unknown_and_the_rest_is_there(node: Node, function: str, code: str) -> None:
    instance = node.prepare(*SMALL)
    node.hardware.set_activity(0, busy(50), gpu_instance=instance)
    node.hardware.add_fault(function, error=getattr(pynvml, f"NVML_ERROR_{code}"), times=None)
    node.sample()
    sample = node.sample()
    [device] = sample.devices
    assert (sample.energy_mj is None) == (function == "nvmlDeviceGetTotalEnergyConsumption")
    if function != "nvmlGpmSampleAlloc":
        assert (device.memory_bytes is None) == (function == "nvmlDeviceGetMemoryInfo")
        assert (device.processes is None) == (function == PROCESSES)


@pytest.mark.parametrize("instances", [0, 1, 2])
@pytest.mark.parametrize("model", [H100, A100])
def test_a_sample_is_six_calls_for_a_card_and_four_for_an_instance(tmp_path: Path, model: str, instances: int) -> None:
    node = build(tmp_path, model, is_mig_on=model == A100)
    profile = "1g.10gb" if model == H100 else "1g.5gb"
    for number in range(instances):
        held = node.prepare(profile, Placement(number, 1))
        node.hardware.start_process(0, 11 + number, gpu_instance=held, compute_instance=0)
    assert node.count_calls() <= 7 + 5 * instances, "handles and room for samples are asked for once"
    for _ in range(3):
        assert node.count_calls() <= 6 + 4 * instances
    node.plugin.close()


@pytest.mark.parametrize("model", [H100, A100])
def test_a_sample_of_a_whole_card_is_six_calls(tmp_path: Path, model: str) -> None:
    node = build(tmp_path, model)
    node.prepare()
    node.hardware.start_process(0, 11)
    node.count_calls()
    for _ in range(3):
        assert node.count_calls() <= 6
    node.plugin.close()


def test_whether_a_card_has_gpm_is_asked_once_while_nvml_is_open(node: Node) -> None:
    node.prepare(*SMALL)
    node.hardware.add_fault("nvmlGpmQueryDeviceSupport", error=pynvml.NVML_ERROR_UNKNOWN, skip=MANY)
    for _ in range(3):
        node.sample()
    assert MANY - node.hardware.count_left("nvmlGpmQueryDeviceSupport") == 1
    node.hardware.reload_driver()
    with pytest.raises(CardAbsentError):
        node.sample()
    node.sample()
    assert MANY - node.hardware.count_left("nvmlGpmQueryDeviceSupport") == 1, "its instance is gone"
    node.records.clear()
    node.prepare()
    node.sample()
    assert MANY - node.hardware.count_left("nvmlGpmQueryDeviceSupport") == 2


def test_room_for_samples_is_given_back(node: Node) -> None:
    node.prepare(*SMALL)
    node.sample()
    node.plugin.release(node.records.pop())
    node.hardware.add_fault("nvmlGpmSampleFree", error=pynvml.NVML_ERROR_UNKNOWN, skip=MANY)
    node.sample()
    assert MANY - node.hardware.count_left("nvmlGpmSampleFree") == 2


@pytest.mark.parametrize("function", ["nvmlDeviceGetTotalEnergyConsumption", "nvmlGpmMigSampleGet"])
def test_a_call_of_a_sample_that_hangs_keeps_no_prepare_or_release_waiting(node: Node, function: str) -> None:
    """NVML has no limits of its own: a thread that is given up stays in its call, and everything else goes on."""
    node.prepare(*SMALL)
    node.sample()
    node.hardware.add_fault(function, delay_s=HANGS_S)
    sampling = threading.Thread(target=node.sample, daemon=True)
    sampling.start()
    began = time.monotonic()
    node.prepare(*LARGE)
    node.plugin.release(node.records.pop())
    assert time.monotonic() - began < HANGS_S
    assert sampling.is_alive()
    sampling.join()
