"""Cards drawn as SVG: one file for light and dark pages, without scripts, and with nothing that is loaded.

Each row of units is a strip of cells; what one device has is one rounded part in the color of its claim, with its
profile and the claim's name where there is room, else in the legend. Every other state has a pattern of its own, so
that the picture can be read without colors. Texts that others have chosen are made printable and escaped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from types import MappingProxyType
from typing import Final

from kerf_dra.api.model.names import list_names
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.partitions.card_pictures.card_picture import (
    MEANINGS,
    OWNED,
    CardPicture,
    Gauge,
    Unit,
    UnitRow,
    UnitState,
)
from kerf_dra.driver.partitions.card_pictures.claim_colors import COLORS, UNCOLORED, assign_colors

_WIDTH: Final = 760
"""Units of the picture's width: a page's column of text on a desktop; smaller pages scale it."""
_EMBEDDED_WIDTH: Final = 330
"""Units of the width of one card in a page: a phone of 360 pixels shows letters in their size."""
_STRIP_CELL: Final = 12
"""Width and height of a cell in a strip without texts: a card of eight units is as wide as a word."""
_MARGIN: Final = 8
_LINE: Final = 18
"""The height of a line of text."""
_CELL_HEIGHT: Final = 46
"""The height of a strip: two lines of text, and room around them."""
_LETTER: Final = 7.3
"""The width of a letter of a monospaced font of 12 pixels, and some to spare."""
_CELLS: Final = 32
"""The most cells in one strip: smaller ones cannot be distinguished on a phone."""
_WIDEST_CELL: Final = 93
"""The widest cell: eight fill the width, and a card of two slots is not drawn as wide as the page."""
_STRIPS: Final = 8
"""The most strips of a row: 256 units, as in text."""
_LEGEND: Final = 24
"""The most claims in the legend; the description of the picture has no more either."""
_PROBLEM: Final = 100
"""Letters of a problem: a line of the picture."""

STYLE: Final = "".join(
    (
        ".kerf-cards text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#1f2328}",
        ".kerf-cards .title{font-weight:bold}",
        ".kerf-cards .number,.kerf-cards .faint{fill:#59636e}",
        ".kerf-cards .free{fill:#f6f8fa;stroke:#818b98}",
        ".kerf-cards .part{stroke:#1f2328}.kerf-cards .filled{fill:#59636e}",
        ".kerf-cards .noted{stroke-dasharray:4 3;stroke-width:2}",
        ".kerf-cards .mark{stroke:#59636e;fill:none}",
        ".kerf-cards .state{paint-order:stroke;stroke:#f6f8fa;stroke-width:4px}",
        ".kerf-cards .fault{stroke:#d1242f;stroke-width:3}",
        *(
            f".kerf-cards .c{number}{{fill:{color.rgb}}}.kerf-cards text.t{number}{{fill:{color.text_rgb}}}"
            for number, color in enumerate(COLORS)
        ),
        "@media (prefers-color-scheme:dark){",
        ".kerf-cards text{fill:#e6edf3}.kerf-cards .number,.kerf-cards .faint{fill:#9198a1}",
        ".kerf-cards .free{fill:#161b22;stroke:#7d8590}.kerf-cards .part{stroke:#e6edf3}",
        ".kerf-cards .filled{fill:#9198a1}",
        ".kerf-cards .mark{stroke:#9198a1}.kerf-cards .state{stroke:#161b22}.kerf-cards .fault{stroke:#ff7b72}}",
    )
)
"""The style sheet of pictures. The colors of a part are the same on light and dark pages; what is around them follows
the page."""

_PATTERNS: Final[Mapping[UnitState, str]] = MappingProxyType(
    {
        UnitState.STRANDED: "M0 8L8 0",
        UnitState.TAINTED: "M1 2h2M5 6h2",
        UnitState.WITHHELD: "M0 8L8 0M0 0L8 8",
        UnitState.RESERVED: "M4 0V8",
        UnitState.STATIC: "M0 4H8M4 0V8",
        UnitState.FOREIGN: "M0 0L8 8M4 0L8 4M0 4L4 8",
        UnitState.SHARED: "M0 2H8",
        UnitState.CONTESTED: "M0 0L4 8L8 0",
    }
)
"""Lines in a square of eight for each state but free and held, by which they differ without colors."""
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(slots=True)
class _Page:
    """The elements of a picture, and how far down they reach."""

    colors: Mapping[str, int]
    labels: Mapping[str, str]
    has_namespaces: bool
    """Whether claims of several namespaces have the same name."""
    has_states: bool
    """Whether the states of units have words."""
    elements: list[str]
    bottom: int
    cut_names: dict[tuple[str, ...], Unit]
    """Units whose claims have no room in their parts, by these: the legend names them."""
    width: float = _WIDTH

    def add_text(self, text: str, kind: str = "", left: float = _MARGIN) -> None:
        """Add a line of text below what is there."""
        self.bottom += _LINE
        self.elements.append(_text(left, self.bottom - 5, text, kind))


def draw_svg(
    pictures: Sequence[CardPicture],
    title: str,
    *,
    captions: Sequence[str] = (),
    labels: Mapping[str, str] = _NO_LABELS,
    kept: Mapping[str, int] = UNCOLORED,
    has_states: bool = True,
) -> str:
    """Return pictures below one another with one legend.

    ``title`` names the whole, ``captions`` each picture in place of its node, name and model; ``labels`` say what a
    holder is called, and ``kept`` which colors claims have already. Without ``has_states`` units that no claim holds
    have no words, and there is no legend.
    """
    units = [unit for each in pictures for unit in each.units]
    colors = _assign_colors(units, kept)
    holders = {holder for each in pictures for holder in each.holders}
    has_namespaces = len({holder.rpartition("/")[2] for holder in holders}) < len(holders)
    page = _Page(colors, labels, has_namespaces, has_states, [], 0, {})
    for number, each in enumerate(pictures):
        page.add_text(captions[number] if number < len(captions) else _caption(each), "title")
        _add_picture(page, each)
    if has_states:
        _add_legend(page, units)
    description = " ".join(f"{each.description}." for each in pictures[:_LEGEND])
    size = f'viewBox="0 0 {_WIDTH} {page.bottom + _MARGIN}" width="{_WIDTH}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="kerf-cards" {size} role="img">',
        f"<title>{_escape(title)}</title>",
        f"<desc>{_escape(description)}</desc>",
        f"<style>{STYLE}</style>",
        f"<defs>{''.join(_build_patterns({unit.state for unit in units}))}</defs>",
    )
    return "\n".join((*head, *page.elements, "</svg>", ""))


def draw_embedded(
    picture: CardPicture, *, labels: Mapping[str, str] = _NO_LABELS, kept: Mapping[str, int] = UNCOLORED
) -> str:
    """Return the units of one card for a page in HTML, which says the rest: names, the legend, amounts and problems.

    The page has ``STYLE`` in its style sheet, because a content security policy may forbid styles of elements, and
    ``draw_patterns`` once, because pictures of one page share its names of elements.
    """
    holders = picture.holders
    has_namespaces = len({holder.rpartition("/")[2] for holder in holders}) < len(holders)
    colors = _assign_colors(picture.units, kept)
    page = _Page(colors, labels, has_namespaces, True, [], 0, {}, _EMBEDDED_WIDTH)
    _add_rows(page, picture)
    return _frame(page, picture, _EMBEDDED_WIDTH, page.bottom)


def draw_strip(
    picture: CardPicture, *, labels: Mapping[str, str] = _NO_LABELS, kept: Mapping[str, int] = UNCOLORED
) -> str:
    """Return the units of one card as small cells without texts, otherwise as ``draw_embedded``."""
    colors = _assign_colors(picture.units, kept)
    page = _Page(colors, labels, False, False, [], 0, {})
    longest = 1
    for row in picture.rows:
        for start in range(0, min(len(row.units), _STRIPS * _CELLS), _CELLS):
            strip = _cut_strip(row, start)
            for index, part in strip.parts:
                page.elements += _draw_box(page, part, index * _STRIP_CELL, page.bottom, _STRIP_CELL, _STRIP_CELL)
                page.elements.append("</g>")
            longest = max(longest, len(strip.units))
            page.bottom += _STRIP_CELL + 2
    return _frame(page, picture, longest * _STRIP_CELL, max(page.bottom, 1))


def draw_patterns() -> str:
    """Return an element without size that has the patterns of all states, for pages with ``draw_embedded``."""
    patterns = "".join(_build_patterns(UnitState))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" class="kerf-cards kerf-patterns" width="0" height="0" '
        f'aria-hidden="true"><defs>{patterns}</defs></svg>'
    )


def _frame(page: _Page, picture: CardPicture, width: float, height: float) -> str:
    """Return the elements of one card as a picture with its description in words."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="kerf-cards" viewBox="0 0 {width:g} {height:g}"'
    words = _escape(f"{picture.node} {picture.description}".strip())
    size = f'width="{width:g}" height="{height:g}"'
    return f'{head} {size} role="img" aria-label="{words}">{"".join(page.elements)}</svg>'


