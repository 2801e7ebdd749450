"""Whether the placement of a class is in effect, by what is known of schedulers."""

from datetime import UTC, datetime, timedelta

import pytest

from kerf_dra.api.kerf.v1alpha1 import EXTENDER_ACTIVE, GRADED, ClassPlacement
from kerf_dra.driver.controller.structured.placement_verdict import (
    LATELY,
    ExtenderState,
    PlacementFacts,
    judge_extender,
    judge_placement,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
OFF, NEVER, LONG_AGO, ASKED = ExtenderState

# The placement of the class, the extender, whether requests are graded; status and reason, and a part of the message.
CASES: list[tuple[ClassPlacement | None, ExtenderState, bool, str, str]] = [
    ("Packed", ASKED, False, "True ExtenderActive", "make the fewest others impossible"),
    ("Packed", ASKED, True, "True ExtenderActive", "make the fewest others impossible"),
    ("Spread", ASKED, False, "True ExtenderActive", "claims of the class hold the fewest devices"),
    (None, ASKED, False, "True ExtenderActive", "make the fewest others impossible"),
    ("Packed", OFF, True, "True Graded", "have alternatives"),
    ("Packed", NEVER, True, "True Graded", "have alternatives"),
    ("Packed", LONG_AGO, True, "True Graded", "have alternatives"),
    ("Spread", OFF, True, "False ExtenderDisabled", "graded placement is only for exclusive GPU partitions"),
    ("Packed", OFF, False, "False ExtenderDisabled", "set extender.enabled of the chart"),
    ("Packed", NEVER, False, "False ExtenderNotAsked", "`kerf placement config`"),
    ("Spread", NEVER, True, "False ExtenderNotAsked", "once a pod fits on two nodes or more"),
    ("Packed", LONG_AGO, False, "Unknown ExtenderNotAskedLately", "in the last hour"),
    ("Spread", LONG_AGO, False, "Unknown ExtenderNotAskedLately", "`kerf placement config`"),
    *(("None", state, False, "True NoPreference", "the scheduler's own scores decide") for state in ExtenderState),
]


@pytest.mark.parametrize(("placement", "extender", "is_graded", "expected", "message"), CASES)
def test_a_class_that_asks_for_a_placement_learns_whether_it_is_in_effect_and_what_to_do(
    placement: ClassPlacement | None, extender: ExtenderState, is_graded: bool, expected: str, message: str
) -> None:
    has_label = is_graded and placement == "Packed"
    facts = PlacementFacts(extender=extender, is_grading_enabled=is_graded, has_label=has_label)
    verdict = judge_placement(placement, facts)
    assert verdict is not None
    assert f"{verdict.status} {verdict.reason}" == expected
    assert message in verdict.message
    assert ("not in effect" in verdict.message) == (verdict.status == "False")


@pytest.mark.parametrize("extender", [OFF, NEVER, LONG_AGO])
@pytest.mark.parametrize("is_graded", [False, True])
def test_a_class_that_asks_for_nothing_has_no_condition_until_a_scheduler_asks(
    extender: ExtenderState, is_graded: bool
) -> None:
    facts = PlacementFacts(extender=extender, is_grading_enabled=is_graded, has_label=is_graded)
    assert judge_placement(None, facts) is None


def test_a_class_that_graded_placement_is_for_learns_of_both_ways() -> None:
    verdict = judge_placement("Packed", PlacementFacts(has_label=True))
    assert verdict is not None
    assert (verdict.status, verdict.reason) == ("False", "ExtenderDisabled")
    assert "set gradedPlacement.enabled" in verdict.message
    assert "set extender.enabled, and give kube-scheduler" in verdict.message


def test_diagnostics_know_the_condition_by_its_reason() -> None:
    graded = judge_placement("Packed", PlacementFacts(is_grading_enabled=True, has_label=True))
    assert graded is not None
    assert graded.reason == GRADED
    verdict = judge_placement(None, PlacementFacts(extender=ASKED))
    assert verdict is not None
    assert verdict.reason == EXTENDER_ACTIVE


@pytest.mark.parametrize(
    ("asked_at", "expected"),
    [
        (None, NEVER),
        (NOON, ASKED),
        (NOON - LATELY, ASKED),
        (NOON - LATELY - timedelta(seconds=1), LONG_AGO),
        (NOON + timedelta(seconds=5), ASKED),  # another replica's clock is ahead
    ],
)
def test_a_request_counts_for_an_hour(asked_at: datetime | None, expected: ExtenderState) -> None:
    assert judge_extender(asked_at, NOON) is expected
