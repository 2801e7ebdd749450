"""Cards drawn as text: a letter for each unit that a claim holds, a symbol for each that none holds.

::

    node-1/gpu-0  before  [ . . . . . . . . ]
                  after   [ . . . . . . a a ]  a = trainer

``draw_cards`` draws rows of units with a legend in a given width, ``draw_pictures`` whole ``CardPicture`` values. With
colors, a part has the color of its claim, and the letters stay. Texts that others have chosen are made printable.
"""

import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

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
from kerf_dra.driver.partitions.card_pictures.claim_colors import COLORS, UNCOLORED, ColorDepth, assign_colors

Owner: TypeAlias = tuple[UnitState, tuple[str, ...]]
"""Who has a letter: the state of units, and the claims that hold them."""

SYMBOLS: Final[Mapping[UnitState, str]] = MappingProxyType(
    {
        UnitState.FREE: ".",
        UnitState.STRANDED: "-",
        UnitState.CONTESTED: "!",
        UnitState.TAINTED: "~",
        UnitState.WITHHELD: "/",
        UnitState.RESERVED: "+",
        UnitState.STATIC: "=",
        UnitState.FOREIGN: "%",
    }
)
"""A symbol of ASCII for each state of units that have no letter, so that it is in every terminal and file."""
OTHER: Final = "#"
"""A unit of a claim for which no letter is left."""

_STYLES: Final[Mapping[UnitState, str]] = MappingProxyType(
    {
        UnitState.STRANDED: "2",
        UnitState.CONTESTED: "1;31",
        UnitState.TAINTED: "33",
        UnitState.WITHHELD: "90",
        UnitState.RESERVED: "34",
        UnitState.STATIC: "36",
        UnitState.FOREIGN: "35",
    }
)
"""The parameters of the escape sequence (ECMA-48 SGR) for the symbol of a state; its shape says the same."""
_SHARED_STYLE: Final = ";4"
"""Underlined, added to the color of claims that share a part."""

