"""Samples, and how they are told: median, spread, and the ratio to a baseline measured in turns with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure. ``samples`` and ``baseline`` are in ``unit``; without a baseline there is no ratio."""

    name: str
    unit: str
    samples: Sequence[float]
    baseline_name: str = ""
    baseline: Sequence[float] = ()
    goal: str = ""

    def cells(self) -> tuple[str, ...]:
        ratio = f"{median(self.samples) / median(self.baseline):.2f}" if self.baseline else ""
        base = f"{_number(median(self.baseline))} {self.unit} ({self.baseline_name})" if self.baseline else ""
        return (
            self.name,
            f"{_number(median(self.samples))} {self.unit}",
            f"{_number(min(self.samples))}-{_number(percentile(self.samples, 99))}",
            base,
            ratio,
            self.goal,
        )


HEADER = ("WHAT", "MEDIAN", "MIN-P99", "BASELINE", "RATIO", "GOAL")


def percentile(samples: Sequence[float], percent: float) -> float:
    """Nearest rank."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, round(percent / 100 * len(ordered)))]


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
