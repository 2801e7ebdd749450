"""Trees of the shapes of recorded cards are read, and what is damaged or belongs to other functions is left out."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.kubeletplugin.backends.base import HealthChange, HealthState
from kerf_dra.driver.kubeletplugin.backends.dfl import DflBackend
from kerf_dra.driver.kubeletplugin.backends.dfl.config import DflConfig
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import DflDriver, LinuxSystemCalls
from kerf_dra.driver.kubeletplugin.backends.dfl.sysfs import CardFiles
from tests.fakes.dfl.machine import build_document
from tests.fakes.dfl.recorded_shapes import SHAPES, RecordedShape, ShapeTree

BY_NAME: Final = {shape.name: shape for shape in SHAPES}
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)


def open_backend(tree: ShapeTree, *, gives_functions: bool = False) -> DflBackend:
    """A backend on a tree whose card is described."""
    descriptions = tree.root / "descriptions"
    descriptions.mkdir(exist_ok=True)
    interface = str(uuid.UUID(tree.shape.compat_id)) if tree.shape.compat_id else str(uuid.UUID(int=1))
    document = build_document("FpgaShell", "lab", interfaceUUID=interface, slots=[{"lut": 60000}])
    (descriptions / "shell.yaml").write_text(json.dumps(document))
    return DflBackend(
        DflConfig(
            description_folder=str(descriptions),
            image_folder=str(tree.root / "images"),
            system_root=str(tree.root),
            cache_folder=str(tree.root / "cache"),
            health_poll_seconds=0.01,
            virtual_functions=gives_functions,
        )
    )


def list_problems(backend: DflBackend) -> list[str]:
    """Why the machine's cards of the driver are not published."""
    return [card.problem for card in backend.list_unlisted(backend.discover())]


@every_shape
def test_each_recorded_shape_is_one_card_with_one_port(shape: RecordedShape, tmp_path: Path) -> None:
    tree = ShapeTree(tmp_path, shape)
    problems: list[KerfError] = []
    files = CardFiles(tree.root)
    [card] = files.list_cards(problems)
    assert problems == []
    layout = shape.layout
    assert (card.pci_address, card.pcie_root, card.numa_node) == (layout.pci_address, layout.root, layout.numa_node)
    assert (card.fme, card.slots, [port.slot for port in card.ports]) == (0, 1, [0])
    assert card.interfaces == ((str(uuid.UUID(shape.compat_id)),) if shape.compat_id else ())
    driver = DflDriver(files, LinuxSystemCalls())
    assert driver.read_afu_id(card, card.ports[0]) == (str(uuid.UUID(shape.afu_id)) if shape.afu_id else "")
    assert files.read_port_errors(card, card.ports[0]) == 0
    condition = files.read_condition(card)
    assert (dict(condition.errors), condition.alarms) == ({}, ())


@every_shape
def test_a_card_is_published_if_its_port_says_which_function_it_has(shape: RecordedShape, tmp_path: Path) -> None:
    backend = open_backend(ShapeTree(tmp_path, shape))
    cards = backend.discover()
    assert [card.pci_bus_id for card in cards] == ([shape.address] if shape.afu_id else [])
    unlisted = backend.list_unlisted(cards)
    assert [card.pci_address for card in unlisted] == ([] if shape.afu_id else [shape.address]), "each card once"


@pytest.mark.parametrize(
    ("name", "reason"), [("n6000-sku0", "shows no afu_id of port 0"), ("c6100", "the kernel shows no compat_id")]
)
@pytest.mark.parametrize("has_driver", [True, False], ids=["with its driver", "without a link to its driver"])
def test_a_card_that_cannot_be_loaded_says_why(name: str, reason: str, has_driver: bool, tmp_path: Path) -> None:
    tree = ShapeTree(tmp_path, BY_NAME[name])
    if not has_driver:  # as in recordings
        (tree.device / "driver").unlink()
    [problem] = list_problems(open_backend(tree))
    assert reason in problem


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda tree: tree.write(tree.port / "id", "first"), "does not say which port it is"),
        (lambda tree: tree.write(tree.port / "id", "3"), "has the ports 3, but its ports_num is 1"),
        (lambda tree: (tree.engine / "ports_num").unlink(), "has the ports 0, but its ports_num is 0"),
        (lambda tree: tree.write(tree.engine / "ports_num", "many"), "has no number"),
        (lambda tree: add_port(tree, 1), "has the ports 0, 0, but its ports_num is 1"),
        (lambda tree: replace_by_folder(tree.engine / "ports_num"), "cannot be read"),
        (lambda tree: replace_by_folder(tree.port / "id"), "cannot be read"),
        (lambda tree: replace_by_folder(next(tree.engine.glob("dfl-fme-region.*/*/*/compat_id"))), "cannot be read"),
    ],
)
def test_a_damaged_card_is_left_out_with_its_reason_and_the_other_card_stays(
    damage: Callable[[ShapeTree], None], reason: str, tmp_path: Path
) -> None:
    tree = ShapeTree(tmp_path, BY_NAME["n3000"])
    add_second_card(tree)
    damage(tree)
    backend = open_backend(tree)
    cards = backend.discover()
    assert [card.pci_bus_id for card in cards] == ["0000:d8:00.0"]
    problems: list[KerfError] = []
    CardFiles(tree.root).list_cards(problems)
    [unlisted] = [card for card in backend.list_unlisted(cards) if card.pci_address == tree.shape.address]
    assert reason in f"{unlisted.problem} {problems}"


