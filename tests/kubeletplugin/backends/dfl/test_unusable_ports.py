"""Ports that the kernel's driver keeps in reset, or leaves without a driver: their slots get no claims meanwhile.

What the driver does is that of Linux 6.12 (``make kernel-dfl``), on stand-ins of two cards with four ports each.
"""

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from kerf_dra.driver.kubeletplugin.backends.base import (
    HardwareBusyError,
    HardwareConflictError,
    HealthChange,
    HealthState,
)
from kerf_dra.driver.kubeletplugin.backends.dfl import DflBackend
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import DflDriver, PortInResetError
from kerf_dra.driver.kubeletplugin.backends.dfl.sysfs import CardFiles
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.partitions.geometry import Partition, Placement
from tests.fakes.claims import DRIVER, claim
from tests.fakes.dfl import NEEDS_COMPILER, FakeSystemCalls
from tests.fakes.dfl.machine import AES_ID, BLANK_ID, TWO_CARDS
from tests.fakes.kubelet import ClaimError
from tests.kubeletplugin.backends.dfl.machine import DflMachineUnderTest, DflNode
from tests.kubeletplugin.backends.dfl.test_virtual_functions import Card
from tests.kubeletplugin.harness import Machine, machine
from tests.kubeletplugin.wait import until

pytestmark = NEEDS_COMPILER

CRC_ERROR: Final = f"{errno.EIO} reconfig CRC error"
IN_RESET: Final = (
    "slot 1 of 0000:3b:00.0 is held in reset since a load or a reset of it failed: end the claims that have the card, "
    "then unbind and bind its driver, dfl-pci (docs/fpga.md)"
)
NO_DRIVER: Final = "slot 1 of 0000:3b:00.0 has no port with a driver: load dfl-afu; if it is loaded, end the claims"


class Watch:
    """The health of a node's devices, as the plugin knows it from a backend's events."""

    def __init__(self, backend: DflBackend) -> None:
        self._backend = backend
        self._tracker = DeviceHealthTracker(driver="fpga.kerf.dev", now=lambda: 0.0)
        self.seen: list[HealthState] = []
        """The states that were reported, in order."""

    def read(self) -> None:
        """Take the changes of one reading."""
        for event in self._backend.wait_for_events(0):
            if isinstance(event, HealthChange):
                self.seen.append(event.state)
                self._tracker.update(event)

    def list_withheld(self, parts: list[Partition]) -> list[tuple[int, str]]:
        """Return the slots of ``parts`` that get no new claims, with the taint's value and effect."""
        found = [(part, taint) for part in parts for taint in self._tracker.build_taints(part)]
        return [(part.placement.start, f"{taint.value}:{taint.effect}") for part, taint in found if part.placement]

    def reasons(self) -> list[str]:
        return [unhealthy.reason for unhealthy in self._tracker.unhealthy.values()]


@pytest.fixture
def node(tmp_path: Path) -> DflNode:
    return DflNode(tmp_path)


def slots(node: DflNode, card: int = 0) -> list[Partition]:
    """The slots of a card."""
    uuid = node.plugin.cards[card].uuid
    return [Partition(kind="fpga", card_uuid=uuid, placement=Placement(slot, 1)) for slot in range(4)]


def watch(node: DflNode) -> Watch:
    assert isinstance(node.backend, DflBackend)
    found = Watch(node.backend)
    found.read()
    return found


def fail_load(node: DflNode, slot: int = 1) -> None:
    """Have a claim for a slot whose load fails, and end it."""
    node.hardware.add_fault("pr", "errno", CRC_ERROR)
    record = node.allocate(node.part(slot, function="aes"))
    with pytest.raises(HardwareBusyError):
        node.plugin.prepare(record)
    node.plugin.release(record)


def set_state(node: DflNode, state: str) -> None:
    """Let the first card's FPGA manager report a state."""
    [file] = node.hardware.fme_folder(0).glob("dfl-fme-mgr.*/fpga_manager/fpga*/state")
    file.write_text(f"{state}\n")


def hold_in_reset(node: DflNode, slot: int) -> None:
    (node.hardware.folder / f"reset/dfl-port.{slot}").write_text("1\n")


