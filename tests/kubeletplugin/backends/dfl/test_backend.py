"""The backend ``dfl`` on stand-ins of cards: discovery, loads and releases, what is refused, what containers get.

What all backends do is in the contract (``test_contract.py``).
"""

import ctypes
import errno
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

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
from kerf_dra.driver.kubeletplugin.backends.dfl import DflBackend, open_backend
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import FME_PORT_PR, PORT_PR, PORT_RESET
from kerf_dra.driver.kubeletplugin.backends.dfl.handles import HANDLES, build_edits
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Placement
from tests.fakes.dfl import NEEDS_COMPILER, CardLayout, DflMachine, FakeSystemCalls, build_gbs
from tests.fakes.dfl.machine import AES_ID, BLANK_ID, FFT_ID, INTERFACE
from tests.kubeletplugin.backends.dfl.machine import DflNode

pytestmark = NEEDS_COMPILER

OTHER_ID: Final = "44444444-4444-4444-8444-444444444444"


@pytest.fixture
def node(tmp_path: Path) -> DflNode:
    return DflNode(tmp_path)


# Discovery


def test_a_card_with_one_engine_and_four_ports_has_four_slots(node: DflNode) -> None:
    """FP-01."""
    first, second = node.plugin.cards
    assert (first.units, second.units) == (4, 4)
    assert (first.pci_bus_id, first.pcie_root, first.numa_node) == ("0000:3b:00.0", "pci0000:3a", 0)
    assert (second.pci_bus_id, second.pcie_root, second.numa_node) == ("0000:d8:00.0", "pci0000:d7", 1)
    assert first.driver_version == "6.8.0-45-generic"
    attributes = dict(first.geometry.attributes)
    assert attributes["interfaceUUID"].value == INTERFACE
    assert attributes["productName"].value == "lab"
    names = {device_name(first, spec.of(first.uuid)) for spec in first.geometry.specs}
    assert {"fpga-0", "fpga-0-slot-3", "fpga-0-slots-0-3", "fpga-0-aes-at-3", "fpga-0-fft-at-1"} <= names
    assert "fpga-0-fft-at-2" not in names, "fft has no image for slot 2"


@pytest.mark.parametrize("ports", [1, 8])
def test_a_card_has_as_many_slots_as_ports(ports: int, tmp_path: Path) -> None:
    """FP-01."""
    hardware = DflMachine.create(tmp_path, (CardLayout(pci_address="0000:3b:00.0", ports=ports),))
    hardware.describe(ports)
    file = tmp_path / "dfl.yaml"
    file.write_text(
        f"descriptionFolder: {hardware.descriptions}\nimageFolder: {hardware.images}\nsystemRoot: {tmp_path}\n"
    )
    [card] = open_backend(file).discover()
    assert card.units == ports


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda hardware: (hardware.descriptions / "shell.yaml").unlink(),
            "nor a FpgaShell of the cluster describes its shell",
        ),
        (lambda hardware: hardware.describe(2), "has 4 ports, but its shell lab is described with 2"),
        (
            lambda hardware: [file.unlink() for file in hardware.folder.glob("sys/devices/*/*/*/*/*/*/*/*/compat_id")],
            "the kernel shows no compat_id",
        ),
    ],
)
def test_a_card_that_cannot_be_described_is_left_out_and_said_once(
    change: Callable[[DflMachine], object], message: str, node: DflNode, caplog: pytest.LogCaptureFixture
) -> None:
    change(node.hardware)
    with caplog.at_level(logging.WARNING):
        assert list(node.backend.discover()) == []
        node.backend.discover()
    assert [message in record.getMessage() for record in caplog.records].count(True) == 2, "once for each card"


def test_a_function_whose_image_is_wrong_is_not_offered_and_one_that_is_new_is(node: DflNode) -> None:
    """FP-05: a wrong image is refused before any claim is bound to the node."""
    node.hardware.add_image("aes.gbs", AES_ID, build_gbs(AES_ID, interface=OTHER_ID))
    node.hardware.describe_function("zstd", OTHER_ID, [3])
    functions = {spec.function for card in node.backend.discover() for spec in card.geometry.specs}
    assert functions == {None, "fft", "zstd"}


