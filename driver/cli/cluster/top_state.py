"""What ``kerf top`` knows after each reading of a cluster, and where it reads.

::

    ClusterSource.read ──> ClusterState ──build_reading──> Reading ──add_reports──> Reading with more reports

The cluster is listed again for each reading, by the collector of ``kerf why``, so that both say the same. The next
reading begins ``choose_pause`` after the last: a cluster whose lists take long is read less often.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Final, Protocol

from kerf_dra.driver.allocation import Budget
from kerf_dra.driver.cli.terminal_pictures import draw_in_terminal
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import redact
from kerf_dra.driver.diagnostics.explain.report import Subject, WhyReport
from kerf_dra.driver.diagnostics.overview.claim_rows import choose_explained, explain_row
from kerf_dra.driver.diagnostics.overview.cluster_overview import (
    ClusterOverview,
    Scope,
    build_overview,
    list_pools,
    with_reports,
)
from kerf_dra.driver.diagnostics.progress import ProgressTracker, without_progress
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.partitions.card_pictures.card_picture import CardPicture
from kerf_dra.driver.partitions.card_pictures.claim_colors import UNCOLORED, assign_colors

_PAUSE_S: Final = 3.0
"""The least seconds between two readings: what people see as live, and ten lists in three seconds."""
_PAUSES: Final = 9
"""Times that a pause is longer than the reading before it: at most a tenth of the time an API server lists for this."""
_CARDS: Final = 100
"""Cards that are drawn: more fill several screens, and --nodes chooses others."""
_BUDGET: Final = Budget(steps=100_000, seconds=1.0, clock=time.monotonic)
"""The limit of one search on one node: 1 s. ``kerf why`` searches for longer, if its --deadline says so."""


class ClusterSource(Protocol):
    """A cluster that is read again and again."""

    async def read(self) -> ClusterState:
        """Return the present state. Raises KerfError, or an exception group of these, when there is no answer."""
        ...


@dataclass(frozen=True, slots=True)
class ApiServerSource:
    """The cluster of an API server."""

    client: Client
    namespace: str
    """Where events are read if those of all namespaces may not be."""

    async def read(self) -> ClusterState:
        from kerf_dra.driver.diagnostics.collector import collect_state  # aiohttp is not needed for a file

        return redact(await collect_state(self.client, _now, self.namespace))


@dataclass(frozen=True, slots=True)
class FileSource:
    """A state that stays as it is, such as that of a file of ``kerf gather``."""

    state: ClusterState

    async def read(self) -> ClusterState:
        return self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one reading gave, and what is kept from those before it."""

    number: int
    cluster: ClusterIndex
    scope: Scope
    overview: ClusterOverview
    pictures: tuple[CardPicture, ...]
    """The cards, by node."""
    pools_left: int
    """The pools whose cards are not among the pictures."""
    colors: Mapping[str, int]
    """The colors of the claims in the pictures, which they keep."""
    reports: Mapping[Subject, WhyReport]
    """Why claims wait that did so in this reading and were explained in it or before."""
    explained: Mapping[Subject, int]
    """The number of the reading of which each report is."""


def build_reading(state: ClusterState, scope: Scope, before: Reading | None = None) -> Reading:
    """Return what ``state`` says; reports and colors of the reading ``before`` stay."""
    cluster = ClusterIndex(state, _BUDGET)
    pools = list_pools(cluster, scope.nodes)
    pictures: list[CardPicture] = []
    drawn = 0
    while drawn < len(pools) and len(pictures) < _CARDS:
        pictures += cluster.build_pictures([pools[drawn]])
        drawn += 1
    overview = build_overview(cluster, scope)
    waiting = {row.subject for row in overview.waiting}
    reports = {key: report for key, report in before.reports.items() if key in waiting} if before else {}
    return Reading(
        number=before.number + 1 if before else 0,
        cluster=cluster,
        scope=scope,
        overview=with_reports(overview, reports),
        pictures=tuple(pictures),
        pools_left=len(pools) - drawn,
        colors=assign_colors(
            (holder for each in pictures for holder in each.holders), before.colors if before else UNCOLORED
        ),
        reports=reports,
        explained={key: before.explained[key] for key in reports} if before else {},
    )


def explain_more(reading: Reading, most: int, track: ProgressTracker = without_progress) -> Reading:
    """Return ``reading`` with the reports on the first ``most`` claims that ``find_unexplained`` gives."""
    chosen = find_unexplained(reading, most)
    found = {each: explain_row(reading.cluster, each) for each in track(chosen, "explaining why claims wait")}
    return add_reports(reading, found, reading.number)


def find_unexplained(reading: Reading, most: int) -> list[Subject]:
    """Return at most ``most`` claims that wait and have no report of this reading: without any first, then the oldest.

    A report takes a search on every node.
    """
    old = [row for row in reading.overview.claims if reading.explained.get(row.subject, -1) < reading.number]
    return [row.subject for row in choose_explained(old, reading.explained, most)]


def add_reports(reading: Reading, found: Mapping[Subject, WhyReport], number: int) -> Reading:
    """Return ``reading`` with reports that were made of the reading ``number``, on the claims that still wait."""
    waiting = {row.subject for row in reading.overview.waiting}
    added = {key: report for key, report in found.items() if key in waiting}
    return replace(
        reading,
        overview=with_reports(reading.overview, added),
        reports={**reading.reports, **added},
        explained={**reading.explained, **dict.fromkeys(added, number)},
    )


def draw_nodes(reading: Reading, columns: int, text: str = "") -> list[str]:
    """Return the cards drawn, each node's with a legend of its own: a change of one node changes its lines only.

    ``text`` is in the names of their nodes, cards, models, drivers or claims.
    """
    lines: list[str] = []
    chosen = [each for each in reading.pictures if _matches(each, text)]
    for _, own in groupby(chosen, key=lambda each: each.node):
        without_bars = [replace(each, gauges=()) if each.rows else each for each in own]
        lines += draw_in_terminal(without_bars, columns=columns, kept=reading.colors)
    if reading.pools_left:
        lines.append(f"and the cards of {reading.pools_left} more pools; --nodes chooses nodes")
    return lines


def _matches(picture: CardPicture, text: str) -> bool:
    words = (picture.node, picture.title, picture.model, picture.driver, *picture.holders)
    return any(text.casefold() in word.casefold() for word in words)


def choose_pause(took_s: float) -> float:
    """Return the seconds until the next reading, after one whose lists took ``took_s``."""
    return max(_PAUSE_S, took_s * _PAUSES)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
