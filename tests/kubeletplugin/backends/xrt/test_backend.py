"""The backend ``xrt`` on stand-ins of cards: discovery, loads and releases, what is refused, what containers get.

What all backends do is in the contract (``test_contract.py``).
"""

import errno
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.quantity import Quantity
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
from kerf_dra.driver.kubeletplugin.backends.xrt import XrtBackend, open_backend
from kerf_dra.driver.kubeletplugin.backends.xrt.handles import HANDLES, build_edits
from kerf_dra.driver.kubeletplugin.backends.xrt.sysfs import XrtCardReading, XrtFiles
from kerf_dra.driver.partitions.device_names import device_name
from tests.fakes.xrt import NEEDS_COMPILER, CardLayout, XrtMachine, build_xclbin
from tests.fakes.xrt.machine import AES_ID, BASE, BLANK_ID, FFT_ID, INTERFACE
from tests.kubeletplugin.backends.xrt.machine import XrtNode, build_config

pytestmark = NEEDS_COMPILER

OTHER_ID: Final = "44444444-4444-4444-8444-444444444444"


@pytest.fixture
def node(tmp_path: Path) -> XrtNode:
    return XrtNode(tmp_path)


# Discovery


def test_a_card_is_one_slot_and_one_device_for_each_function(node: XrtNode) -> None:
    """FP-03."""
    first, second = node.plugin.cards
    assert (first.units, second.units) == (1, 1)
    assert (first.pci_bus_id, first.pcie_root, first.numa_node) == ("0000:3b:00.1", "pci0000:3a", 0)
    assert (second.pci_bus_id, second.pcie_root, second.numa_node) == ("0001:d8:02.1", "pci0001:d7", 1)
    assert first.driver_version == "2.13.466"
    attributes = dict(first.geometry.attributes)
    assert attributes["interfaceUUID"].value == INTERFACE, "that of the described stage of its shell"
    assert attributes["productName"].value == "u250"
    names = {device_name(first, spec.of(first.uuid)) for spec in first.geometry.specs}
    assert names == {"fpga-0", "fpga-0-slot-0", "fpga-0-aes-at-0", "fpga-0-fft-at-0"}


def test_a_configuration_file_says_where_everything_is(tmp_path: Path) -> None:
    hardware = XrtMachine.create(tmp_path, (CardLayout(pci_address="0000:3b:00.1", render=131),))
    hardware.describe()
    file = tmp_path / "xrt.yaml"
    file.write_text(
        f"descriptionFolder: {hardware.descriptions}\nimageFolder: {hardware.images}\nsystemRoot: {tmp_path}\n"
        f"xrtFolder: {hardware.xrt}\n"
    )
    [card] = open_backend(file).discover()
    assert card.index == 3, "the number of the render node, from the first one there can be"


def _forget_interfaces(hardware: XrtMachine) -> None:
    for card in (0, 1):
        hardware.set_state(card, "interface_uuids", "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda hardware: (hardware.descriptions / "shell.yaml").unlink(),
            f"has the interfaces {BASE} and {INTERFACE}, but neither",
        ),
        (lambda hardware: hardware.describe(slots=2), "has one region, but its shell u250 is described with 2 slots"),
        (_forget_interfaces, "has a shell without interfaces"),
    ],
)
def test_a_card_that_cannot_be_described_is_left_out_and_said_once(
    change: Callable[[XrtMachine], object], message: str, node: XrtNode, caplog: pytest.LogCaptureFixture
) -> None:
    change(node.hardware)
    with caplog.at_level(logging.WARNING):
        assert list(node.backend.discover()) == []
        node.backend.discover()
    assert [message in record.getMessage() for record in caplog.records].count(True) == 2, "once for each card"


def test_a_device_of_another_driver_and_a_card_without_its_node_are_no_cards(tmp_path: Path) -> None:
    hardware = XrtMachine.create(tmp_path)
    (hardware.card_folder(0) / "drm/renderD128").rmdir()
    (tmp_path / "sys/bus/pci/drivers/xocl/bind").touch()
    hardware.describe()
    assert [card.pci_bus_id for card in XrtBackend(build_config(hardware)).discover()] == ["0001:d8:02.1"]


