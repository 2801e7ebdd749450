"""The maximum cost of each CEL function, and arithmetic with sizes. A unit is some 50 ns in Kubernetes' own code.

The rules are those of ``github.com/google/cel-go`` (checker/cost.go, ext) and of ``k8s.io/apiserver/pkg/cel/library``
(cost.go), including their errors: the API server rejects expressions by them, so a better estimate would be wrong.
Functions that the engine lacks (``compile.UNSUPPORTED``) have no cost. Sizes and costs are bounds over the values of
all devices within the limits of the API.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple, TypeAlias

from kerf_dra.driver.cel.checked_ast import Type

CALL: Final = 1
"""The cost of a call that does not depend on sizes."""
LIST: Final = 10
"""The cost of creating a list."""
TRAVERSAL: Final = 0.1
"""The cost per character of a string that is traversed."""
_PATTERN: Final = 0.25
"""The cost per character of a regular expression."""


MAX_SIZE: Final = 2**64 - 1
"""The largest cost or size: arithmetic saturates here."""


class Size(NamedTuple):
    """Bounds of the length of a string, or the number of elements of a list or map."""

    least: int
    most: int


UNKNOWN: Final = Size(0, MAX_SIZE)


def add(*costs: int) -> int:
    """Return the sum, at most ``MAX_SIZE``."""
    return min(MAX_SIZE, sum(costs))


def multiply(one: int, other: int) -> int:
    """Return the product, at most ``MAX_SIZE``."""
    return min(MAX_SIZE, one * other)


def scale(size: int, factor: float) -> int:
    """Return ``size`` times ``factor``, rounded up, in floating point as in cel-go: large values differ otherwise."""
    return min(MAX_SIZE, ceil(float(size) * factor))


def concatenated_size(one: Size, other: Size) -> Size:
    """The size of the concatenation of two values."""
    return Size(add(one.least, other.least), add(one.most, other.most))


def either_size(one: Size, other: Size) -> Size:
    """The size of a value that is one of two."""
    return Size(min(one.least, other.least), max(one.most, other.most))


@dataclass(frozen=True, slots=True, eq=False)
class DeclaredSize:
    """The declared largest size of a variable or field, of its keys and of its elements."""

    most: int
    key: "DeclaredSize | None" = None
    element: "DeclaredSize | None" = None

    def at(self, step: str) -> "DeclaredSize | None":
        """The declared size one step further: ``@items``, ``@values``, ``@keys``, or the name of an attribute."""
        if step in ("@items", "@values"):
            return self.element
        if step == "@keys":
            return self.key
        return VALUE_SIZE if self.element is VALUE_SIZE else None


# The limits of resource.k8s.io/v1. A value is a string of 64 bytes or a list of 48 elements: it is not known which.
_ID: Final = DeclaredSize(32)
_DOMAIN: Final = DeclaredSize(63)
VALUE_SIZE: Final = DeclaredSize(64)
AMOUNT_SIZE: Final = DeclaredSize(0)
DEVICE_SIZES: Final[Mapping[str, DeclaredSize]] = {
    "device.driver": _DOMAIN,
    "device.allowMultipleAllocations": DeclaredSize(1),
    "device.attributes": DeclaredSize(32, _DOMAIN, DeclaredSize(32, _ID, VALUE_SIZE)),
    "device.capacity": DeclaredSize(32, _DOMAIN, DeclaredSize(32, _ID, AMOUNT_SIZE)),
}


class Operand(NamedTuple):
    """The known properties of an argument or of a receiver."""

    type: Type
    size: Size
    number: int | None
    """The value of an integer literal; None: the operand is not an integer literal."""


class CallCost(NamedTuple):
    """The maximum cost of a call without its operands."""

    cost: int
    size: Size | None = None
    """The size of the result; None: unknown."""


CostFunction: TypeAlias = Callable[[Operand | None, Sequence[Operand]], CallCost | None]
"""The cost of a function from its receiver and arguments; None: the function has no rule for these types."""


def estimate_call(function: str, overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallCost:
    """Return the maximum cost of a call without its operands."""
    for function_cost in (_BY_FUNCTION.get(function), _BY_OVERLOAD.get(overload)):
        found = function_cost(target, arguments) if function_cost else None
        if found is not None:
            return found
    return CallCost(CALL)


def _flat(_: Operand | None, __: Sequence[Operand]) -> CallCost:
    return CallCost(CALL)


def _element_traversal(target: Operand | None, _: Sequence[Operand]) -> CallCost | None:
    """One access to each element; a string of unknown length costs nearly the maximum."""
    if target is None:
        return None
    if target.type.parameters:
        is_text = target.type.parameters[0].kind in ("string", "bytes")
        return CallCost(multiply(target.size.most, add(1, scale(MAX_SIZE, TRAVERSAL)) if is_text else 1))
    return CallCost(scale(target.size.most, TRAVERSAL))


def _includes(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if target is None or target.type.parameters:
        return _element_traversal(target, arguments)
    return CallCost(target.size.most)


def _text_rewrite(target: Operand | None, _: Sequence[Operand]) -> CallCost | None:
    return CallCost(scale(target.size.most, TRAVERSAL), target.size) if target else None


def _replace(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if target is None or len(arguments) < 2:
        return None
    size, old, new = target.size, arguments[0].size, arguments[1].size
    if not old.least:  # the new string may be inserted around every character
        longest = add(multiply(add(size.most, 1), new.most), size.most)
    elif new.most <= old.least:
        longest = size.most
    else:
        longest = multiply(scale(size.most, 1 / old.least), new.most)
    return CallCost(scale(size.most, 2 * TRAVERSAL), Size(0, longest))


def _split(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if target is None:
        return None
    limit = arguments[1].number if len(arguments) > 1 else None
    most = target.size.most if limit is None else limit % (MAX_SIZE + 1)
    return CallCost(scale(target.size.most, 2 * TRAVERSAL), Size(0, most))


def _join(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if target is None:
        return None
    most = multiply(target.size.most, MAX_SIZE) if target.type.parameters else 0
    if arguments:
        most = add(most, multiply(arguments[0].size.most, max(0, target.size.most - 1)))
    return CallCost(scale(most, TRAVERSAL), Size(0, most))


def _pattern_cost(text: Size, pattern: Size) -> int:
    return multiply(scale(add(text.most, 1), TRAVERSAL), scale(pattern.most, _PATTERN))


def _find(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if target is None:
        return None
    return CallCost(_pattern_cost(target.size, arguments[0].size), Size(0, target.size.most))


def _matches(target: Operand | None, arguments: Sequence[Operand]) -> CallCost:
    text, pattern = (target, arguments[0]) if target else arguments
    return CallCost(_pattern_cost(text.size, pattern.size))


def _equals_object(_: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    one, other = arguments
    return CallCost(CALL) if one.type == other.type and one.type.kind == "struct" else None


def _list(factor: float, most: int, result: int | None = None) -> CallCost:
    """The cost of a call that creates a list; ``result`` is the list's size where that is not ``most``."""
    size = most if result is None else result
    return CallCost(add(scale(most, factor), CALL, LIST), Size(size, size))


