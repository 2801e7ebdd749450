"""Base designs of a board as layouts: which one is loaded when, how one is exchanged for another, what is refused."""

import json
import logging
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardChange,
    HardwareBusyError,
    HardwareConflictError,
    HardwareRefusedError,
)
from kerf_dra.driver.kubeletplugin.backends.slots import SlotsBackend
from kerf_dra.driver.kubeletplugin.backends.slots.messages import show_base
from kerf_dra.driver.kubeletplugin.backends.slots.overlays import read_overlays
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.testing import ProcessKilled
from tests.fakes.dfx.machine import BASE, FLAT, HALVES, DfxMachine
from tests.kubeletplugin.backends.slots.machine import SlotsNode

THREE, TWO, VADD = (path.rpartition("/")[2] for path in (BASE, HALVES, FLAT))


class LayoutNode(SlotsNode):
    """A board with three layouts."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, has_layouts=True)

    def half(self, slot: int = 0, function: str | None = "aes") -> Partition:
        return replace(self.part(slot, function=function), placement=Placement(slot, 1, layout="halves"))

    def flat(self) -> Partition:
        return replace(self.part(function="vadd"), placement=Placement(0, 1, layout="flat"))

    @property
    def now(self) -> Card:
        """The card as it is discovered now."""
        [card] = self.backend.discover()
        return card

    def fail_to_prepare(self, partition: Partition, error: type[KerfError], message: str) -> None:
        """Prepare ``partition``, which is refused, and release it again."""
        record = self.allocate(partition)
        with pytest.raises(error, match=message):
            self.plugin.prepare(record)
        self.plugin.release(record)

    def new_calls(self) -> list[str]:
        """The calls since the last time."""
        calls = self.hardware.calls()
        (self.hardware.folder / "log").write_text("")
        return calls


@pytest.fixture
def node(tmp_path: Path) -> LayoutNode:
    return LayoutNode(tmp_path)


# Discovery


def test_the_devices_of_all_layouts_are_those_of_one_card(node: LayoutNode) -> None:
    """FP-10."""
    assert [(one.name, one.units) for one in node.card.geometry.layouts] == [("", 3), ("halves", 2), ("flat", 1)]
    specs = {device_name(node.card, spec.of(node.card.uuid)): spec for spec in node.card.geometry.specs}
    assert {"fpga-0-slot-2", "fpga-0-fft-at-1", "fpga-0-slot-1-of-halves", "fpga-0-sobel-at-0-of-halves"} <= {*specs}
    assert "fpga-0-vadd-at-0-of-flat" in specs
    attributes = dict(specs["fpga-0-aes-at-1-of-halves"].attributes)
    assert attributes["interfaceUUID"].value == node.hardware.interface(HALVES)
    loads = {name: spec.load_s for name, spec in specs.items()}
    assert (loads["fpga-0-aes-at-1-of-halves"], loads["fpga-0-vadd-at-0-of-flat"]) == (40.4, 2.4)


def test_a_layout_whose_base_design_is_not_on_the_board_is_left_out(node: LayoutNode) -> None:
    shutil.rmtree(node.hardware.firmware / FLAT)
    assert [one.name for one in node.now.geometry.layouts] == ["", "halves"]
    assert {spec.function for spec in node.now.geometry.specs} == {None, "aes", "fft", "sobel"}


def test_a_single_base_design_is_a_card_without_layouts_whichever_it_is(node: LayoutNode) -> None:
    for path in (BASE, HALVES, FLAT):
        [card] = SlotsBackend(structs.replace(node.machine.document, base=path)).discover()
        assert card.geometry.layouts == ()
        assert dict(card.geometry.attributes)["interfaceUUID"].value == node.hardware.interface(path)


def _same_name(hardware: DfxMachine) -> None:
    shutil.move(hardware.firmware / HALVES, hardware.firmware / "other" / THREE)


def _not_loaded(hardware: DfxMachine) -> None:
    file = hardware.firmware / HALVES / "shell.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "load_base_design": "no"}))
    hardware.describe_layouts()


def _without_first(hardware: DfxMachine) -> None:
    shutil.rmtree(hardware.firmware / BASE)


def _described(**changes: object) -> Callable[[DfxMachine], None]:
    def change(hardware: DfxMachine) -> None:
        file = hardware.descriptions / "kr260.yaml"
        document = json.loads(file.read_text())
        document["spec"]["layouts"][1] = {"name": "flat", "interfaceUUID": hardware.interface(FLAT), **changes}
        hardware.write_description(document)

    return change


@pytest.mark.parametrize(
    ("change", "message", "is_card"),
    [
        (_same_name, "have one name: kr260/k26_3rp_1409, kr260/k26_vadd, other/k26_3rp_1409; give each its own", False),
        (_not_loaded, "kr260/k26_3rp_halves is not loaded by dfx-mgrd (load_base_design of shell.json)", False),
        (_without_first, "are not one shell with its first layout and further ones", False),
        (_described(slots=[{}]), "kr260/k26_vadd has no slots, but its shell kr260 is described otherwise", True),
    ],
)
def test_base_designs_that_cannot_be_layouts_are_said(
    change: Callable[[DfxMachine], None],
    message: str,
    is_card: bool,
    node: LayoutNode,
    caplog: pytest.LogCaptureFixture,
) -> None:
    change(node.hardware)
    with caplog.at_level(logging.WARNING):
        assert bool(node.backend.discover()) is is_card
    assert message in caplog.text


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        ({"file": f"{FLAT}/vadd/vadd_slot0"}, "WrongPlace", "not the directory of the flat base design itself"),
        ({"sha256": "0" * 64}, "WrongDigest", "has other files than those"),
    ],
)
def test_the_image_of_a_flat_layout_is_its_base_design(
    fields: dict[str, Any], reason: str, message: str, node: LayoutNode, caplog: pytest.LogCaptureFixture
) -> None:
    """FP-05."""
    file = {"file": FLAT, "sha256": "0" * 64, **fields}
    node.hardware.describe_function("vadd", (), interfaceUUID=node.hardware.interface(FLAT), files=[file])
    assert "vadd" not in {spec.function for spec in node.now.geometry.specs}
    assert node.now.attributes["refusedImages"].value == f"flat/vadd={reason}"
    assert message in caplog.text


# Loads


def test_a_layout_is_loaded_for_the_first_claim_of_it_and_stays(node: LayoutNode) -> None:
    """FP-10: three slots, two, none, and three again; each base design is removed before the next is loaded."""
    first = node.prepare(node.part(1, function="aes"))
    assert (node.now.layout, node.daemon.overlays()) == ("", ["aes-1_slot1", THREE])
    node.plugin.release(first)
    node.new_calls()
    halves = [node.prepare(node.half(slot)) for slot in (0, 1)]
    assert node.new_calls() == [f"remove {BASE}", "load aes-half-0 0", "load aes-half-1 1"]
    assert (node.now.layout, dict(node.now.loaded)) == (
        "halves",
        {Placement(slot, 1, layout="halves"): "aes" for slot in (0, 1)},
    )
    for record in halves:
        node.plugin.release(record)
    assert (node.now.layout, node.now.loaded, node.daemon.overlays()) == ("halves", {}, [TWO])
    node.new_calls()
    flat = node.prepare(node.flat())
    assert node.new_calls() == [f"remove {HALVES}", f"load {VADD} 0"]
    assert (node.now.layout, dict(node.now.loaded)) == ("flat", {Placement(0, 1, layout="flat"): "vadd"})
    assert node.paths(flat) == ["/dev/uio4"]
    assert "KERF_UIO_FPGA_0_VADD_AT_0_OF_FLAT=20100000000.vadd=/dev/uio4" in node.variables(flat)
    node.plugin.release(flat)
    assert (node.new_calls(), node.daemon.overlays()) == ([f"unload {VADD} 0"], [])
    node.prepare(node.part(2, function="aes"))
    assert (node.new_calls(), node.now.layout) == (["load aes-2 2"], "")


def test_a_kept_function_is_found_again_and_is_lost_with_its_layout(node: LayoutNode) -> None:
    node.plugin.release(node.prepare(node.half(1), release="Keep"))
    node.new_calls()
    second = node.prepare(node.half(1), release="Keep")
    assert node.new_calls() == []
    node.plugin.release(second)
    node.new_calls()
    node.prepare(node.part(0, function="fft"))
    assert node.new_calls() == ["unload aes-half-1 1", f"remove {HALVES}", "load fft-0 0"]
    assert (node.loaded(), node.left()) == ({0: "fft-0"}, {0: "fft-0"})


def test_a_layout_with_kept_functions_is_removed_once_for_a_claim_of_several_slots(node: LayoutNode) -> None:
    kept = [node.prepare(node.part(slot, function="aes"), release="Keep") for slot in (0, 2)]
    for record in kept:
        node.plugin.release(record)
    node.new_calls()
    both = replace(node.half(function=None), placement=Placement(0, 2, layout="halves"))
    node.prepare(both, function="aes")
    assert node.new_calls() == [
        "unload aes-0 0",
        "unload aes-2 2",
        f"remove {BASE}",
        "load aes-half-0 0",
    ]


def test_a_flat_function_that_is_kept_gives_way_to_another_layout(node: LayoutNode) -> None:
    node.plugin.release(node.prepare(node.flat(), release="Keep"))
    node.new_calls()
    node.prepare(node.half())
    assert node.new_calls() == [f"unload {VADD} 0", "load aes-half-0 0"]


def test_a_layout_is_loaded_with_its_first_function_and_not_without_one(node: LayoutNode) -> None:
    """The daemon has no request that loads a base design alone."""
    node.plugin.release(node.prepare(node.part(0, function="aes")))
    bare = node.prepare(node.half(0, function=None))
    assert (node.loaded(), node.daemon.overlays(), node.device_nodes(bare)) == ({}, [], ())
    node.prepare(node.half(1))
    assert (node.loaded(), node.now.layout) == ({1: "aes-half-1"}, "halves")
    node.plugin.release(bare)
    assert node.loaded() == {1: "aes-half-1"}


def test_bare_slots_of_a_layout_get_the_function_that_the_config_names(node: LayoutNode) -> None:
    node.prepare(node.half(1, function=None), function="sobel")
    assert (node.loaded(), node.now.layout) == ({1: "sobel-half-1"}, "halves")
    record = node.allocate(node.half(0, function=None), function="fft")
    with pytest.raises(HardwareRefusedError, match="layout halves of shell kr260 has no function 'fft'; it has: aes,"):
        node.plugin.prepare(record)


@pytest.mark.parametrize(("function", "layout"), [("vadd", "flat"), ("fft", ""), ("aes", "halves")])
def test_a_whole_card_gets_the_layout_that_has_the_function(node: LayoutNode, function: str, layout: str) -> None:
    """The one that is loaded, if that has the function."""
    node.plugin.release(node.prepare(node.half()))
    record = node.prepare(node.whole(), function=function)
    assert (node.now.layout, [*node.now.loaded.values()]) == (layout, [function])
    record.handle = None
    node.plugin.release(record)
    assert node.loaded() == {}


def test_a_load_may_take_the_time_of_layout_and_function_together(node: LayoutNode) -> None:
    """FP-20: makers say 40 s for the layout and 0.4 s for the function, and a load may take three times that."""
    node.prepare(node.half(0))
    node.prepare(node.half(1))
    assert node.machine.limits_s == [pytest.approx(3 * 40.4), 30]
    for record in [*node.plugin.records]:
        node.plugin.release(record)
    node.machine.limits_s.clear()
    node.prepare(node.flat(), timeout_seconds=7)
    assert node.machine.limits_s == [7]


def test_a_base_design_of_no_shell_gives_way_while_nothing_is_in_its_slots(node: LayoutNode) -> None:
    node.hardware.add_base("another", 3)
    node.hardware.add_package("another", "hand-0", 0)
    handle = node.daemon.load("hand-0").partition(":")[0]
    [found] = node.plugin.survey(node.card.uuid).partitions
    assert found.placement is None
    node.daemon.unload(int(handle))
    assert node.plugin.survey(node.card.uuid).partitions == ()
    node.new_calls()
    node.prepare(node.half())
    assert node.new_calls() == ["remove another", "load aes-half-0 0"]


def test_base_designs_whose_names_the_table_shortens_alike_are_told_apart(node: LayoutNode) -> None:
    assert show_base(THREE) == show_base(TWO)
    node.prepare(node.half(0))
    assert node.plugin.survey(node.card.uuid).partitions == ()
    assert dict(node.now.loaded) == {Placement(0, 1, layout="halves"): "aes"}


def test_layouts_are_told_apart_by_the_old_columns_of_the_table_too(node: LayoutNode) -> None:
    node.daemon.has_old_table = True
    for partition, package in ((node.half(1), "aes-half-1"), (node.flat(), VADD), (node.part(function="aes"), "aes-0")):
        record = node.prepare(partition)
        assert [*node.loaded().values()] == [package]
        assert node.plugin.survey(node.card.uuid).partitions == ()
        node.plugin.release(record)
        assert node.loaded() == {}


# What is refused


def test_what_a_process_uses_holds_its_slot_and_all_other_layouts(node: LayoutNode) -> None:
    node.machine.cut_by_hand(node.half(1))
    [found] = node.plugin.survey(node.card.uuid).partitions
    assert (str(found), found.placement) == ("slot-1-of-halves at 1", Placement(1, 1, layout="halves"))
    held = [found.overlaps(one) for one in (node.half(0), node.half(1), node.part(0), node.flat(), node.whole())]
    assert held == [False, True, True, True, True]
    before = node.hardware.calls()
    for partition in (node.part(2, function="aes"), node.flat()):
        record = node.allocate(partition)
        with pytest.raises(HardwareConflictError, match=r"slot 1 is in use: process 4712 \(aes-tool\) has /dev/uio4"):
            node.backend.prepare(record.device, record.config, record.journal, None)
        node.backend.abandon(record.device, record.journal, None)
    assert (node.hardware.calls(), node.loaded()) == (before, {1: "aes-half-1"})
    node.prepare(node.half(0))
    assert node.loaded() == {0: "aes-half-0", 1: "aes-half-1"}


def test_what_nobody_has_described_keeps_its_layout(node: LayoutNode) -> None:
    node.hardware.add_package(HALVES, "hand-1", 1)
    node.daemon.load("hand-1")
    record = node.allocate(node.part(0, function="aes"))
    with pytest.raises(HardwareConflictError, match="slot 1 has the package hand-1"):
        node.backend.prepare(record.device, record.config, record.journal, None)
    assert node.loaded() == {1: "hand-1"}


def test_a_file_that_somebody_has_loaded_keeps_all_layouts_away(node: LayoutNode) -> None:
    node.daemon.load_file("top.bit.bin")
    record = node.allocate(node.half())
    with pytest.raises(HardwareConflictError, match=r"in use outside of Kerf: top\.bit\.bin"):
        node.backend.prepare(record.device, record.config, record.journal, None)
    assert node.daemon.overlays() == []


@pytest.mark.parametrize(
    ("effect", "message"),
    [
        ("fail", f"base design {THREE} cannot be removed: dfx-mgrd answers -1"),
        ("keep", f"base design {THREE} cannot be removed: dfx-mgrd says that it was, but .*/overlays still has its"),
    ],
)
def test_no_layout_is_loaded_over_a_base_design_that_is_not_removed(
    effect: str, message: str, node: LayoutNode
) -> None:
    """FP-12: libdfx reports no failure of a removal, so what the kernel shows counts."""
    node.plugin.release(node.prepare(node.part(0, function="aes")))
    node.hardware.add_fault("remove", effect)
    node.fail_to_prepare(node.half(), HardwareBusyError, message)
    assert (node.now.layout, node.loaded(), node.daemon.overlays()) == ("", {}, [THREE])


def test_a_daemon_that_was_started_anew_cannot_exchange_the_layout(node: LayoutNode) -> None:
    """It knows nothing of the base design that it had loaded."""
    node.plugin.release(node.prepare(node.part(0, function="aes")))
    node.daemon.forget()
    node.new_calls()
    for partition in (node.half(), node.flat()):
        node.fail_to_prepare(partition, HardwareBusyError, "was restarted since the base design was loaded: then boot")
    assert (node.new_calls(), node.daemon.overlays(), node.now.layout) == ([], [THREE], "")


def test_what_a_daemon_that_was_started_anew_has_forgotten_keeps_its_layout(node: LayoutNode) -> None:
    """The function may be in use, and its base design be known again: not even then is that removed."""
    node.prepare(node.part(0, function="aes"))
    node.daemon.forget()
    node.daemon.know_base(BASE)
    node.new_calls()
    for partition in (node.half(), node.flat()):
        node.fail_to_prepare(
            partition, HardwareConflictError, "does not know aes-0_slot0, which is loaded; boot the node"
        )
    assert (node.new_calls(), node.daemon.overlays()) == ([], ["aes-0_slot0", THREE])


def test_a_layout_whose_load_fails_is_left_without_anything_in_its_slots(node: LayoutNode) -> None:
    """FP-14: the base design is loaded before its package, and stays."""
    image = node.hardware.firmware / HALVES / "aes-half-0/aes-half-0_slot0/partial.bit.bin"
    image.write_text(f"BITS {BASE} 0\n")
    node.hardware.describe_layouts()
    node.backend.discover()
    node.fail_to_prepare(node.half(), HardwareBusyError, "the FPGA manager's state is write error")
    assert (node.now.layout, node.loaded(), node.left()) == ("halves", {}, {0: "blank-half-0"})


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_process_that_dies_while_the_layout_is_exchanged_leaves_a_board_that_can_be_loaded(
    is_finished: bool, tmp_path: Path
) -> None:
    """FP-12: at any change, of which there are three: a package goes, the base design goes, the next one is loaded."""
    died = []
    for point in range(1, 8):
        node = LayoutNode(tmp_path / str(point))
        node.plugin.release(node.prepare(node.part(0, function="aes"), release="Keep"))
        record = node.allocate(node.half(1))
        node.machine.kill_at(point)
        with suppress(ProcessKilled):
            node.plugin.prepare(record)
        died += [point] if record.handle is None else []
        node.plugin.restart()
        if is_finished:
            node.plugin.prepare(record)
            assert (node.now.layout, node.loaded()) == ("halves", {1: "aes-half-1"})
            assert node.daemon.overlays() == ["aes-half-1_slot1", TWO]
        node.plugin.release(record)
        assert 1 not in node.loaded()
        node.prepare(node.part(1, function="aes"))
        assert (node.now.layout, node.loaded()[1]) == ("", "aes-1")
    assert died == [1, 2, 3, 4, 5, 6]


def test_without_the_overlays_nobody_knows_which_layout_is_loaded(node: LayoutNode) -> None:
    record = node.prepare(node.half())
    shutil.move(node.hardware.overlays, node.hardware.folder / "elsewhere")
    said = f"cannot determine which base design is loaded: {node.hardware.overlays} cannot be read"
    assert node.plugin.survey(node.card.uuid).find_restriction(node.part()) == said
    next_ = node.allocate(node.part(0, function="aes"))
    for call in (
        lambda: node.backend.prepare(next_.device, next_.config, next_.journal, None),
        lambda: node.plugin.release(record),
    ):
        with pytest.raises(HardwareBusyError, match="cannot determine which base design"):
            call()
    shutil.move(node.hardware.folder / "elsewhere", node.hardware.overlays)
    node.plugin.release(record)
    assert node.loaded() == {}


def test_overlays_of_two_base_designs_are_a_fault_that_is_said(node: LayoutNode) -> None:
    for name in (THREE, TWO):
        (node.hardware.overlays / f"{name}_image_1").mkdir()
    assert (
        f"overlays of several base designs, {THREE} and {TWO}: boot the node"
        in node.plugin.survey(node.card.uuid).no_whole
    )
    with pytest.raises(KerfError, match="overlays of several base designs"):
        node.prepare(node.half())


def test_overlays_of_packages_and_of_others_are_no_base_designs(tmp_path: Path) -> None:
    for name in ("k26_image_1", "aes_slot0_image_2", "odd_slot1_image_3", "camera", "full"):
        (tmp_path / name).mkdir()
    assert read_overlays(tmp_path, {"odd_slot1"}) == (("k26", "odd_slot1"), ("aes_slot0",))
    assert read_overlays(tmp_path / "none", {"k26"}) is None


# Releases


def test_a_release_that_is_repeated_later_leaves_another_layout_alone(node: LayoutNode) -> None:
    record = node.prepare(node.part(0, function="aes"))
    handle = record.handle
    node.plugin.release(record)
    node.prepare(node.half(1))
    node.new_calls()
    assert handle is not None
    node.backend.unprepare(handle)
    assert (node.new_calls(), node.loaded()) == ([], {1: "aes-half-1"})


def test_an_abandoned_prepare_of_several_slots_leaves_nothing_in_them(node: LayoutNode) -> None:
    node.prepare(node.part(2, function="aes"))
    record = node.prepare(node.part(0, 2), function="aes")
    assert node.loaded() == {0: "aes-0", 2: "aes-2"}
    node.backend.abandon(record.device, record.journal, None)
    assert (node.loaded(), node.left()) == ({2: "aes-2"}, {0: "blank-0", 1: "blank-1", 2: "aes-2"})


def test_an_abandoned_prepare_of_another_layout_leaves_the_present_one_alone(node: LayoutNode) -> None:
    node.prepare(node.half())
    record = node.allocate(node.part(0, function="aes"))
    record.journal.write(loading="aes")
    node.new_calls()
    node.backend.abandon(record.device, record.journal, None)
    assert (node.new_calls(), node.loaded()) == ([], {0: "aes-half-0"})


@pytest.mark.parametrize("others", [[], ["flat"]])
def test_a_layout_is_released_though_it_is_described_no_more(others: list[str], node: LayoutNode) -> None:
    record = node.prepare(node.half(1))
    document = json.loads((node.hardware.descriptions / "kr260.yaml").read_text())
    layouts = [one for one in document["spec"].pop("layouts") if one["name"] in others]
    document["spec"] |= {"layouts": layouts} if layouts else {}
    node.hardware.write_description(document)
    node.plugin.restart()
    assert record.handle is not None
    node.backend.unprepare(record.handle)
    assert (node.loaded(), node.left()) == ({}, {1: "blank-half-1"})
    with pytest.raises(HardwareBusyError, match="no base design of the layout 'halves'"):
        node.backend.prepare(record.device, record.config, record.journal, None)


def test_a_change_of_the_layout_by_hand_is_told(node: LayoutNode) -> None:
    node.plugin.release(node.prepare(node.half()))
    node.backend.wait_for_events(0)
    assert node.daemon.unload_base() == "0"
    assert node.backend.wait_for_events(60) == [CardChange(card_uuid=node.card.uuid)]
    assert node.now.layout == ""


def test_admin_access_loads_no_layout(node: LayoutNode) -> None:
    """FP-17."""
    node.prepare(node.part(0, function="aes"))
    node.new_calls()
    record = node.plugin.allocate(node.half(), "monitor", admin_access=True)
    node.plugin.prepare(record)
    assert (node.new_calls(), node.device_nodes(record)) == ([], ())
