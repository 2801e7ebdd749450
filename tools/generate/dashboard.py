"""Generates ``docs/dashboard.svg``, the dashboard of ``deploy/monitoring`` with what a run of the demo had.

Each panel is where its JSON says, and shows what its own expressions give for the metrics that
``tools/demo_metrics.py`` has recorded. A panel whose metrics the demo does not have says so. A test generates the
picture into another folder and compares.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Final

from kerf_dra.driver.partitions.card_pictures.claim_colors import COLORS
from tools.generate.page_block import ROOT
from tools.generate.promql import parse
from tools.generate.promql_evaluation import Vector, evaluate
from tools.generate.recorded_metrics import DASHBOARD, Recording, read_recording

__all__ = ["PICTURE", "ROOT", "evaluate_panel", "generate"]

PICTURE: Final = Path("docs/dashboard.svg")
_COLUMN, _LINE, _GAP = 40, 22, 4
"""Pixels of a column and a line of Grafana's grid, and between panels."""
_COLUMNS: Final = 24
"""Columns of Grafana's grid."""
_TITLE, _ROW, _LEFT, _FOOT = 26, 14, 46, 32
"""Pixels of a panel's title, of a line of text, of the figures left of a plot, and below it."""
_LETTER: Final = 6.6
"""Pixels of a letter of eleven pixels, and some to spare."""
_ENTRIES: Final = 6
"""The most lines of a plot that its legend names."""
_CELLS: Final[Mapping[str, Sequence[str]]] = {
    "By node": ("node", "driver"),
    "Who has what": ("namespace", "pod", "node", "card", "cut", "device"),
}
"""The labels that a table shows, of those that its expressions have."""
_STYLE: Final = "".join(
    (
        ".dashboard text{font:11px system-ui,sans-serif;fill:#59636e}.dashboard .title{font-weight:bold;fill:#1f2328}",
        ".dashboard .row{font:bold 13px system-ui,sans-serif;fill:#1f2328}",
        ".dashboard .figure{font:bold 26px system-ui,sans-serif;fill:#1f2328}",
        ".dashboard .panel{fill:#fff;stroke:#d1d9e0}.dashboard .page{fill:#f6f8fa}.dashboard .grid{stroke:#d1d9e0}",
        ".dashboard .curve{fill:none;stroke-width:2}",
        *(
            f".dashboard .s{n}{{stroke:{color.rgb}}}.dashboard .f{n}{{fill:{color.rgb}}}"
            for n, color in enumerate(COLORS)
        ),
        "@media (prefers-color-scheme:dark){.dashboard text{fill:#9198a1}",
        ".dashboard .title,.dashboard .row,.dashboard .figure{fill:#e6edf3}",
        ".dashboard .panel{fill:#151b23;stroke:#3d444d}.dashboard .page{fill:#0d1117}.dashboard .grid{stroke:#3d444d}}",
    )
)


def generate(target: Path) -> list[Path]:
    """Write the picture of the present dashboard below ``target`` and return its path relative to it."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    (target / PICTURE).parent.mkdir(parents=True, exist_ok=True)
    (target / PICTURE).write_text("\n".join(_draw(dashboard, _record())) + "\n", encoding="utf-8")
    return [PICTURE]


@cache
def _record() -> Recording:
    return read_recording()


def evaluate_panel(panel: Mapping[str, Any], recording: Recording, sample: int) -> list[Vector]:
    """Return what each expression of a panel gives at a sample; nothing for those whose metrics were not recorded."""
    found = []
    for target in panel["targets"]:
        text = re.sub(r"\$(driver|node)\b", ".*", target["expr"])
        is_recorded = parse(target["expr"]).metrics & recording.series.keys() != set()
        found.append(evaluate(text, recording, sample) if is_recorded and not _is_joined(text) else {})
    return found


def _is_joined(expression: str) -> bool:
    """Whether an expression joins Kerf's metrics with those of other exporters, which the demo does not have."""
    return re.search(r"\bon \(", expression) is not None


