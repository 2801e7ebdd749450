"""A look ahead is never wrong where it says that there is no way, and finds the ways that searches found."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from api.model.claims import ResourceClaim
from api.model.devices import ResourceSlice
from driver.allocation import AllocatedState, Budget, Fits, Inventory
from driver.allocation.filling import fill
from driver.allocation.pools.node_devices import Offer
from driver.allocation.scouting import MANY_LOOKS, Scout
from driver.allocation.search.assignment import Tally
from driver.allocation.search.backtracking import search
from driver.allocation.search.nogoods import Situation
from driver.allocation.search.problem import Question, UnanswerableError
from driver.allocation.search.problem_builder import ask
from tests.allocation.builders import (
    ALL_FEATURES,
    NODE,
    claim,
    class_,
    decide,
    device,
    partitioned,
    request,
    share_ids,
)
from tests.allocation.hard_cases.crossed import CROSSED
from tests.allocation.hard_cases.crowded import crowded, shared

START = Situation(request=0, want=None, chosen=0, start=0)
Author = Callable[[int], tuple[list[ResourceSlice], list[ResourceClaim]]]


def offered(slices: Sequence[ResourceSlice]) -> Offer:
    return Offer.build(Inventory.build(slices), NODE, AllocatedState(), ALL_FEATURES)


def asked(slices: Sequence[ResourceSlice], claims: Sequence[ResourceClaim]) -> Question:
    return ask(offered(slices), claims, {"any": class_()})


@pytest.mark.parametrize("author", [crowded, shared])
@given(seed=st.integers(0, 10**6))
def test_a_way_that_a_search_finds_is_never_called_hopeless(author: Author, seed: int) -> None:
    slices, claims = author(seed)
    try:
        question = asked(slices, claims)
    except UnanswerableError:
        return
    outcome = search(question.offer, claims, {"any": class_()}, share_id=share_ids(), budget=Budget(steps=20_000))
    event(type(outcome).__name__)
    if not isinstance(outcome, Fits):
        return
    scout, tally = Scout(question), Tally(question)
    numbers = {published.id: number for number, published in enumerate(question.offer.devices)}
    assert scout.can_succeed(tally, START, MANY_LOOKS) is not False
    chosen = [result for allocation in outcome.results for result in allocation.devices.results]
    for position, each in enumerate(question.requests):
        name = chosen[0].request if chosen else ""
        index = next((at for at, want in enumerate(each.wants) if want.name == name), 0)
        want, start = each.wants[index], 0
        for number in range(want.count):
            situation = Situation(request=position, want=index, chosen=number, start=start)
            assert scout.can_succeed(tally, situation, MANY_LOOKS) is not False
            device = numbers[chosen.pop(0).id]
            assert tally.place(want, device)
            start = device + 1


@pytest.mark.parametrize("name", [name for name, build in CROSSED.items() if not build(4).fits])
def test_a_scout_says_no_to_small_hard_questions(name: str) -> None:
    case = CROSSED[name](4)
    question = asked(case.slices, case.claims)
    assert Scout(question).can_succeed(Tally(question), START, 4000) is False


def test_shares_are_alike_only_where_they_take_the_same_counters() -> None:
    """A scout takes no counters for shares; the search does. That the second device fails like the first one did was
    concluded from what the scout sees of them, and the claim did not fit.
    """
    taking = [{"c0": 1}, {"c0": 4, "c1": 4}, {"c0": 2, "c1": 4}, {"c0": 4, "c1": 2}, {"c0": 1, "c1": 2}, {}]
    devices = [
        device(
            f"d{number}",
            allow_multiple_allocations=number != 4,
            uses={"set": amounts} if amounts else {},
            groups={"set": [] if number else ["mig"]},
        )
        for number, amounts in enumerate(taking)
    ]
    slices = partitioned(*devices, sets={"set": {"c0": 6, "c1": 4}})
    outcome = decide(slices, claim(request("r", count=3)))
    assert isinstance(outcome, Fits)
    assert [result.device for result in outcome.results[0].devices.results] == ["d3", "d4", "d5"]


@pytest.mark.parametrize(
    ("wanted", "bins", "fits"),
    [
        pytest.param({3: 2}, [6], True, id="to the brim"),
        pytest.param({3: 2}, [5, 1], False, id="one of five leaves two that nobody wants"),
        pytest.param({4: 1, 3: 2}, [7, 3], True, id="four and three, and three"),
        pytest.param({4: 2, 3: 2}, [11, 3], True, id="an upper bound only"),
        pytest.param({5: 3}, [9, 9], False, id="nine holds one five"),
    ],
)
def test_what_is_left_of_bins_is_filled_with_whole_amounts(wanted: dict[int, int], bins: list[int], fits: bool) -> None:
    assert fill(wanted, bins) is fits
