"""The backend ``dfl`` with virtual functions (FP-19), on stand-ins of cards."""

import time
from collections.abc import Collection, Hashable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from msgspec import structs

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, FpgaConfig
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError, HardwareHeldError, HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.dfl import DflBackend
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import FME_PORT_ASSIGN, FME_PORT_RELEASE
from kerf_dra.driver.kubeletplugin.backends.dfl.handles import HANDLES, build_edits
from kerf_dra.driver.partitions.geometry import Partition, Placement
from kerf_dra.driver.testing import BackendContract, MachineUnderTest, ProcessKilled
from kerf_dra.driver.testing.plugin import DeviceRecord, PluginStandIn
from tests.fakes.dfl import NEEDS_COMPILER, CardLayout
from tests.fakes.dfl.machine import AES_ID, BLANK_ID, TWO_CARDS, DflMachine
from tests.fakes.dfl.virtual_functions import SriovCalls, add_sriov
from tests.kubeletplugin.backends.dfl.machine import DflMachineUnderTest

pytestmark = NEEDS_COMPILER

ONE_PORT: Final = tuple(replace(card, ports=1) for card in TWO_CARDS)


class SriovMachineUnderTest(MachineUnderTest):
    """Two cards, with one port each unless a test says more, that are given as virtual functions."""

    def __init__(self, folder: Path, cards: tuple[CardLayout, ...] = ONE_PORT) -> None:
        ports = cards[0].ports
        self.hardware = DflMachine.create(folder, cards)
        self.hardware.describe(ports)
        add_sriov(self.hardware, ports)
        self.ports = ports * len(cards)
        self.document = structs.replace(
            DflMachineUnderTest.describe(self.hardware),
            virtual_functions=True,
        )
        self._points_left: int | None = None

    def open_backend(self) -> DflBackend:
        return DflBackend(self.document, calls=SriovCalls(self.hardware, self._pass_point), now=time.monotonic)

    def config(self, partition: Partition) -> DeviceConfigBase | None:
        return None if partition.function else FpgaConfig(api_version="kerf.dev/v1alpha1", function="aes")

    def partitions(self, card: object) -> list[Partition]:
        """Return what can be had: of a card with one port that, else the whole."""
        found = super().partitions(card)  # type: ignore[arg-type]
        return [one for one in found if (one.placement is None) != (self.hardware_slots == 1)]

    @property
    def hardware_slots(self) -> int:
        return self.ports // 2

    def idle(self, card_uuid: str) -> Collection[Hashable]:
        """What ports report that are there."""
        del card_uuid
        there = [port for port in range(self.ports) if self._is_there(port)]
        return [(port, loaded) for port in there if (loaded := self.hardware.read_afu_id(port)) != BLANK_ID]

    def kill_at(self, point: int | None) -> None:
        self._points_left = point

    def _is_there(self, port: int) -> bool:
        return bool(list((self.hardware.folder / "sys/class/fpga_region").glob(f"region*/dfl-port.{port}")))

    def _pass_point(self) -> None:
        if self._points_left is not None:
            self._points_left -= 1
            if self._points_left == 0:
                raise ProcessKilled


@pytest.mark.long  # the tests below have what virtual functions add
class TestVirtualFunctions(BackendContract):
    """What is given as virtual functions keeps the contract of backends."""

    family = FPGA
    management_nodes = ("*dfl-fme*", "*dfl-port*")

    def new_machine(self, folder: Path) -> MachineUnderTest:
        return SriovMachineUnderTest(folder)

    def test_cards_are_worked_on_in_threads_of_their_own(self, plugin: PluginStandIn) -> None:
        pytest.skip("a card is given as one device: none is side by side with another")


class Card:
    """A plugin on a machine whose cards have four ports each."""

    def __init__(self, folder: Path, cards: tuple[CardLayout, ...] = TWO_CARDS) -> None:
        self.machine = SriovMachineUnderTest(folder / "machine", cards)
        self.hardware = self.machine.hardware
        self.plugin = PluginStandIn(self.machine, FPGA)

    def allocate(self, placement: Placement | None = None, function: str | None = None) -> DeviceRecord:
        uuid = self.plugin.cards[0].uuid
        return self.plugin.allocate(Partition(kind="fpga", card_uuid=uuid, placement=placement, function=function), "c")

    def prepare(self) -> DeviceRecord:
        record = self.allocate()
        self.plugin.prepare(record)
        return record

    def loaded(self) -> list[str]:
        return [self.hardware.read_afu_id(port) for port in range(4)]

    def use(self, group: str) -> None:
        """Let a process have a group open."""
        process = self.hardware.folder / "proc/4711"
        (process / "fd").mkdir(parents=True)
        (process / "fd/3").symlink_to(f"/dev/vfio/{group}")
        (process / "comm").write_text("qemu\n")


@pytest.fixture
def card(tmp_path: Path) -> Card:
    return Card(tmp_path)


