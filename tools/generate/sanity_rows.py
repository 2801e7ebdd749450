"""Generates the tables in ``docs/sanity.md``: the rows of ``kerf sanity``, and what they found on drivers that run.

A test generates them into another folder and compares.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kerf_dra.driver.sanity.run import ROWS
from tools.generate.page_block import ROOT, escape_cell, write_page

__all__ = ["PAGE", "ROOT", "generate"]

PAGE: Final = Path("docs/sanity.md")
TABLE: Final = ROOT / "tests/oracle/sanity/peers.toml"


def generate(target: Path) -> list[Path]:
    """Write the page with the present tables below ``target`` and return its path relative to it."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return write_page(target, PAGE, "rows", "\n".join((*_list_rows(table), "", *_list_notes(table))))


def _list_rows(table: Mapping[str, Any]) -> Iterator[str]:
    names = _name_peers(table)
    outcomes = {(each["peer"], each["row"]): each["outcome"] for each in table["differences"]}
    yield f"| row | level | what is tried | {' | '.join(names.values())} |"
    yield "|---|---|---|" + "---|" * len(names)
    for row in ROWS:
        cells = [outcomes.get((peer, row.id), "passed") for peer in names]
        yield f"| `{row.id}` | {row.level} | {' | '.join(map(escape_cell, (row.tries, *cells)))} |"


def _list_notes(table: Mapping[str, Any]) -> Iterator[str]:
    names = _name_peers(table)
    machines = [f"{names[peer['id']]} with {peer['where']}" for peer in table["peers"]]
    yield f"Run on {table['date']}: {'; '.join(machines)}."
    for each in table["differences"]:
        yield ""
        yield f"- `{each['row']}`, {names[each['peer']]}: {each['note']}."


def _name_peers(table: Mapping[str, Any]) -> Mapping[str, str]:
    return {peer["id"]: f"{peer['name']} {peer['version']}" for peer in table["peers"]}
