"""The recorded metrics of a run of the demo, as ``tools/demo_metrics.py`` writes them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from tools.generate.page_block import ROOT

DASHBOARD: Final = ROOT / "deploy/monitoring/dashboard.json"
RECORDED: Final = Path(__file__).with_name("demo_metrics.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSeries:
    """One series with a value for each sample."""

    name: str
    labels: Mapping[str, str]
    values: Sequence[float | None]
    """None: the series was not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """All series of a run."""

    interval_s: float
    samples: int
    series: Mapping[str, Sequence[RecordedSeries]]
    """By the name of the metric."""


def read_recording(path: Path = RECORDED) -> Recording:
    """Return what was recorded."""
    document = json.loads(path.read_text(encoding="utf-8"))
    samples = document["samples"]
    series: dict[str, list[RecordedSeries]] = {}
    for each in document["series"]:
        values: list[float | None] = [None] * each["changes"][0][0]
        for (number, value), (following, _) in pairwise([*each["changes"], (samples, None)]):
            values += [value] * (following - number)
        found = RecordedSeries(name=each["name"], labels=each["labels"], values=tuple(values))
        series.setdefault(found.name, []).append(found)
    return Recording(interval_s=document["interval_s"], samples=samples, series=series)
