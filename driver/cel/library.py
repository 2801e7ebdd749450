"""The functions that Kubernetes adds to CEL (``k8s.io/apiserver/pkg/cel/library``), as far as devices need them.

They concern quantities, semantic versions, lists and regular expressions. Strings, sets, lists, optionals, bindings and
two-variable macros are the engine's own, except for a few functions that are replaced under another name
(``attribute_references.RENAMED``). The engine cannot distinguish overloads over two message types at run time, so one
implementation, on the first overload, serves both.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

from kerf_dra.api.errors import InvalidQuantityError
from kerf_dra.api.model.quantity import NANO, Quantity
from kerf_dra.api.model.semver import Version, compare, parse_version
from kerf_dra.driver.cel.attribute_references import EQUALS_TEXT, RENAMED
from kerf_dra.driver.cel.engine import (
    QUANTITY,
    SEMVER,
    Engine,
    load_engine,
    quantity_message,
    quantity_nano,
    version_message,
    version_of,
)

_INDEX_OF, _LAST_INDEX_OF, _SUBSTRING = RENAMED["indexOf"], RENAMED["lastIndexOf"], RENAMED["substring"]
_MATCHER_EXTENSIONS: Final = "extensions: [{name: optional}, {name: regex}]"
_GROUP: Final = re.compile(r"(?P<other>\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|\((?:\?P?<\w+>|(?!\?))", re.DOTALL)
"""The opening of a capturing group, or an escape or class (``other``) that may hold a literal parenthesis."""
_MAX_LIST: Final = 48
"""The longest list of ``includes`` (``resource.k8s.io/v1`` ResourceSliceMaxAttributeValuesPerDevice)."""
_MAX_INT: Final = 2**63 - 1
"""CEL's largest integer."""


def _quantity(text: str) -> Engine:
    return quantity_message(Quantity(text).nano)


def _is_quantity(text: str) -> bool:
    try:
        Quantity(text)
    except InvalidQuantityError:
        return False
    return True


def _as_integer(quantity: Engine) -> int:
    if not _is_integer(quantity):
        raise ValueError("cannot convert value to integer")
    return quantity_nano(quantity) // NANO


def _is_integer(quantity: Engine) -> bool:
    whole, rest = divmod(quantity_nano(quantity), NANO)
    return rest == 0 and -_MAX_INT - 1 <= whole <= _MAX_INT


def _plus(quantity: Engine, other: Engine, sign: int) -> Engine:
    amount = other * NANO if isinstance(other, int) else quantity_nano(other)
    return quantity_message(quantity_nano(quantity) + sign * amount)


def semver(text: str, normalize: bool = False) -> Engine:
    """Return the engine's value of the version ``text``. Raises ValueError when it is not a semantic version."""
    version = parse_version(text, normalize=normalize)
    if version is None:
        raise ValueError(f"{text!r} is not a semantic version")
    return version_message(version)


def _version(message: Engine) -> Version:
    version = version_of(message)
    if version is None:
        raise TypeError("no such overload")
    return version


def _compare(one: Engine, other: Engine) -> int:
    """The order of two quantities or of two versions: -1, 0 or 1."""
    if type(one) is not type(other):
        raise TypeError("no such overload")
    if version_of(one) is not None:
        return compare(_version(one), _version(other))
    return (quantity_nano(one) > quantity_nano(other)) - (quantity_nano(one) < quantity_nano(other))


