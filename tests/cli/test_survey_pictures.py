"""What is on a node's cards is drawn as the survey, the records and the health of the card say."""

from collections.abc import Mapping
from typing import Final

import pytest

from kerf_dra.driver.cli.node.survey_pictures import build_survey_picture
from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey, FoundPartition, HealthChange, HealthState
from kerf_dra.driver.partitions.card_pictures.text_picture import draw_pictures
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from tests.fakes.published_slices import gpus

CARD: Final[Card] = gpus("a30-24gb")[0]
LEFT: Final = FoundPartition(id="gi-1", profile="2g.12gb", placement=Placement(0, 2))
RIGHT: Final = FoundPartition(id="gi-2", profile="1g.6gb", placement=Placement(3, 1), is_static=True)
USE: Final = FoundPartition(id="process 7", profile=None, placement=None, in_use=True)


def draw(
    *found: FoundPartition,
    holders: Mapping[str, str] | None = None,
    changes: tuple[HealthChange, ...] = (),
    whole_holder: str = "",
    **modes: str,
) -> str:
    survey = CardSurvey(card_uuid=CARD.uuid, partitions=found, **modes)
    picture = build_survey_picture(
        CARD, survey, holders, changes, driver="gpu.kerf.dev", pool="n/gpu", whole_holder=whole_holder
    )
    return " ".join(" ".join(draw_pictures([picture], 120)).split())


def change(reason: str, state: HealthState, card: str = CARD.uuid) -> HealthChange:
    return HealthChange(card_uuid=card, partition=None, state=state, reason=reason)


@pytest.mark.parametrize(
    ("holders", "drawn"),
    [
        (None, "[ a a . b ] a = 2g.12gb at 0 b = 1g.6gb at 3 (static) . = free"),
        ({"gi-1": "x/a", "gi-2": "x/b"}, "[ a a . b ] a = x/a b = x/b (static) . = free"),
        ({"gi-1": "x/a, x/b", "gi-2": ""}, "[ A A . = ] A = x/a, x/b (shared) . = free = = static: "),
        (
            {"gi-1": "", "gi-2": ""},
            "[ % % . = ] . = free = = static: made by an administrator, free (1g.6gb at 3) % = ",
        ),
        ({"gi-1": "extended resource kerf.dev/r", "gi-2": "x/b"}, "[ + + . a ] a = x/b (static) . = free + = reserved"),
    ],
)
def test_a_partition_is_of_its_claim_static_reserved_or_of_another_program(
    holders: dict[str, str] | None, drawn: str
) -> None:
    assert draw(LEFT, RIGHT, holders=holders).startswith(f"gpu-0 {drawn}")


def test_a_process_on_a_card_without_partitions_has_all_of_it() -> None:
    assert draw(USE, holders={"process 7": ""}).startswith("gpu-0 [ % % % % ] % = held by another program (process 7")
    assert draw(USE, LEFT, holders={"process 7": "", "gi-1": "x/a"}).startswith("gpu-0 [ a a % % ]")


def test_a_claim_of_a_whole_card_is_known_from_the_records_alone() -> None:
    assert draw(holders={}, whole_holder="x/a").startswith("gpu-0 [ a a a a ] a = x/a")
    ill = change("too hot", HealthState.UNHEALTHY)
    assert draw(holders={}, whole_holder="x/a", changes=(ill,)).startswith("gpu-0 [ a a a a ] a = x/a (too hot)")
    assert draw(holders={}, whole_holder="x/a, x/b").startswith("gpu-0 [ A A A A ] A = x/a, x/b (shared)")
    assert draw(holders={}, whole_holder="extended resource r").startswith("gpu-0 [ + + + + ]")


def test_what_is_wrong_with_a_card_is_drawn_on_what_is_free_and_noted_on_what_is_held() -> None:
    ill = change("too hot", HealthState.UNHEALTHY)
    text = draw(LEFT, holders={"gi-1": "x/a"}, changes=(ill, change("other", HealthState.LOST, card="another")))
    assert text.startswith("gpu-0 [ a a ~ ~ ] a = x/a (too hot) ~ = tainted: free with a toleration (too hot)")
    of_left = HealthChange(
        card_uuid=CARD.uuid,
        partition=Partition(kind="gpu", card_uuid=CARD.uuid, profile=LEFT.profile, placement=LEFT.placement),
        state=HealthState.UNHEALTHY,
        reason="bad memory",
    )
    both = draw(LEFT, RIGHT, holders={"gi-1": "x/a", "gi-2": "x/b"}, changes=(of_left,))
    assert both.startswith("gpu-0 [ a a . b ] a = x/a (bad memory) b = x/b (static) . = free")
    assert draw(changes=(of_left,)).startswith(
        "gpu-0 [ ~ ~ . . ] . = free ~ = tainted: free with a toleration (bad mem"
    )
    assert draw(changes=(change("", HealthState.HEALTHY),)).startswith("gpu-0 [ . . . . ]")


def test_a_card_whose_mode_allows_nothing_is_not_drawn_as_free() -> None:
    assert draw(no_whole="MIG mode is on", no_partitions="MIG mode is pending").startswith("gpu-0 [ / / / / ]")
    assert draw(no_whole="MIG mode is on").startswith("gpu-0 [ . . . . ]")
