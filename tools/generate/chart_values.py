"""Generates the table of values in ``deploy/chart/kerf/README.md`` from the chart's schema and its defaults.

A value's ``description`` in the schema says what it does, and its ``$comment`` names the page that says more. A test
generates the page into another folder and compares.
"""

import json
from collections.abc import Iterator, Mapping
from os.path import relpath
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tools.generate.page_block import ROOT, escape_cell, write_page

__all__ = ["PAGE", "ROOT", "ChartValue", "generate", "list_values"]

PAGE: Final = Path("deploy/chart/kerf/README.md")
SCHEMA: Final = ROOT / PAGE.parent / "values.schema.json"
VALUES: Final = ROOT / PAGE.parent / "values.yaml"

_LONGEST_DEFAULT: Final = 40
"""Letters of a default that a cell shows; of longer ones it says that values.yaml has them."""


class ChartValue(NamedTuple):
    """A value of the chart as its users set it."""

    path: str
    """The names from the root, such as ``plugins[].name``."""
    description: str
    page: str
    """The page that says more, from the repository's root, perhaps with an anchor; empty: none."""


def generate(target: Path) -> list[Path]:
    """Write the page below ``target`` and return its path relative to it."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    defaults = yaml.safe_load(VALUES.read_text(encoding="utf-8"))
    rows = [_format_row(value, defaults) for value in list_values(schema)]
    return write_page(target, PAGE, "values", "\n".join(("| value | default | what it does |", "|---|---|---|", *rows)))


def list_values(schema: Mapping[str, Any]) -> list[ChartValue]:
    """Return the values in the order of their names' schema: those that have no values in them, and lists of such."""
    return [*_walk(schema, "", schema)]


def _walk(schema: Mapping[str, Any], path: str, root: Mapping[str, Any]) -> Iterator[ChartValue]:
    for name, member in schema["properties"].items():
        inner = f"{path}.{name}" if path else name
        form = _resolve(member, root)
        if "properties" in form:
            yield from _walk(form, inner, root)
            continue
        yield ChartValue(inner, member.get("description", ""), member.get("$comment", ""))
        items = _resolve(form.get("items", {}), root)
        if "properties" in items:
            yield from _walk(items, f"{inner}[]", root)


def _resolve(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    return schema if reference is None else root["definitions"][reference.rpartition("/")[2]]


def _format_row(value: ChartValue, defaults: Mapping[str, Any]) -> str:
    more = f" ([more]({relpath(value.page, PAGE.parent)}))" if value.page else ""
    return f"| `{value.path}` | {_format_default(value.path, defaults)} | {escape_cell(value.description)}{more} |"


def _format_default(path: str, defaults: Mapping[str, Any]) -> str:
    """Return the default as a cell, empty where there is none: in entries of lists, and for what is not in the file."""
    found: Any = defaults
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return ""
        found = found[name]
    text = json.dumps(found)
    return f"`{escape_cell(text)}`" if len(text) <= _LONGEST_DEFAULT else "in `values.yaml`"
