"""Evaluates PromQL over recorded metrics, as far as the dashboard of ``deploy/monitoring`` needs it.

There are ``sum``, ``max`` and ``count`` with ``by``, ``+``, ``-``, ``*``, ``/`` and ``or`` between vectors of the same
labels, ``rate``, ``histogram_quantile`` and ``vector``, as in Prometheus' documentation. Two things differ: a rate is
what was added within its window divided by the window, without an extrapolation to the window's ends, and a quotient by
zero has no value.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tools.generate.recorded_metrics import RecordedSeries, Recording

_TOKEN: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\d+(?:\.\d+)?[smh]?|[a-zA-Z_][\w:]*|=~|!~|!=|[-+*/=(){}\[\],])')
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_AGGREGATIONS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "count": lambda values: float(len(values)),
}
_SUMS: Final[Mapping[str, Callable[[float, float], float]]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: Final[Mapping[str, Callable[[float, float], float]]] = {"*": operator.mul, "/": operator.truediv}

Vector = Mapping[frozenset[tuple[str, str]], float]
"""Values by their labels."""


class UnsupportedExpressionError(ValueError):
    """An expression has something that this evaluator does not know. The message has the expression and the place."""


def evaluate(expression: str, recording: Recording, sample: int) -> Vector:
    """Return the value of an expression at a sample; a number is a vector without labels.

    Raises UnsupportedExpressionError if the expression has what there is not here.
    """
    return _Evaluation(expression, recording, sample).run()


@dataclass(slots=True)
class _Evaluation:
    """One expression, read from left to right by recursive descent, and evaluated on the way."""

    expression: str
    recording: Recording
    sample: int
    tokens: Sequence[str] = ()
    place: int = 0

    def run(self) -> Vector:
        self.tokens = [*_tokenize(self.expression)]
        result = self._alternatives()
        if self.place < len(self.tokens):
            raise self._unsupported()
        return result

    def _alternatives(self) -> Vector:
        left = self._sum()
        while self._take("or"):
            left = {**self._sum(), **left}
        return left

    def _sum(self) -> Vector:
        left = self._product()
        while (sign := self._peek()) in _SUMS:
            self.place += 1
            left = _join(left, self._product(), _SUMS[sign])
        return left

    def _product(self) -> Vector:
        left = self._term()
        while (sign := self._peek()) in _PRODUCTS:
            self.place += 1
            left = _join(left, self._term(), _PRODUCTS[sign])
        return left

    def _term(self) -> Vector:
        token = self._next()
        if re.fullmatch(r"\d+(\.\d+)?", token):
            return {frozenset(): float(token)}
        if token == "(":
            result = self._alternatives()
            self._expect(")")
            return result
        if token in _AGGREGATIONS:
            return self._aggregate(token)
        if token == "vector":
            return self._term()
        if token == "histogram_quantile":
            return self._quantile()
        if token == "rate":
            self._expect("(")
            result = self._rate()
            self._expect(")")
            return result
        if re.fullmatch(r"[a-zA-Z_][\w:]*", token) and self._peek() != "(":
            return {key: value for key, values in self._select(token) if (value := values[self.sample]) is not None}
        self.place -= 1
        raise self._unsupported()

    def _aggregate(self, name: str) -> Vector:
        labels: list[str] = []
        if self._take("by"):
            self._expect("(")
            while not self._take(")"):
                labels.append(self._next())
                self._take(",")
        self._expect("(")
        inner = self._alternatives()
        self._expect(")")
        groups: dict[frozenset[tuple[str, str]], list[float]] = {}
        for key, value in inner.items():
            groups.setdefault(frozenset(pair for pair in key if pair[0] in labels), []).append(value)
        return {key: _AGGREGATIONS[name](values) for key, values in groups.items()}

    def _quantile(self) -> Vector:
        """Return the quantile by linear interpolation in its bucket, as ``histogram_quantile`` does."""
        self._expect("(")
        part = float(self._next())
        self._expect(",")
        buckets: dict[frozenset[tuple[str, str]], list[tuple[float, float]]] = {}
        for key, value in self._alternatives().items():
            labels = dict(key)
            limit = float(labels.pop("le"))
            buckets.setdefault(frozenset(labels.items()), []).append((limit, value))
        self._expect(")")
        found = {key: _interpolate(sorted(each), part) for key, each in buckets.items()}
        return {key: value for key, value in found.items() if value is not None}

    def _rate(self) -> Vector:
        name = self._next()
        series = [*self._select(name)]
        self._expect("[")
        window = self._next()
        self._expect("]")
        seconds = int(window[:-1]) * _SECONDS[window[-1]]
        first = max(0, self.sample - round(seconds / self.recording.interval_s))
        return {key: _increase(values[first : self.sample + 1]) / seconds for key, values in series}

    def _select(self, name: str) -> Iterator[tuple[frozenset[tuple[str, str]], Sequence[float | None]]]:
        matchers = []
        if self._take("{"):
            while not self._take("}"):
                matchers.append((self._next(), self._next(), self._next()[1:-1]))
                self._take(",")
        for each in self.recording.series.get(name, ()):
            if all(_matches(each, *matcher) for matcher in matchers):
                yield frozenset(each.labels.items()), each.values

    def _peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise self._unsupported()
        self.place += 1
        return token

    def _take(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self.place += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise self._unsupported()

    def _unsupported(self) -> UnsupportedExpressionError:
        return UnsupportedExpressionError(f"cannot evaluate {self.expression!r} from {self._peek() or 'its end'!r} on")


def _tokenize(expression: str) -> Iterator[str]:
    place = 0
    while place < len(expression.rstrip()):
        found = _TOKEN.match(expression, place)
        if found is None:
            raise UnsupportedExpressionError(f"cannot read {expression[place:]!r}")
        yield found[1]
        place = found.end()


def _matches(series: RecordedSeries, label: str, sign: str, value: str) -> bool:
    own = series.labels.get(label, "")
    is_equal = re.fullmatch(value, own) is not None if sign.endswith("~") else own == value
    return is_equal != sign.startswith("!")


def _join(left: Vector, right: Vector, operation: Callable[[float, float], float]) -> Vector:
    """Join values of the same labels; a vector without labels that stands for a number goes with each of the other."""
    if left.keys() == {frozenset()}:
        left = dict.fromkeys(right, left[frozenset()])
    if right.keys() == {frozenset()}:
        right = dict.fromkeys(left, right[frozenset()])
    return {
        key: operation(left[key], right[key])
        for key in left
        if key in right and (right[key] or operation is not operator.truediv)
    }


def _increase(values: Sequence[float | None]) -> float:
    """Return what a counter has added; a program that starts again begins at zero."""
    added, last = 0.0, None
    for value in values:
        if value is not None and last is not None:
            added += value - last if value >= last else value
        last = value if value is not None else last
    return added


def _interpolate(buckets: Sequence[tuple[float, float]], part: float) -> float | None:
    """Return the value below which ``part`` of all are; the buckets have their upper limits and sums from below."""
    total = buckets[-1][1]
    if not total:
        return None
    lower = below = 0.0
    for limit, value in buckets:
        if value >= part * total:
            if limit == float("inf"):
                return lower
            return lower + (limit - lower) * (part * total - below) / (value - below)
        lower, below = limit, value
    return None