def test_a_slot_whose_load_failed_gets_no_claims_until_the_driver_was_bound_again_and_the_others_do(
    node: DflNode,
) -> None:
    health = watch(node)
    fail_load(node)
    health.read()
    assert health.list_withheld(slots(node)) == [(1, "degraded:NoSchedule")]
    assert health.list_withheld([node.part(0, 4)]) == [(0, "degraded:NoSchedule")], "what overlaps with it, too"
    assert health.list_withheld(slots(node, 1)) == []
    assert health.reasons() == [IN_RESET]
    other = node.prepare(node.part(0, function="aes"))

    node.plugin.restart()
    health = watch(node)
    assert health.list_withheld(slots(node)) == [(1, "degraded:NoSchedule")], "the first reading finds it again"
    node.prepare(node.part(2, function="aes"))
    health.read()
    assert health.reasons() == [IN_RESET], "a load into another slot ends nothing"

    node.plugin.release(other)
    node.hardware.bind_again(0)
    health.read()
    assert health.list_withheld(slots(node)) == []
    assert health.seen[-1] is HealthState.HEALTHY
    node.prepare(node.part(1, function="aes"))
    assert node.loaded()[1] == AES_ID
    hold_in_reset(node, 1)
    set_state(node, "write")
    health.read()
    assert health.list_withheld(slots(node)) == [], "what was wrong before says nothing of a load"


def test_a_reset_that_the_port_did_not_answer_is_found_as_well(node: DflNode) -> None:
    health = watch(node)
    node.hardware.add_fault("reset", "errno", str(errno.ETIMEDOUT))
    record = node.allocate(node.part(1, function="aes"))
    with pytest.raises(HardwareBusyError, match=r"dfl-port\.1 cannot be reset"):
        node.plugin.prepare(record)
    health.read()
    assert health.reasons() == [IN_RESET]
    node.plugin.release(record)


def test_a_claim_for_a_slot_in_reset_loads_nothing_and_says_what_to_do(node: DflNode) -> None:
    health = watch(node)
    fail_load(node)
    before = node.hardware.calls()
    for _ in range(2):
        health.read()
        record = node.allocate(node.part(1, function="aes"))
        with pytest.raises(PortInResetError) as caught:
            node.plugin.prepare(record)
        assert str(caught.value) == IN_RESET
        node.plugin.release(record)
    health.read()
    assert node.hardware.calls() == before
    assert node.plugin.records == []
    assert health.seen == [HealthState.UNHEALTHY], "it is reported once, whatever fails because of it"


def test_the_failed_load_itself_says_that_its_slot_is_kept_in_reset(node: DflNode) -> None:
    node.hardware.add_fault("pr", "errno", CRC_ERROR)
    with pytest.raises(HardwareBusyError) as caught:
        node.prepare(node.part(1, function="aes"))
    assert str(caught.value) == (
        "the image cannot be loaded through /dev/dfl-fme.0 into slot 1: the image's checksum was wrong when it arrived "
        f"at the card; {IN_RESET}"
    )


@pytest.mark.parametrize("release", ["Blank", "Keep"])
def test_a_claim_ends_though_its_port_is_in_reset_and_the_next_one_does_not_get_its_function(
    release: str, node: DflNode
) -> None:
    record = node.prepare(node.part(1, function="aes"), release=release)
    hold_in_reset(node, 1)
    node.plugin.release(record)
    node.hardware.bind_again(0)
    assert node.loaded()[1] == AES_ID
    node.prepare(node.part(1))
    assert node.loaded()[1] == BLANK_ID


# What is no fault


@pytest.mark.parametrize("state", ["parse header", "write init", "write", "write complete", "", "of a later kernel"])
def test_a_slot_that_another_program_loads_is_not_withheld(state: str, node: DflNode) -> None:
    health = watch(node)
    hold_in_reset(node, 1)
    set_state(node, state)
    health.read()
    assert health.seen == []
    record = node.allocate(node.part(1, function="aes"))
    with pytest.raises(HardwareBusyError, match=r"^slot 1 of 0000:3b:00\.0 is being loaded$"):
        node.plugin.prepare(record)
    with pytest.raises(HardwareBusyError, match="is being loaded"):
        node.plugin.release(record)
    assert node.plugin.records == [record], "what is loaded by now may be anything"


