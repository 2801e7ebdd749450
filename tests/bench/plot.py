"""A picture of a benchmark: of each row with a baseline, how much more or less it is, on a logarithmic scale."""

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from tests.bench.measurement import Row

_WIDTH: Final = 900
"""Pixels: a page of documentation."""
_LABEL: Final = 430
"""Pixels for the names."""
_LINE: Final = 22
_MOST: Final = 16.0
"""The largest ratio that is drawn to scale, and its inverse the smallest: bars of more end at the border."""


def draw_ratios(rows: Sequence[Row]) -> str:
    """Return an SVG with a bar for each row that has a baseline: to the left less than the baseline, to the right more.

    Colors and text follow the reader's light or dark mode.
    """
    drawn = [row for row in rows if row.ratio]
    height = _LINE * (len(drawn) + 2)
    middle = _LABEL + (_WIDTH - _LABEL) / 2
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
            'font-size="13" role="img">'
        ),
        (
            "<style>text{fill:#222}line{stroke:#888}.less{fill:#2f7d4f}.more{fill:#b3541e}"
            "@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>"
        ),
        "<title>Each measurement beside its baseline</title>",
    ]
    for factor in (1 / 16, 1 / 4, 1, 4, 16):
        x = _place(factor)
        name = f"1/{round(1 / factor)}" if factor < 1 else f"{factor:g}"
        parts.append(f'<line x1="{x:.0f}" y1="{_LINE}" x2="{x:.0f}" y2="{height - _LINE / 2}"/>')
        parts.append(f'<text x="{x:.0f}" y="15" text-anchor="middle">{name}</text>')
    for number, row in enumerate(drawn, start=1):
        assert row.ratio is not None, "the others are left out"
        y, end = number * _LINE + 4, _place(row.ratio)
        label = escape(f"{row.name.strip()} / {row.baseline_name}")
        parts.append(f'<text x="{_LABEL - 50}" y="{y + 12}" text-anchor="end">{label}</text>')
        parts.append(f'<text x="{_LABEL - 8}" y="{y + 12}" text-anchor="end">{row.ratio:.2f}</text>')
        kind = "less" if row.ratio <= 1 else "more"
        parts.append(
            f'<rect class="{kind}" x="{min(middle, end):.0f}" y="{y}" width="{abs(end - middle):.0f}" height="14"/>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _place(ratio: float) -> float:
    """Return where a ratio stands on the scale, in pixels from the left."""
    share = math.log(min(max(ratio, 1 / _MOST), _MOST), _MOST)
    return _LABEL + (_WIDTH - _LABEL) * (0.5 + share * 0.48)
