"""The energy of a DFL card is summed up from its power; whether its functions are used follows from open ports."""

from pathlib import Path

import pytest

from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.kubeletplugin.backends.base import CardSample, DeviceSample
from kerf_dra.driver.kubeletplugin.backends.dfl import DflBackend
from kerf_dra.driver.kubeletplugin.backends.dfl.handles import DflHandle, FunctionHandle, SlotHandle
from kerf_dra.driver.kubeletplugin.backends.dfl.usage import PowerMeter, sample_devices
from kerf_dra.driver.testing.plugin import DeviceRecord, PluginStandIn
from tests.fakes.dfl import DflMachine
from tests.kubeletplugin.backends.dfl.machine import DflMachineUnderTest

FIRST_NAMESPACE = "pid:[4026531836]"


class Node:
    """A node with two cards, whose time the test passes."""

    def __init__(self, folder: Path) -> None:
        self.clock = 50.0
        self.machine = DflMachineUnderTest(folder, now=lambda: self.clock)
        self.plugin = PluginStandIn(self.machine, FPGA)
        enter_namespace(folder)

    @property
    def hardware(self) -> DflMachine:
        return self.machine.hardware

    def set_power(self, text: str, card: int = 0, sensor: str = "dfl_fme_power") -> None:
        folder = self.hardware.fme_folder(card) / "hwmon/hwmon9"
        folder.mkdir(exist_ok=True)
        (folder / "name").write_text(f"{sensor}\n")
        (folder / "power1_input").write_text(text)

    def prepare(self, slot: int, card: int = 0) -> DeviceRecord:
        chosen = self.plugin.cards[card]
        (partition,) = [
            one
            for one in self.machine.partitions(chosen)
            if one.function is None
            and one.placement is not None
            and (one.placement.start, one.placement.size) == (slot, 1)
        ]
        record = self.plugin.allocate(partition, f"user-{card}-{slot}")
        self.plugin.prepare(record)
        return record

    def sample(self, *records: DeviceRecord, card: int = 0, after_s: float = 10.0) -> CardSample:
        self.clock += after_s
        backend = self.plugin.backend
        assert isinstance(backend, DflBackend)
        return backend.sample(self.plugin.cards[card].uuid, [record.handle or {} for record in records])


def enter_namespace(root: Path, name: str = FIRST_NAMESPACE) -> None:
    link = root / "proc/self/ns/pid"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(name)


def test_energy_is_the_mean_power_times_the_time(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.set_power("20000000\n")
    node.set_power("1000000\n", card=1)
    assert node.sample().energy_mj == 0
    assert node.sample(card=1).energy_mj == 0
    node.set_power("30000000\n")
    assert node.sample(after_s=4).energy_mj == (20 + 30) // 2 * 14 * 1000
    assert node.sample(card=1, after_s=0).energy_mj == 4 * 1000
    node.plugin.close()


def test_a_machine_that_slept_has_used_nothing_meanwhile() -> None:
    meter = PowerMeter()
    assert [meter.add("a", 1_000_000, now) for now in (0, 10, 400, 410)] == [0, 10_000, 10_000, 20_000]
    assert meter.add("a", None, 420) is None
    assert meter.add("a", 1_000_000, 430) == 20_000, "of a time without measurements nothing is known"


@pytest.mark.parametrize(("text", "sensor"), [("", "dfl_fme_power"), ("-1\n", "dfl_fme_power"), ("5\n", "board")])
def test_a_card_that_does_not_measure_its_power_has_no_energy(tmp_path: Path, text: str, sensor: str) -> None:
    node = Node(tmp_path)
    assert node.sample().energy_mj is None
    node.set_power(text, sensor=sensor)
    assert node.sample().energy_mj is None
    node.plugin.close()


def test_a_slot_is_used_by_the_processes_that_have_its_port_open(tmp_path: Path) -> None:
    node = Node(tmp_path)
    records = [node.prepare(0), node.prepare(2)]
    assert node.sample(*records).devices == (DeviceSample(processes=0), DeviceSample(processes=0))
    node.hardware.use(2)
    assert node.sample(*records).devices == (DeviceSample(processes=0), DeviceSample(processes=1))
    assert node.sample().devices == ()
    node.hardware.stop_using(2)
    assert node.sample(*records).devices == (DeviceSample(processes=0), DeviceSample(processes=0))
    node.plugin.close()


def test_where_other_processes_cannot_be_seen_no_slot_is_unused(tmp_path: Path) -> None:
    node = Node(tmp_path)
    record = node.prepare(0)
    enter_namespace(tmp_path, "pid:[4026532000]")
    assert node.sample(record).devices == (DeviceSample(),)
    node.plugin.close()


def test_a_virtual_function_is_used_by_those_who_have_its_own_node_open(tmp_path: Path) -> None:
    enter_namespace(tmp_path)
    handles = [
        DflHandle(
            card="c",
            device="d",
            slots=(SlotHandle(slot=0, port=0),),
            functions=(FunctionHandle(address=f"0000:0{group}:00.1", group=group),),
        )
        for group in ("7", "8")
    ]
    for number, node in enumerate(("/dev/vfio/vfio", "/dev/vfio/8")):
        folder = tmp_path / "proc/31/fd"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).symlink_to(node)
    found = sample_devices(tmp_path / "proc", handles)
    assert found == (DeviceSample(processes=0), DeviceSample(processes=1))
