"""The kernel's files of FPGA and Intel cards cannot be read, or their file system is gone: nothing is taken for absent.

Two cards have a function for a claim each. What is damaged is what the kernel says; the cards work, and afterwards the
files are as before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, HealthChange
from tests.fakes.dfl.machine import NEEDS_COMPILER
from tests.fakes.intel import MAX_1550, IntelMachine
from tests.kubeletplugin.backends.dfl.machine import DflNode
from tests.kubeletplugin.backends.fpga.node import FpgaNode
from tests.kubeletplugin.backends.intel.test_backend import backend as intel_backend
from tests.kubeletplugin.backends.slots.machine import SlotsNode
from tests.kubeletplugin.backends.xrt.machine import XrtNode

pytestmark = NEEDS_COMPILER

Damage = Callable[[Path], object]

FOLDERS: Final = ("sys", "sys/class", "sys/class/fpga_region", "sys/bus/pci/drivers/xocl", "sys/class/drm", "proc")


def make_unreadable(path: Path) -> None:
    """Let each open of the path fail: with ELOOP, as a test may run as root, whom no mode stops."""
    path.symlink_to(path.name)


DAMAGES: Final[dict[str, Damage]] = {"gone": lambda _: None, "empty": Path.mkdir, "unreadable": make_unreadable}
"""What is in the place of a folder."""


@contextmanager
def damaged(path: Path, damage: Damage) -> Iterator[None]:
    """Put what ``damage`` makes in the place of a file or folder for a while."""
    kept = path.with_name(f"kept-{path.name}")
    path.rename(kept)
    damage(path)
    yield
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        path.rmdir()
    kept.rename(path)


@pytest.fixture(params=[DflNode, XrtNode], ids=["dfl", "xrt"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> FpgaNode:
    made: FpgaNode = request.param(tmp_path)
    return made


def prepare_on_both_cards(node: FpgaNode) -> None:
    for card in node.plugin.cards[:2]:
        partition = node.plugin.machine.partitions(card)[0]
        record = node.plugin.allocate(partition, f"claim-{card.index}")
        node.plugin.prepare(record)


def try_release(node: FpgaNode, path: Path, damage: Damage) -> None:
    """Release all claims while a path is damaged, and again afterwards; then nothing is left on any card."""
    prepare_on_both_cards(node)
    released = []
    with damaged(path, damage):
        for record in [*node.plugin.records]:
            with suppress(Exception):
                node.plugin.release(record)
                released.append(record.partition.card_uuid)
    for card_uuid in released:
        assert not node.plugin.machine.idle(card_uuid), f"released without {path}, and still there"
    for record in [*node.plugin.records]:
        node.plugin.release(record)
    assert node.plugin.is_empty


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_release_without_folders_of_the_kernel_fails_or_is_complete(node: FpgaNode, damage: Damage) -> None:
    root = node.plugin.machine.hardware.folder  # type: ignore[attr-defined]
    for path in (root / name for name in FOLDERS):
        if path.is_dir():
            try_release(node, path, damage)


def test_a_release_without_an_attribute_of_the_kernel_fails_or_is_complete(node: FpgaNode) -> None:
    root: Path = node.plugin.machine.hardware.folder  # type: ignore[attr-defined]
    for path in sorted(one for one in (root / "sys").rglob("*") if one.is_file() and not one.is_symlink()):
        try_release(node, path, make_unreadable)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_cards_whose_file_system_is_gone_are_neither_empty_nor_lost(node: FpgaNode, damage: Damage) -> None:
    """A lost card evicts its pods; an empty one gets further claims."""
    prepare_on_both_cards(node)
    node.backend.wait_for_events(0.0)
    before = node.plugin.contents()
    with damaged(node.plugin.machine.hardware.folder / "sys", damage):  # type: ignore[attr-defined]
        for card in node.plugin.cards:
            with pytest.raises(Exception, match="sys") as error:
                node.backend.survey(card.uuid)
            assert not isinstance(error.value, CardAbsentError)
        with suppress(Exception):
            assert not [one for one in node.backend.wait_for_events(0.0) if isinstance(one, HealthChange)]
    assert node.plugin.contents() == before


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_intel_cards_whose_file_system_is_gone_are_neither_absent_nor_lost(damage: Damage, tmp_path: Path) -> None:
    machine = IntelMachine(tmp_path)
    for number in range(2):
        machine.add_card(number, f"0000:{number}3:00.0", MAX_1550, tiles=2, render=128 + number)
    backend = intel_backend(machine, card0=[64, 64], card1=[64, 64])
    backend.open()
    cards = backend.discover()
    assert (len(cards), list(backend.wait_for_events(0.0))) == (2, [])
    with damaged(machine.root / "sys", damage):
        for call in (backend.discover, lambda: backend.survey(cards[0].uuid)):
            with pytest.raises(Exception, match="sys") as error:
                call()
            assert not isinstance(error.value, CardAbsentError)
        with suppress(Exception):
            assert list(backend.wait_for_events(0.0)) == []
    machine.take_away(0)
    with pytest.raises(CardAbsentError):
        backend.survey(cards[0].uuid)


def test_a_board_whose_file_system_is_gone_is_neither_absent_nor_lost(tmp_path: Path) -> None:
    node = SlotsNode(tmp_path)
    records = [node.prepare(node.part(slot, function="aes")) for slot in range(2)]
    node.backend.wait_for_events(0.0)
    before = node.loaded()
    for damage in DAMAGES.values():
        with damaged(node.hardware.folder / "sys", damage):
            for record in records:
                with pytest.raises(Exception, match="sys") as error:
                    node.plugin.release(record)
                assert not isinstance(error.value, CardAbsentError)
            with suppress(Exception):
                assert not [one for one in node.backend.wait_for_events(0.0) if isinstance(one, HealthChange)]
    assert node.loaded() == before
    for record in records:
        node.plugin.release(record)
    assert node.loaded() == {}
