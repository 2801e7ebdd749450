"""The offline optimum: an upper bound on what any policy of the loss system can accept, computed by HiGHS.

The problem is an integer program. An accepted request gets one of the placements of its profile; at no time do more
partitions cover a unit than there are cards. The bound is generous in three ways:

- The program may refuse what would fit in favor of better requests to come, which no placement policy does.
- It chooses the position of a partition on a card, but not the card. At any one moment cards can be told apart
  (intervals of which no point lies in more than N can be given N colors), but from one moment to the next a partition
  might have to change its card.
- The requests come in windows, and each window begins with empty cards, because the effort grows faster than its
  length.

``OfflineOptimum.bound`` holds even where the time limit ended the search. ``relaxed_bound`` is that of the linear
relaxation, which takes parts of requests, too: it is found much faster, and of 500 requests on eight cards it was the
same.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import accumulate, pairwise
from math import inf
from typing import Any, Final, NamedTuple

from kerf_dra.driver.families.gpu.catalog import gpu_model
from tests.partitions.loss_system import Request

MODEL: Final = gpu_model("h100-80gb-sxm")


class OfflineOptimum(NamedTuple):
    """The result of the integer program."""

    bound: float
    """An upper bound on the worth of every schedule."""
    accepted: tuple[bool, ...]
    """Whether the best solution found accepts each request."""


class _StartVariable(NamedTuple):
    """A 0-1 variable: whether ``request`` is placed on ``units``."""

    request: int
    units: range


def solve(requests: Sequence[Request], *, cards: int, worth: Sequence[int], time_limit_s: float) -> OfflineOptimum:
    """Return the optimum for ``requests``, in order of their arrival, which begin on empty cards."""
    places, columns, rows = _constraints(requests, cards)
    bound, chosen = _maximize([worth[place.request] for place in places], rows, time_limit_s)
    return OfflineOptimum(bound, tuple(any(chosen[column] for column in each) for each in columns))


def relaxed_bound(requests: Sequence[Request], *, cards: int, worth: Sequence[int], size: int) -> float:
    """Return an upper bound on the worth of every schedule: the relaxation's optima of windows of ``size`` requests."""
    bound = 0.0
    for at in range(0, len(requests), size):
        places, _, rows = _constraints(requests[at : at + size], cards)
        bound += _relax([worth[at + place.request] for place in places], rows)
    return bound


def solve_windows(
    requests: Sequence[Request], *, cards: int, worth: Sequence[int], size: int, limit_s: float
) -> OfflineOptimum:
    """Return the sum of the optima of windows of ``size`` requests, each solved within ``limit_s``."""
    answers = [
        solve(requests[at : at + size], cards=cards, worth=worth[at : at + size], time_limit_s=limit_s)
        for at in range(0, len(requests), size)
    ]
    return OfflineOptimum(sum(each.bound for each in answers), tuple(one for each in answers for one in each.accepted))


def _constraints(
    requests: Sequence[Request], cards: int
) -> tuple[list[_StartVariable], list[list[int]], list[tuple[list[int], int]]]:
    """Return the variables, those of each request, and the rows of variables that add up to a limit at most."""
    places = [_StartVariable(number, units) for number, each in enumerate(requests) for units in _units(each.profile)]
    columns: list[list[int]] = [[] for _ in requests]
    for column, place in enumerate(places):
        columns[place.request].append(column)
    rows = [(each, 1) for each in columns]
    rows += [(each, cards) for moment in _find_overlaps(requests) for each in _covering(moment, columns, places)]
    return places, columns, rows


def _units(profile: str) -> list[range]:
    known = MODEL.profile(profile)
    assert known is not None
    return [range(place.start, place.start + place.size) for place in known.placements]


def _find_overlaps(requests: Sequence[Request]) -> Iterator[list[int]]:
    """Yield the maximal sets of requests that overlap in time."""
    present: list[int] = []
    for number, (request, following) in enumerate(pairwise([*requests, Request(inf, "", inf)])):
        present = [*(each for each in present if requests[each].until > request.at), number]
        if min(requests[each].until for each in present) <= following.at:
            yield present


def _covering(
    present: Sequence[int], columns: Sequence[list[int]], places: Sequence[_StartVariable]
) -> Iterator[list[int]]:
    here = [column for each in present for column in columns[each]]
    for unit in range(MODEL.memory_slices):
        yield [column for column in here if unit in places[column].units]


def _maximize(
    worth: Sequence[int], rows: Sequence[tuple[list[int], int]], time_limit_s: float
) -> tuple[float, list[bool]]:
    """Return the bound and the best 0-1 values; the values of a row's columns add up to its limit at most."""
    highspy, program = _build_program(worth, rows)
    program.integrality_ = [highspy.HighsVarType.kInteger] * len(worth)
    return _run(highspy.Highs(), program, time_limit_s)


def _relax(worth: Sequence[int], rows: Sequence[tuple[list[int], int]]) -> float:
    """Return the optimum over values from 0 to 1."""
    highspy, program = _build_program(worth, rows)
    highs = highspy.Highs()
    _run(highs, program, inf)
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(highs.getInfo().objective_function_value)


def _build_program(worth: Sequence[int], rows: Sequence[tuple[list[int], int]]) -> tuple[Any, Any]:
    """Return HiGHS and the program, whose values need not be integers yet."""
    # Imported here: with numpy it is 70 MB, and the rest of the bench needs neither. Not typed: it takes sequences,
    # too, where its stubs want arrays.
    highspy: Any = import_module("highspy")
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(worth), len(rows)
    program.sense_ = highspy.ObjSense.kMaximize
    program.col_cost_ = worth
    program.col_lower_, program.col_upper_ = [0] * len(worth), [1] * len(worth)
    program.row_lower_, program.row_upper_ = [0] * len(rows), [limit for _, limit in rows]
    matrix = program.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = list(accumulate((len(columns) for columns, _ in rows), initial=0))
    matrix.index_ = [column for columns, _ in rows for column in columns]
    matrix.value_ = [1] * len(matrix.index_)
    return highspy, program


def _run(highs: Any, program: Any, time_limit_s: float) -> tuple[float, list[bool]]:
    for option, value in {"output_flag": False, "time_limit": time_limit_s, "random_seed": 0}.items():
        highs.setOptionValue(option, value)
    highs.passModel(program)
    highs.run()
    return highs.getInfo().mip_dual_bound, [value > 0.5 for value in highs.getSolution().col_value]
