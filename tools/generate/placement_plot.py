"""Generates the plot of ``docs/placement.md`` from the table that the bench printed, which the page has.

A test generates it into another folder and compares.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.generate.page_block import ROOT

__all__ = ["PAGE", "PLOT", "ROOT", "generate", "read_table"]

PAGE: Final = Path("docs/placement.md")
PLOT: Final = Path("docs/pictures/node-choice.svg")

_LAYOUTS: Final = {
    "8 x 1 H100, uniform": "eight nodes with one H100",
    "25 x 4 H100, uniform": "25 nodes with four H100",
}
"""The rows that are plotted, by how they begin; of each the one in Kerf's order of devices."""
_BARS: Final = {
    "LEAST ALLOCATED": ("kube-scheduler by default", "other"),
    "MOST ALLOCATED": ("a profile that packs nodes", "other"),
    "GRADED SCARCE": ("graded placement, little CPU", "kerf"),
    "GRADED PLENTIFUL": ("graded placement", "kerf"),
    "EXTENDER": ("the scheduler extender", "kerf"),
    "KEEP": ("one policy over all cards", "other"),
    "BOUND": ("no schedule exceeds", "bound"),
}
"""The columns that are plotted, each with its label and the style of its bar."""
_WIDTH, _LEFT, _SCALE, _ROW, _TOP = 760, 216, 4.6, 22, 34
"""Pixels: of the plot, of the labels, of one slice in a hundred, of a bar with its space, and above the first bar."""
_STYLE: Final = (
    ".plot text{font:12px system-ui,sans-serif;fill:#1f2328}.plot .title{font-weight:bold}.plot .value{fill:#59636e}"
    ".plot .other{fill:#818b98}.plot .kerf{fill:#0072b2}.plot .bound{fill:none;stroke:#818b98;stroke-dasharray:4 3}"
    "@media (prefers-color-scheme:dark){.plot text{fill:#e6edf3}.plot .value{fill:#9198a1}.plot .other{fill:#7d8590}"
    ".plot .kerf{fill:#56b4e9}}"
)


def generate(target: Path) -> list[Path]:
    """Write the plot below ``target`` and return its path relative to it."""
    table = read_table((ROOT / PAGE).read_text(encoding="utf-8"))
    (target / PLOT.parent).mkdir(parents=True, exist_ok=True)
    (target / PLOT).write_text("".join(_draw(table)), encoding="utf-8")
    return [PLOT]


def read_table(page: str) -> Mapping[str, Mapping[str, float]]:
    """Return the memory slices in use of a hundred, by layout and column. Raises ValueError where one is missing."""
    table = page.partition("### Computed by the model")[2].partition("```text\n")[2].partition("```")[0]
    header, *rows = table.splitlines()
    starts = {name: header.index(name) for name in _BARS if name in header}
    found = {}
    for layout in _LAYOUTS:
        [row] = [row for row in rows if row.startswith(layout) and "Kerf's order" in row]
        cells = {name: re.match(r"\s*[\d.]+ \(([\d.]+)\)", row[start:]) for name, start in starts.items()}
        found[layout] = {name: float(cell[1]) for name, cell in cells.items() if cell is not None}
    if any(set(cells) != set(_BARS) for cells in found.values()):
        raise ValueError(f"{PAGE}: the table computed by the model has not all of {', '.join(_BARS)}")
    return found


def _draw(table: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    panel = _TOP + _ROW * len(_BARS)
    title = "GPU memory slices in use, of a hundred that are asked for"
    size = f"0 0 {_WIDTH} {panel * len(table)}"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="{size}" width="{_WIDTH}" role="img">\n'
    yield f"<title>{title}</title>\n<desc>{'; '.join(_describe(table))}.</desc>\n<style>{_STYLE}</style>\n"
    for number, (layout, cells) in enumerate(table.items()):
        top = number * panel
        yield f'<text class="title" x="0" y="{top + 18}">{_LAYOUTS[layout]}: {title}</text>\n'
        for row, (name, (label, kind)) in enumerate(_BARS.items()):
            yield from _draw_bar(label, kind, cells[name], top + _TOP + row * _ROW)
    yield "</svg>\n"


def _draw_bar(label: str, kind: str, value: float, top: int) -> Sequence[str]:
    width = round(value * _SCALE, 1)
    return (
        f'<text x="0" y="{top + 12}">{label}</text>',
        f'<rect class="{kind}" x="{_LEFT}" y="{top}" width="{width}" height="15"/>',
        f'<text class="value" x="{round(_LEFT + width + 6, 1)}" y="{top + 12}">{value:g}</text>\n',
    )


def _describe(table: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    for layout, cells in table.items():
        yield f"{_LAYOUTS[layout]}: {', '.join(f'{_BARS[name][0]} {cells[name]:g}' for name in _BARS)}"
