"""Cards drawn as text: a letter for each unit that somebody holds, a dot for each that is free.

::

    node-1/gpu-0  before  [ . . . . . . . . ]
                  after   [ . . . . . . a a ]  a = trainer

``draw_units`` draws one row of units, ``draw_cards`` several cards with a legend in a given width. Pure.
"""

import string
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap
from typing import Final

FREE: Final = "."
"""A unit that nobody holds."""
CONTESTED: Final = "!"
"""A unit that several hold."""
OTHER: Final = "#"
"""A unit of a holder for whom no letter is left."""

_LETTERS: Final = string.ascii_lowercase + string.ascii_uppercase
_GAP: Final = "  "
_SHORTEST_COLUMN: Final = 24
"""Columns behind a drawing in which longer text may be wrapped; with less it is put below the drawing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCard:
    """One card at one time."""

    units: tuple[str, ...]
    """The holder of each unit; empty: it is free."""
    names: tuple[str, ...] = ()
    """What stands before it, in columns: its node, its name, a time."""
    note: str = ""
    """What stands behind it, before the legend."""


def assign_letters(holders: Iterable[str]) -> dict[str, str]:
    """Return a letter for each holder, in order; those after the 52nd have none."""
    return dict(zip(dict.fromkeys(holders), _LETTERS, strict=False))


def draw_units(holders: Iterable[Collection[str]], letters: Mapping[str, str]) -> str:
    """Draw a row of units, each with those who hold it.

    >>> draw_units([["x"], ["x"], [], ["x", "y"]], {"x": "a", "y": "b"})
    '[ a a . ! ]'
    """
    return f"[ {' '.join(_draw_unit(each, letters) for each in holders)} ]"


def draw_cards(cards: Sequence[DrawnCard], labels: Mapping[str, str], width: int) -> list[str]:
    """Draw cards below one another, each with a legend of its holders, in lines of at most ``width`` columns.

    ``labels`` say who a holder is; holders of one card with the same label share an entry of the legend, which is not
    repeated for the cards below. A line is longer only where a word is longer than a line.

    >>> card = DrawnCard(names=("gpu-0",), units=("", "x", "x", "y"))
    >>> draw_cards([card], {"x": "default/x", "y": "default/y"}, 80)
    ['gpu-0  [ . a a b ]  a = default/x  b = default/y']
    """
    letters = assign_letters(holder for card in cards for holder in card.units if holder)
    columns = max((len(card.names) for card in cards), default=0)
    widths = [max(len(card.names[n]) if n < len(card.names) else 0 for card in cards) for n in range(columns)]
    drawings = [_fold([(holder,) if holder else () for holder in card.units], letters, width) for card in cards]
    widest = max((len(line) for drawing in drawings for line in drawing), default=0)
    lines: list[str] = []
    explained: set[str] = set()
    for card, drawing in zip(cards, drawings, strict=True):
        padded = [(*card.names, *[""] * columns)[n].ljust(widths[n]) + _GAP for n in range(columns)]
        entries = _entries(card, {*card.units} - explained, letters, labels)
        lines += _join("".join(padded), drawing, widest, entries, width)
        explained |= {*card.units}
    return lines


def _draw_unit(holders: Collection[str], letters: Mapping[str, str]) -> str:
    if len(holders) > 1:
        return CONTESTED
    return next((letters.get(holder, OTHER) for holder in holders), FREE)


def _fold(units: Sequence[Collection[str]], letters: Mapping[str, str], width: int) -> list[str]:
    """Draw units in as many lines as they need in half of the width."""
    most = max(1, (width // 2 - 4) // 2)
    return [draw_units(units[start : start + most], letters) for start in range(0, len(units), most)] or ["[ ]"]


def _entries(card: DrawnCard, new: Collection[str], letters: Mapping[str, str], labels: Mapping[str, str]) -> list[str]:
    """Return the note, and the legend of the holders in ``new``, in the order of their letters."""
    by_label: dict[str, list[str]] = {}
    for holder in letters:
        if holder in new:
            by_label.setdefault(labels.get(holder, holder), []).append(letters[holder])
    for holder in dict.fromkeys(card.units):
        if holder in new and holder and holder not in letters:
            by_label.setdefault(labels.get(holder, holder), []).append(OTHER)
    legend = [f"{_ranges(of_label)} = {label}" for label, of_label in by_label.items()]
    return [*([card.note] if card.note else []), *legend]


def _ranges(letters: Sequence[str]) -> str:
    """Join letters, and each run of more than two as ``a-g``."""
    ordered = sorted(dict.fromkeys(letters), key=f"{_LETTERS}{OTHER}".index)
    runs = [
        [letter for _, letter in run]
        for _, run in groupby(enumerate(ordered), key=lambda each: f"{_LETTERS}{OTHER}".index(each[1]) - each[0])
    ]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def _join(names: str, drawing: Sequence[str], widest: int, entries: Sequence[str], width: int) -> list[str]:
    """Put entries beside the drawing, or below it where there is no room."""
    if len(names) + widest > width:
        names_line, margin = [names.rstrip()], _GAP
    else:
        names_line, margin = [], names
    column = len(margin) + widest + len(_GAP)
    room = width - column
    longest = max(map(len, entries), default=0)
    is_beside = room >= min(_SHORTEST_COLUMN, longest)
    beside = _flow(entries, room) if is_beside else []
    lines = []
    for number in range(max(len(drawing), len(beside))):
        left = drawing[number] if number < len(drawing) else ""
        right = beside[number] if number < len(beside) else ""
        start = margin if number == 0 else " " * len(margin)
        lines.append(f"{start}{left.ljust(widest)}{_GAP}{right}".rstrip())
    if not is_beside:
        below = len(margin) if longest <= width - len(margin) else min(len(margin), width // 3)
        lines += [f"{' ' * below}{line}" for line in _flow(entries, width - below)]
    return [*names_line, *lines]


def _flow(entries: Sequence[str], room: int) -> list[str]:
    """Put entries into lines of at most ``room`` columns; one that is longer is wrapped between words."""
    lines: list[str] = []
    for entry in entries:
        if lines and len(lines[-1]) + len(_GAP) + len(entry) <= room:
            lines[-1] += _GAP + entry
        else:
            lines += wrap(entry, room, subsequent_indent=_GAP, break_long_words=False, break_on_hyphens=False)
    return lines
