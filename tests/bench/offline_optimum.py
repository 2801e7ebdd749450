"""What could be accepted by one who knows the future: an upper bound for every policy of the loss system, by HiGHS.

An integer programme. A request that is accepted begins at one of the places of its profile; at no time do more
partitions cover a unit than there are cards. This is generous in three ways:

- It may refuse what would fit, for the sake of better requests to come. No placement policy does that.
- It says where on a card a partition begins, but not on which card. At any one moment cards can be told apart
  (intervals of which no point lies in more than N can be given N colours), but from one moment to the next a partition
  might have to change its card.
- The requests come in windows, and each window begins with empty cards, because the effort grows faster than its
  length.

Hence ``Foresight.bound``, valid also where the time limit ended the search, and beside it which requests the programme
would accept. ``foreplacing`` finds places for most of those: a schedule that exists. The optimum lies between the two.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import accumulate, pairwise
from math import inf
from typing import Any, Final, NamedTuple

from driver.partitions.catalog import gpu_model
from tests.partitions.loss_system import Request

MODEL: Final = gpu_model("h100-80gb-sxm")


class Foresight(NamedTuple):
    bound: float
    """No schedule is worth more."""
    accepted: tuple[bool, ...]
    """For each request, in the best answer found."""


class _Place(NamedTuple):
    """A variable: whether a request begins there."""

    request: int
    units: range


def solve(requests: Sequence[Request], *, cards: int, worth: Sequence[int], time_limit_s: float) -> Foresight:
    """The most that accepted requests can be worth together; ``requests`` in order of their arrival, on empty cards."""
    places = [_Place(number, units) for number, each in enumerate(requests) for units in _units(each.profile)]
    columns: list[list[int]] = [[] for _ in requests]
    for column, place in enumerate(places):
        columns[place.request].append(column)
    rows = [(each, 1) for each in columns]
    rows += [(each, cards) for moment in _moments(requests) for each in _covering(moment, columns, places)]
    bound, chosen = _maximise([worth[place.request] for place in places], rows, time_limit_s)
    return Foresight(bound, tuple(any(chosen[column] for column in each) for each in columns))


def windows(requests: Sequence[Request], *, cards: int, worth: Sequence[int], size: int, limit_s: float) -> Foresight:
    """``solve`` for every ``size`` requests, each time within ``limit_s``, added up."""
    answers = [
        solve(requests[at : at + size], cards=cards, worth=worth[at : at + size], time_limit_s=limit_s)
        for at in range(0, len(requests), size)
    ]
    return Foresight(sum(each.bound for each in answers), tuple(one for each in answers for one in each.accepted))


def _units(profile: str) -> list[range]:
    known = MODEL.profile(profile)
    assert known is not None
    return [range(place.start, place.start + place.size) for place in known.placements]


def _moments(requests: Sequence[Request]) -> Iterator[list[int]]:
    """Who would be there when nobody has left for a while: arrivals that an end follows, before the next arrival."""
    present: list[int] = []
    for number, (request, following) in enumerate(pairwise([*requests, Request(inf, "", inf)])):
        present = [*(each for each in present if requests[each].until > request.at), number]
        if min(requests[each].until for each in present) <= following.at:
            yield present


def _covering(present: Sequence[int], columns: Sequence[list[int]], places: Sequence[_Place]) -> Iterator[list[int]]:
    here = [column for each in present for column in columns[each]]
    for unit in range(MODEL.memory_slices):
        yield [column for column in here if unit in places[column].units]


def _maximise(
    worth: Sequence[int], rows: Sequence[tuple[list[int], int]], time_limit_s: float
) -> tuple[float, list[bool]]:
    """The bound, and the best 0-1 values found, none of whose sums over a row's columns exceeds the row's limit."""
    # Imported here: with numpy it is 70 MB, and the rest of the bench needs neither. Not typed: it takes sequences,
    # too, where its stubs want arrays.
    highspy: Any = import_module("highspy")
    programme = highspy.HighsLp()
    programme.num_col_, programme.num_row_ = len(worth), len(rows)
    programme.sense_ = highspy.ObjSense.kMaximize
    programme.col_cost_ = worth
    programme.col_lower_, programme.col_upper_ = [0] * len(worth), [1] * len(worth)
    programme.integrality_ = [highspy.HighsVarType.kInteger] * len(worth)
    programme.row_lower_, programme.row_upper_ = [0] * len(rows), [limit for _, limit in rows]
    matrix = programme.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = list(accumulate((len(columns) for columns, _ in rows), initial=0))
    matrix.index_ = [column for columns, _ in rows for column in columns]
    matrix.value_ = [1] * len(matrix.index_)
    return _run(highspy.Highs(), programme, time_limit_s)


def _run(highs: Any, programme: Any, time_limit_s: float) -> tuple[float, list[bool]]:
    for option, value in {"output_flag": False, "time_limit": time_limit_s, "random_seed": 0}.items():
        highs.setOptionValue(option, value)
    highs.passModel(programme)
    highs.run()
    return highs.getInfo().mip_dual_bound, [value > 0.5 for value in highs.getSolution().col_value]