def test_a_card_that_goes_while_it_is_discovered_fails_nothing(node: XrtNode, monkeypatch: pytest.MonkeyPatch) -> None:
    read = XrtFiles.read_loaded

    def read_late(files: XrtFiles, card: XrtCardReading) -> frozenset[str]:
        if card.pci_address == "0000:3b:00.1":
            node.hardware.take_away(0)
        return read(files, card)

    monkeypatch.setattr(XrtFiles, "read_loaded", read_late)
    assert [card.loaded for card in node.backend.discover()] == [{}, {}]


def test_shells_and_images_of_the_cluster_are_as_good_as_files(node: XrtNode) -> None:
    files = sorted(node.hardware.descriptions.iterdir())
    documents = [json.loads(file.read_text()) for file in files]
    for file in files:
        file.unlink()
    assert list(node.backend.discover()) == []
    node.describe(*documents)
    assert [card.uuid for card in node.backend.discover()] == [card.uuid for card in node.plugin.cards]
    node.prepare(node.region("aes"))
    assert node.hardware.read_loaded(0) == AES_ID


def test_a_function_whose_image_is_wrong_is_not_offered_and_one_that_is_new_is(node: XrtNode) -> None:
    """FP-05: a wrong image is refused before any claim is bound to the node."""
    node.hardware.add_image("aes.xclbin", AES_ID, build_xclbin(AES_ID, interface=OTHER_ID))
    node.hardware.describe_function("zstd", OTHER_ID)
    cards = node.backend.discover()
    assert {spec.function for card in cards for spec in card.geometry.specs} == {None, "fft", "zstd"}
    assert cards[0].attributes["refusedImages"].value == "aes=WrongDigest"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (build_xclbin(AES_ID, interface=OTHER_ID), "WrongInterface"),
        (build_xclbin(FFT_ID, interface=INTERFACE), "WrongFunction"),
        (build_xclbin(AES_ID, interface=INTERFACE, mode=5), "WrongFormat"),
        (b"XeonFPGA\xb7GBSv001", "WrongFormat"),
    ],
)
def test_an_image_that_was_built_for_something_else_is_refused_with_its_own_reason(
    content: bytes, reason: str, node: XrtNode
) -> None:
    """FP-05, FP-06."""
    described = node.hardware.build_image("aes", AES_ID)
    file = node.hardware.add_image("aes.xclbin", AES_ID, content)
    described["spec"]["files"] = [{**file, "slots": [[0]]}]  # type: ignore[index]
    node.hardware.write_description("aes.yaml", described)
    [card, _] = node.backend.discover()
    assert card.attributes["refusedImages"].value == f"aes={reason}"


@pytest.mark.parametrize(("described", "refused"), [(2, ""), (3, "aes=ComputeUnits")])
def test_an_image_with_fewer_compute_units_than_described_is_not_offered(
    described: int, refused: str, node: XrtNode
) -> None:
    """FP-18: claims would share compute units that are not there; the image of ``aes`` has two."""
    node.hardware.write_description("aes.yaml", node.hardware.build_image("aes", AES_ID, computeUnits=described))
    [card, _] = node.backend.discover()
    assert card.attributes["refusedImages"].value == refused


def test_a_card_whose_blank_image_is_wrong_gets_no_claims(node: XrtNode) -> None:
    node.hardware.add_image("blank.xclbin", BLANK_ID, build_xclbin(FFT_ID, interface=INTERFACE))
    node.backend.discover()
    survey = node.plugin.survey(node.card.uuid)
    assert "blank.xclbin is another file" in survey.no_whole
    assert survey.find_restriction(node.region()) == survey.no_whole


# Loads


def test_a_claim_gets_its_function_and_the_next_one_does_not(node: XrtNode) -> None:
    """FP-13."""
    record = node.prepare(node.region("aes"))
    assert node.hardware.read_loaded(0) == AES_ID
    assert node.hardware.read_loaded(1) == BLANK_ID
    size = (node.hardware.images / "aes.xclbin").stat().st_size
    assert node.hardware.calls() == [f"load 0000:3b:00.1 {AES_ID} {size}"], "the whole file, once"
    node.plugin.release(record)
    assert node.hardware.read_loaded(0) == BLANK_ID


def test_a_function_that_is_kept_is_found_loaded(node: XrtNode) -> None:
    """FP-08, FP-13."""
    node.plugin.release(node.prepare(node.region("aes"), release="Keep"))
    assert node.hardware.read_loaded(0) == AES_ID
    [card, _] = node.backend.discover()
    assert set(card.loaded.values()) == {"aes"}
    node.prepare(node.region("aes"))
    assert len(node.hardware.calls()) == 1


