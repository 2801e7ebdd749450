"""Diagrams as SVG: boxes, arrows and text, one file for light and dark pages, without scripts and fonts of their own.

A box has lines of text, the first of which may be faint; an arrow goes through points and has a text beside it. What a
diagram means is in its description, too, for readers who do not see it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

LINE: Final = 16
"""The height of a line of text."""
LETTER: Final = 6.8
"""The width of a letter of a sans-serif font of 12 pixels, and some to spare: fonts differ."""
_HEAD: Final = 9
"""The length of the head of an arrow."""
_PALE: Final = {
    "user": ("#ddf4ff", "#0b3a5b"),
    "kubernetes": ("#eceff2", "#2d333b"),
    "kerf": ("#fff1d6", "#4f3300"),
    "hardware": ("#dcf5e4", "#103d22"),
}
"""What a kind of box is filled with on light and on dark pages, by who does what it says."""

_STYLE: Final = "".join(
    (
        ".diagram text{font:12px system-ui,sans-serif;fill:#1f2328}.diagram .name{font-weight:bold}",
        ".diagram .faint{fill:#59636e}.diagram .code{font:11px ui-monospace,Menlo,Consolas,monospace}",
        ".diagram .box{stroke:#818b98}.diagram .line{stroke:#59636e;stroke-width:1.5;fill:none}",
        ".diagram .life{stroke:#818b98;stroke-dasharray:3 4;fill:none}.diagram .head{fill:#59636e}",
        ".diagram .over{paint-order:stroke;stroke:#fff;stroke-width:3px}",
        *(f".diagram .{kind}{{fill:{light}}}" for kind, (light, _) in _PALE.items()),
        "@media (prefers-color-scheme:dark){.diagram text{fill:#e6edf3}.diagram .faint{fill:#9198a1}",
        ".diagram .line{stroke:#9198a1}.diagram .head{fill:#9198a1}.diagram .over{stroke:#1e2129}",
        *(f".diagram .{kind}{{fill:{dark}}}" for kind, (_, dark) in _PALE.items()),
        "}",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle with lines of text in its middle."""

    left: float
    top: float
    width: float
    height: float
    kind: str
    """One of ``user``, ``kubernetes``, ``kerf`` and ``hardware``."""
    name: str = ""
    above: str = ""
    """A faint line above the name."""
    below: Sequence[str] = ()
    """Faint lines below it."""

    @property
    def middle(self) -> float:
        return self.left + self.width / 2

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return self.left + self.width

    def draw(self) -> Iterator[str]:
        yield (
            f'<rect class="box {self.kind}" x="{self.left:g}" y="{self.top:g}" width="{self.width:g}" '
            f'height="{self.height:g}" rx="5"/>'
        )
        lines = [(self.above, "faint"), (self.name, "name"), *((line, "faint") for line in self.below)]
        shown = [(text, kind) for text, kind in lines if text]
        first = self.top + self.height / 2 - LINE * (len(shown) - 1) / 2 + 4
        for number, (text, kind) in enumerate(shown):
            yield draw_text(self.middle, first + number * LINE, text, kind, anchor="middle")


def draw_text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    """Return a line of text at its left end, or at what ``anchor`` says."""
    class_ = f' class="{kind}"' if kind else ""
    place = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text{class_} x="{x:g}" y="{y:g}"{place}>{escape(text, quote=False)}</text>'


def draw_arrow(
    start: tuple[float, float], end: tuple[float, float], text: str = "", kind: str = "", *, is_left: bool = False
) -> Iterator[str]:
    """Yield a straight arrow, level or upright, with its text above it, or to its right or left."""
    (x, y), (to_x, to_y) = start, end
    yield f'<path class="line" marker-end="url(#diagram-head)" d="M{x:g} {y:g}L{to_x:g} {to_y:g}"/>'
    if not text:
        return
    if y == to_y:
        yield draw_text((x + to_x) / 2, y - 7, text, f"{kind} over".strip(), anchor="middle")
    else:
        place = (x - 7, "end") if is_left else (x + 7, "")
        yield draw_text(place[0], (y + to_y) / 2 + 2, text, f"{kind} over".strip(), anchor=place[1])


def draw_curve(points: Sequence[tuple[float, float]]) -> str:
    """Return an arrow that leaves each point downwards, and reaches each from above."""
    (x, y), *rest = points
    path = [f"M{x:g} {y:g}"]
    for to_x, to_y in rest:
        half = (y + to_y) / 2
        path.append(f"C{x:g} {half:g} {to_x:g} {half:g} {to_x:g} {to_y:g}")
        x, y = to_x, to_y
    return f'<path class="line" marker-end="url(#diagram-head)" d="{"".join(path)}"/>'


def build_diagram(size: tuple[float, float], title: str, description: str, elements: Iterable[str]) -> str:
    """Return the file of a diagram of this width and height."""
    width, height = size
    marker = (
        f'<marker id="diagram-head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="{_HEAD}" '
        f'markerHeight="{_HEAD}" markerUnits="userSpaceOnUse" orient="auto">'
        '<path class="head" d="M0 1L10 5L0 9z"/></marker>'
    )
    page = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" {page} role="img">',
        f"<title>{escape(title, quote=False)}</title>",
        f"<desc>{escape(description, quote=False)}</desc>",
        f"<style>{_STYLE}</style>",
        f"<defs>{marker}</defs>",
    )
    return "\n".join((*head, *elements, "</svg>", ""))
