"""The backend ``slots`` on a stand-in for a board: discovery, loads and releases, what is refused, what containers get.

What all backends do is in the contract (``test_contract.py``).
"""

import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    CardChange,
    HardwareBusyError,
    HardwareConflictError,
    HardwareHeldError,
    HardwareRefusedError,
    HealthChange,
    HealthState,
)
from kerf_dra.driver.kubeletplugin.backends.slots import SlotsBackend
from kerf_dra.driver.kubeletplugin.backends.slots.handles import HANDLES, build_edits
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Placement
from tests.fakes.dfx.machine import BASE, BLANK_ID, FUNCTION_IDS, DfxMachine
from tests.kubeletplugin.backends.slots.machine import SlotsNode


@pytest.fixture
def node(tmp_path: Path) -> SlotsNode:
    return SlotsNode(tmp_path)


# Discovery


def test_a_base_design_with_three_slots_is_a_card_with_three_slots(node: SlotsNode) -> None:
    """FP-02."""
    assert node.card.units == 3
    assert (node.card.index, node.card.pci_bus_id, node.card.driver_version) == (0, "", "6.6.10-xilinx")
    attributes = dict(node.card.geometry.attributes)
    assert attributes["interfaceUUID"].value == node.hardware.interface()
    names = {device_name(node.card, spec.of(node.card.uuid)) for spec in node.card.geometry.specs}
    assert {"fpga-0-slot-0", "fpga-0-slot-1", "fpga-0-slot-2", "fpga-0-slots-0-2", "fpga-0-aes-at-2"} <= names
    assert {"fpga-0-fft-at-0", "fpga-0-fft-at-1"} <= names
    assert "fpga-0-fft-at-2" not in names, "fft has no package for slot 2"


def _unknown(hardware: DfxMachine) -> None:
    file = hardware.firmware / BASE / "shell.json"
    file.write_text(json.dumps({"shell_type": "RPU"}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda hardware: (hardware.descriptions / "kr260.yaml").unlink(),
            "nor a FpgaShell of the cluster describes its shell",
        ),
        (lambda hardware: hardware.describe(2), "has 3 slots, but its shell kr260 is described with 2"),
        (_unknown, "shell_type is 'RPU'; possible are PL_DFX, PL_FLAT, XRT_FLAT"),
        (lambda hardware: shutil.rmtree(hardware.firmware / BASE), "there is no base design (shell.json) in"),
        (lambda hardware: (hardware.firmware / BASE / "shell.json").write_text("{"), "shell.json cannot be read"),
        (lambda hardware: (hardware.firmware / BASE / "shell.dtbo").write_text("2"), "describes its shell"),
        (lambda hardware: (hardware.folder / "sys/class/fpga_manager/fpga0").unlink(), "there is no FPGA manager"),
    ],
)
def test_a_base_design_that_cannot_be_used_is_left_out_and_said_once(
    change: Callable[[DfxMachine], object], message: str, node: SlotsNode, caplog: pytest.LogCaptureFixture
) -> None:
    change(node.hardware)
    with caplog.at_level(logging.WARNING):
        assert list(node.backend.discover()) == []
        node.backend.discover()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len({*said})
    assert any(message in one for one in said)


