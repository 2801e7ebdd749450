"""How healthy an NVIDIA card is, by what NVML reports: which Xid has which effect, and when it ends."""

import re
from pathlib import Path
from typing import Final

import pytest

from kerf_dra.api.kerf.card_repairs import CardRepair, RepairAct
from kerf_dra.driver.kubeletplugin.backends.base import HealthState, UnhealthyState
from kerf_dra.driver.kubeletplugin.backends.nvidia.health.card_health import (
    VERDICT_S,
    CardHealth,
    add_xid,
    list_states,
    note_away,
    note_condition,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.health.xid_policy import XID_RULES, find_repair, find_rule
from kerf_dra.driver.kubeletplugin.backends.nvidia.readings import ConditionReading
from kerf_dra.driver.partitions.geometry import Partition, Placement

HEALTHY, UNHEALTHY, LOST = HealthState.HEALTHY, HealthState.UNHEALTHY, HealthState.LOST
PART = Partition(kind="gpu", card_uuid="GPU-0", profile="1g.10gb", placement=Placement(0, 1))
FINE = ConditionReading(recovery_action=0)
OLD_DRIVER = ConditionReading(recovery_action=None)
R580 = 580
DOCUMENT: Final = Path("docs/nvidia.md")


def states(health: CardHealth) -> dict[Partition | None, HealthState]:
    return {partition: state.state for partition, state in list_states(health).items()}


# The table


def test_no_xid_has_two_rules() -> None:
    xids = [xid for rule in XID_RULES for xid in rule.xids]
    assert len(xids) == len({*xids})


def test_the_documentation_has_the_table() -> None:
    text = DOCUMENT.read_text()
    rows = re.findall(r"^\|[^|]*\| (none|no new claims|evicted) \| ([0-9, -]+) \|$", text, re.MULTILINE)
    effects = {"none": HEALTHY, "no new claims": UNHEALTHY, "evicted": LOST}
    documented = {xid: effects[effect] for effect, xids in rows for xid in expand(xids)}
    assert documented == {xid: rule.effect for rule in XID_RULES for xid in rule.xids}
    rows = re.findall(r"^\| `(boot|reset|reset-when-free)` \|[^|]*\| ([0-9, -]+) \|$", text, re.MULTILINE)
    repairs = {xid: repair for xid in documented if (repair := find_repair(xid))}
    assert {xid: act for act, xids in rows for xid in expand(xids)} == {xid: one.act for xid, one in repairs.items()}


def expand(numbers: str) -> list[int]:
    """Return the numbers of a list such as "8, 37-41"."""
    ranges = [(int(first), int(last or first)) for first, last in re.findall(r"(\d+)(?:-(\d+))?", numbers)]
    return [number for first, last in ranges for number in range(first, last + 1)]


def test_every_rule_with_an_effect_says_what_the_error_is() -> None:
    assert [rule.xids for rule in XID_RULES if bool(rule.what) != (rule.effect is not HEALTHY)] == []


@pytest.mark.parametrize(
    ("effect", "xids"),
    [
        # An application's errors, and what NVIDIA says to ignore.
        (HEALTHY, (13, 31, 43, 45, 63, 68, 94, 154)),
        (UNHEALTHY, (46, 48, 62, 64, 74, 109, 119, 120, 145, 158)),
        # "Must be reset before applications can restart" (95), or there is no card to go on with.
        (LOST, (79, 95, 140, 143)),
        # The catalog calls these unused; later drivers may use them.
        (UNHEALTHY, (1, 61, 999)),
    ],
)
def test_the_effect_of_an_xid_follows_from_the_action_that_nvidia_gives(
    effect: HealthState, xids: tuple[int, ...]
) -> None:
    assert {xid: find_rule(xid).effect for xid in xids} == dict.fromkeys(xids, effect)


def test_what_ends_with_the_application_keeps_no_card_from_claims_and_what_takes_a_reset_does() -> None:
    by_action = {(rule.action, rule.effect is HEALTHY) for rule in XID_RULES}
    assert by_action >= {("IGNORE", True), ("RESTART_APP", True), ("RESET_GPU", False), ("RESTART_BM", False)}
    assert not by_action & {("IGNORE", False), ("RESTART_APP", False), ("RESET_GPU", True), ("RESTART_BM", True)}


# Repairs


@pytest.mark.parametrize(
    ("xids", "condition", "repair"),
    [
        ((), ConditionReading(recovery_action=1), "reset.recovery-action-1"),
        ((), ConditionReading(recovery_action=2), "boot.recovery-action-2"),
        ((), ConditionReading(recovery_action=3), "None"),
        ((), ConditionReading(recovery_action=4), "reset-when-free.recovery-action-4"),
        ((), ConditionReading(recovery_action=99), "None"),
        ((), ConditionReading(has_pending_rows=True), "reset-when-free.pending-rows"),
        ((), ConditionReading(has_failed_rows=True, is_too_hot=True), "None"),
        ((95,), FINE, "reset.xid-95"),
        ((119, 95), FINE, "reset.xid-95"),
        ((119,), ConditionReading(has_pending_rows=True), "reset-when-free.pending-rows"),
        ((95, 79), ConditionReading(recovery_action=1), "boot.xid-79"),
        ((48,), FINE, "None"),
        ((13, 31, 999), FINE, "None"),
    ],
)
def test_of_several_repairs_of_a_card_the_one_that_includes_the_others_is_named(
    xids: tuple[int, ...], condition: ConditionReading, repair: str
) -> None:
    health = CardHealth()
    for xid in xids:
        health = add_xid(health, xid, None, 0.0)
    found = list_states(note_condition(health, condition, R580, 0.0))
    assert str(found[None].repair if found else None) == repair


# Xids


def test_an_xid_of_an_instance_concerns_its_partition_alone() -> None:
    health = add_xid(CardHealth(), 95, PART, 0.0)
    assert list_states(health) == {
        PART: UnhealthyState(
            LOST,
            "Xid 95, a memory error that was not contained (NVIDIA: RESET_GPU)",
            CardRepair(RepairAct.RESET, "xid-95"),
        )
    }
    assert states(add_xid(health, 119, None, 0.0)) == {PART: LOST, None: UNHEALTHY}


def test_an_xid_that_is_ignored_changes_nothing() -> None:
    assert add_xid(CardHealth(), 31, PART, 0.0) == CardHealth()


def test_an_xid_ends_a_minute_later_when_the_driver_wants_no_recovery() -> None:
    health = add_xid(CardHealth(), 95, PART, 100.0)
    health = note_condition(health, FINE, R580, 100.0 + VERDICT_S - 1)
    assert states(health) == {PART: LOST}
    assert states(note_condition(health, FINE, R580, 100.0 + VERDICT_S)) == {}


def test_an_xid_that_is_repeated_ends_a_minute_after_the_last() -> None:
    health = add_xid(add_xid(CardHealth(), 95, PART, 0.0), 95, PART, 50.0)
    assert states(note_condition(health, FINE, R580, VERDICT_S)) == {PART: LOST}
    assert states(note_condition(health, FINE, R580, 50.0 + VERDICT_S)) == {}


@pytest.mark.parametrize(
    ("xid", "condition", "release"),
    [
        (95, OLD_DRIVER, 550),
        # The driver tells, but this Xid's recovery only from R570 on.
        (109, FINE, 565),
        # No driver's recovery action covers these.
        (46, FINE, R580),
        (119, FINE, R580),
        (999, FINE, R580),
    ],
)
def test_an_xid_about_which_the_driver_says_nothing_stays(xid: int, condition: ConditionReading, release: int) -> None:
    health = add_xid(CardHealth(), xid, None, 0.0)
    assert states(note_condition(health, condition, release, 10**6)).keys() == {None}


def test_any_xid_ends_with_the_recovery_that_the_driver_wanted_since() -> None:
    health = add_xid(CardHealth(), 119, None, 0.0)
    health = note_condition(health, ConditionReading(recovery_action=1), R580, 1.0)
    assert list_states(health) == {
        None: UnhealthyState(
            LOST,
            "the driver wants the card to be reset (nvidia-smi --gpu-reset); "
            "Xid 119, the GPU's system processor does not answer (NVIDIA: RESET_GPU)",
            CardRepair(RepairAct.RESET, "recovery-action-1"),
        )
    }
    assert states(note_condition(health, FINE, R580, 2.0)) == {}


def test_a_card_that_was_away_has_no_xid_any_more() -> None:
    health = note_away(add_xid(CardHealth(), 79, None, 0.0), "it does not answer")
    boot = CardRepair(RepairAct.BOOT, "xid-79")
    assert list_states(health) == {None: UnhealthyState(LOST, "it does not answer", boot)}
    assert states(note_condition(health, OLD_DRIVER, 550, 1.0)) == {}


# Conditions


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        (ConditionReading(), None),
        (ConditionReading(has_pending_rows=True), UNHEALTHY),
        (ConditionReading(has_failed_rows=True), UNHEALTHY),
        (ConditionReading(is_too_hot=True), UNHEALTHY),
        (ConditionReading(recovery_action=1), LOST),
        (ConditionReading(recovery_action=2), LOST),
        (ConditionReading(recovery_action=3), UNHEALTHY),
        (ConditionReading(recovery_action=4), UNHEALTHY),
        (ConditionReading(recovery_action=99), UNHEALTHY),
        (ConditionReading(has_pending_rows=True, recovery_action=1), LOST),
    ],
)
def test_a_condition_holds_for_as_long_as_the_card_reports_it(
    condition: ConditionReading, state: HealthState | None
) -> None:
    health = note_condition(CardHealth(), condition, R580, 0.0)
    assert states(health) == ({} if state is None else {None: state})
    assert states(note_condition(health, ConditionReading(), R580, 1.0)) == {}


def test_a_card_with_everything_wrong_fits_into_a_message_for_the_kubelet() -> None:
    worst = ConditionReading(has_pending_rows=True, has_failed_rows=True, recovery_action=1, is_too_hot=True)
    health = note_condition(CardHealth(), worst, R580, 0.0)
    for xid in (xid for rule in XID_RULES for xid in rule.xids):
        health = add_xid(health, xid, None, 0.0)
    (state,) = list_states(health).values()
    assert state.state is LOST
    assert len(state.reason.encode()) <= 1024
