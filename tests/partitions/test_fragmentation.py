"""The partitions that fit into the free units of a card."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.partitions.fragmentation import fragmentation
from kerf_dra.driver.partitions.geometry import Partition, Placement
from tests.partitions.cards import fpga, gpu, gpu_partition, slots, whole

H100 = gpu("h100-80gb-sxm")
OTHER = gpu("h100-80gb-sxm", index=1)


def figures(taken: list[Partition]) -> tuple[int, int, int]:
    found = fragmentation(H100, taken)
    return found.free_units, found.largest_free_run, found.stranded_units


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([], (8, 8, 0)),
        ([gpu_partition(H100, "3g.40gb", 0)], (4, 4, 0)),
        ([gpu_partition(H100, "1g.10gb", start) for start in range(7)], (1, 1, 1)),
        ([gpu_partition(H100, "1g.10gb", start) for start in (0, 2, 4, 6)], (4, 1, 1)),
        ([gpu_partition(H100, "1g.20gb", 2)], (6, 4, 0)),
        ([gpu_partition(H100, "7g.80gb", 0)], (0, 0, 0)),
        ([whole(H100)], (0, 0, 0)),
        ([whole(OTHER)], (8, 8, 0)),
    ],
)
def test_free_units_longest_run_and_stranded_units(taken: list[Partition], expected: tuple[int, int, int]) -> None:
    assert figures(taken) == expected
    free, _, stranded = expected
    assert fragmentation(H100, taken).usable_units == free - stranded


def test_free_instances_are_those_that_fit_at_once() -> None:
    found = fragmentation(H100, [gpu_partition(H100, "1g.10gb", 1)])
    assert found.free_instances == {
        "1g.10gb": 6,
        "1g.10gb+me": 1,  # there is one optical flow engine
        "1g.20gb": 3,
        "2g.20gb": 2,
        "3g.40gb": 1,
        "4g.40gb": 0,
        "7g.80gb": 0,
    }


@given(st.sets(st.integers(0, 6)))
def test_no_more_instances_fit_at_once_than_a_search_over_all_choices_finds(taken: set[int]) -> None:
    held = [gpu_partition(H100, "1g.10gb", start) for start in taken]
    found = fragmentation(H100, held)
    for profile in gpu_model("h100-80gb-sxm").profiles:
        free = [
            placement
            for placement in profile.placements
            if not any(each.placement and each.placement.overlaps(placement) for each in held)
        ]
        most = max(
            len(chosen)
            for count in range(len(free) + 1)
            for chosen in combinations(free, count)
            if not any(one.overlaps(other) for one, other in combinations(chosen, 2))
        )
        assert found.free_instances[profile.name] == min(most, profile.max_instances)


def test_a_partition_of_an_unknown_profile_takes_its_units() -> None:
    by_hand = Partition(kind=H100.kind, card_uuid=H100.uuid, profile="1c.7g.80gb", placement=Placement(4, 4))
    assert figures([by_hand]) == (4, 4, 0)


def test_free_instances_of_each_function_and_of_raw_slots() -> None:
    card = fpga("quad")
    found = fragmentation(card, [slots(card, 1, 1)])
    assert found.free_instances == {"": 3, "aes-gcm": 3, "zstd": 2, "fft-large": 1}
    assert (found.units, found.free_units, found.largest_free_run, found.stranded_units) == (4, 3, 2, 0)