def test_of_several_described_base_designs_the_configuration_names_one(
    node: SlotsNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.hardware.add_base("kr260/other", 2)
    document = json.loads((node.hardware.descriptions / "kr260.yaml").read_text())
    spec = {**document["spec"], "interfaceUUID": node.hardware.interface("kr260/other")}
    del spec["blank"]
    node.hardware.write_description({**document, "metadata": {"name": "other"}, "spec": {**spec, "slots": [{}, {}]}})
    assert list(node.backend.discover()) == []
    assert f"{BASE}, kr260/other" in caplog.text
    chosen = SlotsBackend(structs.replace(node.machine.document, base="kr260/other"))
    [card] = chosen.discover()
    assert card.units == 2


def _other_slot(hardware: DfxMachine) -> None:
    hardware.add_package(BASE, "zstd-1", 1)
    (hardware.firmware / BASE / "zstd-1/zstd-1_slot2").mkdir()
    hardware.describe_function("zstd", [1])


def _files(hardware: DfxMachine, **fields: Any) -> None:
    hardware.add_package(BASE, "zstd-1", 1)
    [file] = hardware.files("zstd", [1])
    hardware.describe_function("zstd", [1], files=[{**file, **fields}])


@pytest.mark.parametrize(
    ("change", "reason", "message"),
    [
        (_other_slot, "SeveralSlots", "directories for slots 1, 2: dfx-mgrd would choose one"),
        (lambda hardware: _files(hardware, slots=[[2]]), "WrongPlace", "not the directory of a package for slot 2"),
        (lambda hardware: _files(hardware, slots=[[1, 2]]), "SeveralSlots", "for several slots at once"),
        (lambda hardware: _files(hardware, file="zstd-1"), "WrongPlace", "NAME/NAME_slot1"),
        (lambda hardware: _files(hardware, file=f"{BASE}/zstd-2/zstd-2_slot1"), "Missing", "No such file"),
        (lambda hardware: _files(hardware, file=None, url="https://example.com/a"), "NoFile", "has a URL"),
        (lambda hardware: _files(hardware, sha256="0" * 64), "WrongDigest", "has other files than those"),
    ],
)
def test_a_function_whose_package_is_wrong_is_not_offered_and_the_reason_is_published(
    change: Callable[[DfxMachine], None], reason: str, message: str, node: SlotsNode, caplog: pytest.LogCaptureFixture
) -> None:
    """FP-05: a wrong image is refused before any claim is bound to the node."""
    change(node.hardware)
    [card] = node.backend.discover()
    assert {spec.function for spec in card.geometry.specs} == {None, "aes", "fft"}
    assert card.attributes["refusedImages"].value == f"zstd={reason}"
    assert message in caplog.text


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"pid": "0x2a"}, "WrongInterface"),
        ({"accel_type": "XRT_AIE_DFX"}, "WrongFormat"),
        ({"accel_devices": [{"dev_name": "../../mem"}]}, "WrongFormat"),
        ({"accel_devices": []}, "NoDevices"),
    ],
)
def test_what_a_package_says_of_itself_must_fit_the_board(fields: dict[str, Any], reason: str, tmp_path: Path) -> None:
    """FP-05: the parent of a package is its base design."""
    node = SlotsNode(tmp_path)
    shell = node.hardware.firmware / BASE / "shell.json"
    shell.write_text(json.dumps({**json.loads(shell.read_text()), "uid": "17"}))
    node.hardware.describe()
    node.hardware.add_package(BASE, "zstd-1", 1, **fields)
    node.hardware.describe_function("zstd", [1])
    [card] = node.backend.discover()
    assert card.attributes["refusedImages"].value == f"zstd={reason}"


def test_a_base_design_whose_blank_image_is_wrong_gets_no_claims(node: SlotsNode) -> None:
    (node.hardware.firmware / BASE / "blank-1/blank-1_slot1/partial.bit.bin").write_text("another\n")
    node.backend.discover()
    survey = node.plugin.survey(node.card.uuid)
    assert "blank-1_slot1 has other files" in survey.no_whole
    assert survey.find_restriction(node.part()) == survey.no_whole


# Loads


def test_a_function_gets_exactly_into_its_slot_though_others_are_free(node: SlotsNode) -> None:
    record = node.prepare(node.part(2, function="aes"))
    assert node.loaded() == {2: "aes-2"}
    variables, nodes = node.variables(record), node.device_nodes(record)
    assert variables == {
        "KERF_DEVICE_FPGA_0_AES_AT_2=aes",
        "KERF_UIO_FPGA_0_AES_AT_2=20102000000.aes-2=/dev/uio4",
        f"KERF_AFU_ID_FPGA_0_AES_AT_2={FUNCTION_IDS['aes']}",
        "KERF_VERSION_FPGA_0_AES_AT_2=1.2.0",
        "KERF_PARAMETER_FPGA_0_AES_AT_2_LANES=8",
    }
    assert [(one.path, one.host_path) for one in nodes] == [("/dev/uio4", "/dev/null")]


