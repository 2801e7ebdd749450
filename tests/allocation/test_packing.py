"""The bound on how many things can be had together: never less than there are, and exact where it claims to be."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.allocation.packing import most

Things = Sequence[Sequence[int]]


def tried(things: Things, rooms: Mapping[int, int]) -> int:
    """By trying every choice."""
    for size in range(len(things), 0, -1):
        for chosen in combinations(things, size):
            taken = Counter(resource for resources in chosen for resource in resources)
            if all(number <= rooms.get(resource, 1) for resource, number in taken.items()):
                return size
    return 0


def things(most_resources: int) -> st.SearchStrategy[Things]:
    return st.lists(st.lists(st.integers(0, 4), max_size=most_resources, unique=True), max_size=8)


@given(things(3), st.dictionaries(st.integers(0, 4), st.integers(0, 3)))
def test_a_bound_is_never_too_low(things: Things, rooms: Mapping[int, int]) -> None:
    assert most(things, rooms) >= tried(things, rooms)


@given(things(3))
def test_few_things_that_exclude_each_other_are_counted_exactly(things: Things) -> None:
    assert most(things, {}) == tried(things, {})


@given(things(3))
def test_a_resource_without_room_is_had_by_nobody(things: Things) -> None:
    resources = {resource for each in things for resource in each}
    assert most(things, dict.fromkeys(resources, 0)) == sum(not each for each in things)


@pytest.mark.parametrize(("rows", "columns"), [(40, 39), (39, 40), (40, 40)])
def test_many_things_with_two_resources_each_are_paired_as_well_as_can_be(rows: int, columns: int) -> None:
    """Far too many to be tried out."""
    cells = [(row, 1000 + column) for row in range(rows) for column in range(columns) if (row + column) % 3]
    assert most(cells, {}) == min(rows, columns)


def test_rooms_of_more_than_one_count() -> None:
    assert most([(1, 2)] * 5, {1: 3, 2: 4}) == 3
    assert most([(1,)] * 5, {1: 3}) == 3
