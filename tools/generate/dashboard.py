"""Generates ``docs/dashboard.svg``, a picture of the dashboard in ``deploy/monitoring`` from its own JSON.

It shows where each panel is, how it draws, and which metrics it asks for: no figures, because there are none without a
cluster. A test generates the picture into another folder and compares.
"""

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

from tools.generate.page_block import ROOT
from tools.generate.promql import parse

__all__ = ["PICTURE", "ROOT", "generate"]

PICTURE: Final = Path("docs/dashboard.svg")
_DASHBOARD: Final = ROOT / "deploy/monitoring/dashboard.json"
_COLUMNS: Final = 24
"""Columns of Grafana's grid."""
_COLUMN: Final = 40
"""Pixels of a column."""
_LINE: Final = 15
"""Pixels of a line of the grid: text of two lines has room in the smallest panel, which has four."""
_GAP: Final = 4
"""Pixels between panels."""
_LETTER: Final = 6.3
"""Pixels of a letter of the names of metrics, in a monospaced font of ten pixels, and some to spare."""
_SHAPES: Final = {"stat": "one number", "timeseries": "lines over time", "bargauge": "bars", "table": "a table"}
"""What a panel of each type draws."""
_STYLE: Final = (
    "text{font:10px monospace;fill:#555}.title{font:bold 12px sans-serif;fill:#111}"
    ".row{font:bold 13px sans-serif;fill:#111}.shape{font:italic 11px sans-serif;fill:#555}"
    "rect{fill:#fff;stroke:#bbb}.page{fill:#f4f5f5;stroke:none}"
)


def generate(target: Path) -> list[Path]:
    """Write the picture of the present dashboard below ``target`` and return its path relative to it."""
    dashboard = json.loads(_DASHBOARD.read_text(encoding="utf-8"))
    (target / PICTURE).parent.mkdir(parents=True, exist_ok=True)
    (target / PICTURE).write_text("\n".join(_draw(dashboard)) + "\n", encoding="utf-8")
    return [PICTURE]


def _draw(dashboard: dict[str, Any]) -> Iterator[str]:
    panels = dashboard["panels"]
    width = _COLUMNS * _COLUMN
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * _LINE
    title = f"The dashboard {dashboard['title']}: its panels and their metrics"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    yield f"<title>{escape(title)}</title>"
    yield f"<style>{_STYLE}</style>"
    yield f'<rect class="page" width="{width}" height="{height}"/>'
    for panel in panels:
        yield from _draw_panel(panel)
    yield "</svg>"


def _draw_panel(panel: dict[str, Any]) -> Iterator[str]:
    place = panel["gridPos"]
    left, top = place["x"] * _COLUMN + _GAP // 2, place["y"] * _LINE + _GAP // 2
    width, height = place["w"] * _COLUMN - _GAP, place["h"] * _LINE - _GAP
    if panel["type"] == "row":
        yield _text(left + 2, top + 10, panel["title"], "row")
        return
    yield f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="2"/>'
    yield _text(left + 8, top + 16, panel["title"], "title")
    shape = _SHAPES[panel["type"]]
    lines = _list_metrics(panel, int((width - 16) / _LETTER))
    if place["h"] > 4:  # the smallest panels have no room for it, and a number needs no word
        yield _text(left + 8, top + 32, shape, "shape")
        top += 16
    for number, line in enumerate(lines):
        yield _text(left + 8, top + 31 + number * 12, line)


def _list_metrics(panel: dict[str, Any], columns: int) -> list[str]:
    """Return the metrics that the panel asks for, in the order of its queries, in lines."""
    names = dict.fromkeys(name for target in panel["targets"] for name, _ in parse(target["expr"]).selectors)
    return wrap(" ".join(names), columns, break_long_words=False)


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    class_ = f' class="{kind}"' if kind else ""
    return f'<text{class_} x="{x}" y="{y}">{escape(text)}</text>'
