"""Comparisons of NVIDIA's driver and Kerf's, and the table of the differences that are known and explained."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_name("differences.toml")
ABSENT: Final = "-"
"""The value of what only the other driver has."""


@dataclass(frozen=True)
class Comparison:
    """One row: a value of NVIDIA's driver, and Kerf's."""

    subject: str
    aspect: str
    nvidia: str
    kerf: str

    @property
    def is_equal(self) -> bool:
        return self.nvidia == self.kerf

    def __str__(self) -> str:
        return f"{self.subject}: {self.aspect}: NVIDIA's driver {self.nvidia}, Kerf {self.kerf}"


def compare_mappings(
    subject: str, aspect: str, nvidia: Mapping[str, str], kerf: Mapping[str, str]
) -> Iterator[Comparison]:
    """Compare each key of either driver."""
    for key in sorted({*nvidia, *kerf}):
        yield Comparison(subject, f"{aspect} {key}", nvidia.get(key, ABSENT), kerf.get(key, ABSENT))


@dataclass(frozen=True, kw_only=True)
class KnownDifference:
    """A row of the table: regular expressions that say which comparisons it explains, and the explanation."""

    aspect: str
    model: str = ".*"
    subject: str = ".*"
    nvidia: str = ".*"
    kerf: str = ".*"
    what: str
    """What differs."""
    nvidia_does: str
    kerf_does: str
    right: str
    """Who is right."""
    source: str
    """How that is known."""
    is_of_scenarios: bool = False
    """Whether it shows only in pods on a real cluster (``tests/e2e/test_nvidia_scenarios.py``), in no comparison."""

    def explains(self, model: str, row: Comparison) -> bool:
        patterns = (self.model, self.subject, self.aspect, self.nvidia, self.kerf)
        texts = (model, row.subject, row.aspect, row.nvidia, row.kerf)
        return all(re.fullmatch(pattern, text, re.DOTALL) for pattern, text in zip(patterns, texts, strict=True))


@dataclass(frozen=True, kw_only=True)
class DifferenceTable:
    """The committed table."""

    module: str
    version: str
    date: str
    """When it was last compared."""
    differences: Sequence[KnownDifference]


def read_table(path: Path = TABLE) -> DifferenceTable:
    """Read the table. Raises TypeError for an unknown or a missing field."""
    document = tomllib.loads(path.read_text())
    rows = [KnownDifference(**row) for row in document.pop("differences")]
    return DifferenceTable(**document, differences=rows)


@dataclass
class Verdict:
    """All comparisons of a run."""

    table: DifferenceTable
    models: set[str] = field(default_factory=set)
    """The models whose comparisons are complete."""
    n_compared: int = 0
    n_equal: int = 0
    n_explained: dict[str, int] = field(default_factory=dict)
    """How many comparisons each row of the table explains, by what differs."""

    def add(self, model: str, rows: Iterable[Comparison]) -> Sequence[Comparison]:
        """Count the comparisons of a model, and return the differences that no row of the table explains."""
        unexplained = []
        for row in rows:
            self.n_compared += 1
            self.n_equal += row.is_equal
            if row.is_equal:
                continue
            known = next((one.what for one in self.table.differences if one.explains(model, row)), None)
            if known is None:
                unexplained.append(row)
            else:
                self.n_explained[known] = self.n_explained.get(known, 0) + 1
        self.models.add(model)
        return unexplained

    @property
    def unused(self) -> Sequence[str]:
        """The rows of the table that explained nothing so far, by what differs."""
        compared = [one.what for one in self.table.differences if not one.is_of_scenarios]
        return [what for what in compared if what not in self.n_explained]

    def __str__(self) -> str:
        explained = sum(self.n_explained.values())
        return f"{self.n_compared} rows compared, {self.n_equal} equal, {explained} explained by the table"