def test_the_node_is_that_of_the_host_unless_the_board_is_a_stand_in(node: SlotsNode) -> None:
    """FP-15: and the daemon's socket is never given."""
    record = node.prepare(node.part(2, function="aes"))
    assert record.handle is not None
    [found] = build_edits(HANDLES.decode({**record.handle, "is_stand_in": False})).device_nodes
    assert (found.path, found.host_path, found.permissions) == ("/dev/uio4", "", "rw")


def test_a_function_that_is_released_is_overwritten_by_the_blank_image(node: SlotsNode) -> None:
    """FP-13 (blank)."""
    record = node.prepare(node.part(1, function="aes"))
    node.plugin.release(record)
    assert node.loaded() == {}
    assert node.left() == {1: "blank-1"}
    assert node.hardware.calls() == ["load aes-1 1", "unload aes-1 1", "load blank-1 1", "unload blank-1 1"]


def test_a_function_that_is_kept_is_loaded_anew_and_found_by_the_next_claim(node: SlotsNode) -> None:
    """FP-08, FP-13 (keep): it has forgotten the claim before."""
    node.hardware.describe(has_blank=False)
    node.backend.discover()
    first = node.prepare(node.part(1, function="aes"), release="Keep")
    node.plugin.release(first)
    assert node.hardware.calls() == ["load aes-1 1", "unload aes-1 1", "load aes-1 1"]
    [card] = node.backend.discover()
    assert dict(card.loaded) == {Placement(1, 1): "aes"}
    before = node.hardware.calls()
    second = node.prepare(node.part(1, function="aes"))
    assert node.hardware.calls() == before, "a warm hit loads nothing"
    assert (node.variables(second), node.device_nodes(second)) == (node.variables(first), node.device_nodes(first))
    node.plugin.release(second)
    assert node.loaded() == {}


def test_a_claim_without_a_function_does_not_see_what_was_left_in_its_slots(node: SlotsNode) -> None:
    node.plugin.release(node.prepare(node.part(1, function="aes"), release="Keep"))
    record = node.prepare(node.part(0, 2))
    assert (node.loaded(), node.left()[1]) == ({}, "blank-1")
    assert node.device_nodes(record) == ()


def test_of_several_slots_the_first_that_can_gets_the_function_and_the_others_are_empty(node: SlotsNode) -> None:
    node.plugin.release(node.prepare(node.part(2, function="aes"), release="Keep"))
    record = node.prepare(node.part(1, 2), function="fft")
    assert node.loaded() == {1: "fft-1"}
    node.plugin.release(record)
    assert node.left() == {1: "blank-1", 2: "blank-2"}


def test_two_claims_side_by_side_have_devices_of_their_own(node: SlotsNode) -> None:
    """FP-11: the daemon loads one after another."""
    first, second = (node.prepare(node.part(slot, function="aes")) for slot in (0, 1))
    assert [one.path for record in (first, second) for one in node.device_nodes(record)] == ["/dev/uio4", "/dev/uio5"]


# What is refused