def _assign_colors(units: Iterable[Unit], kept: Mapping[str, int]) -> dict[str, int]:
    return assign_colors((unit.holders[0] for unit in units if unit.state in OWNED), kept)


def _caption(picture: CardPicture) -> str:
    units = " and ".join(dict.fromkeys(row.name for row in picture.rows)) if picture.name else "devices"
    words = (picture.node, picture.title, picture.model, f"by {units}" if units else "")
    return ", ".join(word for word in words if word)


def _add_picture(page: _Page, picture: CardPicture) -> None:
    _add_rows(page, picture)
    for gauge in picture.gauges:
        _add_gauge(page, gauge)
    for problem in picture.problems:
        page.add_text(_cut(f"the picture may be wrong: {problem}", _PROBLEM))
    page.bottom += _MARGIN


def _add_rows(page: _Page, picture: CardPicture) -> None:
    """Draw the units of a card, each row as strips."""
    numbered: UnitRow | None = None
    for row in picture.rows:
        starts = range(0, len(row.units), _CELLS)
        is_like_above = numbered is not None and (row.name, row.numbers) == (numbered.name, numbered.numbers)
        for start in starts[:_STRIPS]:
            _add_strip(page, row, start, has_numbers=not is_like_above or len(starts) > 1)
        numbered = row
        if len(starts) > _STRIPS:
            page.add_text(f"and {len(row.units) - _STRIPS * _CELLS} more", "faint")


