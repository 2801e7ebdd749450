"""The health of devices, and what it means for their taints and for the kubelet."""

import pytest

from kerf_dra.api.dra.health import Health
from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey, HealthChange, HealthState
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker, HeldCard, find_lost
from kerf_dra.driver.kubeletplugin.inventory.state.refusals import RefusedPlacement
from kerf_dra.driver.kubeletplugin.inventory.state.surveys import SurveyTracker
from kerf_dra.driver.partitions.geometry import Partition, Placement
from tests.fakes.cards import gpu
from tests.kubeletplugin.records import BOOT, LATER, device, record


def part(start: int | None, size: int = 1, card: str = "GPU-0") -> Partition:
    placement = None if start is None else Placement(start, size)
    return Partition(kind="gpu", card_uuid=card, placement=placement)


def change(
    partition: Partition | None, state: HealthState = HealthState.UNHEALTHY, *, reason: str = "Xid 79"
) -> HealthChange:
    return HealthChange(card_uuid="GPU-0", partition=partition, state=state, reason=reason)


def reason(of: DeviceHealthTracker, partition: Partition) -> str | None:
    unhealthy = of.find_unhealthy(partition)
    return None if unhealthy is None else unhealthy.reason


def tracker(*changes: HealthChange) -> DeviceHealthTracker:
    made = DeviceHealthTracker(driver="gpu.kerf.dev", now=lambda: 1000.9)
    for each in changes:
        made.update(each)
    return made


@pytest.mark.parametrize(
    ("unhealthy", "asked", "expected"),
    [
        (None, part(0), "Xid 79"),
        (None, part(None), "Xid 79"),
        (None, part(0, card="GPU-1"), None),
        (part(0), part(0), "Xid 79"),
        (part(0), part(1), None),
        (part(0), part(0, 2), "Xid 79"),
        (part(0), part(None), "Xid 79"),
    ],
)
def test_a_health_problem_reaches_what_it_overlaps(
    unhealthy: Partition | None, asked: Partition, expected: str | None
) -> None:
    assert reason(tracker(change(unhealthy)), asked) == expected


def test_a_health_problem_ends_with_its_cause() -> None:
    assert reason(tracker(change(None), change(None, HealthState.HEALTHY)), part(0)) is None
    assert reason(tracker(change(None), change(part(0)), change(None, HealthState.HEALTHY)), part(0)) == "Xid 79"


def test_only_news_are_news() -> None:
    known = tracker()
    assert [known.update(each) for each in (change(None), change(None), change(None, reason="Xid 48"))] == [
        True,
        False,
        True,
    ]
    assert [known.update(change(None, HealthState.HEALTHY)) for _ in range(2)] == [True, False]


def test_what_a_backend_said_can_be_forgotten() -> None:
    known = tracker(change(None), change(part(0)))
    known.forget({"GPU-1"})
    assert len(known.unhealthy) == 2
    known.forget({"GPU-0"})
    assert not known.unhealthy


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], []),
        ([HealthState.UNHEALTHY], [("gpu.kerf.dev/unhealthy", "degraded", "NoSchedule")]),
        ([HealthState.LOST], [("gpu.kerf.dev/unhealthy", "lost", "NoExecute")]),
        ([HealthState.UNHEALTHY, HealthState.LOST], [("gpu.kerf.dev/unhealthy", "lost", "NoExecute")]),
        ([HealthState.LOST, HealthState.UNHEALTHY], [("gpu.kerf.dev/unhealthy", "degraded", "NoSchedule")]),
        ([HealthState.LOST, HealthState.HEALTHY], []),
    ],
)
def test_what_is_unhealthy_gets_no_new_claims_and_what_is_lost_is_left_by_its_pods(
    states: list[HealthState], expected: list[tuple[str, str, str]]
) -> None:
    known = tracker(*(change(None, state) for state in states))
    assert [(taint.key, taint.value, taint.effect) for taint in known.build_taints(part(0))] == expected


def test_of_several_health_problems_the_worst_counts() -> None:
    for order in ([part(0), None], [None, part(0)]):
        lost = {part(0): HealthState.LOST, None: HealthState.UNHEALTHY}
        known = tracker(*(change(each, lost[each], reason=lost[each]) for each in order))
        assert (reason(known, part(0)), reason(known, part(1))) == ("lost", "unhealthy")


