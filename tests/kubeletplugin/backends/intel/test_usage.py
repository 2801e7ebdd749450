"""What Intel's GPUs are used for is what the kernel says of their energy and of their clients."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, CardSample, DeviceSample, Handle
from kerf_dra.driver.kubeletplugin.backends.intel import IntelBackend
from kerf_dra.driver.kubeletplugin.backends.intel.config import IntelConfig
from kerf_dra.driver.kubeletplugin.backends.intel.handles import HANDLES, IntelHandle
from tests.fakes.intel import B580, GIB, MAX_1550, FakeDrmCalls, IntelMachine

FIRST, SECOND = "0000:03:00.0", "0000:04:00.0"


class Node:
    """A node with two cards of one driver, whose time the test passes."""

    def __init__(self, root: Path, driver: str = "xe", *, tiles: int = 1) -> None:
        self.hardware = IntelMachine(root)
        model = MAX_1550 if tiles > 1 else B580
        files = {"hwmon/hwmon3/name": driver, "hwmon/hwmon3/energy1_input": "5000000\n"}
        for number, address in enumerate((FIRST, SECOND)):
            self.hardware.add_card(number, address, model, driver=driver, tiles=tiles, render=128 + number, files=files)
        self.hardware.enter_namespace()
        self.clock = 100.0
        calls = FakeDrmCalls(memory={f"card{number}": [GIB] * tiles for number in range(2)})
        self.backend = IntelBackend(IntelConfig(system_root=str(root)), calls=calls, now=lambda: self.clock)
        self.uuids = [card.uuid for card in self.backend.discover()]

    def handle(self, card: int = 0, tile: int | None = None) -> Handle:
        made = IntelHandle(
            card=self.uuids[card], device="d", pci_address=FIRST, number=card, render=128, tiles=1, tile=tile
        )
        return HANDLES.encode(made)

    def use(self, pid: int, client: int, address: str = FIRST, descriptor: int = 5, **values: str) -> None:
        node = "/dev/dri/renderD128" if address == FIRST else f"/dev/dri/by-path/pci-{address}-render"
        lines = {"drm-driver": "xe", "drm-client-id": str(client), "drm-pdev": address}
        named = {f"drm-{name.replace('_', '-')}": value for name, value in values.items()}
        self.hardware.add_client(pid, descriptor, node, {**lines, **named})

    def sample(self, *handles: Handle, card: int = 0, after_s: float = 10.0) -> CardSample:
        self.clock += after_s
        return self.backend.sample(self.uuids[card], handles or [self.handle(card)])

    def device(self) -> DeviceSample:
        [device] = self.sample().devices
        return device


def test_energy_is_that_of_the_cards_own_sensor(tmp_path: Path) -> None:
    node = Node(tmp_path)
    other = tmp_path / f"sys/devices/pci0000:00/{FIRST}/hwmon/hwmon2"
    other.mkdir()
    (other / "name").write_text("xe_gt0\n")
    (other / "energy1_input").write_text("1\n")
    assert node.sample().energy_mj == 5000
    (other.parent / "hwmon3/energy1_input").write_text("7000999\n")
    assert node.sample().energy_mj == 7000
    assert node.sample(card=1).energy_mj == 5000


@pytest.mark.parametrize("text", ["", "much\n", "-5\n"])
def test_a_card_that_does_not_count_energy_has_none(tmp_path: Path, text: str) -> None:
    node = Node(tmp_path)
    (tmp_path / f"sys/devices/pci0000:00/{FIRST}/hwmon/hwmon3/energy1_input").write_text(text)
    assert node.sample().energy_mj is None
    shutil.rmtree(tmp_path / f"sys/devices/pci0000:00/{FIRST}/hwmon")
    assert node.sample().energy_mj is None


def test_i915_says_how_long_each_class_of_engines_worked(tmp_path: Path) -> None:
    node = Node(tmp_path, "i915")

    def work(first_s: float, second_s: float, video_s: float) -> None:
        node.use(
            11,
            1,
            engine_render=f"{first_s * 1e9:.0f} ns",
            engine_video=f"{video_s * 1e9:.0f} ns",
            engine_capacity_video="2",
            resident_local0="3 MiB",
        )
        node.use(12, 2, engine_render=f"{second_s * 1e9:.0f} ns", resident_local0="1024 KiB", resident_system0="9 MiB")

    work(100, 50, 0)
    assert node.device() == DeviceSample(memory_bytes=4 * 2**20, processes=2, busy=None)
    work(103, 51, 14)
    assert node.device().busy == pytest.approx(0.7), "two engines for videos, of which 14 of 20 seconds were used"
    work(107, 52, 14)
    assert node.device().busy == pytest.approx(0.5)
    assert node.device().busy == 0


def test_xe_says_the_cycles_of_each_class_beside_those_that_there_were(tmp_path: Path) -> None:
    node = Node(tmp_path)

    def work(cycles: int, total: int) -> None:
        node.use(11, 1, cycles_rcs=str(cycles), total_cycles_rcs=str(total), total_vram0="2 MiB")

    work(1000, 10_000)
    assert node.device() == DeviceSample(memory_bytes=2 * 2**20, processes=1, busy=None)
    work(1250, 11_000)
    assert node.device().busy == pytest.approx(0.25)
    node.use(12, 2, cycles_rcs="900", total_cycles_rcs="12000")
    work(1250, 12_000)
    assert node.device() == DeviceSample(memory_bytes=2 * 2**20, processes=2, busy=0)


def test_a_client_that_is_open_twice_counts_once_and_one_that_began_since_counts_all(tmp_path: Path) -> None:
    node = Node(tmp_path, "i915")
    assert node.device() == DeviceSample(memory_bytes=0, processes=0)
    for descriptor in (5, 6):
        node.use(11, 1, descriptor=descriptor, engine_compute="4000000000 ns", total_local0="1 MiB")
    assert node.device() == DeviceSample(memory_bytes=2**20, processes=1, busy=0.4)


def test_clients_of_another_card_and_other_files_do_not_count(tmp_path: Path) -> None:
    node = Node(tmp_path, "i915")
    node.use(11, 1, SECOND, engine_render="0 ns")
    node.hardware.add_client(12, 7, "/dev/null", {"drm-pdev": FIRST, "drm-client-id": "9"})
    node.hardware.add_client(12, 8, "/dev/dri/card0", {"flags": "02"})
    node.device()
    node.use(11, 1, SECOND, engine_render="9000000000 ns")
    assert node.device() == DeviceSample(memory_bytes=0, processes=0, busy=0)
    assert node.sample(card=1).devices[0].processes == 1


def test_processes_are_listed_once_for_all_cards(tmp_path: Path) -> None:
    node = Node(tmp_path, "i915")
    node.use(11, 1, engine_render="0 ns")
    assert node.device().processes == 1
    node.use(12, 2, SECOND, engine_render="0 ns")
    assert node.sample(card=1, after_s=0.1).devices[0].processes == 0
    assert node.sample(card=1, after_s=10).devices[0].processes == 1


def test_of_tiles_and_of_shares_it_is_known_only_that_none_is_used(tmp_path: Path) -> None:
    node = Node(tmp_path, tiles=2)
    for handles in ([node.handle(tile=0)], [node.handle(tile=0), node.handle(tile=1)], [node.handle()] * 2):
        assert node.sample(*handles).devices == (DeviceSample(processes=0),) * len(handles)
    node.use(11, 1, cycles_ccs="1", total_cycles_ccs="2")
    for handles in ([node.handle(tile=0)], [node.handle(tile=0), node.handle(tile=1)], [node.handle()] * 2):
        assert node.sample(*handles).devices == (DeviceSample(),) * len(handles)


@pytest.mark.parametrize("namespace", ["pid:[4026532000]", ""])
def test_where_other_processes_cannot_be_seen_nothing_is_known_of_them(tmp_path: Path, namespace: str) -> None:
    node = Node(tmp_path)
    node.use(11, 1, cycles_ccs="1", total_cycles_ccs="2")
    node.hardware.enter_namespace(namespace or "nowhere")
    assert node.sample() == CardSample(energy_mj=5000, devices=(DeviceSample(),))


def test_a_card_that_is_away_is_absent_and_without_proc_nothing_is_known_of_processes(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.hardware.take_away(0)
    with pytest.raises(CardAbsentError):
        node.sample()
    assert node.sample(card=1).devices[0].processes == 0
    node.hardware.bring_back(0)
    (tmp_path / "proc").rename(tmp_path / "gone")
    assert node.sample().devices == (DeviceSample(),), "the namespace is unknown then"


def test_no_handle_takes_no_look_at_processes(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.clock += 10
    assert node.backend.sample(node.uuids[0], []) == CardSample(energy_mj=5000)


def lines_of(values: Mapping[str, str]) -> dict[str, str]:
    return {f"drm-{name}": value for name, value in values.items()}


@pytest.mark.parametrize(
    "values",
    [
        {"client-id": "x", "pdev": FIRST},
        {"client-id": "1"},
        {"client-id": "1", "pdev": FIRST, "engine-render": "many ns", "resident-local0": "lots MiB"},
    ],
)
def test_what_the_kernel_should_not_say_is_left_out(tmp_path: Path, values: Mapping[str, str]) -> None:
    node = Node(tmp_path, "i915")
    node.hardware.add_client(11, 5, "/dev/dri/card0", lines_of(values))
    assert node.device().memory_bytes == 0
    assert node.device().busy == 0
