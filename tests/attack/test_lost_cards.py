"""Cards that go, or seem to have gone, while no plugin runs: pods leave those that are gone, and no others.

The next plugin has seen neither of two cards, of which two claims have devices.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import pytest
from msgspec.structs import replace

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.recorded_cards import PlacementRecord, SpecRecord
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.return_codes import CARD_IS_AWAY, LIBRARY_MISSING
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.partitions.recorded_cards import to_card_record
from tests.attack.kinds import cases
from tests.fakes.nvml import NEEDS_COMPILER
from tests.fakes.nvml_functions import CARD_READS, ERRORS, INSTANCE_READS
from tests.kubeletplugin.backends.nvidia.node import H100, NvidiaNode, QuickBackend
from tests.kubeletplugin.card_failures import (
    EVICTING,
    HEALTHY,
    LOST,
    UNAFFECTED,
    UNHEALTHY,
    Hardware,
    node,
    published,
    read_facts,
    starting,
    stop,
    taints,
)
from tests.kubeletplugin.harness import short_directory
from tests.kubeletplugin.wait import until

AWAY: Final = CARD_IS_AWAY | {LIBRARY_MISSING}
"""The codes that say that no card is there, or no driver."""


class Case(msgspec.Struct, frozen=True):
    """What happens between two plugins, and the cards that are lost then."""

    fault: str
    lost: tuple[str, ...]
    boots: bool = False
    evicts: bool = True
    """Whether a taint says so: a card that is replaced is reported to the kubelet only."""


FAULTS: dict[str, Callable[[Hardware], None]] = {
    "one card": lambda hardware: hardware.remove("GPU-0"),
    "all cards": lambda hardware: hardware.remove("GPU-0", "GPU-1", "FPGA-0"),
    "no driver": Hardware.unload,
    "any error": Hardware.refuse,
    "no list": Hardware.lose_list,
    "another card": Hardware.replace_first,
    "no description": lambda hardware: hardware.hide("GPU-0"),
    "nothing": lambda _: None,
}


@pytest.mark.parametrize(
    "case", cases("test_lost_cards.py::test_pods_leave_exactly_the_cards_that_went_while_no_plugin_ran", Case)
)
async def test_pods_leave_exactly_the_cards_that_went_while_no_plugin_ran(case: Case) -> None:
    lost = {{"GPU-0": LOST, "GPU-1": UNAFFECTED}[card] for card in case.lost}
    with node() as (made, hardware):
        await stop(made)
        FAULTS[case.fault](hardware)
        if case.boots:
            hardware.reboot()
            made.boot_id = "boot-2"
        evicting = lost if case.evicts else set()
        for _ in range(2):
            async with starting(made):
                await until(lambda: {name for name in (LOST, UNAFFECTED) if EVICTING in taints(made, name)} == evicting)
                health = (await read_facts(made)).health
                assert health == {(name, UNHEALTHY if name in lost else HEALTHY) for name in (LOST, UNAFFECTED)}


@NEEDS_COMPILER
@pytest.mark.parametrize("error", ERRORS)
def test_no_error_of_nvml_at_the_start_makes_a_card_lost_that_is_there(error: str) -> None:
    """A card that another code keeps from being listed may work, and its pods with it."""
    with short_directory() as root:
        machine = NvidiaNode(root, H100, H100).machine
        uuids = [card.uuid for card in _start(QuickBackend(machine))]
        for function in ("nvmlInit_v2", *CARD_READS, *INSTANCE_READS):
            for skip in (0, 1):
                machine.add_fault(function, error=ERRORS[error], skip=skip, times=None)
                lost = [uuid for uuid in uuids if _is_lost(QuickBackend(machine), uuid)]
                assert not lost or error in AWAY, (function, skip)
                machine.clear_faults()


def _start(backend: QuickBackend) -> Sequence[Card]:
    backend.open()
    try:
        return backend.discover()
    finally:
        backend.close()


def _is_lost(backend: QuickBackend, card_uuid: str) -> bool:
    """Whether a new process would take the card for lost."""
    try:
        backend.open()
    except KerfError as error:
        return isinstance(error, CardAbsentError)
    try:
        with suppress(KerfError):
            if card_uuid in {card.uuid for card in backend.discover()}:
                return False
        backend.survey(card_uuid)
    except KerfError as error:
        return isinstance(error, CardAbsentError)
    finally:
        backend.close()
    return False


async def test_cards_that_a_record_describes_wrongly_keep_no_other_from_being_published() -> None:
    """A record of another version: what this one does not understand of it is as if it were not there."""
    damages: list[dict[str, object]] = [
        {"specs": ()},
        {"kind": "npu"},
        {"index": -1},
        {"specs": (SpecRecord(size=(1,), weight=1, placement=PlacementRecord(start=10**9, size=1)),)},
        {"attributes": {"ofAnotherVersion": Attribute.of(True)}},
    ]
    for damage in damages:
        with node() as (made, hardware):
            await stop(made)
            with open_checkpoint(made.settings.state, boot_id=made.boot_id) as checkpoint:
                checkpoint.note_cards({"GPU-0": replace(to_card_record(hardware.cards[0]), **damage)})
            hardware.remove("GPU-0")
            async with starting(made):
                await until(lambda: EVICTING in taints(made, LOST))
                assert made.checks["cards"]() is None, damage
                assert UNAFFECTED in published(made)
                assert "fpga-0" in published(made)