def _slice(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if target is None:
        return None
    start, end = (max(0, each.number or 0) for each in arguments)
    return _list(1, ((target.size.most if arguments[1].number is None else end) - start) % (MAX_SIZE + 1))


def _range(_: Operand | None, arguments: Sequence[Operand]) -> CallCost:
    number = arguments[0].number
    return _list(1, MAX_SIZE if number is None else max(0, number))


def _reverse(target: Operand | None, _: Sequence[Operand]) -> CallCost | None:
    return _list(1, target.size.most) if target else None


def _flatten(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if target is None:
        return None
    depth = 1 if not arguments else MAX_SIZE if arguments[0].number is None else max(0, arguments[0].number)
    return _list(depth, target.size.most)


def _distinct(target: Operand | None, _: Sequence[Operand]) -> CallCost | None:
    return _list(2, multiply(target.size.most, target.size.most)) if target else None


def _sort(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    """The cost of comparing all pairs; slightly higher for strings and for values that may be strings."""
    keys = arguments[0] if arguments else target
    if keys is None:
        return None
    kinds = {each.kind for each in keys.type.parameters}
    factor = 2 if kinds and kinds <= _NUMBERS else 2 + TRAVERSAL
    return _list(factor, multiply(keys.size.most, keys.size.most))


def _sets(factor: int) -> CostFunction:
    def of(_: Operand | None, arguments: Sequence[Operand]) -> CallCost:
        one, other = (each.size.most for each in arguments)
        return CallCost(add(scale(multiply(one, other), factor), CALL))

    return of


def _argument_traversal(_: Operand | None, arguments: Sequence[Operand]) -> CallCost:
    return CallCost(scale(arguments[0].size.most, TRAVERSAL))


def _target_traversal(target: Operand | None, _: Sequence[Operand]) -> CallCost | None:
    return CallCost(scale(target.size.most, TRAVERSAL)) if target else None


def _conversion(least: float, most: float, more: int = 0) -> CostFunction:
    """A rule for conversions: ``least`` to ``most`` cost units for each character or byte, plus ``more``."""

    def of(_: Operand | None, arguments: Sequence[Operand]) -> CallCost:
        size = arguments[0].size
        result = Size(
            add(int(size.least * least), more),
            add(multiply(size.most, int(most)), more),
        )
        return CallCost(scale(size.most, TRAVERSAL), result)

    return of


def _in_list(_: Operand | None, arguments: Sequence[Operand]) -> CallCost:
    return CallCost(arguments[1].size.most)


def _contains(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if target is None:
        return None
    return CallCost(multiply(scale(target.size.most, TRAVERSAL), scale(arguments[0].size.most, TRAVERSAL)))


def _concatenation(_: Operand | None, arguments: Sequence[Operand]) -> CallCost:
    size = concatenated_size(arguments[0].size, arguments[1].size)
    return CallCost(scale(size.most, TRAVERSAL), size)


def _comparison(_: Operand | None, arguments: Sequence[Operand]) -> CallCost:
    return CallCost(scale(min(each.size.most for each in arguments), TRAVERSAL))


_ORDERS: Final = ("less", "less_equals", "greater", "greater_equals")
_NUMBERS: Final = frozenset({"int", "uint", "double", "bool", "duration", "timestamp"})

_BY_FUNCTION: Final[Mapping[str, CostFunction]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _element_traversal),
    "includes": _includes,
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _text_rewrite),
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver"), _argument_traversal),
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
_BY_OVERLOAD: Final[Mapping[str, CostFunction]] = {
    "string_format": _target_traversal,
    "string_to_bytes": _conversion(1, 4),
    "bytes_to_string": _conversion(1 / 4, 1),
    "strings_quote": _conversion(1, 2, 2),
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _argument_traversal),
    "in_list": _in_list,
    **dict.fromkeys(("matches", "matches_string"), _matches),
    "contains_string": _contains,
    **dict.fromkeys(("add_string", "add_bytes"), _concatenation),
    **dict.fromkeys(("equals", "not_equals"), _comparison),
    **dict.fromkeys((f"{order}_{type_}" for order in _ORDERS for type_ in ("string", "bytes")), _comparison),
}
