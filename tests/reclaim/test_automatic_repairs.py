"""Which CardMaintenances the reclaimer writes and deletes by itself, for two ill cards of two nodes."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pytest

from kerf_dra.api.kerf.card_maintenance import (
    CardMaintenance,
    CardMaintenanceObject,
    CardMaintenanceSpec,
    CardMaintenanceStatus,
    MaintenancePhase,
    MaintenanceWork,
    WorkState,
)
from kerf_dra.api.kerf.card_repairs import CardRepair, RepairAct, choose_repair, parse_repair
from kerf_dra.api.kerf.decoder import decode_card_maintenance
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.reclaim.automatic_repairs import (
    AUTOMATIC_LABEL,
    IllCard,
    ReclaimMode,
    RepairDecision,
    RepairLimits,
    RepairState,
    decide_repairs,
    list_ended,
)
from kerf_dra.driver.reclaim.cards import DrainableCard, find_cards
from kerf_dra.driver.reclaim.holders import find_holders
from tests.fakes.cluster_states import slices
from tests.reclaim.cases import CARD, claim, pod, result, taint_slices

NOW: Final = datetime(2026, 11, 27, 10, 0, tzinfo=UTC)
RESET: Final = CardRepair(RepairAct.RESET, "xid-95")
WHEN_FREE: Final = CardRepair(RepairAct.RESET_WHEN_FREE, "pending-rows")
BOOT: Final = CardRepair(RepairAct.BOOT, "xid-79")
OTHER: Final = replace(CARD, pool="node-2/gpu", node="node-2", uuid="GPU-node-2-1")
LIMITS: Final = RepairLimits(cards=4, node_cards=2)
AUTO: Final = "node-1.gpu-node-1-1-auto-"


def ill(repair: CardRepair = RESET, card: DrainableCard = CARD, *, is_held: bool = True) -> IllCard:
    held = [claim("a", result("gpu-1-1g-10gb-at-0"), users=["web"])] if is_held else []
    watching = claim("b", result("gpu-1-monitor", admin=True), users=["watch"])
    pods = [pod("web", "a"), pod("watch", "b")]
    holders = find_holders(CARD, [*held, watching], pods, evicts_bare=False)
    return IllCard(card=replace(card, repair=repair), repair=repair, holders=holders)


def maintenance(
    name: str = f"{AUTO}0",
    *,
    card: DrainableCard = CARD,
    is_automatic: bool = True,
    then: Any = "Reset",
    phase: MaintenancePhase | None = "Evicting",
    work: WorkState | None = None,
    hours: float = 1,
    **metadata: Any,
) -> CardMaintenance:
    """Return a maintenance of ``card`` that was written so many hours ago."""
    created = (NOW - timedelta(hours=hours)).isoformat()
    done = None if work is None else MaintenanceWork(state=work, observed_generation=1)
    labels = {AUTOMATIC_LABEL: "true"} if is_automatic else {}
    return CardMaintenance(
        metadata=ObjectMeta(name=name, generation=1, creation_timestamp=created, labels=labels, **metadata),
        spec=CardMaintenanceSpec(node_name=card.node, card=card.uuid, then=then),
        status=CardMaintenanceStatus(phase=phase, work=done),
    )


def decide(
    *cards: IllCard,
    known: Sequence[CardMaintenance] = (),
    mode: ReclaimMode = ReclaimMode.ACT,
    limits: RepairLimits = LIMITS,
) -> RepairDecision:
    published = [CARD, OTHER, *(each.card for each in cards)]
    return decide_repairs(cards, known, published, mode, limits)


def states(decision: RepairDecision) -> list[str]:
    return [each.state for each in decision.reports]


def names(decision: RepairDecision) -> list[str]:
    return [each.metadata.name for each in decision.create]


@pytest.mark.parametrize(
    ("repair", "then", "reason"),
    [
        (RESET, "Reset", "automatic: xid-95"),
        (BOOT, "None", "automatic: xid-79; boot the node, then the card gets claims again"),
    ],
)
def test_in_mode_act_an_ill_card_gets_a_maintenance_that_is_marked_as_the_reclaimers_own(
    repair: CardRepair, then: str, reason: str
) -> None:
    decision = decide(ill(repair))
    [created] = decision.create
    assert states(decision) == [RepairState.STARTED]
    assert (created.metadata.name, created.metadata.labels) == (f"{AUTO}0", {"kerf.dev/automatic": "true"})
    spec = decode_card_maintenance(created).spec
    assert (spec.node_name, spec.card, spec.then, spec.reason) == ("node-1", CARD.uuid, then, reason)
    assert not spec.evict_bare_pods


@pytest.mark.parametrize(
    ("repair", "said"),
    [
        (
            RESET,
            "needs a reset (xid-95): mode Report, so nothing is done; `kerf drain node-1/gpu-1 --then reset` evicts",
        ),
        (
            BOOT,
            "a boot of its node (xid-79): mode Report, so nothing is done; `kerf drain node-1/gpu-1` evicts default/w",
        ),
    ],
)
def test_in_mode_report_nothing_is_written_and_what_would_be_done_is_said(repair: CardRepair, said: str) -> None:
    decision = decide(ill(repair), mode=ReclaimMode.REPORT)
    assert (states(decision), names(decision)) == ([RepairState.REPORTED], [])
    assert said in decision.reports[0].message
    assert decision.reports[0].message.startswith("card gpu-1 (GPU-node-1-1) of node node-1 ")
    empty = decide(ill(repair, is_held=False), mode=ReclaimMode.REPORT)
    assert "evicts no pod" in empty.reports[0].message, "one that only watches stays"


def test_a_reset_that_can_wait_begins_when_the_pods_have_ended_by_themselves() -> None:
    waiting = decide(ill(WHEN_FREE))
    assert (states(waiting), names(waiting)) == ([RepairState.WAITING], [])
    assert waiting.reports[0].message.endswith("(pending-rows): default/web hold it")
    assert names(decide(ill(WHEN_FREE, is_held=False))) == [f"{AUTO}0"]


@pytest.mark.parametrize("is_automatic", [True, False])
def test_a_card_has_one_maintenance_at_a_time_whoever_has_written_it(is_automatic: bool) -> None:
    mine = maintenance("some", is_automatic=is_automatic)
    decision = decide(ill(), known=[mine, maintenance("other", card=OTHER, is_automatic=is_automatic)])
    assert (states(decision), names(decision)) == ([RepairState.STARTED], [])
    assert decision.reports[0].message.endswith("CardMaintenance some")
    ended = maintenance("some", is_automatic=is_automatic, phase="Returned", work="Done")
    assert names(decide(ill(), known=[ended])) == [f"{AUTO}0"]


def test_a_card_that_falls_ill_again_and_again_is_repaired_three_times_a_day() -> None:
    known: list[CardMaintenance] = []
    for number in range(3):
        assert names(decide(ill(), known=known)) == [f"{AUTO}{number}"]
        known.append(maintenance(f"{AUTO}{number}", phase="Returned", work="Done"))
    decision = decide(ill(), ill(card=OTHER), known=known)
    assert states(decision) == [RepairState.EXHAUSTED, RepairState.STARTED]
    assert names(decision) == ["node-2.gpu-node-2-1-auto-0"]
    assert "3 repairs within a day have not helped, and Kerf tries no more" in decision.reports[0].message
    assert names(decide(ill(), known=known[1:])) == [f"{AUTO}0"], "the first one was deleted a day later"


@pytest.mark.parametrize(
    ("limits", "created", "said"),
    [
        (RepairLimits(cards=4, node_cards=2), 3, ""),
        (RepairLimits(cards=4, node_cards=1), 2, "1 cards of a node are repaired at a time (--reclaim-node-cards)"),
        (RepairLimits(cards=2, node_cards=2), 2, "2 cards of the cluster are repaired at a time (--reclaim-cards)"),
        (RepairLimits(cards=0, node_cards=2), 0, "0 cards of the cluster are repaired at a time"),
        (RepairLimits(cards=2, node_cards=0), 0, "0 cards of a node are repaired at a time"),
    ],
)
def test_only_so_many_cards_are_repaired_at_a_time(limits: RepairLimits, created: int, said: str) -> None:
    second = replace(CARD, name="gpu-2", uuid="GPU-node-1-2", pci_bus_id="0000:02:00.0")
    decision = decide(ill(), ill(card=second), ill(card=OTHER), limits=limits)
    assert len(names(decision)) == created
    assert states(decision).count(RepairState.LIMITED) == 3 - created
    assert all(said in each.message for each in decision.reports if each.state is RepairState.LIMITED)


@pytest.mark.parametrize(
    ("other", "counts"),
    [
        ({"phase": "Evicting"}, True),
        ({"phase": "Stuck"}, True),
        ({"phase": "Free"}, True),
        ({"phase": "Free", "then": "None"}, False),
        ({"phase": "Returned", "work": "Done"}, False),
        ({"is_automatic": False}, False),
        ({"card": replace(OTHER, uuid="GPU-gone", pci_bus_id="")}, False),
    ],
)
def test_what_counts_for_the_limits_is_being_repaired_and_waits_for_no_person(
    other: dict[str, Any], counts: bool
) -> None:
    known = maintenance(**{"name": "other", "card": OTHER, **other})
    decision = decide(ill(), known=[known], limits=RepairLimits(cards=1, node_cards=1))
    assert (not names(decision)) is counts


# --- what is deleted --------------------------------------------------------------------------------------------------


def ended(held: CardMaintenance, *, repair: CardRepair | None = None, mode: ReclaimMode = ReclaimMode.ACT) -> bool:
    cards = [replace(CARD, repair=repair), OTHER]
    return [*list_ended([held], cards, mode, NOW)] == [held]


GONE: Final = replace(CARD, uuid="GPU-gone", pci_bus_id="")


@pytest.mark.parametrize(
    ("held", "repair", "expected"),
    [
        (maintenance(phase="Returned", work="Done"), None, False),
        (maintenance(phase="Returned", work="Done", hours=25), None, True),
        (maintenance(phase="Returned", work="Done", hours=25), RESET, True),
        (maintenance(phase="Withheld"), None, True),
        (maintenance(phase=None), None, True),
        (maintenance(phase="Withheld"), RESET, False),
        # Pods have been evicted for the reset: it is done.
        (maintenance(phase="Evicting"), None, False),
        (maintenance(phase="Free"), None, False),
        (maintenance(phase="Acting", work="Acting"), None, False),
        (maintenance(phase="Stuck"), None, True),
        (maintenance(phase="Stuck", work="Waiting"), None, True),
        (maintenance(phase="Stuck", work="Failed", hours=25), None, False),
        # A boot is a person's act.
        (maintenance(phase="Free", then="None"), None, True),
        (maintenance(phase="Evicting", then="None"), None, True),
        (maintenance(phase="Free", then="None", hours=25), BOOT, False),
        # Something worse has happened, or something else: another maintenance is written in its place.
        (maintenance(phase="Free"), BOOT, True),
        (maintenance(phase="Acting", work="Acting"), BOOT, False),
        (maintenance(phase="Free", then="None"), WHEN_FREE, True),
        (maintenance(phase="Free"), WHEN_FREE, False),
        # The node publishes no such card: it may come back.
        (maintenance(card=GONE), None, False),
        (maintenance(card=GONE, hours=25), None, True),
        (maintenance(is_automatic=False, phase="Returned", work="Done", hours=25), None, False),
        (maintenance(is_automatic=False, phase="Withheld"), None, False),
        (maintenance(phase="Withheld", deletion_timestamp="2026-11-27T10:00:00Z"), None, False),
    ],
)
def test_a_maintenance_is_deleted_when_its_card_is_well_without_it_or_it_has_been_counted_for_a_day(
    held: CardMaintenance, repair: CardRepair | None, expected: bool
) -> None:
    assert ended(held, repair=repair) is expected


@pytest.mark.parametrize("then", ["None", "Reset"])
def test_an_unhealthy_card_whose_repair_its_node_has_forgotten_is_not_given_back(then: str) -> None:
    cards = [replace(CARD, is_unhealthy=True), OTHER]
    assert [*list_ended([maintenance(phase="Withheld", then=then)], cards, ReclaimMode.ACT, NOW)] == []


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (maintenance(phase="Evicting"), True),
        (maintenance(phase="Free"), True),
        (maintenance(phase="Free", work="Waiting"), True),
        (maintenance(card=GONE), True),
        (maintenance(phase="Acting", work="Acting"), False),
        (maintenance(phase="Stuck", work="Failed"), False),
        (maintenance(phase="Returned", work="Done"), False),
        (maintenance(is_automatic=False, phase="Evicting"), False),
    ],
)
def test_in_mode_off_what_has_not_begun_is_given_back(held: CardMaintenance, expected: bool) -> None:
    assert ended(held, repair=RESET, mode=ReclaimMode.OFF) is expected


# --- what nodes publish -----------------------------------------------------------------------------------------------


def test_a_card_needs_what_any_of_its_devices_says_and_of_several_repairs_the_one_that_includes_the_others() -> None:
    published = taint_slices(slices("node-1", 2), "gpu-1", value="reset-when-free.pending-rows", name="repair")
    assert [card.repair for card in find_cards(published, "node-1")] == [None, WHEN_FREE]
    unhealthy = taint_slices(slices("node-1", 2), "gpu-1", value="lost", name="unhealthy")
    assert [card.is_unhealthy for card in find_cards(unhealthy, "node-1")] == [False, True]
    assert choose_repair([WHEN_FREE, None, BOOT, RESET]) == BOOT
    assert choose_repair([WHEN_FREE, RESET]) == RESET
    assert choose_repair([None]) is None


@pytest.mark.parametrize("value", ["", "reset", "reset.", ".xid-95", "polish.xid-95", "lost"])
def test_a_taint_of_another_meaning_asks_for_nothing(value: str) -> None:
    assert parse_repair(value) is None


def test_every_repair_is_a_value_that_a_taint_may_have() -> None:
    for act in RepairAct:
        value = str(CardRepair(act, "recovery-action-4"))
        assert parse_repair(value) == CardRepair(act, "recovery-action-4")
        assert len(value) <= 63, "a label's value"


def test_what_is_written_is_read_again_as_it_is() -> None:
    [created] = decide(ill()).create
    wire = msgspec.json.encode(created)
    assert msgspec.json.decode(wire, type=CardMaintenanceObject) == created