def test_a_whole_card_gets_the_function_that_its_claim_names_or_a_blank_one(node: XrtNode) -> None:
    record = node.prepare(node.whole(), function="fft")
    assert node.hardware.read_loaded(0) == FFT_ID
    node.plugin.release(record)
    node.hardware.set_loaded(0, AES_ID)
    node.prepare(node.whole())
    assert node.hardware.read_loaded(0) == BLANK_ID, "not the function of somebody before"


def test_without_a_blank_image_a_function_stays(node: XrtNode) -> None:
    node.hardware.describe(has_blank=False)
    node.backend.discover()
    node.plugin.release(node.prepare(node.region("aes")))
    record = node.prepare(node.region())
    assert node.hardware.read_loaded(0) == AES_ID
    node.plugin.release(record)
    assert len(node.hardware.calls()) == 1


def test_a_card_that_reports_no_image_is_loaded(node: XrtNode) -> None:
    node.hardware.set_state(0, "xclbinuuid", "00000000-0000-0000-0000-000000000000\n")
    node.plugin.release(node.prepare(node.region("aes")))
    assert node.hardware.read_loaded(0) == BLANK_ID


def test_another_image_that_is_there_at_the_release_stays(node: XrtNode) -> None:
    record = node.prepare(node.region("aes"))
    node.hardware.set_loaded(0, OTHER_ID)
    node.plugin.release(record)
    assert node.hardware.read_loaded(0) == OTHER_ID


# What is refused before the card is changed


def _replace_the_file(node: XrtNode) -> None:
    (node.hardware.images / "aes.xclbin").write_bytes(build_xclbin(FFT_ID, interface=INTERFACE))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        pytest.param(_replace_the_file, HardwareRefusedError, "is another file than", id="another file"),
        pytest.param(
            lambda node: node.hardware.use(0), HardwareConflictError, "process 4711 has /dev/dri/renderD128", id="used"
        ),
    ],
)
def test_what_cannot_be_is_refused_before_the_card_is_changed(
    change: Callable[[XrtNode], object], kind: type[KerfError], message: str, node: XrtNode
) -> None:
    """FP-05, FP-06."""
    record = node.allocate(node.region("aes"))
    change(node)
    with pytest.raises(kind, match=message):
        node.backend.prepare(record.device, record.config, record.journal, None)
    assert not node.hardware.calls()
    assert not record.journal.notes
    node.backend.abandon(record.device, record.journal, None)
    assert node.hardware.read_loaded(0) == BLANK_ID


# Faults of XRT and of cards


@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [
        (errno.EOPNOTSUPP, HardwareRefusedError, "does not match the card's shell"),
        (errno.EKEYREJECTED, HardwareRefusedError, "trusts no signature"),
        (-errno.E2BIG, HardwareRefusedError, "more memory of the host"),
        (errno.EPERM, HardwareRefusedError, "is the plugin's pod privileged"),
        (-errno.EBUSY, HardwareBusyError, "has a compute unit of the card open"),
        (errno.ETIMEDOUT, HardwareBusyError, "management function"),
        (errno.EDEADLK, HardwareBusyError, "reset the card"),
        (errno.ENODEV, CardAbsentError, "not there"),
        (0, HardwareBusyError, "XRT says no cause"),
        (errno.ENOMEM, HardwareBusyError, "XRT says no cause"),
    ],
)
def test_a_load_that_fails_says_why_and_leaves_the_card_blank(
    number: int, kind: type[KerfError], message: str, node: XrtNode
) -> None:
    """FP-07, FP-14 for this library: its numbers become causes."""
    node.hardware.add_fault("load", "errno", str(number))
    record = node.allocate(node.region("aes"))
    with pytest.raises(kind, match=message) as raised:
        node.plugin.prepare(record)
    assert "the image cannot be loaded into 0000:3b:00.1" in str(raised.value)
    node.plugin.release(record)
    assert node.hardware.read_loaded(0) == BLANK_ID


def test_a_card_that_reports_another_image_after_its_load_has_failed(node: XrtNode) -> None:
    node.hardware.add_fault("load", "wrong-id", OTHER_ID)
    record = node.allocate(node.region("aes"))
    with pytest.raises(HardwareRefusedError, match=f"reports {OTHER_ID} after the load of aes.xclbin"):
        node.plugin.prepare(record)
    node.plugin.release(record)
    assert node.hardware.read_loaded(0) == BLANK_ID