def test_a_package_that_was_changed_after_its_function_was_offered_is_refused(node: SlotsNode) -> None:
    """FP-05, FP-06 (the digest)."""
    (node.hardware.firmware / BASE / "aes-0/aes-0_slot0/partial.dtbo").write_text("another\n")
    with pytest.raises(HardwareRefusedError, match="has other files"):
        node.prepare(node.part(0, function="aes"))
    assert node.hardware.calls() == []


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        (("fail", "write error"), HardwareBusyError, "the FPGA manager's state is write error"),
        (("text", "-1"), HardwareBusyError, "the log of dfx-mgrd has the reason"),
        (("text", "-2"), HardwareRefusedError, "does not know it"),
        (("text", "-3"), HardwareConflictError, "the slot of package aes-0"),
        (("text", "7:operating"), HardwareRefusedError, "does not show it in slot 0"),
        (("text", "what?"), HardwareRefusedError, "'what.' in place of a number"),
        (("elsewhere",), HardwareRefusedError, "does not show it in slot 0"),
        (("lose-devices",), HardwareRefusedError, "no device node of 20100000000.aes-0"),
    ],
)
def test_each_failure_of_a_load_says_its_cause_and_leaves_an_empty_slot(
    fault: tuple[str, ...], kind: type[KerfError], message: str, node: SlotsNode
) -> None:
    """FP-14: what the plugin then does with its taint is the same for all backends."""
    node.hardware.add_fault("load", *fault)
    record = node.allocate(node.part(0, function="aes"))
    with pytest.raises(kind, match=message):
        node.plugin.prepare(record)
    node.plugin.release(record)
    assert 0 not in node.loaded()


def test_a_load_that_takes_too_long_is_given_up(node: SlotsNode) -> None:
    """FP-20: the daemon cannot be stopped, and what it has loaded by then is unloaded."""
    node.hardware.add_fault("load", "hang")
    node.machine.timeout_s = 0.2
    record = node.allocate(node.part(0, function="aes"), timeout_seconds=5)
    with pytest.raises(HardwareRefusedError, match="has not answered for 5 s"):
        node.plugin.prepare(record)
    node.machine.timeout_s = None
    node.plugin.release(record)
    assert (node.loaded(), node.left()) == ({}, {0: "blank-0"})


def test_two_packages_of_one_name_are_refused(node: SlotsNode) -> None:
    """The daemon would take the first."""
    node.hardware.add_base("another", 3)
    node.hardware.add_package("another", "aes-0", 0)
    with pytest.raises(HardwareRefusedError, match="2 packages of the name aes-0"):
        node.prepare(node.part(0, function="aes"))
    assert node.hardware.calls() == []


# Use by others, a daemon that goes


def test_a_slot_in_use_is_told_with_the_process_and_never_loaded(node: SlotsNode) -> None:
    node.machine.cut_by_hand(node.part(1))
    [found] = node.plugin.survey(node.card.uuid).partitions
    assert (str(found), found.in_use, found.placement) == ("slot-1 at 1", True, Placement(1, 1))
    record = node.allocate(node.part(1, function="fft"))
    with pytest.raises(HardwareConflictError, match=r"slot 1 is in use: process 4712 \(aes-tool\) has /dev/uio4 open"):
        node.backend.prepare(record.device, record.config, record.journal, None)
    node.backend.abandon(record.device, record.journal, None)
    assert node.loaded() == {1: "aes-1"}


def test_a_package_that_nobody_has_described_is_somebody_elses_though_no_process_uses_it(node: SlotsNode) -> None:
    node.hardware.add_package(BASE, "hand-1", 1)
    node.daemon.load("hand-1")
    [found] = node.plugin.survey(node.card.uuid).partitions
    assert str(found) == "slot-1 at 1"
    record = node.allocate(node.part(1, function="aes"))
    with pytest.raises(HardwareConflictError, match="slot 1 has the package hand-1"):
        node.backend.prepare(record.device, record.config, record.journal, None)
    node.backend.abandon(record.device, record.journal, None)
    assert node.loaded() == {1: "hand-1"}


def test_a_file_that_somebody_has_loaded_and_another_base_design_hold_the_whole_card(node: SlotsNode) -> None:
    node.daemon.load_file("top.bit.bin")
    [found] = node.plugin.survey(node.card.uuid).partitions
    assert (str(found), found.placement) == ("handle-29 (whole card)", None)
    node.daemon.unload(29)
    node.hardware.add_base("another", 3)
    node.hardware.add_package("another", "sobel-0", 0)
    node.daemon.load("sobel-0")
    [found] = node.plugin.survey(node.card.uuid).partitions
    assert (str(found), found.placement) == ("handle-0 (whole card)", None)


