"""Caches that are emptied when they are full."""

from kerf_dra.driver.allocation.semantics.bitset import store_bounded


def test_a_cache_is_emptied_when_it_is_full_and_keeps_what_comes_then() -> None:
    cache: dict[int, int] = {}
    most = 0
    for number in range(100_000):
        assert store_bounded(cache, number, -number) == -number
        assert cache[number] == -number
        most = max(most, len(cache))
    assert len(cache) <= most < 100_000