def test_all_ports_are_loaded_released_and_given_as_virtual_functions(card: Card) -> None:
    """FP-19, FP-15."""
    record = card.prepare()
    assert record.handle is not None
    edits = card.plugin.backend.edits(record.handle)
    assert [node.path for node in edits.device_nodes] == [
        "/dev/vfio/vfio",
        "/dev/vfio/40",
        "/dev/vfio/41",
        "/dev/vfio/42",
        "/dev/vfio/43",
    ]
    assert {*edits.env} == {
        "KERF_DEVICE_FPGA_0=aes",
        "KERF_VF_FPGA_0=0000:3b:00.1,0000:3b:00.2,0000:3b:00.3,0000:3b:00.4",
        f"KERF_AFU_ID_FPGA_0={AES_ID}",
        "KERF_VERSION_FPGA_0=1.2.0",
        "KERF_PARAMETER_FPGA_0_LANES=8",
    }
    calls = [call for call in card.hardware.calls() if not call.startswith("reset")]
    assert [call.split()[0] for call in calls] == ["pr", *["release"] * 4, "sriov_numvfs"]
    [found] = card.plugin.survey(record.partition.card_uuid).partitions
    assert (found.id, found.placement, found.in_use) == ("virtual-functions", None, None)


def test_what_was_given_to_a_claim_is_left_alone_when_the_claim_is_prepared_again(card: Card) -> None:
    """A virtual machine may run with it."""
    record = card.prepare()
    handle, calls = record.handle, card.hardware.calls()
    card.plugin.restart()
    assert card.plugin.prepare(record) == handle
    assert card.hardware.calls() == calls


def test_the_numbers_are_those_of_the_kernel() -> None:
    """FP-07: ``include/uapi/linux/fpga-dfl.h``."""
    assert (FME_PORT_RELEASE, FME_PORT_ASSIGN) == (0x4004B681, 0x4004B682)


def test_the_nodes_are_the_hosts_unless_the_card_is_a_stand_in(card: Card) -> None:
    record = card.prepare()
    assert record.handle is not None
    nodes = build_edits(HANDLES.decode({**record.handle, "is_stand_in": False})).device_nodes
    assert {node.host_path for node in nodes} == {""}


def test_a_release_gives_the_ports_back_and_clears_them(card: Card) -> None:
    """FP-19, FP-13 (blank)."""
    record = card.prepare()
    card.plugin.release(record)
    assert card.loaded() == [BLANK_ID] * 4
    assert card.plugin.is_empty
    assert "sriov_numvfs 0" in card.hardware.calls()


@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "taken-back"])
def test_killed_at_any_change_the_next_process_finishes_or_takes_back(is_finished: bool, card: Card) -> None:
    """FP-12."""
    for point in range(1, 200):
        record = card.allocate()
        card.machine.kill_at(point)
        is_killed = _is_killed(card.plugin, record)
        card.plugin.restart()
        if is_finished:
            handle = card.plugin.prepare(record)
            assert len(handle["functions"]) == 4
        card.plugin.release(record)
        assert card.loaded() == [BLANK_ID] * 4, point
        assert card.plugin.is_empty, point
        if not is_killed:
            return
    pytest.fail("it is killed at every point")


def _is_killed(plugin: PluginStandIn, record: DeviceRecord) -> bool:
    try:
        plugin.prepare(record)
    except ProcessKilled:
        return True
    return False


def test_a_card_is_given_whole_or_by_its_one_slot(card: Card, tmp_path: Path) -> None:
    with pytest.raises(HardwareBusyError, match="all ports at once"):
        card.plugin.prepare(card.allocate(Placement(1, 1), "aes"))
    single = Card(tmp_path / "single", ONE_PORT)
    with pytest.raises(HardwareBusyError, match="ask for the card's one slot"):
        single.plugin.prepare(single.allocate())
    record = single.allocate(Placement(0, 1), "aes")
    handle = single.plugin.prepare(record)
    assert [one["address"] for one in handle["functions"]] == ["0000:3b:00.1"]
    assert single.plugin.is_there(record.partition)


def test_a_release_waits_for_the_process_that_uses_a_virtual_function(card: Card) -> None:
    record = card.prepare()
    card.use("42")
    with pytest.raises(HardwareHeldError, match=r"process 4711 \(qemu\) has /dev/vfio/42 open"):
        card.plugin.release(record)
    assert "sriov_numvfs 0" not in card.hardware.calls()


def test_a_virtual_function_that_cannot_be_had_by_itself_is_refused(card: Card) -> None:
    (card.hardware.folder / "sys/kernel/iommu_groups/41/devices/0000:00:1f.0").mkdir(parents=True)
    record = card.allocate()
    with pytest.raises(HardwareRefusedError, match=r"00\.2 shares its IOMMU group with 0000:00:1f\.0"):
        card.plugin.prepare(record)
    card.plugin.release(record)
    assert card.loaded() == [BLANK_ID] * 4
