"""What a call in CEL costs at most, in the units of Kubernetes: one is some 50 ns of work in its own implementation.

The rules are those of ``github.com/google/cel-go`` (checker/cost.go, ext) and of ``k8s.io/apiserver/pkg/cel/library``
(cost.go), with their oddities: the API server refuses expressions by them, so another figure would be a wrong one.
Functions that the engine lacks (``expressions.UNSUPPORTED``) have no price.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from driver.cel.checked_ast import Type
from driver.cel.sizes import MOST, Size, joined, scaled, times, total

CALL: Final = 1
"""What a call costs whose work does not depend on sizes."""
LIST: Final = 10
"""What making a list costs."""
TRAVERSAL: Final = 0.1
"""For each character of a text that is read through."""
_PATTERN: Final = 0.25
"""For each character of a regular expression."""


class Operand(NamedTuple):
    """What is known of an argument, or of what stands before the dot."""

    type: Type
    size: Size
    number: int | None
    """The whole number that it is; None: it is no literal of that kind."""


class Price(NamedTuple):
    """What a call itself costs at most, without its operands."""

    cost: int
    size: Size | None = None
    """Of the result, where that can be said."""


Tariff: TypeAlias = Callable[[Operand | None, Sequence[Operand]], Price | None]
"""Takes the operand before the dot, and the arguments; None: it has no rule for these."""


def price(function: str, overload: str, target: Operand | None, arguments: Sequence[Operand]) -> Price:
    """What a call costs at most."""
    for tariff in (_BY_FUNCTION.get(function), _BY_OVERLOAD.get(overload)):
        found = tariff(target, arguments) if tariff else None
        if found is not None:
            return found
    return Price(CALL)


def _flat(_: Operand | None, __: Sequence[Operand]) -> Price:
    return Price(CALL)


def _over_elements(target: Operand | None, _: Sequence[Operand]) -> Price | None:
    """One look at each element; reading a text whose length nobody knows costs nearly everything."""
    if target is None:
        return None
    if target.type.parameters:
        is_text = target.type.parameters[0].kind in ("string", "bytes")
        return Price(times(target.size.most, total(1, scaled(MOST, TRAVERSAL)) if is_text else 1))
    return Price(scaled(target.size.most, TRAVERSAL))


def _includes(target: Operand | None, arguments: Sequence[Operand]) -> Price | None:
    if target is None or target.type.parameters:
        return _over_elements(target, arguments)
    return Price(target.size.most)


def _rewriting(target: Operand | None, _: Sequence[Operand]) -> Price | None:
    return Price(scaled(target.size.most, TRAVERSAL), target.size) if target else None


def _replace(target: Operand | None, arguments: Sequence[Operand]) -> Price | None:
    if target is None or len(arguments) < 2:
        return None
    size, old, new = target.size, arguments[0].size, arguments[1].size
    if not old.least:  # the new text may stand around every character
        longest = total(times(total(size.most, 1), new.most), size.most)
    elif new.most <= old.least:
        longest = size.most
    else:
        longest = times(scaled(size.most, 1 / old.least), new.most)
    return Price(scaled(size.most, 2 * TRAVERSAL), Size(0, longest))


def _split(target: Operand | None, arguments: Sequence[Operand]) -> Price | None:
    if target is None:
        return None
    limit = arguments[1].number if len(arguments) > 1 else None
    most = target.size.most if limit is None else limit % (MOST + 1)
    return Price(scaled(target.size.most, 2 * TRAVERSAL), Size(0, most))


def _join(target: Operand | None, arguments: Sequence[Operand]) -> Price | None:
    if target is None:
        return None
    most = times(target.size.most, MOST) if target.type.parameters else 0
    if arguments:
        most = total(most, times(arguments[0].size.most, max(0, target.size.most - 1)))
    return Price(scaled(most, TRAVERSAL), Size(0, most))


def _matching(text: Size, pattern: Size) -> int:
    return times(scaled(total(text.most, 1), TRAVERSAL), scaled(pattern.most, _PATTERN))


def _find(target: Operand | None, arguments: Sequence[Operand]) -> Price | None:
    if target is None:
        return None
    return Price(_matching(target.size, arguments[0].size), Size(0, target.size.most))


def _matches(target: Operand | None, arguments: Sequence[Operand]) -> Price:
    text, pattern = (target, arguments[0]) if target else arguments
    return Price(_matching(text.size, pattern.size))


def _equals_object(_: Operand | None, arguments: Sequence[Operand]) -> Price | None:
    one, other = arguments
    return Price(CALL) if one.type == other.type and one.type.kind == "struct" else None


def _list(factor: float, most: int, result: int | None = None) -> Price:
    """A call that makes a list. ``result``: its size, if that is not what the work depends on."""
    size = most if result is None else result
    return Price(total(scaled(most, factor), CALL, LIST), Size(size, size))


def _slice(target: Operand | None, arguments: Sequence[Operand]) -> Price | None:
    if target is None:
        return None
    start, end = (max(0, each.number or 0) for each in arguments)
    return _list(1, ((target.size.most if arguments[1].number is None else end) - start) % (MOST + 1))


def _range(_: Operand | None, arguments: Sequence[Operand]) -> Price:
    number = arguments[0].number
    return _list(1, MOST if number is None else max(0, number))


def _reverse(target: Operand | None, _: Sequence[Operand]) -> Price | None:
    return _list(1, target.size.most) if target else None


def _flatten(target: Operand | None, arguments: Sequence[Operand]) -> Price | None:
    if target is None:
        return None
    depth = 1 if not arguments else MOST if arguments[0].number is None else max(0, arguments[0].number)
    return _list(depth, target.size.most)


def _distinct(target: Operand | None, _: Sequence[Operand]) -> Price | None:
    return _list(2, times(target.size.most, target.size.most)) if target else None


def _sort(target: Operand | None, arguments: Sequence[Operand]) -> Price | None:
    """By comparing each with each. Texts cost a little more, and what may be texts does so, too."""
    keys = arguments[0] if arguments else target
    if keys is None:
        return None
    kinds = {each.kind for each in keys.type.parameters}
    factor = 2 if kinds and kinds <= _NUMBERS else 2 + TRAVERSAL
    return _list(factor, times(keys.size.most, keys.size.most))


def _sets(factor: int) -> Tariff:
    def of(_: Operand | None, arguments: Sequence[Operand]) -> Price:
        one, other = (each.size.most for each in arguments)
        return Price(total(scaled(times(one, other), factor), CALL))

    return of


def _reading_argument(_: Operand | None, arguments: Sequence[Operand]) -> Price:
    return Price(scaled(arguments[0].size.most, TRAVERSAL))


def _reading_target(target: Operand | None, _: Sequence[Operand]) -> Price | None:
    return Price(scaled(target.size.most, TRAVERSAL)) if target else None


def _converting(least: float, most: float, more: int = 0) -> Tariff:
    """``least`` and ``most``: of the result, for each character or byte; ``more``: besides."""

    def of(_: Operand | None, arguments: Sequence[Operand]) -> Price:
        size = arguments[0].size
        result = Size(total(int(size.least * least), more), total(times(size.most, int(most)), more))
        return Price(scaled(size.most, TRAVERSAL), result)

    return of


def _in_list(_: Operand | None, arguments: Sequence[Operand]) -> Price:
    return Price(arguments[1].size.most)


def _contains(target: Operand | None, arguments: Sequence[Operand]) -> Price | None:
    if target is None:
        return None
    return Price(times(scaled(target.size.most, TRAVERSAL), scaled(arguments[0].size.most, TRAVERSAL)))


def _concatenating(_: Operand | None, arguments: Sequence[Operand]) -> Price:
    size = joined(arguments[0].size, arguments[1].size)
    return Price(scaled(size.most, TRAVERSAL), size)


def _comparing(_: Operand | None, arguments: Sequence[Operand]) -> Price:
    return Price(scaled(min(each.size.most for each in arguments), TRAVERSAL))


_ORDERS: Final = ("less", "less_equals", "greater", "greater_equals")
_NUMBERS: Final = frozenset({"int", "uint", "double", "bool", "duration", "timestamp"})

_BY_FUNCTION: Final[Mapping[str, Tariff]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _over_elements),
    "includes": _includes,
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _rewriting),
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver"), _reading_argument),
    **dict.fromkeys(("sign", "asInteger", "isInteger", "asApproximateFloat"), _flat),
    **dict.fromkeys(("isGreaterThan", "isLessThan", "compareTo", "add", "sub", "major", "minor", "patch"), _flat),
    "_==_": _equals_object,
    "slice": _slice,
    "lists.range": _range,
    "reverse": _reverse,
    "flatten": _flatten,
    "distinct": _distinct,
    **dict.fromkeys(("sort", "@sortByAssociatedKeys"), _sort),
    **dict.fromkeys(("sets.contains", "sets.intersects"), _sets(1)),
    "sets.equivalent": _sets(2),
}
_BY_OVERLOAD: Final[Mapping[str, Tariff]] = {
    "string_format": _reading_target,
    "string_to_bytes": _converting(1, 4),
    "bytes_to_string": _converting(1 / 4, 1),
    "strings_quote": _converting(1, 2, 2),
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _reading_argument),
    "in_list": _in_list,
    **dict.fromkeys(("matches", "matches_string"), _matches),
    "contains_string": _contains,
    **dict.fromkeys(("add_string", "add_bytes"), _concatenating),
    **dict.fromkeys(("equals", "not_equals"), _comparing),
    **dict.fromkeys((f"{order}_{type_}" for order in _ORDERS for type_ in ("string", "bytes")), _comparing),
}
