"""Watches the cards: NVML's events, and what each card says of its own health, as the changes that the plugin gets."""

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    CardChange,
    HardwareBusyError,
    HealthChange,
    HealthState,
    OutdatedProcessError,
    UnhealthyState,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.health.card_health import (
    CardHealth,
    add_xid,
    list_states,
    note_away,
    note_condition,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.library import EventSet, NvmlLibrary
from kerf_dra.driver.kubeletplugin.backends.nvidia.readings import EventReading
from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)

_Part: TypeAlias = tuple[str, Partition | None]
"""A card's UUID and a partition of it; None: the whole card."""
_XIDS: Final = metrics.counter("kerf_nvidia_xids_total", "Xid errors that NVIDIA's driver reported.", ["xid"])
_SLICE_S: Final = 0.5
"""Seconds of one wait inside NVML, which nothing can end: closing takes no longer."""
_READ_EVERY_S: Final = 2.0
"""Seconds between two readings of what no event reports: temperature, a card that is back. It is three calls a card."""
_MOST_EVENTS: Final = 64
"""Events that are taken in one go: a card in trouble reports many at once."""
_CLOSE_S: Final = 5.0
"""Seconds until closing goes on although a wait does not end: ten times what it takes where NVML answers."""
_EVENTS: Final = "events"
"""Subject of a problem with the event set."""
_DAEMONS: Final = "daemons"
"""Subject of a problem with the states of MPS daemons; other subjects are UUIDs of cards."""
_MAX_REASON: Final = 500
"""Characters of a reason that no Xid is, such as a process that keeps a partition: the kubelet accepts 1024 bytes
(KEP-4680)."""