def _cut_strip(row: UnitRow, start: int) -> UnitRow:
    return UnitRow(name=row.name, numbers=row.numbers[start : start + _CELLS], units=row.units[start : start + _CELLS])


def _add_strip(page: _Page, row: UnitRow, start: int, *, has_numbers: bool) -> None:
    """Draw the units of one strip, with their numbers above them unless the strip above has them."""
    strip = _cut_strip(row, start)
    cell = min((page.width - 2 * _MARGIN) / len(strip.units), _WIDEST_CELL)
    page.bottom += _LINE if has_numbers else 0
    for index, number in enumerate(strip.numbers if has_numbers else ()):
        name = f"{row.name} {number}" if (len(row.name) + 4) * _LETTER <= cell else str(number)
        middle = _MARGIN + (index + 0.5) * cell
        page.elements.append(_text(middle, page.bottom - 5, name, "number", anchor="middle"))
    for index, part in strip.parts:
        left = _MARGIN + index * cell
        page.elements += _draw_part(page, part, left, page.bottom, cell)
    page.bottom += _CELL_HEIGHT + 4


def _draw_part(page: _Page, part: Sequence[Unit], left: float, top: float, cell: float) -> Iterator[str]:
    """Yield the elements of a part: its box, and in it what it is."""
    unit, width = part[0], cell * len(part) - 4
    letters = int(width / _LETTER)
    words = [word for each in _words(unit, page, letters) if (word := _cut(each, letters))]
    if unit.holders and (not words or any(word.endswith("…") for word in words)):
        page.cut_names.setdefault(unit.holders, unit)
    yield from _draw_box(page, part, left, top, cell, _CELL_HEIGHT)
    kind = f"t{page.colors[unit.holders[0]]}" if unit.state in OWNED else "state"
    middle, first = left + cell * len(part) / 2, top + _CELL_HEIGHT / 2 + 4 - _LINE / 2 * (len(words) - 1)
    for number, word in enumerate(words):
        yield _text(middle, first + _LINE * number, word, kind, anchor="middle")
    yield "</g>"


def _draw_box(page: _Page, part: Sequence[Unit], left: float, top: float, cell: float, height: float) -> Iterator[str]:
    """Begin the group of a part with its box, its pattern, and its whole name where a pointer rests."""
    unit, gap = part[0], 2 if height == _CELL_HEIGHT else 0.5
    box = f'x="{left + gap:g}" y="{top:g}" width="{cell * len(part) - 2 * gap:g}" height="{height}" rx="{2 * gap:g}"'
    yield f"<g><title>{_escape(_explain(unit, page.labels))}</title>"
    if unit.state in OWNED:
        noted = " noted" if unit.note else ""
        yield f'<rect class="part c{page.colors[unit.holders[0]]}{noted}" {box}/>'
    else:
        yield f'<rect class="free{" fault" if unit.state is UnitState.CONTESTED else ""}" {box}/>'
    if unit.state in _PATTERNS:
        yield f'<rect fill="url(#kerf-{unit.state})" {box}/>'


