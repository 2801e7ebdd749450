"""What becomes of a maintenance: phases, conditions, and what is evicted when."""

from dataclasses import replace as replace_fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from kerf_dra.api.kerf.card_maintenance import (
    MAX_HOLDERS,
    CardMaintenance,
    CardMaintenanceSpec,
    CardMaintenanceStatus,
    MaintenanceWork,
    WorkState,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.reclaim.cards import DrainableCard
from kerf_dra.driver.reclaim.holders import STAYING, Holder, HolderVerdict
from kerf_dra.driver.reclaim.progress import MaintenanceProgress, Observation, build_invalid_status, decide_progress
from tests.reclaim.cases import CARD

START = datetime(2026, 11, 27, 10, 0, tzinfo=UTC)
IDLE = replace_fields(CARD, is_in_use=False)


def maintenance(status: CardMaintenanceStatus | None = None, **spec: Any) -> CardMaintenance:
    return CardMaintenance(
        metadata=ObjectMeta(name="fan", generation=3, creation_timestamp="2026-11-27T10:00:00Z"),
        spec=CardMaintenanceSpec(node_name="node-1", card=CARD.uuid, **spec),
        status=status or CardMaintenanceStatus(),
    )


def holder(name: str, verdict: HolderVerdict = HolderVerdict.EVICT, message: str = "") -> Holder:
    return Holder(
        claims=(ObjectRef("default", f"{name}-gpu"),),
        pod=ObjectRef("default", name),
        uid=f"uid-{name}",
        devices=("gpu-1-1g-10gb-at-0",),
        owner="ReplicaSet web",
        verdict=verdict,
        message=message,
    )


def decide(*holders: Holder, after_s: float = 0, **fields: Any) -> MaintenanceProgress:
    seen = {"maintenance": maintenance(), "card": CARD, "published": [CARD], "answers": {}, **fields}
    return decide_progress(Observation(holders=holders, **seen), START + timedelta(seconds=after_s))


def evicted(progress: MaintenanceProgress) -> list[str]:
    return [each.uid for each in progress.evict]


def conditions(progress: MaintenanceProgress) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in progress.status.conditions}


def test_nothing_is_evicted_before_the_node_has_withheld_the_card() -> None:
    progress = decide(holder("web"), card=replace_fields(CARD, is_withheld=False))
    assert (progress.status.phase, evicted(progress)) == ("Pending", [])
    assert progress.status.message.startswith("the kubelet plugin on node-1 has not withheld gpu-1 yet; if that lasts")
    assert conditions(progress) == {
        "Accepted": ("True", "CardFound"),
        "Withheld": ("False", "NotTainted"),
        "Free": ("False", "InUse"),
    }


def test_a_card_that_the_node_does_not_publish_is_named_with_those_that_it_does() -> None:
    progress = decide(card=None)
    assert (progress.status.phase, evicted(progress)) == ("Pending", [])
    assert progress.status.message == ("node node-1 publishes no card GPU-node-1-1; it publishes GPU-node-1-1 (gpu-1)")
    assert conditions(progress) == {"Accepted": ("False", "NoSuchCard")}


def test_pods_of_a_withheld_card_are_evicted_all_at_once() -> None:
    progress = decide(holder("a"), holder("b"), holder("gone", HolderVerdict.ENDING, "it is being deleted"))
    assert (progress.status.phase, progress.status.holder_count) == ("Evicting", 3)
    assert evicted(progress) == ["uid-a", "uid-b"]
    assert [(each.pod, each.pod_uid, each.verdict) for each in progress.status.holders] == [
        ("default/a", "uid-a", "Evict"),
        ("default/b", "uid-b", "Evict"),
        ("default/gone", "uid-gone", "Ending"),
    ]
    assert progress.status.observed_generation == 3


def test_a_card_is_free_once_nothing_holds_it_and_its_node_says_so_too() -> None:
    assert decide(card=IDLE).status.phase == "Free"
    assert conditions(decide(card=IDLE))["Free"] == ("True", "NothingHolds")
    still = decide(card=CARD).status
    assert still.phase == "Evicting"
    assert still.message.startswith("no claim holds it, and its node says that it is in use")
    assert decide(holder("late"), card=IDLE).status.phase == "Evicting", "a pod that came after all"


def test_admin_access_does_not_keep_a_card_from_being_free_and_is_listed() -> None:
    progress = decide(holder("monitor", HolderVerdict.ADMIN_ACCESS, "stays"), card=IDLE)
    assert (progress.status.phase, progress.status.holder_count, evicted(progress)) == ("Free", 0, [])
    assert [each.pod for each in progress.status.holders] == ["default/monitor"]


@pytest.mark.parametrize("verdict", sorted(STAYING))
def test_a_card_is_stuck_when_only_what_is_not_evicted_holds_it(verdict: HolderVerdict) -> None:
    staying = holder("stays", verdict, "not evicted: because")
    first = decide(holder("web"), staying)
    assert (first.status.phase, evicted(first)) == ("Evicting", ["uid-web"])
    progress = decide(staying)
    assert (progress.status.phase, evicted(progress)) == ("Stuck", [])
    assert progress.status.message == "pod default/stays holds gpu-1-1g-10gb-at-0 (not evicted: because)"
    assert conditions(progress)["Free"] == ("False", "PodsStay")


def test_after_the_deadline_pods_are_no_longer_evicted() -> None:
    held = maintenance(deadline_seconds=60)
    before, after = (decide(holder("web"), maintenance=held, after_s=seconds) for seconds in (59.9, 60))
    assert (before.status.phase, evicted(before)) == ("Evicting", ["uid-web"])
    assert (after.status.phase, evicted(after)) == ("Stuck", [])
    assert after.status.message.startswith("the deadline is over, and pods are no longer evicted: pod default/web")
    assert decide(maintenance=held, card=IDLE, after_s=3600).status.phase == "Free"