class EventWatcher:
    """The watch of all cards from one opening of the backend to its end. ``wait`` is called by one thread."""

    def __init__(
        self,
        library: NvmlLibrary,
        *,
        list_cards: Callable[[], Collection[str]],
        find_partition: Callable[[str, int], Partition | None],
        list_failed_daemons: Callable[[], Mapping[_Part, str]],
        now: Callable[[], float],
    ) -> None:
        """``list_cards`` returns the UUIDs of the cards that were discovered, ``find_partition`` that of a GPU instance
        by the card's UUID and the instance's id, ``list_failed_daemons`` why the MPS daemons of devices fail, and
        ``now`` a time in seconds that never goes back.
        """
        self._library = library
        self._list_cards = list_cards
        self._find_partition = find_partition
        self._list_failed_daemons = list_failed_daemons
        self._now = now
        self._closed = threading.Event()
        self._waiting = threading.Lock()
        self._in_nvml = threading.Lock()
        """Held by the thread that calls NVML for the watch, or that keeps others from calling it."""
        self._events: EventSet | None = None
        self._generation = library.generation
        self._health: dict[str, CardHealth] = {}
        self._changed: set[str] = set()
        self._held: dict[Partition, str] = {}
        self._failed_daemons: Mapping[_Part, str] = {}
        self._reported: Mapping[_Part, UnhealthyState] = {}
        self._has_reported = False
        self._problems = ProblemLog(_log)

    def close(self) -> None:
        """End a wait, and come back when it has ended: NVML must not be closed under it."""
        self._closed.set()
        if self._waiting.acquire(timeout=_CLOSE_S):
            self._release_events()
            self._waiting.release()
        else:
            _log.warning("NVML does not end a wait for events")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Watch no card while the block runs, and hold no events: NVML may be closed meanwhile and opened again.

        Raises HardwareBusyError when a wait does not end.
        """
        if not self._in_nvml.acquire(timeout=_CLOSE_S):
            raise HardwareBusyError("NVML does not end a wait for events")
        try:
            self._release_events()
            yield
        finally:
            self._generation = self._library.generation  # not the driver was loaded again, but NVML opened again
            self._in_nvml.release()

    def note_reset(self, card_uuid: str) -> None:
        """Forget the Xids of a card that was reset. To be called while the watch is paused."""
        if card_uuid in self._health:
            self._health[card_uuid] = CardHealth()
        self._changed.add(card_uuid)

    def note_held(self, partition: Partition, reason: str) -> None:
        """Report a partition that cannot be released as unhealthy, until ``note_released``: it cannot be allocated."""
        self._held[partition] = reason

    def note_released(self, partition: Partition) -> None:
        """Report the end of what ``note_held`` has noted, if it has."""
        self._held.pop(partition, None)

    def wait(self, timeout_s: float) -> Sequence[HealthChange | CardChange]:
        """Wait at most so many seconds for changes; the first call returns at once. Raises OutdatedProcessError."""
        with self._waiting:
            if self._closed.is_set() or not self._in_nvml.acquire(timeout=max(0.0, timeout_s)):
                return ()
            with _released(self._in_nvml):
                self._read_cards()
            left_s, unread_s = timeout_s if self._has_reported else 0.0, 0.0
            while not (changes := self._take_changes()) and left_s > 0 and not self._closed.is_set():
                slice_s = min(left_s, _SLICE_S)
                left_s, unread_s = left_s - slice_s, unread_s + slice_s
                if not self._in_nvml.acquire(timeout=slice_s):
                    continue
                with _released(self._in_nvml):
                    if self._take_events(slice_s) or unread_s >= _READ_EVERY_S:
                        self._read_cards()
                        unread_s = 0.0
            self._has_reported = True
            return changes

    # What the cards say

    def _read_cards(self) -> None:
        try:
            known = {*self._list_cards(), *self._health}
        except OutdatedProcessError:
            raise
        except KerfError as error:
            _log.debug("the cards cannot be listed: %s", error)
            known = {*self._health}
        if self._has_reported:  # what is new since then is to be discovered
            self._changed |= known - self._health.keys()
        for card_uuid in sorted(known):
            self._read_card(card_uuid)
        if self._library.generation != self._generation:  # the driver was loaded again, which resets every card
            self._generation = self._library.generation
            self._health = {card_uuid: CardHealth(away=one.away) for card_uuid, one in self._health.items()}
            for card_uuid in sorted(known):
                self._read_card(card_uuid)
                self._changed.add(card_uuid)
        self._read_daemons()
        self._register()

    def _read_card(self, card_uuid: str) -> None:
        before = self._health.get(card_uuid, CardHealth())
        try:
            try:
                condition = self._library.read_condition(card_uuid)
            except CardAbsentError:  # when the driver was loaded again, the next call opens NVML again
                condition = self._library.read_condition(card_uuid)
        except CardAbsentError as error:
            if not self._closed.is_set():
                self._health[card_uuid] = note_away(before, before.away or f"the card does not answer: {error}")
            return
        except OutdatedProcessError:
            raise
        except KerfError as error:
            self._problems.note(card_uuid, f"the health of card {card_uuid} cannot be read: {error}")
            return
        self._problems.clear(card_uuid)
        if before.away:
            self._changed.add(card_uuid)
        release = self._library.driver_release
        self._health[card_uuid] = note_condition(before, condition, release, self._now())

    def _read_daemons(self) -> None:
        try:
            self._failed_daemons = self._list_failed_daemons()
        except (KerfError, OSError) as error:  # what was known stays
            self._problems.note(_DAEMONS, f"the state of the MPS daemons cannot be read: {error}")
        else:
            self._problems.clear(_DAEMONS)

    def _take_changes(self) -> list[HealthChange | CardChange]:
        """Return what was not reported yet, and take it for reported: nothing that fails comes after this."""
        states: dict[_Part, UnhealthyState] = {
            (card_uuid, partition): state
            for card_uuid, health in self._health.items()
            for partition, state in list_states(health).items()
        }
        held: dict[_Part, str] = {(one.card_uuid, one): reason for one, reason in self._held.copy().items()}
        for part, reason in {**self._failed_daemons, **held}.items():
            states.setdefault(part, UnhealthyState(HealthState.UNHEALTHY, reason[:_MAX_REASON]))
        keys = [key for key in {**self._reported, **states} if self._reported.get(key) != states.get(key)]
        changes: list[HealthChange | CardChange] = [_to_change(*key, states.get(key)) for key in keys]
        changes += [CardChange(card_uuid=card_uuid) for card_uuid in sorted(self._changed)]
        self._reported = states
        self._changed.clear()
        return changes

    # What NVML reports

    def _take_events(self, timeout_s: float) -> bool:
        """Wait for events and note them; returns whether there were any, or the cards are to be asked."""
        if self._events is None:
            self._closed.wait(timeout_s)
            return False
        try:
            for number in range(_MOST_EVENTS):
                event = self._library.wait_for_event(self._events, 0.0 if number else timeout_s)
                if event is None:
                    return number > 0
                self._note(event)
        except KerfError as error:  # a card is lost, or the driver is away: the readings say which
            _log.debug("cannot wait for events, will try again: %s", error)
            self._release_events()
            self._closed.wait(min(timeout_s, _SLICE_S))
        return True

    def _register(self) -> None:
        """Have a set of events of all cards that answer, made again when these have changed; none where that fails."""
        cards = sorted(card_uuid for card_uuid, health in self._health.items() if not health.away)
        events = self._events
        if events is not None and events.generation == self._library.generation and sorted(events.cards) == cards:
            return
        self._release_events()
        try:
            self._events = self._library.create_event_set(cards) if cards else None
        except KerfError as error:  # the next reading tries again
            self._problems.note(_EVENTS, f"no events are watched now: {error}")
        else:
            self._problems.clear(_EVENTS)

    def _release_events(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            self._library.free_event_set(events)

    def _note(self, event: EventReading) -> None:
        card_uuid = event.card_uuid
        if card_uuid is None:
            return
        if event.xid is None:
            self._changed.add(card_uuid)
            return
        partition = None if event.instance is None else self._find_partition(card_uuid, event.instance)
        _XIDS.labels(event.xid).inc()
        _log.warning("card %s%s: Xid %d", card_uuid, f" {partition.placement}" if partition else "", event.xid)
        health = self._health.get(card_uuid, CardHealth())
        self._health[card_uuid] = add_xid(health, event.xid, partition, self._now())


@contextmanager
def _released(lock: threading.Lock) -> Iterator[None]:
    """Release a lock that is held at the end of the block."""
    try:
        yield
    finally:
        lock.release()


def _to_change(card_uuid: str, partition: Partition | None, state: UnhealthyState | None) -> HealthChange:
    found, reason, repair = state or (HealthState.HEALTHY, "", None)
    return HealthChange(card_uuid=card_uuid, partition=partition, state=found, reason=reason, repair=repair)