@pytest.mark.parametrize(("config", "limit"), [({}, "30"), ({"timeout_seconds": 5}, "5")])
def test_a_load_that_takes_too_long_fails(config: dict[str, int], limit: str, node: XrtNode) -> None:
    """FP-20: three times the 8 s that the image's maker states are less than the least limit."""
    node.clock.step_s = 31.0
    with pytest.raises(HardwareRefusedError, match=rf"took 31.0 s; at most {limit} s are allowed"):
        node.prepare(node.region("aes"), **config)


@pytest.mark.parametrize(
    ("call", "effect", "end"),
    [("load", "abort", "SIGABRT"), ("open", "exit 3", "exit status 3"), ("load", "exit 0", "exit status 0")],
)
def test_a_library_that_ends_its_process_fails_the_load_and_the_next_one_is_made(
    call: str, effect: str, end: str, node: XrtNode
) -> None:
    record = node.allocate(node.region("aes"))
    node.hardware.add_fault(call, *effect.split())
    with pytest.raises(HardwareBusyError, match=rf"into 0000:3b:00\.1: XRT has ended its process \({end}"):
        node.plugin.prepare(record)
    assert node.hardware.read_loaded(0) == BLANK_ID
    node.plugin.prepare(record)
    assert node.hardware.read_loaded(0) == AES_ID


def test_a_load_that_hangs_is_ended_after_its_time_and_the_next_one_is_made(node: XrtNode) -> None:
    """FP-20."""
    node.hardware.add_fault("load", "hang")
    with pytest.raises(HardwareRefusedError, match="not ended it within 1 s, and its process was killed"):
        node.prepare(node.region("aes"), timeout_seconds=1)
    node.prepare(node.region("aes"))
    assert node.hardware.read_loaded(0) == AES_ID


def test_a_library_that_ends_its_process_when_it_is_loaded_keeps_claims_away_until_it_does_not(node: XrtNode) -> None:
    node.hardware.change_library()
    node.hardware.add_fault("start", "abort")
    assert "XRT has ended its process (SIGABRT)" in node.plugin.survey(node.card.uuid).no_partitions
    assert not node.plugin.survey(node.card.uuid).no_partitions
    node.hardware.add_fault("start", "abort")
    assert not node.plugin.survey(node.card.uuid).no_partitions, "it is not loaded again for each survey"


def test_a_load_may_take_all_of_its_time(node: XrtNode) -> None:
    node.clock.step_s = 30.0
    node.prepare(node.region("aes"))
    assert node.hardware.read_loaded(0) == AES_ID