def test_an_idle_function_that_is_described_gives_way(node: SlotsNode) -> None:
    node.daemon.load("fft-1")
    assert node.plugin.survey(node.card.uuid).partitions == ()
    node.prepare(node.part(1, function="aes"))
    assert node.loaded() == {1: "aes-1"}


def test_the_daemon_itself_has_devices_open_and_is_no_user(node: SlotsNode) -> None:
    record = node.prepare(node.part(1, function="aes"))
    node.hardware.use(1, pid=os.getpid())  # the stand-in runs in this process
    assert node.plugin.survey(node.card.uuid).partitions == ()
    node.plugin.release(record)
    assert node.loaded() == {}


def test_a_release_waits_for_the_process_that_uses_the_slot(node: SlotsNode) -> None:
    record = node.prepare(node.part(1, function="aes"))
    node.hardware.use(1)
    with pytest.raises(HardwareHeldError, match=r"^slot 1 is in use: process 4712"):
        node.plugin.release(record)
    node.hardware.stop_using(1)
    node.plugin.release(record)
    assert node.loaded() == {}


@pytest.mark.parametrize("has_blank", [True, False])
@pytest.mark.parametrize("function", ["aes", None])
def test_what_another_has_loaded_since_stays_when_the_claim_is_released(
    function: str | None, has_blank: bool, node: SlotsNode
) -> None:
    """It was unloaded where the slot had no blank image, or the claim had left it empty: a package that nobody has
    described was taken for the image that was not there.
    """
    node.hardware.describe(has_blank=has_blank)
    node.backend.discover()
    record = node.prepare(node.part(1, function=function))
    for _, handle in node.daemon.read_state()["slots"].values():
        node.daemon.unload(handle)
    node.hardware.add_package(BASE, "hand-1", 1)
    node.daemon.load("hand-1")
    node.plugin.release(record)
    assert node.loaded() == {1: "hand-1"}


def test_a_function_that_was_described_anew_meanwhile_is_released_all_the_same(node: SlotsNode) -> None:
    """It stayed in its slot, as if another program had loaded it: its description had another version by then."""
    record = node.prepare(node.part(1, function="aes"))
    node.hardware.describe_function("aes", range(3), version="1.3.0")
    node.backend.discover()
    node.plugin.release(record)
    assert (node.loaded(), node.left()) == ({}, {1: "blank-1"})


def test_a_function_whose_package_has_changed_since_is_not_kept(node: SlotsNode) -> None:
    """It cannot be loaded anew: the release failed once for that, after the slot was cleared."""
    record = node.prepare(node.part(1, function="aes"), release="Keep")
    (node.hardware.firmware / BASE / "aes-1/aes-1_slot1/partial.dtbo").write_text("another\n")
    node.plugin.release(record)
    assert (node.loaded(), node.left()) == ({}, {1: "blank-1"})


def test_a_blank_image_that_has_changed_since_is_not_loaded_at_a_release(node: SlotsNode) -> None:
    """FP-05, FP-06: the loader checks what a claim asks for, and each load what it loads, a blank image as well."""
    record = node.prepare(node.part(1, function="aes"))
    blank = node.hardware.firmware / BASE / "blank-1/blank-1_slot1/partial.bit.bin"
    good = blank.read_bytes()
    blank.write_text("another\n")
    assert record.handle is not None
    with pytest.raises(HardwareRefusedError, match="blank-1_slot1 has other files"):
        node.backend.unprepare(record.handle)
    assert (node.loaded(), node.left()) == ({}, {1: "aes-1"})
    blank.write_bytes(good)
    node.backend.unprepare(record.handle)
    assert (node.loaded(), node.left()) == ({}, {1: "blank-1"})


def test_a_slot_is_released_as_it_was_prepared_though_nothing_is_described_any_more(node: SlotsNode) -> None:
    record = node.prepare(node.part(1, function="aes"))
    for file in node.hardware.descriptions.iterdir():
        file.unlink()
    node.plugin.restart()
    assert record.handle is not None
    node.backend.unprepare(record.handle)
    assert (node.loaded(), node.left()) == ({}, {1: "blank-1"})


