"""How many pods are evicted in an hour: by cases, and any order of takes compared with counting all of them again."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kerf_dra.driver.reclaim.eviction_budget import WINDOW_S, EvictionBudget


def test_a_namespace_is_full_before_the_cluster_and_an_hour_later_both_have_room_again() -> None:
    budget = EvictionBudget(limit=3, namespace_limit=2)
    assert [budget.take("a", 0), budget.take("a", 10)] == ["", ""]
    assert "at most 2 pods of namespace a are evicted in an hour" in budget.take("a", 20)
    assert budget.take("b", 20) == ""
    assert "at most 3 pods of the cluster are evicted in an hour" in budget.take("c", 20)
    assert budget.take("a", WINDOW_S - 1) != ""
    assert budget.take("a", WINDOW_S) == ""
    assert budget.take("a", WINDOW_S) != "", "the second one of before still counts"


def test_a_place_that_is_given_back_can_be_taken_again() -> None:
    budget = EvictionBudget(limit=2, namespace_limit=1)
    assert [budget.take("a", 0), budget.take("b", 0)] == ["", ""]
    budget.give_back()
    assert "namespace a" not in budget.take("b", 1), "it was b's"
    budget.give_back()
    assert "namespace a" in budget.take("a", 1)


@pytest.mark.parametrize(("limit", "namespace_limit", "said"), [(0, 5, "0 pods of the cluster"), (5, 0, "0 pods of n")])
def test_a_limit_of_zero_lets_no_pod_be_evicted_and_says_so(limit: int, namespace_limit: int, said: str) -> None:
    assert said in EvictionBudget(limit, namespace_limit).take("ns", 0)


@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0, 1, 600, 1800, 3600]), st.booleans())),
    limit=st.integers(0, 6),
    namespace_limit=st.integers(0, 4),
)
def test_in_no_hour_more_pods_are_evicted_than_the_limits_say(
    steps: list[tuple[str, int, bool]], limit: int, namespace_limit: int
) -> None:
    budget, now, taken = EvictionBudget(limit, namespace_limit), 0, list[tuple[int, str]]()
    for namespace, passed, is_given_back in steps:
        now += passed
        recent = [each for at, each in taken if at > now - WINDOW_S]
        fits = len(recent) < limit and recent.count(namespace) < namespace_limit
        assert (budget.take(namespace, now) == "") is fits
        if fits and is_given_back:
            budget.give_back()
        elif fits:
            taken.append((now, namespace))