def test_a_card_waits_while_others_have_their_turn() -> None:
    progress = decide(holder("web"), waits_for="4 cards are drained at a time")
    assert (progress.status.phase, evicted(progress)) == ("Withheld", [])
    assert decide(card=IDLE, waits_for="4 cards are drained at a time").status.phase == "Free"
    stuck = decide(holder("stays", HolderVerdict.BARE, "not evicted"), waits_for="4 cards are drained at a time")
    assert stuck.status.phase == "Stuck", "waiting would not help"


def test_of_two_maintenances_of_one_card_the_older_one_acts() -> None:
    progress = decide(holder("web"), earlier="older")
    assert (progress.status.phase, evicted(progress)) == ("Withheld", [])
    assert progress.status.message == "gpu-1 is drained by CardMaintenance older, which is older"


def test_the_answer_to_a_refused_eviction_is_in_the_status() -> None:
    answers = {"uid-web": "its eviction waits: the disruption budget web needs 2 healthy pods"}
    progress = decide(holder("web"), holder("db"), answers=answers)
    assert evicted(progress) == ["uid-web", "uid-db"]
    assert [each.message for each in progress.status.holders] == [answers["uid-web"], ""]
    assert answers["uid-web"] in progress.status.message


def test_conditions_keep_the_time_at_which_they_came_to_their_status() -> None:
    first = decide(holder("web")).status
    second = decide(holder("web"), maintenance=maintenance(first), after_s=60).status
    assert second.conditions == first.conditions
    free = decide(card=IDLE, maintenance=maintenance(second), after_s=120).status
    times = {each.type: each.last_transition_time for each in free.conditions}
    assert times == {
        "Accepted": "2026-11-27T10:00:00Z",
        "Withheld": "2026-11-27T10:00:00Z",
        "Free": "2026-11-27T10:02:00Z",
    }


def test_the_same_observation_gives_the_same_status_so_that_it_is_written_once() -> None:
    status = decide(holder("web")).status
    assert decide(holder("web"), maintenance=maintenance(status), after_s=3600).status == status


def test_a_status_names_a_bounded_number_of_holders_and_counts_all() -> None:
    many = [holder(f"pod-{number:03}", message="x" * 5000) for number in range(100)]
    status = decide(*many).status
    assert (status.holder_count, len(status.holders)) == (100, MAX_HOLDERS)
    assert len(status.message) <= 1024
    assert max(len(each.message) for each in status.holders) <= 1024


def test_an_invalid_spec_is_not_accepted_and_says_why() -> None:
    status = build_invalid_status(CardMaintenanceStatus(phase="Free"), 7, "spec.card: is required", START)
    assert (status.phase, status.observed_generation, status.message) == ("Pending", 7, "spec.card: is required")
    assert [(each.type, each.status, each.reason) for each in status.conditions] == [("Accepted", "False", "Invalid")]


def test_a_restart_decides_the_same_from_what_is_in_the_cluster() -> None:
    """Nothing but the observation is kept: the status of before has no say in what is evicted."""
    for phase in ("Pending", "Withheld", "Evicting", "Free", "Stuck"):
        held = maintenance(replace(CardMaintenanceStatus(), phase=phase))
        assert decide(holder("web"), maintenance=held).evict == decide(holder("web")).evict


def with_work(state: WorkState, generation: int = 3) -> CardMaintenance:
    work = MaintenanceWork(state=state, message=f"the node is {state}", observed_generation=generation)
    return maintenance(CardMaintenanceStatus(work=work), then="Reset")


@pytest.mark.parametrize(
    ("state", "card", "phase", "free"),
    [
        ("Waiting", IDLE, "Stuck", "True"),
        ("Waiting", CARD, "Evicting", "False"),
        ("Acting", IDLE, "Acting", "True"),
        ("Acting", CARD, "Acting", "True"),  # by the act itself
        ("Verifying", IDLE, "Verifying", "True"),
        ("Done", replace_fields(IDLE, is_withheld=False), "Returned", "False"),
        ("Done", CARD, "Returned", "False"),  # the taint is still being removed
        ("Failed", IDLE, "Stuck", "True"),
    ],
)
def test_from_the_act_on_the_node_says_how_far_a_card_is(
    state: WorkState, card: DrainableCard, phase: str, free: str
) -> None:
    progress = decide(maintenance=with_work(state), card=card)
    assert (progress.status.phase, conditions(progress)["Free"][0]) == (phase, free)
    if phase != "Evicting":
        assert progress.status.message == f"the node is {state}"


@pytest.mark.parametrize("state", ["Acting", "Verifying", "Done", "Failed"])
def test_nobody_is_evicted_once_the_node_has_begun(state: WorkState) -> None:
    assert evicted(decide(holder("new"), maintenance=with_work(state))) == []


def test_pods_that_hold_the_card_while_its_node_waits_are_evicted() -> None:
    assert evicted(decide(holder("late"), maintenance=with_work("Waiting"))) == ["uid-late"]


def test_the_work_for_another_generation_of_the_spec_does_not_count_and_stays_written() -> None:
    progress = decide(maintenance=with_work("Done", generation=2), card=IDLE)
    assert progress.status.phase == "Free"
    assert progress.status.work is not None
    assert progress.status.work.observed_generation == 2


def test_a_card_that_vanishes_under_the_act_is_still_worked_on() -> None:
    assert decide(maintenance=with_work("Acting"), card=None).status.phase == "Acting"