_LETTERS: Final = string.ascii_lowercase + string.ascii_uppercase
_GAP: Final = "  "
_SHORTEST_COLUMN: Final = 24
"""Columns behind a drawing in which longer text may be wrapped; with less it is put below the drawing."""
_NAMES: Final = 4
"""Claims named in one entry of the legend: ten thousand may share a device."""
_UNITS: Final = 256
"""Units of a row that ``draw_pictures`` draws: fifteen lines of a terminal with 80 columns."""
_BAR: Final = 20
"""Characters of a bar."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCard:
    """One row of units of a card at one time, or a bar."""

    units: tuple[Unit, ...] = ()
    gauge: Gauge | None = None
    """What is drawn in place of units."""
    names: tuple[str, ...] = ()
    """What stands before it, in columns: its node, its name, a time."""
    note: str = ""
    """What stands behind it, before the legend."""


class _Painted(NamedTuple):
    """Text as it is read, and as it is written with its escape sequences."""

    plain: str
    painted: str


class _Style(NamedTuple):
    """How owners are drawn."""

    letters: Mapping[Owner, str]
    colors: Mapping[str, int]
    depth: ColorDepth

    def symbol(self, unit: Unit) -> str:
        return self.letters.get(_owner(unit), OTHER) if unit.state in OWNED else SYMBOLS[unit.state]

    def paint(self, text: str, unit: Unit) -> str:
        """Return ``text`` with the color of a unit."""
        if self.depth is ColorDepth.NONE:
            return text
        if unit.state not in OWNED:
            parameters = _STYLES.get(unit.state, "")
        else:
            color = COLORS[self.colors[unit.holders[0]]]
            if self.depth is ColorDepth.BASIC:
                parameters = f"{color.basic[0]};{color.basic[1]}"
            else:
                parameters = f"48;5;{color.indexed[0]};38;5;{color.indexed[1]}"
            parameters += _SHARED_STYLE if unit.state is UnitState.SHARED else ""
        return f"\x1b[{parameters}m{text}\x1b[0m" if parameters else text


def assign_letters(units: Iterable[Unit]) -> dict[Owner, str]:
    """Return a letter for each owner of units, in order: a small one, unless the part is shared, while any is left.

    >>> assign_letters([Unit(state=UnitState.HELD, holders=("x",)), Unit(state=UnitState.SHARED, holders=("y", "z"))])
    {(<UnitState.SHARED: 'shared'>, ('y', 'z')): 'A', (<UnitState.HELD: 'held'>, ('x',)): 'a'}
    """
    owners = dict.fromkeys(_owner(unit) for unit in units if unit.state in OWNED)
    shared = [owner for owner in owners if owner[0] is UnitState.SHARED]
    letters = dict(zip(shared, string.ascii_uppercase, strict=False))
    left = [letter for letter in _LETTERS if letter not in letters.values()]
    return letters | dict(zip((each for each in owners if each not in letters), left, strict=False))


def draw_cards(
    cards: Sequence[DrawnCard],
    labels: Mapping[str, str],
    width: int,
    *,
    depth: ColorDepth = ColorDepth.NONE,
    has_free: bool = False,
    kept: Mapping[str, int] = UNCOLORED,
) -> list[str]:
    """Draw cards below one another, each with a legend of its holders, in lines of at most ``width`` columns.

    ``labels`` say who a holder is; holders of one card with the same label share an entry of the legend, which is not
    repeated for the cards below. ``has_free``: the legend names free units, too; ``kept``: the colors that claims have
    already. A line is longer only where a word is longer than a line.

    >>> x, y = (Unit(state=UnitState.HELD, holders=(name,)) for name in ("x", "y"))
    >>> card = DrawnCard(names=("gpu-0",), units=(Unit(), x, x, y))
    >>> draw_cards([card], {"x": "default/x", "y": "default/y"}, 80)
    ['gpu-0  [ . a a b ]  a = default/x  b = default/y']
    """
    style = _build_style([unit for card in cards for unit in card.units], depth, kept)
    names = [tuple(map(to_one_line, card.names)) for card in cards]
    columns = max(map(len, names), default=0)
    widths = [max(len(each[n]) if n < len(each) else 0 for each in names) for n in range(columns)]
    drawings = [_draw(card, style, width) for card in cards]
    widest = max((len(line.plain) for drawing in drawings for line in drawing), default=0)
    lines: list[str] = []
    explained: set[Owner] = set() if has_free else {(UnitState.FREE, ())}
    for card, own_names, drawing in zip(cards, names, drawings, strict=True):
        padded = [(*own_names, *[""] * columns)[n].ljust(widths[n]) + _GAP for n in range(columns) if widths[n]]
        entries = _entries(card, explained, style, labels)
        lines += _join("".join(padded), drawing, widest, entries, width)
        explained |= {_owner(unit) for unit in card.units}
    return lines


def draw_pictures(
    pictures: Iterable[CardPicture],
    width: int,
    *,
    depth: ColorDepth = ColorDepth.NONE,
    labels: Mapping[str, str] = _NOTHING,
    has_titles: bool = True,
    kept: Mapping[str, int] = UNCOLORED,
) -> list[str]:
    """Draw whole cards, each with its bars, its legend and what is wrong with it; the legend is complete.

    Letters begin again with each picture if there are more claims than letters. ``has_titles``: nodes and cards are
    named; without them the rows are. ``kept``: the colors that claims have already.
    """
    pictures = [*pictures]
    if len(assign_letters(unit for each in pictures for unit in each.units)) > len(_LETTERS) and len(pictures) > 1:
        return [
            line
            for each in pictures
            for line in draw_pictures([each], width, depth=depth, labels=labels, has_titles=has_titles, kept=kept)
        ]
    lines = draw_cards([*_list_rows(pictures, has_titles)], labels, width, depth=depth, has_free=True, kept=kept)
    for each in pictures:
        for problem in each.problems:
            text = to_one_line(f"{each.title}: the picture may be wrong: {problem}")
            lines += wrap(text, width, subsequent_indent=_GAP, break_long_words=False, break_on_hyphens=False)
    return lines


def _list_rows(pictures: Sequence[CardPicture], has_titles: bool) -> Iterator[DrawnCard]:
    """Yield the rows of pictures; a node is named once, and a row where its card has several."""
    node: str | None = None
    for each in pictures:
        is_alone = has_titles and len(each.rows) == 1 and not each.gauges
        first = (each.node if each.node != node else "", each.title) if has_titles else ()
        node = each.node
        rows: list[tuple[str, UnitRow | Gauge]] = [(row.title if each.name else "", row) for row in each.rows]
        rows += [(gauge.name, gauge) for gauge in each.gauges]
        for number, (title, row) in enumerate(rows):
            yield _build_row(row, (*(first if number == 0 else ("",) * len(first)), "" if is_alone else title))


def _build_row(row: UnitRow | Gauge, names: tuple[str, ...]) -> DrawnCard:
    if isinstance(row, Gauge):
        return DrawnCard(gauge=row, names=names, note=f"{row.used} of {row.total}")
    left = len(row.units) - _UNITS
    return DrawnCard(units=row.units[:_UNITS], names=names, note=f"and {left} more" if left > 0 else "")


def _build_style(units: Sequence[Unit], depth: ColorDepth, kept: Mapping[str, int]) -> _Style:
    holders = [unit.holders[0] for unit in units if unit.state in OWNED]
    return _Style(assign_letters(units), assign_colors(holders, kept), depth)


def _owner(unit: Unit) -> Owner:
    """Return what the legend explains a unit by: its owner, or its state."""
    return unit.state, unit.holders if unit.state in OWNED or unit.state is UnitState.CONTESTED else ()


def _draw(card: DrawnCard, style: _Style, width: int) -> list[_Painted]:
    """Draw units in as many lines as they need in half of the width, or a bar."""
    most = max(1, (width // 2 - 4) // 2)
    if card.gauge is not None:
        length = min(_BAR, most * 2)
        filled = min(length, -(-card.gauge.permille * length // 1000))
        bar = f"[{'#' * filled}{'.' * (length - filled)}]"
        return [_Painted(bar, bar)]
    lines = [_draw_units(card.units[start : start + most], style) for start in range(0, len(card.units), most)]
    return lines or [_Painted("[ ]", "[ ]")]


def _draw_units(units: Sequence[Unit], style: _Style) -> _Painted:
    """Draw a row of units; what is between those of one part has its color."""
    parts = [[*part] for _, part in groupby(units, key=lambda unit: (_owner(unit), unit.part))]
    drawn = [_Painted(text := " ".join(map(style.symbol, part)), style.paint(text, part[0])) for part in parts]
    plain, painted = (" ".join(each) for each in zip(*drawn, strict=True))
    return _Painted(f"[ {plain} ]", f"[ {painted} ]")


def _entries(card: DrawnCard, explained: set[Owner], style: _Style, labels: Mapping[str, str]) -> list[_Painted]:
    """Return the note, and the legend of what is not explained yet: claims in the order of their letters, then states.

    Claims without a letter share an entry.
    """
    new = {_owner(unit): unit for unit in reversed(card.units) if _owner(unit) not in explained}
    by_label: dict[str, list[Unit]] = {}
    for owner in style.letters:
        if owner in new:
            by_label.setdefault(_label(new[owner], labels), []).append(new[owner])
    legend = [
        _entry(_ranges(map(style.symbol, units)), f" = {label}", units[0], style) for label, units in by_label.items()
    ]
    owners = dict.fromkeys(map(_owner, card.units))
    without = [new[each] for each in owners if each in new and each[0] in OWNED and each not in style.letters]
    if without:
        names = list_names([*dict.fromkeys(_label(unit, labels) for unit in without)], _NAMES)
        legend.append(_Painted(f"{OTHER} = {names}", f"{OTHER} = {names}"))
    for state, symbol in SYMBOLS.items():
        units = [new[each] for each in owners if each in new and each[0] is state]
        legend += [_entry(symbol, f" = {_explain(unit, labels)}", unit, style) for unit in units]
    note = to_one_line(card.note)
    return [*([_Painted(note, note)] if note else []), *legend]


def _entry(symbol: str, text: str, unit: Unit, style: _Style) -> _Painted:
    """Return an entry of the legend, whose symbol has the color of its unit; several letters have several colors."""
    if len(symbol) > 1:
        return _Painted(f"{symbol}{text}", f"{symbol}{text}")
    return _Painted(f"{symbol}{text}", f"{style.paint(symbol, unit)}{text}")


def _label(unit: Unit, labels: Mapping[str, str]) -> str:
    """Return who holds a unit, and what else is to be said of it."""
    names = list_names([*dict.fromkeys(to_one_line(labels.get(each, each)) for each in unit.holders)], _NAMES)
    notes = ["shared"] if unit.state is UnitState.SHARED else []
    notes += [to_one_line(unit.note)] if unit.note else []
    return f"{names} ({', '.join(notes)})" if notes else names


def _explain(unit: Unit, labels: Mapping[str, str]) -> str:
    """Return what the symbol of a unit without a letter means."""
    note = _label(unit, labels) if unit.holders else to_one_line(unit.note)
    return f"{MEANINGS[unit.state]} ({note})" if note else MEANINGS[unit.state]


def _ranges(letters: Iterable[str]) -> str:
    """Join letters, and each run of more than two as ``a-g``."""
    ordered = sorted(dict.fromkeys(letters), key=_LETTERS.index)
    runs = [
        [letter for _, letter in run]
        for _, run in groupby(enumerate(ordered), key=lambda each: _LETTERS.index(each[1]) - each[0])
    ]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def _join(
    names: str, drawing: Sequence[_Painted], widest: int, entries: Sequence[_Painted], width: int
) -> Iterator[str]:
    """Put entries beside the drawing, or below it where there is no room."""
    margin = names
    if len(names) + widest > width:
        yield from wrap(" ".join(names.split()), width, break_long_words=False, break_on_hyphens=False)
        margin = _GAP
    room = width - (len(margin) + widest + len(_GAP))
    longest = max((len(each.plain) for each in entries), default=0)
    is_beside = room >= min(_SHORTEST_COLUMN, longest)
    beside = _flow(entries, room) if is_beside else []
    for number in range(max(len(drawing), len(beside))):
        left = drawing[number] if number < len(drawing) else _Painted("", "")
        right = beside[number] if number < len(beside) else ""
        start = margin if number == 0 else " " * len(margin)
        yield f"{start}{left.painted}{' ' * (widest - len(left.plain))}{_GAP}{right}".rstrip()
    if not is_beside:
        below = len(margin) if longest <= width - len(margin) else min(len(margin), width // 3)
        yield from (f"{' ' * below}{line}" for line in _flow(entries, width - below))


def _flow(entries: Sequence[_Painted], room: int) -> list[str]:
    """Put entries into lines of at most ``room`` columns; one that is longer is wrapped between words."""
    lines: list[_Painted] = []
    for entry in entries:
        if lines and len(lines[-1].plain) + len(_GAP) + len(entry.plain) <= room:
            last = lines.pop()
            lines.append(_Painted(f"{last.plain}{_GAP}{entry.plain}", f"{last.painted}{_GAP}{entry.painted}"))
        elif len(entry.plain) <= room:
            lines.append(entry)
        else:
            wrapped = wrap(entry.plain, room, subsequent_indent=_GAP, break_long_words=False, break_on_hyphens=False)
            cut = len(entry.plain) - len(wrapped[0])  # what is painted is at the start
            lines.append(_Painted(wrapped[0], entry.painted[: len(entry.painted) - cut]))
            lines += [_Painted(line, line) for line in wrapped[1:]]
    return [line.painted for line in lines]
