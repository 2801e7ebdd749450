"""The search for the smallest set of victims."""

from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.diagnostics.explain.victims import Trials, find_smallest_set

NAMES = "abcdef"
SETS = st.frozensets(st.sampled_from(NAMES), min_size=1)
GROUPS = st.lists(st.lists(st.sampled_from(NAMES), unique=True, min_size=1), max_size=4)


def trials(*enough: Iterable[str], left: int = 1000) -> Trials[str]:
    """Return trials in which a set suffices if it contains one of the sets ``enough``."""
    sufficient = [frozenset(each) for each in enough]
    return Trials(lambda ended: any(each <= ended for each in sufficient), left)


def test_a_single_claim_is_preferred() -> None:
    assert find_smallest_set(["ab", "c"], trials("ab", "c")) == ("c",)


def test_the_claims_of_the_cheapest_card_are_told() -> None:
    assert find_smallest_set(["abc", "de"], trials("abc", "de")) == ("d", "e")


def test_those_that_stand_first_stay_if_they_may() -> None:
    assert find_smallest_set(["abcd"], trials("ab", "cd")) == ("c", "d")


def test_what_needs_two_cards_is_found_too() -> None:
    assert find_smallest_set(["abc", "de"], trials("ad")) == ("a", "d")


def test_nothing_helps_where_the_end_of_all_would_not() -> None:
    assert find_smallest_set(["abc"], trials("x")) is None


def test_nothing_has_to_end_where_it_fits_already() -> None:
    assert find_smallest_set(["abc"], trials("")) == ()


def test_an_unfinished_search_is_no_answer() -> None:
    assert find_smallest_set(["abcdef"], trials("ab", left=7)) is None


@given(st.lists(SETS, max_size=4), GROUPS)
def test_what_is_told_is_enough_and_nobody_in_it_could_stay(
    enough: list[frozenset[str]], groups: Sequence[Sequence[str]]
) -> None:
    asked = trials(*enough)
    ended = find_smallest_set(groups, asked)
    everything = frozenset(each for area in groups for each in area)
    if ended is None:
        assert not asked.suffices(everything)
        return
    assert asked.suffices(frozenset(ended))
    assert not any(asked.suffices(frozenset(ended) - {each}) for each in ended)
    inside = [each for each in enough if any(each <= set(area) for area in groups)]
    assert len(ended) <= min(map(len, inside), default=len(everything))
