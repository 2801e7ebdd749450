"""What simulated cards say of their use: figures that follow from names and times, or those of ``use.json``."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    DeviceSample,
    Handle,
    HardwareBusyError,
    SampledBackend,
)
from kerf_dra.driver.kubeletplugin.backends.simulated import SimulatedBackend
from kerf_dra.driver.kubeletplugin.backends.simulated.use import (
    DeviceUse,
    EnergyCounter,
    count_energy,
    find_busy_ratio,
)
from kerf_dra.driver.partitions.geometry import Card
from tests.kubeletplugin.backends.simulated.machine import Machine
from tests.partitions.cards import gpu_partition, slots, whole

GIB: Final = 2**30
START: Final = 1_764_000_000.0


class Node:
    """Two cards, of which one has two partitions and one is prepared as a whole, at a time that a test sets."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.now = START
        self.backend = self.open()
        self.first, self.second = machine.card(0), machine.card(1)
        self.small = self.prepare(self.first, "1g.10gb", 0)
        self.large = self.prepare(self.first, "3g.40gb", 4)
        self.whole = machine.prepare(machine.device(whole(self.second)), backend=self.backend)

    def open(self) -> SimulatedBackend:
        return SimulatedBackend(self.machine.config, sleep=self.machine.clock.sleep, now=lambda: self.now)

    def prepare(self, card: Card, profile: str, start: int) -> Handle:
        device = self.machine.device(gpu_partition(card, profile, start))
        return self.machine.prepare(device, backend=self.backend)

    def control(self, **document: Any) -> None:
        (Path(self.machine.config.state) / "use.json").write_text(json.dumps(document))

    def sample(self, card: Card, *handles: Handle, after_s: float = 15) -> tuple[int, list[DeviceSample]]:
        self.now += after_s
        sample = self.backend.sample(card.uuid, handles)
        assert sample.energy_mj is not None
        return sample.energy_mj, list(sample.devices)


@pytest.fixture
def node(machine: Machine) -> Node:
    return Node(machine)


def test_each_prepared_device_has_a_process_memory_and_from_its_second_sample_on_activity(node: Node) -> None:
    _, first = node.sample(node.first, node.small, node.large)
    assert [(each.processes, each.busy) for each in first] == [(1, None), (1, None)]
    _, second = node.sample(node.first, node.small, node.large)
    assert all(each.busy is not None and 0.2 < each.busy < 1 for each in second)
    assert second[0].busy != second[1].busy
    small, large = (each.memory_bytes or 0 for each in second)
    assert 0 < small < 10 * GIB
    assert 0 < large < 40 * GIB


def test_the_same_times_give_the_same_figures_in_another_process(node: Node) -> None:
    node.sample(node.first, node.small)
    _, one = node.sample(node.first, node.small)
    node.backend = node.open()
    node.sample(node.first, node.small, after_s=-15)
    _, other = node.sample(node.first, node.small)
    assert one == other


def test_energy_grows_with_activity_and_goes_on_after_a_restart_of_the_plugin(node: Node) -> None:
    node.control(devices={"gpu-1": {"busy": 1}})
    assert node.sample(node.second, node.whole)[0] == 0
    assert node.sample(node.second, node.whole)[0] == 700 * 15 * 1000
    node.backend = node.open()
    node.control(devices={"gpu-1": {"processes": 0}})
    assert node.sample(node.second, node.whole)[0] == (700 + 70) * 15 * 1000
    assert node.sample(node.second)[0] == (700 + 70 + 70) * 15 * 1000


def test_a_part_of_a_card_that_is_busy_takes_its_part_of_the_power(node: Node) -> None:
    node.control(devices={"gpu-0-1g-10gb-at-0": {"processes": 0}, "gpu-0-3g-40gb-at-4": {"busy": 1}})
    node.sample(node.first, node.small, node.large)
    assert node.sample(node.first, node.small, node.large)[0] == round((70 + 630 / 2) * 15 * 1000)