def test_a_daemon_that_does_not_run_proves_nothing(node: SlotsNode) -> None:
    record = node.prepare(node.part(1, function="aes"))
    node.daemon.stop()
    with pytest.raises(CardAbsentError, match="no dfx-mgrd listens at"):
        node.plugin.release(record)
    node.daemon.start()
    node.plugin.release(record)
    assert node.loaded() == {}


def test_a_daemon_that_loads_for_another_keeps_the_card_and_has_callers_wait(node: SlotsNode) -> None:
    record = node.prepare(node.part(1, function="aes"))
    assert list(node.backend.wait_for_events(0)) == []
    node.machine.is_loading_for_another = True
    assert [card.uuid for card in node.backend.discover()] == [node.card.uuid]
    assert list(node.backend.wait_for_events(0)) == []
    with pytest.raises(HardwareBusyError, match="has not answered for 20 s; is it loading"):
        node.plugin.release(record)
    node.machine.is_loading_for_another = False
    node.plugin.release(record)


def test_a_daemon_that_answers_in_the_old_columns_is_understood(node: SlotsNode) -> None:
    node.daemon.has_old_table = True
    record = node.prepare(node.part(1, function="aes"))
    assert node.loaded() == {1: "aes-1"}
    node.plugin.release(record)
    node.daemon.load_file("top.bit.bin")
    assert node.loaded() == {}
    [found] = node.plugin.survey(node.card.uuid).partitions
    assert str(found) == "handle-29 (whole card)"


# Health


def events(node: SlotsNode) -> list[tuple[HealthState, str]]:
    """Wait for health changes of the card: states and reasons."""
    found = [event for event in node.backend.wait_for_events(60) if isinstance(event, HealthChange)]
    assert all(event.partition is None for event in found)
    return [(event.state, event.reason) for event in found]


def test_a_state_of_the_manager_that_ends_loads_is_reported_and_ends_with_its_cause(node: SlotsNode) -> None:
    """FP-16."""
    assert list(node.backend.wait_for_events(0)) == []
    node.hardware.set_manager_state("write error")
    assert events(node) == [(HealthState.UNHEALTHY, "its FPGA manager is in the state 'write error'")]
    node.hardware.set_manager_state("operating")
    assert events(node) == [(HealthState.HEALTHY, "recovered")]


def test_a_daemon_that_ends_gets_no_new_claims_and_ends_none(node: SlotsNode) -> None:
    """FP-16: what is loaded runs on."""
    assert list(node.backend.wait_for_events(0)) == []
    node.daemon.stop()
    [(state, reason)] = events(node)
    assert (state, "no dfx-mgrd listens" in reason) == (HealthState.UNHEALTHY, True)
    node.daemon.start()
    assert events(node) == [(HealthState.HEALTHY, "recovered")]


def test_a_change_of_what_is_loaded_is_told(node: SlotsNode) -> None:
    node.backend.wait_for_events(0)
    node.daemon.load("aes-2")
    assert node.backend.wait_for_events(60) == [CardChange(card_uuid=node.card.uuid)]
    assert dict(node.backend.discover()[0].loaded) == {Placement(2, 1): "aes"}


# Administrators


def test_admin_access_changes_nothing_and_gives_no_node(node: SlotsNode) -> None:
    """FP-15, FP-17."""
    record = node.plugin.allocate(replace(node.part(), placement=None), "monitor", admin_access=True)
    node.plugin.prepare(record)
    assert node.device_nodes(record) == ()
    assert node.hardware.calls() == []


def test_the_blank_image_has_an_id_that_no_function_has(node: SlotsNode) -> None:
    node.hardware.describe_function("aes", range(3), afuID=BLANK_ID)
    [card] = node.backend.discover()
    assert {spec.function for spec in card.geometry.specs} == {None, "fft"}
