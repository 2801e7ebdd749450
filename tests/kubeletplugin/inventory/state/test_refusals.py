"""Placements that the hardware keeps refusing are tainted, few at a time, and only while there is a reason."""

from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.kubeletplugin.inventory.state.refusals import (
    FORGET_S,
    HOLD_S,
    MAX_EVICTING,
    REFUSALS,
    RefusalTracker,
)
from kerf_dra.driver.partitions.geometry import Partition, Placement
from tests.fakes.claims import DRIVER, NODE


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def part(start: int = 0, card: str = "GPU-0", *, shared: bool = False) -> Partition:
    return Partition(kind="gpu", card_uuid=card, profile="1g.1gb", placement=Placement(start, 1), shared=shared)


def name(start: int = 0) -> DeviceId:
    return DeviceId(DRIVER, f"{NODE}/gpu", f"gpu-0-1g-1gb-at-{start}")


def effects(tracker: RefusalTracker, partition: Partition) -> list[tuple[str, str]]:
    return [(taint.key, taint.effect) for taint in tracker.build_taints(partition)]


def test_the_third_refusal_of_one_claim_is_one_too_many() -> None:
    tracker = RefusalTracker(driver=DRIVER, now=Clock())
    assert [tracker.record("uid-1", name()) for _ in range(REFUSALS)] == [False, False, True]
    assert not tracker.record("uid-2", name()), "another claim"
    assert not tracker.record("uid-1", name(1)), "another device"


def test_a_success_in_between_and_a_long_time_begin_anew() -> None:
    clock = Clock()
    tracker = RefusalTracker(driver=DRIVER, now=clock)
    assert [tracker.record("uid-1", name()) for _ in range(2)] == [False, False]
    tracker.forget("uid-1")
    assert [tracker.record("uid-1", name()) for _ in range(2)] == [False, False]
    clock.now += FORGET_S
    assert not tracker.record("uid-1", name())


def test_a_refused_placement_is_tainted_as_it_is_and_as_a_shared_device_and_no_other_is() -> None:
    tracker = RefusalTracker(driver=DRIVER, now=Clock())
    assert tracker.taint(name(), part(), "busy", evicts=True)
    assert not tracker.taint(name(), part(), "busy", evicts=False), "it evicts already"
    assert effects(tracker, part()) == effects(tracker, part(shared=True)) == [(f"{DRIVER}/refused", "NoExecute")]
    assert effects(tracker, part(1)) == effects(tracker, part(card="GPU-1")) == []


def test_few_placements_evict_at_a_time_and_others_get_no_new_claims() -> None:
    tracker = RefusalTracker(driver=DRIVER, now=Clock())
    for start in range(4):
        tracker.taint(name(start), part(start), "busy", evicts=True)
    assert [effects(tracker, part(start))[0][1] for start in range(4)] == [
        "NoExecute",
        "NoExecute",
        "NoSchedule",
        "NoSchedule",
    ]


def test_a_taint_stays_for_its_time_and_while_the_placement_is_held() -> None:
    clock = Clock()
    tracker = RefusalTracker(driver=DRIVER, now=clock)
    tracker.taint(name(), part(), "busy", evicts=True)
    clock.now += HOLD_S - 1
    assert not tracker.expire("GPU-0", lambda _: False)
    clock.now += 1
    assert not tracker.expire("GPU-1", lambda _: False), "the survey of another card"
    assert not tracker.expire("GPU-0", lambda _: True), "somebody still holds it"
    assert tracker.expire("GPU-0", lambda _: False)
    assert effects(tracker, part()) == []
    assert not tracker.record("uid-1", name()), "and the claim's refusals are forgotten"


def test_the_taint_of_what_somebody_else_held_goes_with_the_next_survey_that_shows_it_free() -> None:
    tracker = RefusalTracker(driver=DRIVER, now=Clock())
    tracker.taint(name(), part(), "in use outside of Kerf: 1g.1gb at 0", evicts=True, was_held=True)
    assert not tracker.expire("GPU-0", lambda _: True)
    assert tracker.expire("GPU-0", lambda _: False)
    assert effects(tracker, part()) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["refuse", "taint", "wait", "survey"]), st.integers(0, 3), st.booleans(), st.integers(1, 3)
        ),
        max_size=40,
    )
)
def test_in_any_history_few_placements_evict_and_all_become_free_in_the_end(
    history: list[tuple[str, int, bool, int]],
) -> None:
    clock = Clock()
    tracker = RefusalTracker(driver=DRIVER, now=clock)
    for event, start, flag, amount in history:
        if event == "refuse":
            for _ in range(amount):
                tracker.record(f"uid-{amount}", name(start))
        elif event == "taint":
            tracker.taint(name(start), part(start), "busy", evicts=flag)
        elif event == "wait":
            clock.now += amount * HOLD_S / 2
        else:
            tracker.expire("GPU-0", lambda _, held=flag: held)  # type: ignore[misc]
        assert sum(placement.evicts for placement in tracker.placements.values()) <= MAX_EVICTING
        assert all(len(tracker.build_taints(part(each))) <= 1 for each in range(4))
    clock.now += HOLD_S
    tracker.expire("GPU-0", lambda _: False)
    assert not tracker.placements


def test_a_placement_that_is_free_again_may_refuse_as_often_as_before() -> None:
    tracker = RefusalTracker(driver=DRIVER, now=Clock())
    assert [tracker.record("uid-1", name()) for _ in range(REFUSALS)][-1]
    tracker.taint(name(), part(), "refused", evicts=False, was_held=True)
    assert tracker.expire("GPU-0", lambda _: False)
    assert [tracker.record("uid-1", name()) for _ in range(REFUSALS)] == [False, False, True]
