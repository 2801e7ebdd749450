"""The references of the placement benchmark: packing of partitions, and the integer program."""

import itertools

import pytest

from kerf_dra.driver.partitions.geometry import unit_mask
from tests.bench.limits import limits
from tests.bench.offline_optimum import MODEL, relaxed_bound, solve, solve_windows
from tests.bench.repack_policy import can_pack, repacked
from tests.partitions import loss_system
from tests.partitions.loss_system import MEMORY_SLICES, Request

PROFILES = list(MEMORY_SLICES)
PLACEMENTS = {
    profile: [unit_mask(place) for place in known.placements]
    for profile in PROFILES
    if (known := MODEL.profile(profile))
}


def arrangements(free: int, first: int = 0) -> set[tuple[int, ...]]:
    """How many of each profile lie together on one card, by trying everything."""
    places = [(number, mask) for number, profile in enumerate(PROFILES) for mask in PLACEMENTS[profile]]
    found = {(0,) * len(PROFILES)}
    for at in range(first, len(places)):
        number, mask = places[at]
        if not mask & ~free:
            for rest in arrangements(free & ~mask, at + 1):
                found.add(tuple(count + (each == number) for each, count in enumerate(rest)))
    return found


def test_profiles_pack_where_some_arrangement_on_two_cards_has_them_all() -> None:
    one = arrangements((1 << MODEL.memory_slices) - 1)
    two = {
        tuple(map(sum, zip(left, right, strict=True)))
        for left, right in itertools.combinations_with_replacement(one, 2)
    }
    highest = [max(counts) + 2 for counts in zip(*two, strict=True)]
    for counts in itertools.product(*map(range, highest)):
        assert can_pack(dict(zip(PROFILES, counts, strict=True)), 2) == (counts in two), counts


def test_who_may_move_everything_loses_what_nobody_has_room_for() -> None:
    requests = [Request(at, "3g.40gb", 9.0) for at in (0.0, 1.0, 2.0)]
    assert loss_system.replay(repacked(), requests, cards=1).requests == pytest.approx(200 / 3)


def optimum(requests: list[Request], worth: list[int], taken: tuple[tuple[float, int], ...] = ()) -> int:
    """On one card, by trying everything: places, and refusals."""
    if not requests:
        return 0
    request, *later = requests
    busy = tuple(each for each in taken if each[0] > request.at)
    answers = [
        worth[0] + optimum(later, worth[1:], (*busy, (request.until, mask)))
        for mask in PLACEMENTS[request.profile]
        if not any(mask & other for _, other in busy)
    ]
    return max(*answers, optimum(later, worth[1:], busy), 0)


@pytest.mark.parametrize("mix", loss_system.MIXES)
@pytest.mark.parametrize("seed", range(3))
def test_on_one_card_the_bound_is_the_optimum(mix: str, seed: int) -> None:
    """There, no partition can change its card."""
    requests = list(loss_system.arrivals(cards=1, mix=mix, load=2.0, seed=seed, requests=9))
    for worth in [1] * 9, [MEMORY_SLICES[each.profile] for each in requests]:
        answer = solve(requests, cards=1, worth=worth, time_limit_s=10)
        assert answer.bound == pytest.approx(optimum(requests, worth))
        assert sum(itertools.compress(worth, answer.accepted)) == pytest.approx(answer.bound)


def test_nobody_passes_the_bound() -> None:
    """Forty of sixty requests, so few that each part is one window: begun on empty cards, where more is possible."""
    found = limits(2, "uniform", 1.5, seed=0, count=60, warm_up=20)
    for one in found.kept, found.repacked:
        assert 0 < one.requests <= found.bound.requests <= 100
        assert 0 < one.slices <= found.bound.slices <= 100


def test_windows_never_lower_the_bound() -> None:
    requests = list(loss_system.arrivals(cards=2, mix="uniform", load=1.5, seed=0, requests=60))
    whole = solve(requests, cards=2, worth=[1] * 60, time_limit_s=10)
    parts = solve_windows(requests, cards=2, worth=[1] * 60, size=20, limit_s=10)
    assert parts.bound >= whole.bound
    assert len(parts.accepted) == len(whole.accepted)


@pytest.mark.parametrize("mix", loss_system.MIXES)
def test_the_relaxation_of_a_window_allows_no_less_than_the_integer_program(mix: str) -> None:
    requests = list(loss_system.arrivals(cards=2, mix=mix, load=1.5, seed=0, requests=60))
    for worth in [1] * 60, [MEMORY_SLICES[each.profile] for each in requests]:
        whole = solve_windows(requests, cards=2, worth=worth, size=20, limit_s=10)
        relaxed = relaxed_bound(requests, cards=2, worth=worth, size=20)
        assert whole.bound - 1e-6 <= relaxed <= sum(worth)
        assert relaxed < 1.15 * whole.bound