@pytest.mark.parametrize("state", ["operating", "unknown", "write init error", "write error", "write complete error"])
def test_a_slot_is_withheld_once_no_load_goes_on(state: str, node: DflNode) -> None:
    health = watch(node)
    hold_in_reset(node, 1)
    set_state(node, state)
    health.read()
    assert health.reasons() == [IN_RESET]


def test_a_slot_in_reset_stays_withheld_while_another_slot_is_loaded(node: DflNode) -> None:
    health = watch(node)
    fail_load(node)
    health.read()
    hold_in_reset(node, 0)
    set_state(node, "write")
    health.read()
    assert health.list_withheld(slots(node)) == [(1, "degraded:NoSchedule")]
    assert health.seen == [HealthState.UNHEALTHY]


class WatchingCalls(FakeSystemCalls):
    """Reads the health of all cards before and after each change of a card, as the plugin's other thread may."""

    def __init__(self) -> None:
        self.read_health: Callable[[], None] = lambda: None
        super().__init__(lambda: self.read_health())


class CallsDuringLoad(FakeSystemCalls):
    """Does something at each reading of a port, before it, in this order."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self._steps = iter(steps)

    def read(self, descriptor: int, size: int) -> bytes:
        next(self._steps)()
        return super().read(descriptor, size)


@pytest.mark.parametrize("shown_at", [0, 1])
def test_a_load_that_the_manager_shows_only_now_is_a_load(shown_at: int, node: DflNode) -> None:
    """A load puts the port into reset just before the FPGA manager shows it."""
    hold_in_reset(node, 1)
    steps = [lambda: None, lambda: None]
    steps[shown_at] = lambda: set_state(node, "write init")
    files = CardFiles(node.hardware.folder)
    card = files.list_cards([])[0]
    with pytest.raises(HardwareBusyError, match="is being loaded"):
        DflDriver(files, CallsDuringLoad(*steps)).read_afu_id(card, card.ports[1])


def test_a_load_that_ends_after_the_first_reading_is_no_fault(node: DflNode) -> None:
    """A load takes the port out of reset just after the FPGA manager has shown its end."""
    hold_in_reset(node, 1)
    files = CardFiles(node.hardware.folder)
    card = files.list_cards([])[0]
    calls = CallsDuringLoad(lambda: None, (node.hardware.folder / "reset/dfl-port.1").unlink)
    assert DflDriver(files, calls).read_afu_id(card, card.ports[1]) == BLANK_ID


def test_no_load_and_no_release_of_this_plugin_is_taken_for_a_fault(node: DflNode) -> None:
    calls = WatchingCalls()
    backend = DflBackend(node.machine.document, calls=calls)
    backend.open()
    health = Watch(backend)
    backend.discover()
    calls.read_health = health.read
    record = node.allocate(node.part(1, function="aes"))
    handle = backend.prepare(record.device, record.config, record.journal, None)
    backend.unprepare(handle)
    assert health.seen == []
    assert node.loaded() == [BLANK_ID] * 4


# Ports without a driver


def test_a_port_without_a_driver_withholds_its_slot_alone(node: DflNode) -> None:
    health = watch(node)
    node.hardware.take_driver(1)
    health.read()
    assert health.list_withheld(slots(node)) == [(1, "degraded:NoSchedule")]
    assert health.list_withheld(slots(node, 1)) == []
    [reason] = health.reasons()
    assert reason.startswith(NO_DRIVER)
    assert node.plugin.survey(node.card.uuid).partitions == (), "nobody else has it"
    record = node.allocate(node.part(1, function="aes"))
    with pytest.raises(HardwareBusyError, match=NO_DRIVER):
        node.plugin.prepare(record)
    node.plugin.release(record)
    node.prepare(node.part(0, function="aes"))
    node.plugin.restart()
    health = watch(node)
    assert health.list_withheld(slots(node)) == [(1, "degraded:NoSchedule")]
    node.hardware.bind_again(0)
    health.read()
    assert health.list_withheld(slots(node)) == []


def test_beside_a_port_without_a_driver_one_that_was_given_away_is_not_known_apart(node: DflNode) -> None:
    node.hardware.port_folder(2).resolve().rename(node.hardware.folder / "given")
    health = watch(node)
    assert health.seen == []
    with pytest.raises(HardwareConflictError, match="port-2-of-a-vf at 2"):
        node.prepare(node.part(2, function="aes"))
    node.hardware.take_driver(1)
    health.read()
    assert health.list_withheld(slots(node)) == [(1, "degraded:NoSchedule"), (2, "degraded:NoSchedule")]


def test_a_claim_with_virtual_functions_ends_though_its_ports_come_back_without_drivers(tmp_path: Path) -> None:
    card = Card(tmp_path, TWO_CARDS)
    assert isinstance(card.plugin.backend, DflBackend)
    health = Watch(card.plugin.backend)
    record = card.prepare()
    card.hardware.leave_undriven()
    card.plugin.release(record)
    assert card.plugin.records == []
    health.read()
    whole = replace(record.partition, placement=Placement(0, 4))
    assert health.list_withheld([whole]) == [(0, "degraded:NoSchedule")]
    assert [reason.partition(":00.0 ")[2][:8] for reason in health.reasons()] == ["has no p"] * 4
    again = card.allocate()
    with pytest.raises(HardwareBusyError, match="has no port with a driver"):
        card.plugin.prepare(again)
    card.plugin.release(again)
    card.hardware.bind_again(0)
    health.read()
    assert health.reasons() == []
    card.prepare()


def test_a_claim_with_virtual_functions_ends_only_once_all_of_its_ports_are_back(tmp_path: Path) -> None:
    card = Card(tmp_path, TWO_CARDS)
    record = card.prepare()
    card.hardware.leave_undriven()
    for slot, message in ((1, "slot 1 of .* cannot be given back"), (2, "has not got all of its ports back")):
        card.hardware.refuse_next_assign(slot)
        with pytest.raises(HardwareBusyError, match=message):
            card.plugin.release(record)
    card.plugin.release(record)
    assert card.plugin.records == []


def test_ports_that_were_given_away_hold_a_card_for_virtual_functions_and_ports_without_drivers_do_not(
    tmp_path: Path,
) -> None:
    card = Card(tmp_path, TWO_CARDS)
    first, second = (one.uuid for one in card.plugin.cards)
    card.hardware.port_folder(1).resolve().rename(card.hardware.folder / "given")
    card.hardware.take_driver(5)
    assert [found.id for found in card.plugin.survey(first).partitions] == ["virtual-functions"]
    assert card.plugin.survey(second).partitions == ()


# The whole plugin


def list_taints(node: Machine) -> dict[str, str]:
    """Return the taints of the bare slots that are published, by device."""
    pools = node.cluster.published[-1] if node.cluster.published else ()
    devices = [device for pool in pools for content in pool.slices for device in content.devices]
    return {
        device.name: " ".join(f"{taint.key}={taint.value}:{taint.effect}" for taint in device.taints)
        for device in devices
        if "-slot-" in device.name and device.name.startswith(("fpga-0-slot-", "fpga-1-slot-"))
    }


async def test_the_plugin_publishes_the_slot_with_a_taint_in_each_process_until_it_can_be_used(tmp_path: Path) -> None:
    hardware = DflMachineUnderTest(tmp_path / "machine")
    usable = {f"fpga-{card}-slot-{slot}": "" for card in range(2) for slot in range(4)}
    withheld = usable | {"fpga-0-slot-1": f"{DRIVER}/unhealthy=degraded:NoSchedule"}
    with machine() as node:
        node.backend = hardware.open_backend()  # type: ignore[assignment]
        failing = node.cluster.add(claim("failing", "fpga-0-aes-at-1"))
        other = node.cluster.add(claim("other", "fpga-0-aes-at-0"))
        async with node.plugin():
            await until(lambda: list_taints(node) == usable)
            hardware.hardware.add_fault("pr", "errno", CRC_ERROR)
            for message in ("checksum was wrong", "is held in reset"):
                with pytest.raises(ClaimError, match=message):
                    await node.kubelet.prepare(failing)
            await until(lambda: list_taints(node) == withheld)
            await node.kubelet.unprepare(failing)
            await node.kubelet.prepare(other)
        node.backend = hardware.open_backend()  # type: ignore[assignment]
        node.cluster.published.clear()
        async with node.plugin():
            await until(lambda: list_taints(node) == withheld)
            await node.kubelet.unprepare(other)
            hardware.hardware.bind_again(0)
            await until(lambda: list_taints(node) == usable)
            await node.kubelet.prepare(failing)
