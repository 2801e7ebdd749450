"""Generates the table of differences in ``docs/nvidia.md`` from ``tests/oracle/nvidia_driver/differences.toml``.

A test generates it into another folder and compares.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.oracle.nvidia_driver.differences import DifferenceTable, read_table
from tools.generate.page_block import ROOT, escape_cell, write_page

__all__ = ["PAGE", "ROOT", "generate"]

PAGE: Final = Path("docs/nvidia.md")


def generate(target: Path) -> list[Path]:
    """Write the page with the present table below ``target`` and return its path relative to it."""
    return write_page(target, PAGE, "differences", "\n".join(_lines(read_table())))


def _lines(table: DifferenceTable) -> Iterator[str]:
    yield f"Compared on {table.date} with `{table.module}` {table.version}."
    yield ""
    yield "| what differs | NVIDIA's driver | Kerf | who is right | source |"
    yield "|---|---|---|---|---|"
    for row in table.differences:
        cells = (row.what, row.nvidia_does, row.kerf_does, row.right, row.source)
        yield f"| {' | '.join(map(escape_cell, cells))} |"
