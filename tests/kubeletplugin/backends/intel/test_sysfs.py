"""Trees of Intel's GPUs of the shapes that public listings of real cards have (docs/intel.md)."""

from pathlib import Path
from typing import Final

import pytest

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError
from kerf_dra.driver.kubeletplugin.backends.intel import IntelBackend
from kerf_dra.driver.kubeletplugin.backends.intel.config import IntelConfig
from kerf_dra.driver.kubeletplugin.backends.intel.sysfs import IntelFiles, Temperature, read_condition
from kerf_dra.driver.kubeletplugin.backends.kernel_files import UnreadableFilesError
from tests.fakes.intel import B580, INTEGRATED, FakeDrmCalls, IntelMachine

BRIDGES: Final = "0000:00:01.0/0000:01:00.0/0000:02:01.0"
"""Those of an Arc card, whose processor has graphics, too."""
ARC: Final = "0000:03:00.0"
GRAPHICS: Final = "0000:00:02.0"


@pytest.fixture
def machine(tmp_path: Path) -> IntelMachine:
    made = IntelMachine(tmp_path)
    made.add_card(0, GRAPHICS, INTEGRATED, driver="i915")
    made.add_card(1, ARC, B580, render=129, numa_node=-1, bridges=BRIDGES)
    return made


def test_a_card_behind_bridges_is_one_with_its_own_address_and_its_connectors_are_none(machine: IntelMachine) -> None:
    problems: list[KerfError] = []
    cards = IntelFiles(machine.root).list_cards(problems)
    assert problems == []
    found = [(card.pci_address, card.pcie_root, card.numa_node, card.driver, card.tiles) for card in cards]
    assert found == [(GRAPHICS, "pci0000:00", 0, "i915", 1), (ARC, "pci0000:00", 0, "xe", 1)]


@pytest.mark.parametrize(
    ("sensors", "temperatures"),
    [
        ({"name": "i915", "in0_input": "653", "fan1_input": "3833", "power1_max": "43000000"}, ()),
        (
            {"name": "xe", "temp2_input": "45000", "temp2_label": "pkg", "temp3_input": "52000", "temp3_label": "vram"},
            (
                Temperature(name="pkg", value=45, critical=None, emergency=None),
                Temperature(name="vram", value=52, critical=None, emergency=None),
            ),
        ),
        (
            {"temp2_input": "45000", "temp2_max": "100000", "temp2_crit": "105000", "temp2_emergency": "125000"},
            (Temperature(name="temp2", value=45, critical=105, emergency=125),),
        ),
    ],
    ids=["i915 without a temperature", "xe of Linux 6.15", "xe with limits"],
)
def test_sensors_of_each_driver_are_read_with_the_limits_that_they_have(
    sensors: dict[str, str], temperatures: tuple[Temperature, ...], tmp_path: Path
) -> None:
    machine = IntelMachine(tmp_path)
    machine.add_card(0, ARC, B580, files={f"hwmon/hwmon4/{name}": f"{text}\n" for name, text in sensors.items()})
    machine.add_card(1, GRAPHICS, INTEGRATED, files={"hwmon/hwmon5/name": "i915_gt0\n"})
    other, card = IntelFiles(machine.root).list_cards([])
    assert read_condition(machine.root, card).temperatures == temperatures
    assert read_condition(machine.root, other).temperatures == ()


def test_a_card_that_boots_in_survivability_mode_has_no_drm_device_and_is_explained(machine: IntelMachine) -> None:
    devices = machine.root / "sys/bus/pci/devices"
    for address, folder in ((ARC, f"{BRIDGES}/{ARC}"), (GRAPHICS, GRAPHICS)):
        devices.mkdir(parents=True, exist_ok=True)
        (devices / address).symlink_to(machine.root / "sys/devices/pci0000:00" / folder)
        (devices / address / "class").write_text("0x030000\n")
    machine.take_away(1)
    (devices / ARC / "survivability_mode").write_text("Survivability mode type: Boot\nPostcode Info: 0x1 - 0x2\n")
    backend = IntelBackend(IntelConfig(system_root=str(machine.root)), calls=FakeDrmCalls())
    [unlisted] = backend.list_unlisted(backend.discover())
    assert unlisted.pci_address == ARC
    assert "Survivability mode type: Boot Postcode Info: 0x1 - 0x2" in unlisted.problem
    assert "flash" in unlisted.next_step


def test_a_survivability_mode_that_cannot_be_read_is_one_all_the_same(machine: IntelMachine) -> None:
    _, card = IntelFiles(machine.root).list_cards([])
    assert read_condition(machine.root, card).survivability == ""
    (machine.root / "sys/devices/pci0000:00" / BRIDGES / ARC / "survivability_mode").mkdir()
    assert read_condition(machine.root, card).survivability == "it cannot be read"


@pytest.mark.parametrize("file", ["vendor", "device"])
def test_a_card_with_an_unreadable_file_is_reported_and_the_other_card_stays(file: str, machine: IntelMachine) -> None:
    path = machine.root / "sys/devices/pci0000:00" / BRIDGES / ARC / file
    path.unlink()
    path.mkdir()
    problems: list[KerfError] = []
    [card] = IntelFiles(machine.root).list_cards(problems)
    assert card.pci_address == GRAPHICS
    [problem] = problems
    assert isinstance(problem, UnreadableFilesError | CardAbsentError)
    assert str(path.name) in str(problem)
