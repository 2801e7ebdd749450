"""Generates the table of differences in ``docs/nvidia.md`` from ``tests/oracle/nvidia_driver/differences.toml``.

A test generates it into another folder and compares.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tools.generate.page_block import ROOT, escape_cell, write_page

__all__ = ["PAGE", "ROOT", "generate"]

PAGE: Final = Path("docs/nvidia.md")
TABLE: Final = ROOT / "tests/oracle/nvidia_driver/differences.toml"
_COLUMNS: Final = ("what", "nvidia_does", "kerf_does", "right", "source")


def generate(target: Path) -> list[Path]:
    """Write the page with the present table below ``target`` and return its path relative to it."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return write_page(target, PAGE, "differences", "\n".join(_lines(table)))


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    yield f"Compared on {table['date']} with `{table['module']}` {table['version']}."
    yield ""
    yield "| what differs | NVIDIA's driver | Kerf | who is right | source |"
    yield "|---|---|---|---|---|"
    for row in table["differences"]:
        yield f"| {' | '.join(escape_cell(row[column]) for column in _COLUMNS)} |"
