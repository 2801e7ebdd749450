"""Generates the tables of judges in ``docs/reliability.md``, from ``judges.toml`` and the rules of NVML's stand-in.

A test generates them into another folder and compares.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tools.generate.page_block import ROOT, escape_cell, write_page

__all__ = ["PAGE", "ROOT", "generate", "list_rules", "read_judges"]

PAGE: Final = Path("docs/reliability.md")
TABLE: Final = Path(__file__).with_name("judges.toml")
RULES_PAGE: Final = ROOT / "docs/testing-without-gpus.md"
_RULES: Final = re.compile(r"^\| rule \| source \|\n\|---\|---\|\n(.*?)(?=^[^|])", re.MULTILINE | re.DOTALL)
_NO_SOURCE: Final = re.compile(r"\bour choice\b|^open\b")
"""What the source of a rule says that no source decides."""


def generate(target: Path) -> list[Path]:
    """Write the page with the present tables below ``target`` and return its path relative to it."""
    return write_page(target, PAGE, "judges", "\n".join(_lines(read_judges())))


def read_judges() -> dict[str, Any]:
    """Read the committed table. Raises TOMLDecodeError."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def list_rules() -> list[tuple[str, str]]:
    """Return the rules of the stand-in for NVML, each with its source, as its page has them.

    Raises ValueError when the page has no such table.
    """
    found = _RULES.search(RULES_PAGE.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{RULES_PAGE} has no table of rules and sources")
    rows = (line.strip("| ").split(" | ") for line in found[1].splitlines())
    return [(rule, source) for rule, source in rows]


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    names = {judge["id"]: judge["name"] for judge in table["judges"]}
    yield "| judge | version | last run | how |"
    yield "|---|---|---|---|"
    for judge in table["judges"]:
        yield f"| {judge['name']} | {judge['version']} | {judge['when']} | {judge['how']} |"
    for key, title in (("backends", "backend"), ("stand_ins", "stand-in"), ("parts", "part of Kerf")):
        yield ""
        yield f"| {title} | judged by | only Kerf says |"
        yield "|---|---|---|"
        for one in table[key]:
            name = f"`{one['name']}`" if key == "backends" else one["name"]
            yield f"| {name} | {_describe(one, names)} | {escape_cell(one['ours'])} |"
    yield ""
    yield "| rules of the stand-in for NVML | judged by | rules without a source, of all |"
    yield "|---|---|---|"
    for group in table["rules"]:
        rules = [rule for rule in list_rules() if rule[0].startswith(tuple(group["rows"]))]
        chosen = [rule for rule, source in rules if _NO_SOURCE.search(source)]
        without = f"{len(chosen)} of {len(rules)}{': ' if chosen else ''}{'; '.join(chosen)}"
        yield f"| {group['name']} | {_describe(group, names)} | {without} |"


def _describe(one: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return who has judged what, or why no judge has."""
    judged = [f"{names[judge]}: {what}" for judge, what in one["judged"].items()]
    return escape_cell(". ".join(judged) if judged else f"none. {one['why']}")