def _draw(dashboard: Mapping[str, Any], recording: Recording) -> Iterator[str]:
    panels = dashboard["panels"]
    width = _COLUMNS * _COLUMN
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * _LINE
    seconds = round(recording.samples * recording.interval_s)
    title = f"The dashboard {dashboard['title']}, with the metrics of {seconds} s of kerf demo --keep"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" class="dashboard" viewBox="0 0 {width} {height}" role="img">'
    yield f"<title>{escape(title)}</title>"
    yield f"<desc>{escape('; '.join(panel['title'] for panel in panels))}</desc>"
    yield f"<style>{_STYLE}</style>"
    yield f'<rect class="page" width="{width}" height="{height}"/>'
    for panel in panels:
        yield from _draw_panel(panel, recording)
    yield "</svg>"


def _draw_panel(panel: Mapping[str, Any], recording: Recording) -> Iterator[str]:
    place = panel["gridPos"]
    left, top = place["x"] * _COLUMN + _GAP // 2, place["y"] * _LINE + _GAP // 2
    width, height = place["w"] * _COLUMN - _GAP, place["h"] * _LINE - _GAP
    if panel["type"] == "row":
        yield _text(left + 2, top + 14, panel["title"], "row")
        return
    yield f'<rect class="panel" x="{left}" y="{top}" width="{width}" height="{height}" rx="3"/>'
    yield _text(left + 8, top + 17, panel["title"], "title")
    inside = (left + 8, top + _TITLE, width - 16, height - _TITLE - 4)
    unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "short")
    last = evaluate_panel(panel, recording, recording.samples - 1)
    drawn = {"stat": _draw_figure, "bargauge": _draw_bars, "table": _draw_table}
    if panel["type"] == "timeseries":
        yield from _draw_plot(panel, recording, inside, unit)
    else:
        yield from drawn[panel["type"]](panel, last, inside, unit)


_Area = tuple[float, float, float, float]
"""Left, top, width and height of what is inside of a panel, in pixels."""


def _draw_figure(_: Mapping[str, Any], found: Sequence[Vector], area: _Area, unit: str) -> Iterator[str]:
    [vector] = found
    yield _text(
        area[0] + area[2] / 2, area[1] + area[3] / 2 + 8, _format(next(iter(vector.values())), unit), "figure", "middle"
    )


def _draw_bars(panel: Mapping[str, Any], found: Sequence[Vector], area: _Area, unit: str) -> Iterator[str]:
    left, top, width, height = area
    rows = sorted(_name(panel["targets"][0], key, value) for key, value in found[0].items())[: int(height / _ROW)]
    names = max(len(name) for name, _ in rows) * _LETTER
    highest = max(value for _, value in rows) or 1
    for number, (name, value) in enumerate(rows):
        y = top + number * _ROW
        length = (width - names - 40) * value / highest
        yield _text(left, y + 10, name)
        place = f'x="{left + names:.0f}" y="{y + 2:g}" width="{length:.0f}" height="9"'
        yield f'<rect class="f{number % len(COLORS)}" {place}/>'
        yield _text(left + names + length + 5, y + 10, _format(value, unit))


def _draw_table(panel: Mapping[str, Any], found: Sequence[Vector], area: _Area, unit: str) -> Iterator[str]:
    left, top, width, height = area
    labels = _CELLS[panel["title"]]
    values = [title for title in _titles(panel) if len(found) > 1]
    rows = []
    for key in sorted(found[0], key=lambda key: [dict(key).get(label, "") for label in labels]):
        cells = [dict(key).get(label, "") for label in labels]
        rows.append([*cells, *(_format(vector[key], unit) for vector in found if values and key in vector)])
    step = width / (len(labels) + len(values))
    room = int(height / _ROW) - 1
    for number, cells in enumerate([[*labels, *values], *rows[:room]]):
        for column, cell in enumerate(cells):
            shown = cell if len(cell) * _LETTER < step else f"{cell[: int(step / _LETTER) - 1]}…"
            yield _text(left + column * step, top + number * _ROW + 10, shown, "" if number else "title")


