"""The noise of the machine: a fixed calculation, timed between the benchmarks."""

import time
from collections.abc import Sequence
from typing import Final

from tests.bench.measurement import Row

_TIMES: Final = 20
_TERMS: Final = 100_000
"""Some 10 ms: as long as what is measured, and a little more than a turn of the kernel's scheduler."""


def samples() -> Sequence[float]:
    """Milliseconds of some calculations, one after the other."""
    return [_calculate() for _ in range(_TIMES)]


def row(taken: Sequence[float]) -> Row:
    """Calculations between all the others; ratio 1 is a machine on which nothing else happens, at a steady clock."""
    return Row(
        name="machine: one calculation",
        unit="ms",
        samples=taken,
        baseline_name="fastest",
        baseline=[min(taken)],
    )


def _calculate() -> float:
    begin = time.perf_counter()
    sum(number * number for number in range(_TERMS))
    return 1000 * (time.perf_counter() - begin)