@pytest.mark.parametrize(("after_s", "seconds"), [(15, 15), (0, 0), (-100, 0), (3600, 3600), (100_000, 3600)])
def test_energy_never_falls_where_a_clock_is_set_back_and_counts_an_hour_at_most_between_two_samples(
    after_s: float, seconds: float
) -> None:
    before = EnergyCounter(at_s=START, mj=500)
    counted = count_energy(before, 0.0, START + after_s)
    assert counted == EnergyCounter(at_s=max(START, START + after_s), mj=500 + int(seconds * 70 * 1000))


def test_energy_begins_again_at_0_where_the_counters_are_removed_as_after_a_reset(node: Node) -> None:
    node.sample(node.second, node.whole)
    assert node.sample(node.second, node.whole)[0] > 0
    (Path(node.machine.config.state) / "energy.json").unlink()
    assert node.sample(node.second, node.whole)[0] == 0


def test_use_json_says_what_a_device_is_used_for(node: Node) -> None:
    node.control(
        devices={
            "gpu-0-1g-10gb-at-0": {"processes": 0},
            "gpu-0-3g-40gb-at-4": {"processes": 3, "busy": 0.5, "memory": 0},
        }
    )
    node.sample(node.first, node.small, node.large)
    _, samples = node.sample(node.first, node.small, node.large)
    assert samples == [
        DeviceSample(memory_bytes=0, processes=0, busy=0.0),
        DeviceSample(memory_bytes=0, processes=3, busy=0.5),
    ]


def test_a_card_that_cannot_be_sampled_or_is_absent_raises_and_the_other_goes_on(node: Node) -> None:
    node.control(unreadable=["gpu-0"])
    with pytest.raises(HardwareBusyError, match="gpu-0 cannot be sampled"):
        node.sample(node.first, node.small)
    assert node.sample(node.second, node.whole)[1][0].processes == 1
    (Path(node.machine.config.state) / "faults.json").write_text(json.dumps({"absent": ["gpu-1"]}))
    with pytest.raises(CardAbsentError):
        node.sample(node.second, node.whole)


def test_a_device_that_is_gone_has_an_empty_sample(node: Node) -> None:
    node.backend.unprepare(node.small)
    assert node.sample(node.first, node.small, node.large)[1][0] == DeviceSample()
    assert node.sample(node.first, node.small, node.large)[1][1].processes == 1


def test_of_an_fpga_only_the_energy_is_known(machine: Machine, fpga: Card) -> None:
    node = Node(machine)
    handle = machine.prepare(machine.device(slots(fpga, 0, 1, "aes-gcm")), backend=node.backend)
    node.sample(fpga, handle)
    energy, samples = node.sample(fpga, handle)
    assert (energy, samples) == (70 * 15 * 1000, [DeviceSample()])


def test_the_backend_says_that_it_can_be_sampled(node: Node) -> None:
    assert isinstance(node.backend, SampledBackend)


@given(
    name=st.sampled_from(["gpu-0", "gpu-0-1g-10gb-at-0", "gpu-7-3g-40gb-at-4"]),
    begin=st.floats(0, 2e9),
    steps=st.lists(st.floats(0.5, 600), min_size=2, max_size=5),
)
def test_samples_in_a_row_give_as_much_activity_as_one_over_their_time(
    name: str, begin: float, steps: list[float]
) -> None:
    use = DeviceUse()
    times = [begin]
    for step in steps:
        times.append(times[-1] + step)
    parts = [(end - start) * find_busy_ratio(name, use, start, end) for start, end in pairwise(times)]
    whole_time = (times[-1] - begin) * find_busy_ratio(name, use, begin, times[-1])
    assert sum(parts) == pytest.approx(whole_time, rel=1e-3)
    assert all(0.2 < part / (end - start) < 1 for part, (start, end) in zip(parts, pairwise(times), strict=True))