def _titles(panel: Mapping[str, Any]) -> list[str]:
    """The metric of each expression of a table, without what all have in common."""
    names = [parse(target["expr"]).selectors[0][0] for target in panel["targets"]]
    return [name.removeprefix("kerf_").removesuffix("_units").replace("_", " ") for name in names]


def _draw_plot(panel: Mapping[str, Any], recording: Recording, area: _Area, unit: str) -> Iterator[str]:
    left, top, width, height = area
    curves = _trace(panel, recording)
    if not curves:
        yield _text(left, top + 14, _explain_absence(panel, recording))
        return
    highest = max(value for values in curves.values() for value in values if value is not None) or 1
    right, bottom = left + width, top + height - _FOOT
    for level in (0.0, 0.5, 1.0):
        y = bottom - level * (bottom - top - 4)
        yield f'<path class="grid" d="M{left + _LEFT:g} {y:.1f}H{right:g}"/>'
        yield _text(left + _LEFT - 4, y + 4, _format(level * highest, unit), "", "end")
    seconds = round(recording.samples * recording.interval_s)
    yield _text(left + _LEFT, bottom + 13, "0 s")
    yield _text(right, bottom + 13, f"{seconds} s", "", "end")
    scale = ((right - left - _LEFT) / max(1, recording.samples - 1), (bottom - top - 4) / highest)
    for number, values in enumerate(curves.values()):
        points = _line(values, left + _LEFT, bottom, scale)
        yield f'<path class="curve s{number % len(COLORS)}" d="{points}"/>'
    x = left
    for number, name in enumerate(list(curves)[:_ENTRIES]):
        if x + (len(name) + 4) * _LETTER > right:
            break
        yield f'<rect class="f{number % len(COLORS)}" x="{x:.0f}" y="{bottom + 20:g}" width="10" height="4"/>'
        yield _text(x + 14, bottom + 26, name)
        x += (len(name) + 4) * _LETTER


def _explain_absence(panel: Mapping[str, Any], recording: Recording) -> str:
    """Return why a plot has no line: metrics of others, or values that are all zero."""
    metrics = {name for target in panel["targets"] for name in parse(target["expr"]).metrics}
    absent = sorted(name for name in metrics - recording.series.keys() if not name.startswith("kerf_"))
    return f"not in the demo: {', '.join(absent)}" if absent else "none in this run"


def _trace(panel: Mapping[str, Any], recording: Recording) -> dict[str, list[float | None]]:
    """Return the values of each line of a plot by its name in the legend; lines that stay at zero are left out."""
    found: dict[str, list[float | None]] = {}
    for sample in range(recording.samples):
        for target, vector in zip(panel["targets"], evaluate_panel(panel, recording, sample), strict=True):
            for key, value in vector.items():
                name, _ = _name(target, key, value)
                found.setdefault(name, [None] * recording.samples)[sample] = value
    return {name: values for name, values in sorted(found.items()) if any(values)}


def _line(values: Sequence[float | None], left: float, bottom: float, scale: tuple[float, float]) -> str:
    """Return a path through the values, and none where there are none."""
    path, is_drawn = [], False
    for number, value in enumerate(values):
        if value is not None:
            path.append(f"{'L' if is_drawn else 'M'}{left + number * scale[0]:.1f} {bottom - value * scale[1]:.1f}")
        is_drawn = value is not None
    return "".join(path)


def _name(target: Mapping[str, Any], key: frozenset[tuple[str, str]], value: float) -> tuple[str, float]:
    labels = dict(key)
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), target["legendFormat"]), value


def _format(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit == "s":
        return f"{value * 1000:.0f} ms" if 0 < value < 1 else f"{value:.1f} s" if value else "0 s"
    if unit == "bytes":
        return f"{value / 2**30:.0f} GiB"
    if unit == "watt":
        return f"{value:.0f} W"
    return f"{value:.2g}" if value < 1 else f"{value:.0f}"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    class_ = f' class="{kind}"' if kind else ""
    place = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text{class_} x="{x:g}" y="{y:g}"{place}>{escape(text, quote=False)}</text>'