@pytest.mark.parametrize(
    ("number", "kind"),
    [(0, CardAbsentError), (errno.EINVAL, CardAbsentError), (errno.EACCES, HardwareRefusedError)],
)
def test_a_card_that_xrt_cannot_open_is_absent_unless_it_is_forbidden(
    number: int, kind: type[KerfError], node: XrtNode
) -> None:
    node.hardware.add_fault("open", "errno", str(number))
    with pytest.raises(kind, match=r"card 0000:3b:00\.1 cannot be opened"):
        node.prepare(node.region("aes"))


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("libxrt_coreutil.so.2", None, "libxrt_coreutil.so.2 is not there; install XRT"),
        ("libxrt_core.so.2", None, "libxrt_core.so.2 is not there; install XRT"),
        ("libxrt_coreutil.so.2", b"no library", "libxrt_coreutil.so.2 cannot be used"),
    ],
)
def test_without_xrt_cards_are_shown_but_get_no_claims(
    part: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    """XRT itself would end the process where its parts are missing."""
    hardware = XrtMachine.create(tmp_path)
    hardware.describe()
    library = hardware.xrt / "lib" / part
    library.unlink()
    if content is not None:
        library.write_bytes(content)
    backend = XrtBackend(build_config(hardware))
    card, _ = backend.discover()
    assert message in backend.survey(card.uuid).no_partitions
    hardware_again = XrtMachine.create(tmp_path / "again")
    library.unlink(missing_ok=True)
    (hardware_again.xrt / "lib" / part).rename(library)
    assert not backend.survey(card.uuid).no_partitions, "it is looked for again"


# Processes


def test_a_process_with_the_node_or_a_compute_unit_open_holds_the_card(node: XrtNode) -> None:
    node.hardware.open_node(0, "/dev/dri/renderD128")
    [found] = node.plugin.survey(node.card.uuid).partitions
    assert (found.in_use, found.placement) == (True, node.region().placement)
    node.hardware.stop_using(0)
    assert not node.plugin.survey(node.card.uuid).partitions
    node.hardware.open_node(1, "/dev/xfpga/dma.qdma.u120849.0")
    assert node.plugin.survey(node.plugin.cards[1].uuid).partitions
    node.hardware.use(0)
    assert node.plugin.survey(node.card.uuid).partitions, "the driver says it, whatever /proc shows"


@pytest.mark.parametrize("has_handle", [True, False])
def test_a_card_in_use_is_not_released_and_the_process_is_named(has_handle: bool, node: XrtNode) -> None:
    record = node.prepare(node.region("aes"))
    if not has_handle:
        record.handle = None
    node.hardware.open_node(0, "/dev/dri/renderD128")
    with pytest.raises(HardwareHeldError, match=r"process 4711 \(host.exe\) has /dev/dri/renderD128 open"):
        node.plugin.release(record)
    assert node.hardware.read_loaded(0) == AES_ID
    node.hardware.stop_using(0)
    node.plugin.release(record)
    assert node.hardware.read_loaded(0) == BLANK_ID


# Containers


def test_a_container_gets_the_user_functions_nodes_and_what_programs_need(node: XrtNode) -> None:
    """FP-15."""
    record = node.prepare(node.region("aes"))
    assert node.paths(record) == ["/dev/dri/renderD128"]
    assert node.variables(record) == {
        "KERF_DEVICE_FPGA_0_AES_AT_0=aes",
        "KERF_PCI_ADDRESS_FPGA_0_AES_AT_0=0000:3b:00.1",
        f"KERF_AFU_ID_FPGA_0_AES_AT_0={AES_ID}",
        "KERF_VERSION_FPGA_0_AES_AT_0=1.2.0",
        "KERF_PARAMETER_FPGA_0_AES_AT_0_KEY_BITS=256",
    }
    blank = node.prepare(node.region(card=1))
    assert node.paths(blank) == ["/dev/dri/renderD129", "/dev/xfpga/dma.qdma.u120849.0"], "never that of .m"
    assert node.variables(blank) == {"KERF_DEVICE_FPGA_1_SLOT_0=", "KERF_PCI_ADDRESS_FPGA_1_SLOT_0=0001:d8:02.1"}


def test_admin_access_gets_the_card_as_it_is_and_no_management_function(node: XrtNode) -> None:
    """FP-15, FP-17."""
    node.hardware.set_loaded(0, AES_ID)
    node.hardware.use(0)
    record = node.plugin.allocate(node.whole(), "admin", admin_access=True)
    node.plugin.prepare(record)
    assert node.paths(record) == ["/dev/dri/renderD128"]
    node.plugin.release(record)
    assert node.hardware.read_loaded(0) == AES_ID


def test_nodes_of_a_real_card_are_the_hosts_own(node: XrtNode) -> None:
    record = node.prepare(node.region("aes"))
    assert record.handle is not None
    handle = {**record.handle, "is_stand_in": False}
    (device_node,) = build_edits(HANDLES.decode(handle)).device_nodes
    assert (device_node.path, device_node.host_path, device_node.permissions) == ("/dev/dri/renderD128", "", "rw")


# Shares of a function's compute units


def test_claims_share_the_compute_units_of_one_load_and_the_last_one_clears_the_card(node: XrtNode) -> None:
    """FP-18: the scheduler counts the shares; a container is told its own."""
    shared = replace(node.region("aes"), shared=True)
    records = [node.plugin.allocate(shared, name, share=f"share-{name}") for name in ("one", "two", "three")]
    for record in records:
        consumed = {"computeUnitPercent": Quantity(100)}
        record.device = replace(record.device, consumed_capacity=consumed)
        node.plugin.prepare(record)
        node.hardware.stop_using(0)
        node.hardware.open_node(0, "/dev/dri/renderD128")
        assert "KERF_COMPUTE_UNIT_PERCENT_FPGA_0_AES_AT_0_SHARED=100" in node.variables(record)
    assert len(node.hardware.calls()) == 1, "programs of the first claims are not disturbed"
    node.plugin.release(records[0])
    node.plugin.release(records[1])
    assert node.hardware.read_loaded(0) == AES_ID
    node.hardware.stop_using(0)
    node.plugin.release(records[2])
    assert node.hardware.read_loaded(0) == BLANK_ID


def test_a_share_of_a_card_that_somebody_else_uses_is_refused(node: XrtNode) -> None:
    node.hardware.set_loaded(0, AES_ID)
    node.hardware.use(0)
    record = node.plugin.allocate(replace(node.region("aes"), shared=True), "user", share="share-1")
    with pytest.raises(HardwareConflictError, match="in use outside of Kerf"):
        node.plugin.prepare(record)


# Health


@pytest.mark.parametrize(
    ("change", "state", "reason"),
    [
        (lambda hardware: hardware.set_state(0, "dev_offline", "1\n"), HealthState.LOST, "dev_offline"),
        (lambda hardware: hardware.set_state(0, "device_bad_state", "1\n"), HealthState.LOST, "device_bad_state"),
        (lambda hardware: hardware.trip_firewall(0, 2), HealthState.LOST, "its AXI firewall 2 has tripped"),
        (lambda hardware: hardware.set_state(0, "ready", "0x0\n"), HealthState.UNHEALTHY, "management function"),
        (lambda hardware: hardware.take_away(0), HealthState.LOST, "there is no card"),
    ],
)
def test_what_a_card_reports_of_its_health_is_an_event_once(
    change: Callable[[XrtMachine], object], state: HealthState, reason: str, node: XrtNode
) -> None:
    """FP-16."""
    assert node.backend.wait_for_events(0.0) == []
    change(node.hardware)
    health = [event for event in node.backend.wait_for_events(5.0) if isinstance(event, HealthChange)]
    assert [(event.card_uuid, event.partition, event.state) for event in health] == [(node.card.uuid, None, state)]
    assert reason in health[0].reason
    assert node.backend.wait_for_events(0.0) == []


def test_what_a_driver_does_not_say_is_no_fault_of_the_card(node: XrtNode) -> None:
    """Older drivers have fewer attributes."""
    for name in ("ready", "dev_offline", "device_bad_state"):
        node.hardware.set_state(0, name, "")
    node.hardware.trip_firewall(0, "unknown")
    assert node.backend.wait_for_events(0.0) == []


def test_a_card_that_recovers_says_so(node: XrtNode) -> None:
    node.hardware.trip_firewall(0, 1)
    assert len(node.backend.wait_for_events(0.0)) == 1
    node.hardware.trip_firewall(0, 0)
    [event] = node.backend.wait_for_events(5.0)
    assert isinstance(event, HealthChange)
    assert (event.state, event.reason) == (HealthState.HEALTHY, "recovered")


def test_what_somebody_loads_past_kerf_is_a_change_of_the_card(node: XrtNode) -> None:
    assert node.backend.wait_for_events(0.0) == []
    node.hardware.set_loaded(1, FFT_ID)
    assert node.backend.wait_for_events(5.0) == [CardChange(card_uuid=node.plugin.cards[1].uuid)]


def test_the_names_of_devices_stay_when_a_driver_is_bound_anew(node: XrtNode) -> None:
    drm = node.hardware.card_folder(0) / "drm"
    (drm / "renderD128").rename(drm / "renderD130")
    first, _ = node.backend.discover()
    assert first.index == 0
    assert node.paths(node.prepare(node.region("aes"))) == ["/dev/dri/renderD130"]


def test_two_cards_never_have_one_name_whatever_their_nodes_are_called(node: XrtNode) -> None:
    """The second card's node gets the number that the first one's had when it was first seen."""
    drm = [node.hardware.card_folder(card) / "drm" for card in (0, 1)]
    (drm[0] / "renderD128").rename(drm[0] / "renderD140")
    late = node.hardware.folder / "sys/bus/pci/drivers/xocl/0001:d8:02.1"
    late.rename(node.hardware.folder / "away")
    fresh = node.machine.open_backend()
    (drm[0] / "renderD140").rename(drm[0] / "renderD129")
    assert [card.index for card in fresh.discover()] == [1]
    (node.hardware.folder / "away").rename(late)
    (drm[0] / "renderD129").rename(drm[0] / "renderD128")
    assert [card.index for card in fresh.discover()] == [1, 2]
