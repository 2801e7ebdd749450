"""The output of a demo: sentences, drawn cards and tables as text, or nothing where a document is wanted.

What is printed stays. On a terminal one further line, the last, shows what is waited for, and goes when it is there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Final

import anyio
import click

from kerf_dra.api.model.printable_text import replace_unprintable, to_one_line
from kerf_dra.driver.partitions.card_pictures.claim_colors import ColorDepth, assign_colors
from kerf_dra.driver.partitions.card_pictures.text_picture import DrawnCard, draw_cards

WIDEST: Final = 100
"""Columns of text, however wide the terminal is: longer lines are hard to read."""
_NARROWEST: Final = 40
"""Columns of text, however narrow the terminal is: it breaks longer lines itself."""
_INDENT: Final = "   "


class Display:
    """The output of a demo. This one shows nothing: a document is all that is wanted."""

    width: int = WIDEST
    """Columns for text that is indented below a step."""

    def begin_step(self, title: str) -> None:
        """Begin a step of the scenario, which gets the next number."""

    def say(self, text: str) -> None:
        """Show a paragraph; without text an empty line."""

    def quote(self, lines: Iterable[str]) -> None:
        """Show lines as they are."""

    def cards(self, cards: Sequence[DrawnCard], labels: Mapping[str, str]) -> None:
        """Draw cards with a legend."""

    def items(self, rows: Sequence[tuple[str, str]]) -> None:
        """Show names, each with a text beside it."""

    def wait(self, what: str) -> None:
        """Show what is waited for now, until something else is shown."""

    def verdict(self, text: str, *, is_good: bool) -> None:
        """Show the result, one paragraph."""

    async def hold(self) -> None:
        """Let the reader read what was shown last."""


class TextDisplay(Display):
    """Text in the columns of a terminal, or of a file."""

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        columns: int,
        pause_s: float = 0.0,
        is_terminal: bool = False,
        depth: ColorDepth = ColorDepth.NONE,
    ) -> None:
        """Write text with ``write``, which ends no line; ``pause_s``: seconds for which a reader may read; ``depth``:
        the colors of cards.
        """
        self._columns = max(_NARROWEST, min(columns, WIDEST))
        self.width = self._columns - len(_INDENT)
        self._write = write
        self._pause_s = pause_s
        self._is_terminal = is_terminal
        self._depth = depth
        self._colors: dict[str, int] = {}
        self._waits = ""
        self._last = ""
        self._steps = 0

    def begin_step(self, title: str) -> None:
        self._steps += 1
        first, *others = _wrap(title, self.width)
        self._line("")
        self._line(click.style(f"{self._steps:<{len(_INDENT)}}{first}", bold=True))
        self.quote(click.style(line, bold=True) for line in others)

    def say(self, text: str) -> None:
        self.quote(_wrap(text, self.width))

    def quote(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._line(f"{_INDENT if self._steps else ''}{line}".rstrip())

    def cards(self, cards: Sequence[DrawnCard], labels: Mapping[str, str]) -> None:
        holders = (holder for card in cards for unit in card.units for holder in unit.holders)
        self._colors |= assign_colors(holders, self._colors)  # what a pod has keeps its color in all steps
        self.quote(draw_cards(cards, labels, self.width, depth=self._depth, kept=self._colors))

    def items(self, rows: Sequence[tuple[str, str]]) -> None:
        rows = [(to_one_line(name), text) for name, text in rows]
        column = max((len(name) for name, _ in rows), default=0) + 2
        longest = max((len(word) for _, text in rows for word in text.split()), default=0)
        for name, text in rows:
            if column > self.width // 2 or column + longest > self.width:  # there is no room beside the names
                self.quote([name])
                self.quote(f"  {line}" for line in _wrap(text, self.width - 2))
                continue
            first, *others = _wrap(text, self.width - column)
            self.quote([f"{name.ljust(column)}{first}"])
            self.quote(f"{' ' * column}{line}" for line in others)

    def wait(self, what: str) -> None:
        if self._is_terminal and what != self._waits:
            erase, self._waits = self._erase(), what
            self._write(f"{erase}{self._wait_line}")

    def verdict(self, text: str, *, is_good: bool) -> None:
        first, *others = _wrap(text, self._columns)
        word, _, rest = first.partition(" ")
        self._line("")
        self._line(click.style(word, fg="green" if is_good else "red", bold=True) + f" {rest}".rstrip())
        for line in others:
            self._line(line)

    async def hold(self) -> None:
        await anyio.sleep(self._pause_s)

    @property
    def _wait_line(self) -> str:
        return f"{_INDENT}... {self._waits}"[: self._columns - 1]

    def _erase(self) -> str:
        """Return what erases the line about what is waited for, without escape sequences."""
        return f"\r{' ' * len(self._wait_line)}\r" if self._waits else ""

    def _line(self, line: str) -> None:
        erase, self._waits = self._erase(), ""
        if line or self._last:  # two empty lines say no more than one
            self._write(f"{erase}{line}\n")
        self._last = line


def _wrap(text: str, width: int) -> list[str]:
    """Wrap between words, without control characters; names are never broken, because people copy them."""
    return wrap(replace_unprintable(text, kept="\t\n"), width, break_long_words=False, break_on_hyphens=False) or [""]
