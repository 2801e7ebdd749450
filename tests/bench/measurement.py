"""Rows of a benchmark's table: median, spread, and the ratio to a baseline measured alternately with the samples."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from kerf_dra.api.model.base import JsonObject

_BEGAN: Final = time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured quantity. ``samples`` and ``baseline`` are in ``unit``; without a baseline there is no ratio."""

    name: str
    unit: str
    samples: Sequence[float]
    baseline_name: str = ""
    baseline: Sequence[float] = ()
    goal: str = ""

    @property
    def ratio(self) -> float | None:
        """The ratio of the medians; None: there is no baseline, or its median is zero, as of failed calls."""
        return median(self.samples) / median(self.baseline) if self.baseline and median(self.baseline) else None

    def cells(self) -> tuple[str, ...]:
        base = f"{_number(median(self.baseline))} {self.unit} ({self.baseline_name})" if self.baseline else ""
        return (
            self.name,
            f"{_number(median(self.samples))} {self.unit}",
            f"{_number(min(self.samples))}-{_number(percentile(self.samples, 99))}",
            base,
            "" if self.ratio is None else f"{self.ratio:.2f}",
            self.goal,
        )

    def document(self) -> JsonObject:
        """Return the row as JSON."""
        document = {"name": self.name, "unit": self.unit, "goal": self.goal, **_figures(self.samples)}
        if self.baseline:
            document["baseline"] = {"name": self.baseline_name, **_figures(self.baseline)}
            document["ratio"] = self.ratio
        return document


HEADER = ("WHAT", "MEDIAN", "MIN-P99", "BASELINE", "RATIO", "GOAL")


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, round(percent / 100 * len(ordered)))]


def say(progress: str) -> None:
    """Print progress on stderr, because stdout has the table."""
    minutes, seconds = divmod(int(time.monotonic() - _BEGAN), 60)
    print(f"{minutes:2}:{seconds:02} {progress} …", file=sys.stderr, flush=True)


def _figures(samples: Sequence[float]) -> JsonObject:
    return {"count": len(samples), "median": median(samples), "min": min(samples), "p99": percentile(samples, 99)}


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