def test_the_kubelet_learns_of_each_device_of_a_claim_once() -> None:
    shared = device("gpu-1", card="GPU-1", start=None, size=None, share="a")
    other = device("gpu-1", card="GPU-1", start=None, size=None, share="b")
    reports = tracker(change(part(0))).build_reports([record("one", device(), shared), record("two", other)])
    assert [(report.pool, report.device, report.health, report.message) for report in reports] == [
        ("node-1/gpu", "gpu-0-1g-1gb-at-0", Health.UNHEALTHY, "Xid 79"),
        ("node-1/gpu", "gpu-1", Health.HEALTHY, ""),
    ]
    assert {report.checked_at_s for report in reports} == {1000}


def test_a_device_that_the_hardware_refuses_is_reported_once() -> None:
    refused = RefusedPlacement(
        device=device().share.id, partition=part(0), reason="Xid 79", evicts=False, was_held=False, since=0.0
    )
    (report,) = tracker().build_reports([record("one", device())], {refused.device: refused})
    assert (report.device, report.health) == (refused.device.device, Health.UNHEALTHY)


HELD = Partition(kind="gpu", card_uuid="GPU-0", profile="1g.1gb", placement=Placement(0, 1))
NAME = "its name is taken"
WHOLE, PART, NOTHING = "whole card", "what claims have", "nothing"


@pytest.mark.parametrize(
    ("survey", "is_discovered", "replaced_by", "is_reported", "expected", "published"),
    [
        ("absent", True, "", False, "it is not there", WHOLE),
        ("absent", False, "", False, "it is not there", WHOLE),
        ("absent", True, "", True, None, WHOLE),
        ("absent", True, "GPU-new", False, "card GPU-new is in its place", NOTHING),
        ("absent", True, "GPU-new", True, None, NOTHING),
        ("absent", True, NAME, False, "it is not there", NOTHING),
        ("failed", True, NAME, False, None, NOTHING),
        ("succeeded", True, "", False, None, NOTHING),
        ("succeeded", True, "", True, None, WHOLE),
        ("succeeded", False, "", False, None, PART),
        ("failed", True, "", False, None, PART),
        ("failed", False, "", False, None, PART),
        ("absent, then succeeded", True, "", False, None, NOTHING),
        ("absent, then failed", True, "", False, "it is not there", WHOLE),
        ("succeeded, then failed", True, "", False, None, NOTHING),
    ],
)
def test_a_held_card_that_discovery_misses_is_lost_only_where_that_is_proved(
    survey: str, is_discovered: bool, replaced_by: str, is_reported: bool, expected: str | None, published: str
) -> None:
    surveys = SurveyTracker(driver="gpu.kerf.dev")
    for outcome in survey.split(", then "):
        if outcome == "succeeded":
            surveys.update(gpu(0), CardSurvey(card_uuid="GPU-0"), (), BOOT, LATER)
        else:
            surveys.fail("GPU-0", "it is not there", is_doubtful=False, is_absent=outcome == "absent")
    missed = HeldCard(
        gpu(0), "fake", frozenset({HELD}), "" if replaced_by == NAME else replaced_by, replaced_by == NAME
    )
    beside = HeldCard(gpu(1), "other", frozenset())
    surveys.update(gpu(1), CardSurvey(card_uuid="GPU-1"), (), BOOT, LATER)
    discovered = {"fake", "other"} if is_discovered else {"other"}
    lost = find_lost([missed, beside], surveys, discovered, lambda uuid: is_reported and uuid == "GPU-0")
    assert lost.reasons == ({} if expected is None else {"GPU-0": expected})
    sizes = {WHOLE: [len(gpu(0).geometry.specs)], PART: [2], NOTHING: []}
    assert [len(held.card.geometry.specs) for held in lost.published] == sizes[published]


def test_a_card_that_is_lost_by_its_record_is_so_whatever_its_backend_reports_and_until_it_is_back() -> None:
    known = tracker(change(None))
    assert [known.replace_lost({"GPU-0": "it is not there"}) for _ in range(2)] == [True, False]
    assert known.has_taints
    for asked in (part(0), part(None)):
        assert [(taint.value, taint.effect) for taint in known.build_taints(asked)] == [("lost", "NoExecute")]
    assert known.build_taints(part(0, card="GPU-1")) == ()
    assert [found.reason for found in known.unhealthy.values()] == ["it is not there"]
    held = record("training", device("gpu-0-1g-1gb-at-0"))
    assert [(one.health, one.message) for one in known.build_reports([held])] == [(Health.UNHEALTHY, "it is not there")]
    assert known.replace_lost({})
    assert [taint.value for taint in known.build_taints(part(0))] == ["degraded"]