def _equals(one: object, other: object) -> bool:
    """CEL's equality: numbers are compared by value, but true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _equals_text(attribute: object, text: object) -> bool:
    if version_of(attribute) is not None:
        raise TypeError("no such overload: a version compared with a string; write semver(...) around the string")
    return attribute == text


def _includes(target: object, value: object) -> bool:
    """Whether a list attribute contains the value, or a scalar attribute equals it (KEP-5491)."""
    if not isinstance(target, list):
        return _equals(target, value)
    if not any(_equals(element, value) for element in target[:_MAX_LIST]) and len(target) > _MAX_LIST:
        raise ValueError(f"'includes' function cannot be applied to lists longer than {_MAX_LIST} values")
    return any(_equals(element, value) for element in target[:_MAX_LIST])


def _is_sorted(values: list[Any]) -> bool:
    return all(before <= after for before, after in pairwise(values))


def _index_of(where: str | list[object], what: object, offset: int = 0) -> int:
    """The first position from ``offset`` on, -1 when not found; an empty text is at ``offset``."""
    if what == "":
        return offset
    if offset < 0:
        raise ValueError(f"index out of range: {offset}")
    if isinstance(where, str):
        return where.find(str(what), offset)
    return next((index for index, each in enumerate(where) if _equals(each, what)), -1)


def _last_index_of(where: str | list[object], what: object, offset: int | None = None) -> int:
    """The last position up to ``offset``, -1 when not found or when the offset is too large."""
    if isinstance(where, list):
        return next((index for index in reversed(range(len(where))) if _equals(where[index], what)), -1)
    if offset is None:
        return where.rfind(str(what))
    if what == "":
        return offset
    if offset < 0:
        raise ValueError(f"index out of range: {offset}")
    return where.rfind(str(what), 0, offset + len(str(what))) if offset < len(where) else -1


def _substring(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else end
    if not 0 <= start <= last <= len(text):
        raise ValueError(f"substring out of range: {start} to {last} of {len(text)}")
    return text[start:last]


@cache
def _matcher() -> Engine:
    """The engine's own RE2, because Python's ``re`` takes exponential time on some patterns."""
    cel = load_engine()
    text = cel.Type.STRING
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(_MATCHER_EXTENSIONS), variables={"text": text, "pattern": text}
    ).compile("regex.extractAll(text, pattern)")


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    # The engine returns the first group of each match, Kubernetes the whole match: so groups become non-capturing.
    groupless = _GROUP.sub(lambda match: match["other"] or "(?:", pattern)
    found = _matcher().eval(data={"text": text, "pattern": groupless})
    if found.type() == load_engine().Type.ERROR:
        raise ValueError(str(found.value()))
    matches: list[str] = found.plain_value()
    return matches if limit < 0 else matches[:limit]


def _find(text: str, pattern: str) -> str:
    return next(iter(_find_all(text, pattern)), "")


class FunctionOverload(NamedTuple):
    """One overload: CEL signature with the receiver before the dot, result type, and implementation if not shared."""

    name: str
    signature: str
    returns: str
    run: Callable[..., object] | None


_AGGREGATES: Final[Mapping[str, Callable[..., object]]] = {"sum": sum, "min": min, "max": max}
"""Functions of lists whose result has the type of the elements."""
_NUMBERS: Final = ("int", "uint", "double", "duration")

TYPED_FUNCTIONS: Final = tuple(
    FunctionOverload(name, f"list<{type_}>.{name}()", type_, None)
    for name in _AGGREGATES
    for type_ in (*_NUMBERS, *(() if name == "sum" else ("bool", "string", "bytes", "timestamp")))
)
"""The overloads of these functions by element type, which the engine cannot distinguish at run time."""

FUNCTIONS: Final = (
    FunctionOverload("quantity", "quantity(string)", QUANTITY, _quantity),
    FunctionOverload("isQuantity", "isQuantity(string)", "bool", _is_quantity),
    FunctionOverload(
        "sign", f"sign({QUANTITY})", "int", lambda one: (quantity_nano(one) > 0) - (quantity_nano(one) < 0)
    ),
    FunctionOverload("isInteger", f"{QUANTITY}.isInteger()", "bool", _is_integer),
    FunctionOverload("asInteger", f"{QUANTITY}.asInteger()", "int", _as_integer),
    FunctionOverload(
        "asApproximateFloat", f"{QUANTITY}.asApproximateFloat()", "double", lambda one: quantity_nano(one) / NANO
    ),
    FunctionOverload("add", f"{QUANTITY}.add({QUANTITY})", QUANTITY, lambda one, other: _plus(one, other, 1)),
    FunctionOverload("add", f"{QUANTITY}.add(int)", QUANTITY, lambda one, other: _plus(one, other, 1)),
    FunctionOverload("sub", f"{QUANTITY}.sub({QUANTITY})", QUANTITY, lambda one, other: _plus(one, other, -1)),
    FunctionOverload("sub", f"{QUANTITY}.sub(int)", QUANTITY, lambda one, other: _plus(one, other, -1)),
    FunctionOverload("semver", "semver(string)", SEMVER, semver),
    FunctionOverload("semver", "semver(string, bool)", SEMVER, semver),
    FunctionOverload("isSemver", "isSemver(string)", "bool", lambda text: parse_version(text) is not None),
    FunctionOverload(
        "isSemver",
        "isSemver(string, bool)",
        "bool",
        lambda text, loose: parse_version(text, normalize=loose) is not None,
    ),
    FunctionOverload("major", f"{SEMVER}.major()", "int", lambda one: _version(one).major),
    FunctionOverload("minor", f"{SEMVER}.minor()", "int", lambda one: _version(one).minor),
    FunctionOverload("patch", f"{SEMVER}.patch()", "int", lambda one: _version(one).patch),
    FunctionOverload("compareTo", f"{QUANTITY}.compareTo({QUANTITY})", "int", _compare),
    FunctionOverload("compareTo", f"{SEMVER}.compareTo({SEMVER})", "int", None),
    FunctionOverload("isGreaterThan", f"{QUANTITY}.isGreaterThan({QUANTITY})", "bool", lambda a, b: _compare(a, b) > 0),
    FunctionOverload("isGreaterThan", f"{SEMVER}.isGreaterThan({SEMVER})", "bool", None),
    FunctionOverload("isLessThan", f"{QUANTITY}.isLessThan({QUANTITY})", "bool", lambda a, b: _compare(a, b) < 0),
    FunctionOverload("isLessThan", f"{SEMVER}.isLessThan({SEMVER})", "bool", None),
    FunctionOverload("includes", "any.includes(any)", "bool", _includes),
    FunctionOverload("isSorted", "list<dyn>.isSorted()", "bool", _is_sorted),
    *(FunctionOverload(name, f"list<dyn>.{name}()", "dyn", run) for name, run in _AGGREGATES.items()),
    FunctionOverload(_INDEX_OF, f"string.{_INDEX_OF}(string)", "int", _index_of),
    FunctionOverload(_INDEX_OF, f"string.{_INDEX_OF}(string, int)", "int", _index_of),
    FunctionOverload(_INDEX_OF, f"list<dyn>.{_INDEX_OF}(any)", "int", _index_of),
    FunctionOverload(_LAST_INDEX_OF, f"string.{_LAST_INDEX_OF}(string)", "int", _last_index_of),
    FunctionOverload(_LAST_INDEX_OF, f"string.{_LAST_INDEX_OF}(string, int)", "int", _last_index_of),
    FunctionOverload(_LAST_INDEX_OF, f"list<dyn>.{_LAST_INDEX_OF}(any)", "int", _last_index_of),
    FunctionOverload(_SUBSTRING, f"string.{_SUBSTRING}(int)", "string", _substring),
    FunctionOverload(_SUBSTRING, f"string.{_SUBSTRING}(int, int)", "string", _substring),
    FunctionOverload("find", "string.find(string)", "string", _find),
    FunctionOverload("findAll", "string.findAll(string)", "list<string>", _find_all),
    FunctionOverload("findAll", "string.findAll(string, int)", "list<string>", _find_all),
    FunctionOverload(EQUALS_TEXT, f"{EQUALS_TEXT}(any, any)", "bool", _equals_text),
)