def add_port(tree: ShapeTree, number: int) -> None:
    """A second folder of a port with the same id."""
    port = tree.region / f"dfl-port.{number}"
    tree.write(port / "id", "0")
    tree.write(port / "afu_id", tree.shape.afu_id)


def replace_by_folder(path: Path) -> None:
    """Let reads of a file fail also for root."""
    path.unlink()
    path.mkdir()


def add_second_card(tree: ShapeTree) -> None:
    """A card that is as the first one, at another place."""
    shape = tree.shape
    region = tree.root / "sys/devices/pci0000:d7/0000:d8:00.0/fpga_region/region7"
    tree.write(region / "dfl-fme.1/ports_num", "1")
    tree.write(region / "dfl-fme.1/dfl-fme-region.3/fpga_region/region8/compat_id", shape.compat_id)
    tree.write(region / "dfl-port.4/id", "0")
    tree.write(region / "dfl-port.4/afu_id", shape.afu_id)
    (tree.root / "sys/class/fpga_region/region7").symlink_to(region)


def test_a_port_of_another_function_is_none_of_the_cards(tmp_path: Path) -> None:
    tree = ShapeTree(tmp_path, BY_NAME["n6000-sku1"])
    [other] = (tree.root / "sys/devices").glob("*/*/0000:b1:00.1/fpga_region/*")
    tree.write(other / "dfl-port.1/id", "1")
    tree.write(tree.engine / "ports_num", "2")
    [card] = CardFiles(tree.root).list_cards([])
    assert (card.slots, [port.slot for port in card.ports]) == (2, [0])


@pytest.mark.parametrize("gives_functions", [True, False])
def test_virtual_functions_that_were_made_by_hand_hold_the_card_though_its_port_is_there(
    gives_functions: bool, tmp_path: Path
) -> None:
    tree = ShapeTree(tmp_path, BY_NAME["n6000-sku1"])
    tree.write(tree.port / "afu_id", "9aeffe5f84570612c000c9660d824272")
    backend = open_backend(tree, gives_functions=gives_functions)
    [card] = backend.discover()
    found = [one.id for one in backend.survey(card.uuid).partitions]
    assert found == (["virtual-functions"] if gives_functions else [])


@pytest.mark.parametrize("limit", ["max", "crit"])
@every_shape
def test_a_temperature_at_a_limit_without_an_alarm_is_an_alarm(
    shape: RecordedShape, limit: str, tmp_path: Path
) -> None:
    tree = ShapeTree(tmp_path, shape)
    files = CardFiles(tree.root)
    [card] = files.list_cards([])
    tree.write(tree.sensor / f"temp1_{limit}", "43000")
    [alarm] = files.read_condition(card).alarms
    assert alarm.reason.endswith(f"bmc_hwmon FPGA Core Temperature: 43.5 C, and {limit} is 43 C")
    tree.write(tree.sensor / f"temp1_{limit}_alarm", "0")
    assert files.read_condition(card).alarms == (), "the alarm knows better"


def test_a_card_that_was_too_hot_gets_claims_again_once_it_is_5_degrees_below_its_limit(tmp_path: Path) -> None:
    tree = ShapeTree(tmp_path, BY_NAME["d5005"])
    backend = open_backend(tree)
    backend.discover()

    def heat(celsius: int) -> list[HealthState]:
        tree.write(tree.sensor / "temp1_input", f"{celsius}000")
        return [one.state for one in backend.wait_for_events(0.1) if isinstance(one, HealthChange)]

    assert heat(89) == []
    assert heat(101) == [HealthState.UNHEALTHY], "a comparison evicts no pod"
    assert HealthState.HEALTHY not in heat(86)
    assert heat(84)[-1:] == [HealthState.HEALTHY]
