"""The newest snapshot of the cluster, since when it is not current, and the pages that were made of it.

Until there is a first one, pages are made of what has arrived of it.

Pages are made in a worker thread, one at a time: a search for devices may take seconds, in which open pages go on to
be served.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec
from anyio import CapacityLimiter, to_thread

from kerf_dra.driver.allocation import Budget
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState, PartialState
from kerf_dra.driver.diagnostics.times import seconds_between
from kerf_dra.driver.partitions.card_pictures.claim_colors import UNCOLORED
from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.view.html.arrival_pages import describe_arrived
from kerf_dra.driver.view.html.elements import Html
from kerf_dra.driver.view.html.page import Page, render_state
from kerf_dra.driver.view.page_builder import Query, Target, answer_form, refuse_form, show_arrived, show_target
from kerf_dra.driver.view.snapshot_view import SnapshotView

_MOST_PAGES: Final = 64
"""Pages kept of one snapshot: those of all that are open, and some of people who look around."""
_LONGEST_S: Final = 60.0
"""Seconds for which an unchanged cluster is not shown again, although durations in sentences have grown."""


@dataclass(slots=True)
class _Snapshot:
    """One snapshot with the pages made of it."""

    view: SnapshotView
    pages: dict[Target, Page] = field(default_factory=dict)


class Snapshots:
    """The newest snapshot, which pages are made of."""

    def __init__(self, state: ClusterState | None, budget: Budget, source: str) -> None:
        """``state`` is None while the cluster is read for the first time.

        ``budget`` is that of a search on one node; ``source`` says in words where snapshots come from.
        """
        self._budget = budget
        self._source = source
        self._snapshot = None if state is None else _Snapshot(SnapshotView(ClusterIndex(state, budget)))
        self._arrived = PartialState()
        self._one_at_a_time = CapacityLimiter(1)
        self._problem = ""
        self.read_at = state.gathered_at if state is not None else ""
        """When the cluster was read last with success, in RFC 3339; empty: never."""
        self.changed = Notifier()
        """Notified when there is something else to be shown."""

    @property
    def state_line(self) -> Html:
        """Whether what is shown is current."""
        if self._snapshot is None:
            problem = f"The cluster could not be read yet, and is read again: {self._problem}"
            return render_state(problem if self._problem else describe_arrived(self._arrived), is_current=False)
        if not self._problem:
            return render_state(self._source, is_current=True)
        return render_state(f"Not current since {self.read_at}: {self._problem}", is_current=False)

    def show_arrived(self, arrived: PartialState) -> None:
        """Show what has arrived of the first snapshot."""
        self._arrived, self._problem = arrived, ""
        self.changed.notify()

    def replace(self, state: ClusterState) -> None:
        """Show a new snapshot."""
        self.read_at = state.gathered_at
        self._arrived = PartialState()
        had_problem, self._problem = bool(self._problem), ""
        former = None if self._snapshot is None else self._snapshot.view
        if former is None or not _is_unchanged(former.cluster.state, state):
            colors = UNCOLORED if former is None else former.colors
            self._snapshot = _Snapshot(SnapshotView(ClusterIndex(state, self._budget), colors))
        elif not had_problem:
            return
        self.changed.notify()

    def note_problem(self, problem: str) -> None:
        """Show that the cluster could not be read."""
        if problem != self._problem:
            self._problem = problem
            self.changed.notify()

    async def render(self, target: Target) -> Page:
        """Return the page of a target."""
        snapshot, arrived = self._snapshot, self._arrived
        if snapshot is None:
            return await self._compute(lambda: show_arrived(arrived, target))
        if target not in snapshot.pages:
            page = await self._compute(lambda: show_target(snapshot.view, target))
            if len(snapshot.pages) >= _MOST_PAGES:
                snapshot.pages.pop(next(iter(snapshot.pages)))
            snapshot.pages[target] = page
        return snapshot.pages[target]

    async def answer(self, form: Query) -> Page:
        """Return the page with the answer to a manifest."""
        snapshot = self._snapshot
        return await self._compute(lambda: answer_form(snapshot.view, form) if snapshot else refuse_form(form))

    async def _compute(self, show: Callable[[], Page]) -> Page:
        return await to_thread.run_sync(show, limiter=self._one_at_a_time)


def _is_unchanged(former: ClusterState, state: ClusterState) -> bool:
    """Whether nothing is different that was read within a minute; slices are compared by their versions."""
    age_s = seconds_between(former.gathered_at, state.gathered_at)
    if age_s is None or not 0 <= age_s <= _LONGEST_S or _versions(former) != _versions(state):
        return False
    without = {"gathered_at": "", "slices": ()}
    return bool(msgspec.structs.replace(state, **without) == msgspec.structs.replace(former, **without))


def _versions(state: ClusterState) -> list[tuple[str, str]]:
    return [(each.metadata.uid, each.metadata.resource_version) for each in ClusterIndex(state).slices.compact]
