"""The health of Intel GPUs by the files of the kernel, and the taints and reports that follow (RM-15)."""

import re
from pathlib import Path
from typing import Final

import pytest

from kerf_dra.driver.families.gpu_intel import GPU_INTEL
from kerf_dra.driver.kubeletplugin.backends.base import HealthChange, HealthState
from kerf_dra.driver.kubeletplugin.backends.intel import IntelBackend
from kerf_dra.driver.kubeletplugin.backends.intel.config import IntelConfig
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.partitions.geometry import Partition, Placement
from tests.fakes.intel import B580, MAX_1550, FakeDrmCalls, IntelMachine

FIRST: Final = "0000:03:00.0"
SECOND: Final = "0000:43:00.0"
HWMON: Final = "hwmon/hwmon4"
SURVIVABILITY: Final = "Survivability mode type: Runtime"
"""As Linux says it since August 2025 (``xe_survivability_mode.c``)."""


@pytest.fixture
def machine(tmp_path: Path) -> IntelMachine:
    made = IntelMachine(tmp_path)
    sensors = {
        "temp2_label": "pkg\n",
        "temp2_input": "65000\n",
        "temp2_crit": "100000\n",
        "temp2_emergency": "110000\n",
        "temp3_input": "70000\n",  # without limits it says nothing
        "name": "xe\n",
    }
    made.add_card(0, FIRST, MAX_1550, tiles=2, files={f"{HWMON}/{name}": text for name, text in sensors.items()})
    made.add_card(
        1,
        SECOND,
        B580,
        driver="i915",
        render=129,
        files={
            "drm/card1/gt/gt0/error_counter/correctable_eu_grf": "12\n",
            "drm/card1/gt/gt0/error_counter/fatal_guc": "0\n",
            "drm/card1/gt/gt0/error_counter/sgunit_nonfatal": "4\n",
            "drm/card1/gt/gt0/error_counter/soc_nonfatal_punit": "2\n",
            "drm/card1/gt/gt0/error_counter/soc_fatal_psf_csc_0": "0\n",
        },
    )
    return made


def backend(machine: IntelMachine) -> IntelBackend:
    made = IntelBackend(IntelConfig(system_root=str(machine.root)), calls=FakeDrmCalls())
    made.open()
    return made


def write(machine: IntelMachine, address: str, file: str, text: str) -> None:
    path = machine.root / "sys/devices/pci0000:00" / address / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def look(known: IntelBackend) -> list[tuple[str, HealthState, str]]:
    """What is reported now, by PCI address."""
    addresses = {card.uuid: card.pci_bus_id for card in known.discover()}
    events = known.wait_for_events(0)
    assert all(isinstance(event, HealthChange) and event.partition is None for event in events)
    return [(addresses[e.card_uuid], e.state, e.reason) for e in events if isinstance(e, HealthChange)]


def test_cards_within_their_limits_are_healthy_also_with_corrected_errors(machine: IntelMachine) -> None:
    assert look(backend(machine)) == []


@pytest.mark.parametrize(
    ("address", "file", "text", "state", "reason"),
    [
        (FIRST, f"{HWMON}/temp2_input", "100000", "unhealthy", "sensor pkg has 100 C, and 100 C is critical"),
        (FIRST, f"{HWMON}/temp2_input", "111500", "lost", "sensor pkg has 111.5 C, and 110 C is an emergency"),
        (SECOND, "drm/card1/gt/gt0/error_counter/fatal_guc", "3", "unhealthy", "fatal errors .* gt0/fatal_guc 3"),
        (SECOND, "drm/card1/gt/gt1/error_counter/sgunit_fatal", "1", "unhealthy", "fatal errors .* gt1/sgunit_fatal 1"),
        (SECOND, "drm/card1/gt/gt0/error_counter/soc_fatal_punit", "2", "unhealthy", "gt0/soc_fatal_punit 2"),
        (FIRST, "survivability_mode", SURVIVABILITY, "lost", f"its firmware is flashed: {SURVIVABILITY}"),
    ],
    ids=["critical", "emergency", "fatal errors", "of a further unit", "of the chip", "survivability mode"],
)
def test_rm_15_a_card_that_is_not_well_is_reported_with_the_reason(
    machine: IntelMachine, address: str, file: str, text: str, state: str, reason: str
) -> None:
    known = backend(machine)
    look(known)
    write(machine, address, file, text)
    [(where, is_now, why)] = look(known)
    assert (where, is_now) == (address, HealthState(state))
    assert re.search(reason, why)
    assert look(known) == [], "once"
    known.open()
    assert len(look(known)) == 1, "and again to who opens it"


def test_a_card_is_healthy_again_only_some_degrees_below_its_limit(machine: IntelMachine) -> None:
    known = backend(machine)
    write(machine, FIRST, f"{HWMON}/temp2_input", "101000")
    assert [state for _, state, _ in look(known)] == [HealthState.UNHEALTHY]
    write(machine, FIRST, f"{HWMON}/temp2_input", "97000")
    assert [state for _, state, _ in look(known)] == [HealthState.UNHEALTHY], "another reason, the same state"
    assert look(known) == [], "as long as it is there"
    write(machine, FIRST, f"{HWMON}/temp2_input", "94000")
    assert look(known) == [(FIRST, HealthState.HEALTHY, "recovered")]


def test_a_card_that_goes_away_is_lost_until_it_is_back(machine: IntelMachine) -> None:
    known = backend(machine)
    look(known)
    machine.take_away(1)
    [event] = known.wait_for_events(0)[:1]
    assert isinstance(event, HealthChange)
    assert event.state is HealthState.LOST
    machine.bring_back(1)
    assert (SECOND, HealthState.HEALTHY, "recovered") in look(known)


def test_a_card_and_its_tiles_get_the_taints_of_any_familys_hardware(machine: IntelMachine) -> None:
    known = backend(machine)
    tracker = DeviceHealthTracker(driver=GPU_INTEL.driver, now=lambda: 0.0)
    write(machine, FIRST, f"{HWMON}/temp2_input", "120000")
    first, _ = known.discover()
    for event in known.wait_for_events(0):
        assert isinstance(event, HealthChange)
        tracker.update(event)
    for placement in (None, Placement(1, 1)):
        part = Partition(
            kind="gpu-intel", card_uuid=first.uuid, profile=None if placement is None else "1t", placement=placement
        )
        [taint] = tracker.build_taints(part)
        assert (taint.key, taint.value, taint.effect) == ("gpu-intel.kerf.dev/unhealthy", "lost", "NoExecute")
