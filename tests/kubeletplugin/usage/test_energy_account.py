"""Energy of claims and what is unattributed are the card's counter exactly, whatever happens."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerf_dra.driver.kubeletplugin.usage.energy_account import (
    CardAccount,
    CardShares,
    EnergyReading,
    PartHolder,
    add_reading,
    apportion,
    begin_account,
)

CARD = CardShares(weight=7, has_others=False)
BOOT = "boot-1"


def holder(
    device: str,
    weight: float,
    busy: float | None = None,
    *,
    held_s: float = 10.0,
    is_prepared: bool = True,
) -> PartHolder:
    return PartHolder(device=device, weight=weight, busy=busy, held_s=held_s, is_prepared=is_prepared)


def reading(counter_mj: int, at: float, boot_id: str = BOOT) -> EnergyReading:
    return EnergyReading(counter_mj=counter_mj, boot_id=boot_id, at=at)


def share(
    *holders: PartHolder, increase_mj: int = 7000, card: CardShares = CARD, interval_s: float = 10.0
) -> tuple[dict[str, int], int]:
    """Return what each holder gets of an increase of the counter, and what is unattributed."""
    noted = add_reading(begin_account(reading(500, 0.0)), reading(500 + increase_mj, interval_s), holders, card)
    return dict(noted.shares_mj), noted.account.unattributed_mj


CASES = {
    "nobody has anything": ((), {}, 7000),
    "by slices, and what is free is unattributed": (
        (holder("a", 1), holder("b", 3)),
        {"a": 1000, "b": 3000},
        3000,
    ),
    "by activity times slices, where it was measured": (
        (holder("a", 1, 1.0), holder("b", 3, 0.5)),
        {"a": 2800, "b": 4200},
        0,
    ),
    "what was idle has used nothing beside what was not": (
        (holder("a", 1, 0.5), holder("b", 3, 0.0)),
        {"a": 7000, "b": 0},
        0,
    ),
    "by slices, where nothing was active": ((holder("a", 1, 0.0), holder("b", 3, 0.0)), {"a": 1000, "b": 3000}, 3000),
    "by slices, where the activity of one is not known": (
        (holder("a", 1, 1.0), holder("b", 3)),
        {"a": 1000, "b": 3000},
        3000,
    ),
    "by the time for which each had its part": (
        (holder("a", 7, held_s=5), holder("b", 7, held_s=2.5)),
        {"a": 3500, "b": 1750},
        1750,
    ),
    "no longer than the time between the readings": ((holder("a", 7, held_s=99),), {"a": 7000}, 0),
    "nothing for a time before its beginning": ((holder("a", 7, held_s=-1), holder("b", 1)), {"a": 0, "b": 1000}, 6000),
}


@pytest.mark.parametrize("case", CASES)
def test_an_increase_is_shared_out(case: str) -> None:
    holders, shares, unattributed = CASES[case]
    assert share(*holders) == (shares, unattributed)


def test_activity_beside_another_program_whose_own_is_unknown_says_nothing() -> None:
    found = share(holder("a", 1, 1.0), holder("b", 3, 0.1), card=CardShares(weight=7, has_others=True))
    assert found == ({"a": 1000, "b": 3000}, 3000)


@pytest.mark.parametrize(
    ("second", "increase_mj"),
    [(reading(800, 20.0), 300), (reading(200, 20.0), 200), (reading(900, 20.0, "boot-2"), 900)],
    ids=["it has grown", "it began again", "another boot"],
)
def test_a_counter_that_began_again_counts_from_its_beginning(second: EnergyReading, increase_mj: int) -> None:
    first = add_reading(begin_account(reading(100, 0.0)), reading(500, 10.0), [holder("a", 7)], CARD).account
    after = add_reading(first, second, [holder("a", 7)], CARD).account
    assert after.total_mj == 400 + increase_mj
    assert after.claims == {"a": 400 + increase_mj}
    assert (after.counter_mj, after.boot_id, after.at) == second


def test_a_claim_that_ended_keeps_its_part_of_the_sum_and_begins_at_0_when_it_comes_again() -> None:
    account = begin_account(reading(0, 0.0))
    account = add_reading(account, reading(700, 10.0), [holder("a", 7)], CARD).account
    account = add_reading(account, reading(1400, 20.0), [holder("a", 7, held_s=5, is_prepared=False)], CARD).account
    assert (account.claims, account.ended_mj, account.unattributed_mj) == ({}, 1050, 350)
    account = add_reading(account, reading(2100, 30.0), [holder("a", 7)], CARD).account
    assert (account.claims, account.ended_mj) == ({"a": 700}, 1050)


def test_what_was_used_before_the_first_reading_is_of_no_account() -> None:
    account = begin_account(reading(123456, 5.0))
    assert (account.total_mj, account.unattributed_mj, account.ended_mj, account.claims) == (0, 0, 0, {})


@given(st.integers(0, 10**15), st.lists(st.floats(0, 1e9), min_size=1, max_size=60))
def test_parts_are_whole_numbers_of_which_the_sum_is_the_amount(amount: int, weights: list[float]) -> None:
    parts = apportion(amount, weights)
    assert len(parts) == len(weights)
    assert sum(parts) == amount
    assert all(part >= 0 for part in parts)


@given(st.integers(0, 10**9), st.lists(st.integers(1, 100), min_size=2, max_size=20))
def test_each_part_is_its_weight_s_to_one_unit(amount: int, weights: list[int]) -> None:
    for part, weight in zip(apportion(amount, weights), weights, strict=True):
        assert abs(part - amount * weight / sum(weights)) <= 1.001


HOLDERS = st.lists(
    st.builds(
        PartHolder,
        device=st.sampled_from(["a", "b", "c", "d"]),
        weight=st.floats(0.02, 8),
        busy=st.none() | st.floats(0, 1),
        held_s=st.floats(-5, 100),
        is_prepared=st.booleans(),
    ),
    unique_by=lambda one: one.device,
)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["goes on", "goes on", "goes on", "reset", "boot"]),
        st.integers(0, 10**7),
        st.floats(-3, 60),
        HOLDERS,
        st.booleans(),
    ),
    max_size=30,
)
"""What happens before a reading, the millijoules and seconds until then, the holders, and whether others are there."""


def check(account: CardAccount) -> None:
    assert account.total_mj == account.unattributed_mj + account.ended_mj + sum(account.claims.values())
    assert min(account.total_mj, account.unattributed_mj, account.ended_mj, *account.claims.values()) >= 0


@settings(max_examples=300)
@given(EVENTS)
def test_claims_and_what_is_unattributed_are_the_counter_exactly(
    events: Sequence[tuple[str, int, float, list[PartHolder], bool]],
) -> None:
    """A history of a card: resets, boots, restarts of the process at each reading, claims that come and go."""
    counter, at, boot, used = 5000, 100.0, 0, 0
    account = begin_account(reading(counter, at, str(boot)))
    ever: dict[str, int] = {}
    for event, increase, passed, holders, has_others in events:
        boot += event == "boot"
        counter = increase if event != "goes on" else counter + increase
        at += passed
        noted = add_reading(account, reading(counter, at, str(boot)), holders, CardShares(7, has_others))
        before, account = account, noted.account
        check(account)
        used += account.total_mj - before.total_mj
        assert account.total_mj - before.total_mj == sum(noted.shares_mj.values()) + (
            account.unattributed_mj - before.unattributed_mj
        )
        assert account.unattributed_mj >= before.unattributed_mj
        assert account.ended_mj >= before.ended_mj
        for one in holders:
            ever[one.device] = ever.get(one.device, 0) + noted.shares_mj[one.device]
            if one.is_prepared:
                assert account.claims[one.device] >= before.claims.get(one.device, 0)
    assert account.total_mj == used
    assert sum(ever.values()) + account.unattributed_mj == used
