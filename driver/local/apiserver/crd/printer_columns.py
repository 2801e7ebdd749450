"""``additionalPrinterColumns``: columns whose values JSONPath expressions select.

Supported are fields, quoted fields, indexes, ``[*]``, and filters on equality, e.g.
``.status.conditions[?(@.type=="Ready")].status``. Source: ``apiextensions-apiserver`` ``tableconvertor``.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.kinds.printers.columns import AGE, NAME
from kerf_dra.driver.local.apiserver.kinds.types import Cell, Column
from kerf_dra.driver.local.apiserver.meta.documents import JsonValue
from kerf_dra.driver.local.apiserver.meta.status_errors import quoted
from kerf_dra.driver.local.apiserver.times import format_age

_STEP: Final = re.compile(
    r"""\.(?P<field>[^.\[\]]+)
      | \[(?P<quote>['"])(?P<quoted>.+?)(?P=quote)\]
      | \[(?P<index>-?\d+)\]
      | \[(?P<all>\*)\]
      | \[\?\(@\.(?P<key>[^=\s]+)\s*==\s*(?P<mark>['"])(?P<value>.*?)(?P=mark)\)\]""",
    re.VERBOSE,
)

JsonPathStep: TypeAlias = Callable[[Any], Iterator[Any]]
"""Yields the values that one step of a path selects in a value."""


class UnsupportedJsonPathError(KerfError):
    """The JSONPath of a column uses what is not supported."""

    def __init__(self, path: str) -> None:
        super().__init__(f'cannot read the JSONPath {path!r}: use fields, indexes, [*] and [?(@.field=="value")]')


def _field(name: str) -> JsonPathStep:
    def step(value: JsonValue) -> Iterator[JsonValue]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _index(place: int) -> JsonPathStep:
    def step(value: JsonValue) -> Iterator[JsonValue]:
        if isinstance(value, list) and -len(value) <= place < len(value):
            yield value[place]

    return step


def _all(value: JsonValue) -> Iterator[JsonValue]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _matching(path: str, wanted: str) -> JsonPathStep:
    names = path.split(".")

    def step(value: JsonValue) -> Iterator[JsonValue]:
        for item in value if isinstance(value, list) else ():
            found = item
            for name in names:
                found = found.get(name) if isinstance(found, dict) else None
            if found == wanted:
                yield item

    return step


def parse_json_path(path: str) -> Sequence[JsonPathStep]:
    """Return the steps of a JSONPath. Raises UnsupportedJsonPathError."""
    path = path.replace("\\.", "\0")
    found: list[JsonPathStep] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise UnsupportedJsonPathError(path)
        found.append(_step(match))
        at = match.end()
    return found


def _step(match: re.Match[str]) -> JsonPathStep:
    if match["field"]:
        return _field(match["field"].replace("\0", "."))
    if match["quoted"]:
        return _field(match["quoted"].replace("\0", "."))
    if match["index"]:
        return _index(int(match["index"]))
    return _all if match["all"] else _matching(match["key"], match["value"])


def evaluate_json_path(document: JsonValue, path: Sequence[JsonPathStep]) -> list[JsonValue]:
    found = [document]
    for step in path:
        found = [inner for value in found for inner in step(value)]
    return found


def build_printer_columns(rows: Sequence[JsonObject]) -> list[Column]:
    """Return the name and the declared columns; without any, name and age. Raises UnsupportedJsonPathError."""
    return [NAME, *(map(_column, rows) if rows else [AGE])]


def _column(row: JsonObject) -> Column:
    path, type_ = parse_json_path(row["jsonPath"]), row.get("type", "string")

    def cell(document: JsonObject, now: datetime) -> Cell:
        found = evaluate_json_path(document, path)
        return _printed(found[0], type_, now) if found else None

    return Column(
        name=row["name"],
        cell=cell,
        type=type_,
        format=row.get("format", ""),
        description=row.get("description")
        or f"Custom resource definition column (in JSONPath format): {row['jsonPath']}",
        priority=row.get("priority", 0),
    )


def _printed(value: JsonValue, type_: str, now: datetime) -> Cell:
    """Return the cell of a value; None when the value does not have the type of the column."""
    match type_:
        case "date":
            return format_age(value, now)
        case "integer":
            return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "number":
            return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case _:
            return _text(value)


def _text(value: JsonValue) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case None:
            return "<nil>"
        case _:
            return quoted(value)