def test_a_card_whose_blank_image_is_wrong_gets_no_claims(node: DflNode) -> None:
    node.hardware.add_image("blank.gbs", BLANK_ID, build_gbs(FFT_ID))
    node.backend.discover()
    survey = node.plugin.survey(node.card.uuid)
    assert "blank.gbs is another file" in survey.no_whole
    assert survey.find_restriction(node.part()) == survey.no_whole


# Loads


class RecordingCalls(FakeSystemCalls):
    """Keeps what each ioctl gets, and the bytes that it points to."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[int, bytes | int, bytes]] = []

    def ioctl(self, descriptor: int, request: int, argument: bytes | int) -> None:
        bits = b""
        if isinstance(argument, bytes):
            *_, size, address = PORT_PR.unpack(argument)
            bits = ctypes.string_at(address, size)
        self.requests.append((request, argument, bits))
        super().ioctl(descriptor, request, argument)


def test_the_driver_gets_exactly_its_structure_and_the_bits_without_their_header(node: DflNode) -> None:
    """FP-07."""
    calls = RecordingCalls()
    backend = DflBackend(node.machine.document, calls=calls)
    record = node.allocate(node.part(2), function="aes")
    backend.prepare(record.device, record.config, record.journal, None)
    (program, argument, bits), reset = calls.requests
    assert program == FME_PORT_PR == 0xB680
    assert isinstance(argument, bytes)
    assert argument[:12] == bytes.fromhex("180000000000000002000000"), "argsz 24, no flags, port id 2"
    assert argument[12:16] == len(bits).to_bytes(4, "little")
    assert len(argument) == 24
    assert build_gbs(AES_ID).endswith(bits)
    assert bits.startswith(b"BITS")
    assert reset == (PORT_RESET, 0, b"")
    assert PORT_RESET == 0xB640


def test_a_function_is_loaded_once_and_found_again(node: DflNode) -> None:
    """FP-08, FP-13 (keep): the next claim for the same function loads nothing; its port is reset."""
    first = node.prepare(node.part(1, function="aes"), release="Keep")
    assert node.loaded() == [BLANK_ID, AES_ID, BLANK_ID, BLANK_ID]
    node.plugin.release(first)
    assert node.loaded()[1] == AES_ID
    [card, _] = node.backend.discover()
    assert dict(card.loaded) == {Placement(1, 1): "aes"}
    before = node.hardware.calls()
    node.prepare(node.part(1, function="aes"))
    assert node.hardware.calls()[len(before) :] == ["reset 1"]


def test_a_function_is_gone_once_its_claim_is_released(node: DflNode) -> None:
    """FP-13 (blank)."""
    record = node.prepare(node.part(1, function="aes"))
    node.plugin.release(record)
    assert node.loaded() == [BLANK_ID] * 4
    assert [call.split()[0] for call in node.hardware.calls()] == ["pr", "reset", "pr", "reset"]


def test_a_claim_without_a_function_does_not_see_what_was_left_in_its_slots(node: DflNode) -> None:
    node.plugin.release(node.prepare(node.part(1, function="aes"), release="Keep"))
    node.prepare(node.part(0, 2))
    assert node.loaded() == [BLANK_ID] * 4


def test_without_a_blank_image_a_slot_is_reset_and_keeps_its_function(node: DflNode) -> None:
    node.hardware.describe(has_blank=False)
    node.backend.discover()
    record = node.prepare(node.part(1, function="aes"))
    node.plugin.release(record)
    assert node.loaded()[1] == AES_ID
    assert node.hardware.calls()[-1] == "reset 1"


def test_of_several_slots_the_first_that_can_gets_the_function_and_the_others_are_blank(node: DflNode) -> None:
    node.hardware.set_afu_id(3, OTHER_ID)
    record = node.prepare(node.part(1, 3), function="fft")
    assert node.loaded() == [BLANK_ID, FFT_ID, BLANK_ID, BLANK_ID]
    variables, nodes = node.variables(record), node.device_nodes(record)
    assert "KERF_PORT_FPGA_0_SLOTS_1_3=/dev/dfl-port.1" in variables
    assert [one.path for one in nodes] == ["/dev/dfl-port.1", "/dev/dfl-port.2", "/dev/dfl-port.3"]
    node.plugin.release(record)
    assert node.loaded() == [BLANK_ID] * 4


def test_the_whole_card_has_all_slots(node: DflNode) -> None:
    record = node.prepare(replace(node.part(), placement=None), function="aes")
    assert node.loaded() == [AES_ID, BLANK_ID, BLANK_ID, BLANK_ID]
    assert len(node.device_nodes(record)) == 4


def test_errors_that_the_last_user_left_in_a_port_are_cleared_before_the_next_one(node: DflNode) -> None:
    errors = node.hardware.port_folder(0) / "errors/errors"
    errors.write_text("0x12\n")
    node.prepare(node.part(0, function="aes"))
    assert errors.read_text() == "0x0\n"
    assert node.hardware.calls()[0] == "clear 0x12"


def test_a_function_that_another_has_loaded_since_stays_when_the_claim_is_released(node: DflNode) -> None:
    record = node.prepare(node.part(1, function="aes"))
    node.hardware.set_afu_id(1, OTHER_ID)
    node.plugin.release(record)
    assert node.loaded()[1] == OTHER_ID


# What is refused


def test_an_image_that_was_changed_after_its_function_was_offered_is_refused_before_the_card_is_changed(
    node: DflNode,
) -> None:
    """FP-05, FP-06 (the digest)."""
    node.hardware.add_image("aes.gbs", AES_ID, build_gbs(AES_ID, interface=OTHER_ID))
    with pytest.raises(HardwareRefusedError, match=r"aes\.gbs is another file"):
        node.prepare(node.part(0, function="aes"))
    assert node.hardware.calls() == []


def test_a_card_that_has_got_another_shell_is_not_loaded(node: DflNode) -> None:
    """FP-05: the interface is read for each call."""
    for file in node.hardware.folder.glob("sys/devices/pci0000:3a/*/*/*/*/*/*/*/compat_id"):
        file.write_text("f" * 31 + "0\n")
    with pytest.raises(HardwareBusyError, match=r"no shell is described for card 0000:3b:00\.0"):
        node.prepare(node.part(0, function="aes"))
    assert node.hardware.calls() == []


@pytest.mark.parametrize(
    ("argument", "kind", "message"),
    [
        (f"{errno.EBUSY}", HardwareBusyError, "another program has it"),
        (f"{errno.EINVAL}", HardwareRefusedError, "does the card have this slot"),
        (f"{errno.ENODEV}", CardAbsentError, "0000:3b:00.0 is not there"),
        (f"{errno.EPERM}", HardwareRefusedError, "privileged"),
        (f"{errno.ENOMEM}", HardwareBusyError, "Cannot allocate memory"),
    ],
)
def test_each_load_that_the_driver_refuses_says_its_cause_and_leaves_a_blank_slot(
    argument: str, kind: type[KerfError], message: str, node: DflNode
) -> None:
    """FP-07, FP-14: what the plugin then does with its taint is the same for all backends."""
    node.hardware.add_fault("pr", "errno", argument)
    record = node.allocate(node.part(0, function="aes"))
    with pytest.raises(kind, match=message) as caught:
        node.plugin.prepare(record)
    assert type(caught.value) is kind
    node.plugin.release(record)
    assert node.loaded() == [BLANK_ID] * 4


@pytest.mark.parametrize(
    ("argument", "kind", "message"),
    [
        (f"{errno.EIO} reconfig CRC error", HardwareBusyError, "checksum was wrong"),
        (f"{errno.EIO} reconfig operation error", HardwareBusyError, "refused an operation"),
        (f"{errno.EIO} reconfig incompatible image", HardwareRefusedError, "built for another one"),
        (f"{errno.EIO} reconfig IP protocol error", HardwareBusyError, "protocol error"),
        (f"{errno.EIO} reconfig fifo overflow error", HardwareBusyError, "more than it could take"),
        (f"{errno.EIO}", HardwareBusyError, "an error and no cause"),
        (f"{errno.ETIMEDOUT}", HardwareBusyError, "did not answer the driver in time"),
    ],
)
def test_each_load_that_fails_says_its_cause_and_the_slot_is_used_again_once_its_driver_was_bound_again(
    argument: str, kind: type[KerfError], message: str, node: DflNode
) -> None:
    """FP-07, FP-14: until then the driver keeps the port in reset (``test_unusable_ports``)."""
    node.hardware.add_fault("pr", "errno", argument)
    record = node.allocate(node.part(0, function="aes"))
    with pytest.raises(kind, match=f"{message}.*; slot 0 of .* is held in reset") as caught:
        node.plugin.prepare(record)
    assert type(caught.value) is kind
    node.plugin.release(record)
    node.hardware.bind_again(0)
    node.prepare(node.part(0, function="aes"))
    assert node.loaded() == [AES_ID, *[BLANK_ID] * 3]


@pytest.mark.parametrize(
    ("effect", "argument", "message"),
    [
        ("wrong-id", OTHER_ID.replace("-", ""), f"reports {OTHER_ID} after the load of aes.gbs"),
        ("wrong-id", "f" * 32, "reports no function after the load"),
        ("log-errors", "0x4", "reports the errors 0x4 after its load"),
    ],
)
def test_a_load_counts_only_when_the_slot_says_so(effect: str, argument: str, message: str, node: DflNode) -> None:
    node.hardware.add_fault("pr", effect, argument)
    record = node.allocate(node.part(0, function="aes"))
    with pytest.raises(KerfError, match=message):
        node.plugin.prepare(record)
    node.plugin.release(record)
    assert node.loaded() == [BLANK_ID] * 4
    node.prepare(node.part(0, function="aes"))
    assert node.loaded()[0] == AES_ID


@pytest.mark.parametrize(("config", "limit"), [({}, 30), ({"timeout_seconds": 5}, 5)])
def test_a_load_that_takes_too_long_fails(config: dict[str, Any], limit: int, node: DflNode) -> None:
    """FP-20: the kernel ends it by its own limits, and its time is judged then."""
    node.clock.step_s = limit + 1
    record = node.allocate(node.part(0, function="aes"), **config)
    with pytest.raises(HardwareRefusedError, match=f"at most {limit} s are allowed"):
        node.plugin.prepare(record)
    node.clock.step_s = limit - 1
    node.prepare(node.part(1, function="aes"), **config)


# Use by others, cards that go


def test_a_slot_in_use_is_told_with_the_process_and_never_loaded(node: DflNode) -> None:
    node.hardware.use(1)
    [found] = node.plugin.survey(node.card.uuid).partitions
    assert (str(found), found.in_use, found.placement) == ("port-1 at 1", True, Placement(1, 1))
    record = node.allocate(node.part(1, function="aes"))
    with pytest.raises(HardwareConflictError, match=r"process 4712 \(host_exerciser\) has /dev/dfl-port.1 open"):
        node.backend.prepare(record.device, record.config, record.journal, None)
    node.backend.abandon(record.device, record.journal, None)
    assert node.hardware.calls() == []


def test_several_slots_are_taken_all_or_none(node: DflNode) -> None:
    node.hardware.use(2)
    record = node.allocate(node.part(1, 2), function="aes")
    with pytest.raises(HardwareConflictError):
        node.backend.prepare(record.device, record.config, record.journal, None)
    assert node.hardware.calls() == []


def test_a_release_waits_for_the_process_that_uses_the_slot(node: DflNode) -> None:
    record = node.prepare(node.part(1, function="aes"))
    node.hardware.use(1)
    with pytest.raises(HardwareHeldError, match=r"^slot 1 of 0000:3b:00.0 is in use: process 4712"):
        node.plugin.release(record)
    node.hardware.stop_using(1)
    node.plugin.release(record)
    assert node.loaded() == [BLANK_ID] * 4


def test_a_process_that_cannot_be_seen_is_found_by_opening_the_port(node: DflNode) -> None:
    node.hardware.use(1)
    (node.hardware.folder / "proc/4712/fd/3").unlink()
    assert node.plugin.survey(node.card.uuid).partitions == ()
    record = node.allocate(node.part(1, function="aes"))
    with pytest.raises(HardwareConflictError, match="a process that cannot be seen from here"):
        node.plugin.prepare(record)


def test_a_port_that_was_given_to_a_virtual_function_is_held_by_somebody_else(node: DflNode) -> None:
    folder = node.hardware.port_folder(2).resolve()
    folder.rename(node.hardware.folder / "given")
    [found] = node.plugin.survey(node.card.uuid).partitions
    assert str(found) == "port-2-of-a-vf at 2"
    record = node.allocate(node.part(2, function="aes"))
    with pytest.raises(HardwareConflictError, match=r"slot 2 of 0000:3b:00\.0 is not on its PF"):
        node.backend.prepare(record.device, record.config, record.journal, None)


def test_a_card_that_goes_in_the_middle_of_a_load_proves_nothing(node: DflNode) -> None:
    node.hardware.add_fault("pr", "errno", f"{errno.ENODEV}")
    record = node.allocate(node.part(0, function="aes"))
    with pytest.raises(CardAbsentError):
        node.plugin.prepare(record)
    node.hardware.take_away(0)
    with pytest.raises(CardAbsentError):
        node.backend.abandon(record.device, record.journal, None)
    node.hardware.bring_back(0)
    node.plugin.release(record)
    assert node.loaded() == [BLANK_ID] * 4


def test_a_slot_is_released_as_it_was_prepared_though_nothing_is_described_any_more(node: DflNode) -> None:
    record = node.prepare(node.part(1, function="aes"))
    for file in node.hardware.descriptions.iterdir():
        file.unlink()
    node.plugin.restart()
    assert record.handle is not None
    node.backend.unprepare(record.handle)
    assert node.loaded() == [BLANK_ID] * 4


# Health


def events(node: DflNode) -> list[tuple[Placement | None, HealthState, str]]:
    """Wait for health changes: their places, states and reasons."""
    return [
        (event.partition.placement if event.partition else None, event.state, event.reason)
        for event in node.backend.wait_for_events(5)
        if isinstance(event, HealthChange)
    ]


@pytest.mark.parametrize(
    ("file", "value", "place", "state", "reason"),
    [
        ("fme/errors/nonfatal_errors", "0x4", None, HealthState.UNHEALTHY, "nonfatal_errors are 0x4"),
        ("fme/errors/catfatal_errors", "0x1", None, HealthState.LOST, "catfatal_errors are 0x1"),
        ("fme/hwmon/hwmon3/temp1_max_alarm", "1", None, HealthState.UNHEALTHY, "temp1_max_alarm is on"),
        ("fme/hwmon/hwmon3/temp1_crit_alarm", "1", None, HealthState.LOST, "temp1_crit_alarm is on"),
        ("fme/hwmon/hwmon4/power1_crit_alarm", "1", None, HealthState.UNHEALTHY, "temp_board power1_crit_alarm is on"),
        ("port/errors/errors", "0x8", Placement(2, 1), HealthState.UNHEALTHY, "logged the errors 0x8"),
        ("port/power_state", "0x1", Placement(2, 1), HealthState.UNHEALTHY, "slowed down by 50 %"),
        ("port/power_state", "0x6", Placement(2, 1), HealthState.LOST, "stands still"),
    ],
)
def test_each_fault_of_a_card_is_reported_and_ends_with_its_cause(
    file: str, value: str, place: Placement | None, state: HealthState, reason: str, node: DflNode
) -> None:
    """FP-16."""
    assert list(node.backend.wait_for_events(0)) == []
    kind, _, name = file.partition("/")
    path = (node.hardware.fme_folder(0) if kind == "fme" else node.hardware.port_folder(2)) / name
    path.write_text(f"{value}\n")
    [(found, found_state, found_reason)] = events(node)
    assert (found, found_state) == (place, state)
    assert reason in found_reason
    path.write_text("0\n")
    assert events(node) == [(place, HealthState.HEALTHY, "recovered")]


def test_a_card_that_goes_is_lost_and_one_that_comes_back_is_healthy(node: DflNode) -> None:
    assert list(node.backend.wait_for_events(0)) == []
    node.hardware.take_away(0)
    [(place, state, reason)] = events(node)
    assert (place, state) == (None, HealthState.LOST)
    assert "0000:3b:00.0" in reason
    node.hardware.bring_back(0)
    assert events(node) == [(None, HealthState.HEALTHY, "recovered")]


def test_a_card_that_answers_with_ones_only_is_lost(node: DflNode) -> None:
    for file in node.hardware.fme_folder(0).glob("errors/*"):
        file.write_text(f"{2**64 - 1:#x}\n")
    [(place, state, reason)] = events(node)
    assert (place, state) == (None, HealthState.LOST)
    assert "off the bus" in reason


def test_a_change_of_what_is_loaded_is_told(node: DflNode) -> None:
    node.backend.wait_for_events(0)
    node.hardware.set_afu_id(5, AES_ID)
    assert node.backend.wait_for_events(5) == [CardChange(card_uuid=node.plugin.cards[1].uuid)]
    assert dict(node.backend.discover()[1].loaded) == {Placement(1, 1): "aes"}


# Containers


def test_a_container_gets_its_port_and_what_it_needs_to_use_the_function(node: DflNode) -> None:
    """FP-15: and never the management engine."""
    record = node.prepare(node.part(3, function="aes"))
    variables, nodes = node.variables(record), node.device_nodes(record)
    assert variables == {
        "KERF_DEVICE_FPGA_0_AES_AT_3=aes",
        "KERF_PORT_FPGA_0_AES_AT_3=/dev/dfl-port.3",
        f"KERF_AFU_ID_FPGA_0_AES_AT_3={AES_ID}",
        "KERF_VERSION_FPGA_0_AES_AT_3=1.2.0",
        "KERF_PARAMETER_FPGA_0_AES_AT_3_LANES=8",
    }
    assert [one.path for one in nodes] == ["/dev/dfl-port.3"]
    assert record.handle is not None
    assert record.handle["function"] == "aes"


@pytest.mark.parametrize("is_stand_in", [True, False])
def test_the_node_is_that_of_the_host_unless_the_card_is_a_stand_in(is_stand_in: bool, node: DflNode) -> None:
    record = node.prepare(node.part(3, function="aes"))
    assert record.handle is not None
    edits = build_edits(HANDLES.decode({**record.handle, "is_stand_in": is_stand_in}))
    [found] = edits.device_nodes
    assert (found.path, found.host_path, found.permissions) == (
        "/dev/dfl-port.3",
        "/dev/null" if is_stand_in else "",
        "rw",
    )


def test_admin_access_changes_nothing_and_gives_no_management_node(node: DflNode) -> None:
    """FP-15, FP-17."""
    record = node.plugin.allocate(replace(node.part(), placement=None), "monitor", admin_access=True)
    node.plugin.prepare(record)
    nodes = node.device_nodes(record)
    assert not [one for one in nodes if "fme" in one.path]
    assert node.hardware.calls() == []