def _words(unit: Unit, page: _Page, letters: int) -> list[str]:
    """Return the lines in a part: what it is, and who has it, or its state. A namespace goes where there is no room."""
    if not unit.holders:
        return [str(unit.state)] if page.has_states else []
    names = _list_holders(unit, page.labels)
    if len(names) > letters and len(unit.holders) == 1 and not page.has_namespaces:
        names = names.rpartition("/")[2]
    return [names] if unit.label in ("", names) else [unit.label, names]


def _list_holders(unit: Unit, labels: Mapping[str, str]) -> str:
    return list_names([*dict.fromkeys(labels.get(each, each) for each in unit.holders)])


def _explain(unit: Unit, labels: Mapping[str, str]) -> str:
    """Return all that is known of a unit."""
    notes = [unit.note] if unit.note else []
    if unit.state is not UnitState.HELD:
        notes.insert(0, MEANINGS[unit.state])
    return " - ".join([word for word in (unit.label, _list_holders(unit, labels)) if word] + notes)


def _add_gauge(page: _Page, gauge: Gauge) -> None:
    """Draw an amount as a bar with its name and figures."""
    length = (_WIDTH - 2 * _MARGIN) / 3
    page.bottom += _LINE
    top = page.bottom - _LINE + 4
    filled = min(gauge.permille, 1000) * length / 1000
    page.elements.append(f'<rect class="free" x="{_MARGIN}" y="{top}" width="{length:.0f}" height="11"/>')
    page.elements.append(f'<rect class="filled" x="{_MARGIN}" y="{top}" width="{filled:.0f}" height="11"/>')
    text = _cut(f"{gauge.name}: {gauge.used} of {gauge.total}", 60)
    page.elements.append(_text(_MARGIN * 2 + length, page.bottom - 4, text))


def _add_legend(page: _Page, units: Iterable[Unit]) -> None:
    """Name the claims whose parts have no room for their names, and the states that have a pattern."""
    cut = [unit for unit in page.cut_names.values() if unit.state in OWNED]
    for unit in cut[:_LEGEND]:
        _add_entry(page, unit, _explain(unit, page.labels))
    if len(cut) > _LEGEND:
        page.add_text(f"and {len(cut) - _LEGEND} more", "faint", left=_MARGIN + 30)
    states = {unit.state for unit in units}
    for state, meaning in MEANINGS.items():
        if state in states and state is not UnitState.HELD:
            _add_entry(page, Unit(state=state), meaning)


def _add_entry(page: _Page, unit: Unit, text: str) -> None:
    """Draw a small cell and what it stands for."""
    page.add_text(_cut(text, _PROBLEM), left=_MARGIN + 30)
    box = f'x="{_MARGIN + 2}" y="{page.bottom - 15}" width="20" height="12" rx="2"'
    kind = f"part c{page.colors[unit.holders[0]]}" if unit.holders else "free"
    page.elements.append(f'<rect class="{kind}" {box}/>')
    if unit.state in _PATTERNS:
        page.elements.append(f'<rect fill="url(#kerf-{unit.state})" {box}/>')


def _build_patterns(states: Iterable[UnitState]) -> Iterator[str]:
    for state in sorted({*states} & _PATTERNS.keys()):
        yield (
            f'<pattern id="kerf-{state}" width="8" height="8" patternUnits="userSpaceOnUse">'
            f'<path class="mark" d="{_PATTERNS[state]}"/></pattern>'
        )


def _cut(text: str, letters: int) -> str:
    """Return a text of at most so many letters, the last of them an ellipsis if it is longer; none if few fit."""
    text = to_one_line(text)
    if len(text) <= letters:
        return text
    return f"{text[: letters - 1]}…" if letters > 2 else ""


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    class_ = f' class="{kind}"' if kind else ""
    place = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text{class_} x="{x:g}" y="{y:g}"{place}>{_escape(text)}</text>'


def _escape(text: str) -> str:
    """Return text for XML, in which control characters cannot be written at all."""
    return escape(to_one_line(text))
