from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.runtime.backoff import Backoff


def test_delays_grow_by_the_factor_up_to_the_limit() -> None:
    backoff = Backoff(first_s=1, factor=2, limit_s=5, jitter=0)
    assert list(islice(backoff.delays(Random(0)), 5)) == [1, 2, 4, 5, 5]


@given(st.integers(), st.floats(0.01, 10), st.floats(1, 5), st.floats(0, 2))
def test_jitter_only_lengthens_a_delay_and_by_no_more_than_its_part(
    seed: int, first_s: float, factor: float, jitter: float
) -> None:
    plain = Backoff(first_s=first_s, factor=factor, limit_s=100, jitter=0)
    jittered = Backoff(first_s=first_s, factor=factor, limit_s=100, jitter=jitter)
    pairs = zip(plain.delays(Random(seed)), jittered.delays(Random(seed)), strict=True)
    for without, with_jitter in islice(pairs, 20):
        assert without <= with_jitter <= without * (1 + jitter) * (1 + 1e-12)


@pytest.mark.parametrize(("first_s", "factor", "limit_s", "jitter"), [(0, 2, 5, 0), (9, 2, 5, 0), (1, 0.5, 5, 0)])
def test_a_back_off_that_would_not_back_off_is_refused(
    first_s: float, factor: float, limit_s: float, jitter: float
) -> None:
    with pytest.raises(ValueError, match="does not back off"):
        Backoff(first_s=first_s, factor=factor, limit_s=limit_s, jitter=jitter)
