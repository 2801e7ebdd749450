"""The table of what the kernel did, and what its stand-in did otherwise. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from types import MappingProxyType
from typing import Final

KNOWN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Kerf: killed while the card loads": "a load in the kernel goes on, one of the stand-in ends with its process",
    }
)
"""Why the stand-in differs, by case."""
_WIDTH: Final = 78


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A case and what was seen of it; empty: the run ended before it."""

    case: str
    kernel: str
    stand_in: str

    @property
    def is_wrong(self) -> bool:
        """Whether the kernel gave no answer, or one that differs from the stand-in's for no known reason."""
        return not self.kernel or (self.kernel != self.stand_in) != (self.case in KNOWN)


def parse_results(text: str) -> dict[str, str]:
    """Return what was seen of each case, from the lines of a trial; a last line that is cut short is left out."""
    found = {}
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if "case" in record:
            found[record["case"]] = record["seen"]
    return found


def compare(names: Sequence[str], kernel: Mapping[str, str], stand_in: Mapping[str, str]) -> list[Row]:
    """Return a row for each case."""
    return [Row(case=name, kernel=kernel.get(name, ""), stand_in=stand_in.get(name, "")) for name in names]


def format_table(rows: Sequence[Row]) -> str:
    """Return the table as text of 80 columns."""
    lines: list[str] = []
    for row in rows:
        lines.append(f"{'!' if row.is_wrong else ' '} {row.case}")
        lines += _wrap("kernel", row.kernel or "no answer: the run ended before this case did")
        if row.kernel != row.stand_in:
            lines += _wrap("stand-in", row.stand_in or "no answer")
        if row.case in KNOWN:
            lines += _wrap(
                "known", KNOWN[row.case] if row.kernel != row.stand_in else "differs no more: remove the reason"
            )
    wrong = sum(row.is_wrong for row in rows)
    return "\n".join([*lines, "", f"{len(rows)} cases, {wrong} of them (!) not as expected"])


def _wrap(label: str, text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent=f"      {label:<9} ", subsequent_indent=" " * 16)
