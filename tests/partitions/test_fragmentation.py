"""What the free part of a card is good for."""

import pytest

from driver.partitions.fragmentation import fragmentation
from driver.partitions.geometry import Partition, Placement
from tests.partitions.cards import cut, fpga, gpu, slots, whole

H100 = gpu("h100-80gb-sxm")
OTHER = gpu("h100-80gb-sxm", index=1)


def figures(taken: list[Partition]) -> tuple[int, int, int]:
    found = fragmentation(H100, taken)
    return found.free_units, found.largest_free_run, found.stranded_units


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([], (8, 8, 0)),
        ([cut(H100, "3g.40gb", 0)], (4, 4, 0)),
        ([cut(H100, "1g.10gb", start) for start in range(7)], (1, 1, 1)),
        ([cut(H100, "1g.10gb", start) for start in (0, 2, 4, 6)], (4, 1, 1)),
        ([cut(H100, "1g.20gb", 2)], (6, 4, 0)),
        ([cut(H100, "7g.80gb", 0)], (0, 0, 0)),
        ([whole(H100)], (0, 0, 0)),
        ([whole(OTHER)], (8, 8, 0)),
    ],
)
def test_free_units_longest_run_and_stranded_units(taken: list[Partition], expected: tuple[int, int, int]) -> None:
    assert figures(taken) == expected


def test_free_placements_of_each_profile() -> None:
    found = fragmentation(H100, [cut(H100, "1g.10gb+me", 1), cut(H100, "2g.20gb", 4)])
    assert found.free_placements == {
        "1g.10gb": 4,  # 0, 2, 3, 6
        "1g.10gb+me": 0,  # the optical flow engine is gone
        "1g.20gb": 2,  # 2, 6
        "2g.20gb": 1,  # 2
        "3g.40gb": 0,
        "4g.40gb": 0,
        "7g.80gb": 0,
    }


def test_a_partition_of_an_unknown_profile_takes_its_units() -> None:
    by_hand = Partition(kind=H100.kind, card_uuid=H100.uuid, profile="1c.7g.80gb", placement=Placement(4, 4))
    assert figures([by_hand]) == (4, 4, 0)


def test_free_placements_of_each_function_and_of_raw_slots() -> None:
    card = fpga("quad")
    found = fragmentation(card, [slots(card, 1, 1)])
    assert found.free_placements == {"": 4, "aes-gcm": 3, "zstd": 2, "fft-large": 1}
    assert (found.units, found.free_units, found.largest_free_run, found.stranded_units) == (4, 3, 2, 0)
