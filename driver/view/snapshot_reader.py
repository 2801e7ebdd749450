"""Reads the cluster again and again while pages are open: the only part of the package that reads it.

What commands read is listed as a whole. So that this costs a large cluster's API server little, the pauses are nine
times as long as a read takes, and nothing is read while no page is open.
"""

import math
from datetime import UTC, datetime
from typing import Final, Protocol

import anyio

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.diagnostics.cluster_state import ClassicState, ClusterState
from kerf_dra.driver.diagnostics.collector import ListArrivals, collect_state
from kerf_dra.driver.diagnostics.dump import redact
from kerf_dra.driver.kube.discovery import ClassicFeatures, discover_any
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.lifecycle import iter_leaf_errors
from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.view.snapshots import Snapshots

_PAUSE: Final = 9
"""The least pause, in durations of a read: a tenth of the time is spent on reads."""
_RETRIES: Final = Backoff(first_s=1.0, factor=2, limit_s=15, jitter=0.2)
"""Pauses after failures: a person waits for the end of an outage."""
_ATTENTION_S: Final = 30.0
"""Seconds for which the cluster is read after a request, though no page stays open."""
_FRESH_S: Final = 10.0
"""The age of a snapshot, in seconds, from which it is read again before a page is shown of it."""
_WAIT_S: Final = 3.0
"""The longest that a page waits for that."""


class StateReader(Protocol):
    """Reads the state of a cluster."""

    async def read(self, arrivals: ListArrivals | None = None) -> ClusterState:
        """Read the state of now; ``arrivals`` has what has arrived meanwhile.

        Raises KerfError, or an exception group of these.
        """
        ...


class ClusterReader:
    """Reads the state of a cluster from its API server, without the fields that are for secrets."""

    def __init__(self, client: Client, namespace: str) -> None:
        """``namespace`` is where events are read if they may not be read everywhere."""
        self._client = client
        self._namespace = namespace

    async def discover(self) -> ClusterState:
        """Return a state without objects: which version of Kubernetes it is, and whether drivers' controllers allocate.

        Raises UnsupportedError, ApiError and AccessError as ``collect_state`` does.
        """
        api = await discover_any(self._client)
        classic = ClassicState() if isinstance(api, ClassicFeatures) else None
        return ClusterState(kubernetes=".".join(map(str, api.kubernetes)), classic=classic)

    async def read(self, arrivals: ListArrivals | None = None) -> ClusterState:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return redact(await collect_state(self._client, lambda: now, self._namespace, arrivals))


class SnapshotReader:
    """Reads one snapshot after the other while pages are open."""

    def __init__(self, reader: StateReader, every_s: float) -> None:
        """``every_s`` is the least number of seconds between two reads."""
        self._reader = reader
        self._every_s = every_s
        self._asked = Notifier()
        self._asked_at = anyio.current_time()
        self._read_at = anyio.current_time()
        self._was_read = Notifier()
        self.watchers = 0
        """Pages that are open now."""

    async def ask(self) -> None:
        """Note a request, and if there was none for a while, wait shortly for a snapshot of now."""
        self._asked_at = anyio.current_time()
        read = self._was_read.next_event
        self._asked.notify()
        if self._asked_at - self._read_at > max(_FRESH_S, 2 * self._every_s):
            with anyio.move_on_after(_WAIT_S):
                await read.wait()

    async def read_first(self, snapshots: Snapshots) -> ClusterState:
        """Return the first state of the cluster, and meanwhile show what has arrived of it.

        What fails is shown, and read again.
        """
        self._read_at = math.inf  # no page waits for a newer snapshot
        delays = _RETRIES.delays()
        while True:
            arrivals = ListArrivals()
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_show_arrivals, arrivals, snapshots)
                    state = await self._reader.read(arrivals)
                    tasks.cancel_scope.cancel()
            except (KerfError, BaseExceptionGroup) as error:
                snapshots.note_problem(_describe(error))
                await anyio.sleep(next(delays))
                await self._wait_for_attention()
            else:
                self._read_at = anyio.current_time()
                return state

    async def follow(self, snapshots: Snapshots) -> None:
        """Read until cancelled."""
        delays = _RETRIES.delays()
        pause_s = self._every_s
        while True:
            await anyio.sleep(pause_s)
            await self._wait_for_attention()
            begin = anyio.current_time()
            try:
                snapshots.replace(await self._reader.read())
            except (KerfError, BaseExceptionGroup) as error:
                snapshots.note_problem(_describe(error))
                pause_s = next(delays)
            else:
                delays = _RETRIES.delays()
                pause_s = max(self._every_s, _PAUSE * (anyio.current_time() - begin))
            self._read_at = anyio.current_time()
            self._was_read.notify()

    async def _wait_for_attention(self) -> None:
        asked = self._asked.next_event
        if not self.watchers and anyio.current_time() - self._asked_at > _ATTENTION_S:
            await asked.wait()


async def _show_arrivals(arrivals: ListArrivals, snapshots: Snapshots) -> None:
    """Show what has arrived, after each page of a list, until cancelled."""
    while True:
        await arrivals.changed.wait()
        snapshots.show_arrived(arrivals.state)


def _describe(error: BaseException) -> str:
    """Return the messages of errors that a cluster causes. Raises the error again if it is another."""
    leaves = [*iter_leaf_errors(error)]
    if not all(isinstance(each, KerfError) for each in leaves):
        raise error
    return "; ".join(dict.fromkeys(map(str, leaves)))
