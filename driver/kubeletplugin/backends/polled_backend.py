"""Backends of cards that report nothing by themselves: they are read at an interval, and changes are reported."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    CardChange,
    DiscoveryChange,
    HardwareBusyError,
    HealthChange,
    HealthState,
    UnhealthyState,
)
from kerf_dra.driver.partitions.geometry import Partition

_log = logging.getLogger(__name__)

States = Mapping[Partition | None, UnhealthyState]
"""What is not healthy of a card, by partition; None: the whole card."""
Snapshot = tuple[States, object]
"""The health of a card, and what else is on it, of which only a change counts."""


class PolledBackend(ABC):
    """The part of a Backend that watches the cards which its process knows."""

    def __init__(self, poll_s: float) -> None:
        """``poll_s`` is the number of seconds between two reads."""
        self._poll_s = poll_s
        self._closed = threading.Event()
        self._reported: dict[str, Snapshot] = {}

    def open(self) -> None:
        """Begin again: the next wait reports everything that is not healthy. A wait that was ended stays so."""
        self._closed = threading.Event()
        self._reported = {}

    def close(self) -> None:
        """End waits, also those to come."""
        self._closed.set()

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange | DiscoveryChange]:
        """Return the changes since the last call, as soon as there are some, after ``timeout_s`` at the latest."""
        left_s, closed, reported = timeout_s, self._closed, self._reported
        while not closed.is_set():
            events = [*self._list_changes(reported), *([DiscoveryChange()] if self._take_news() else ())]
            if events or left_s <= 0:
                return events
            closed.wait(min(left_s, self._poll_s))
            left_s -= self._poll_s
        return []

    @abstractmethod
    def _list_seen(self) -> Sequence[str]:
        """Return the UUIDs of the cards that are there or were."""

    @abstractmethod
    def _read_snapshot(self, card_uuid: str) -> Snapshot:
        """Return the card's health, and what is loaded in it. Raises CardAbsentError."""

    def _take_news(self) -> bool:
        """Return whether discovery has changed since the last call, though no card has."""
        return False

    def _list_changes(self, reported: dict[str, Snapshot]) -> list[HealthChange | CardChange]:
        events: list[HealthChange | CardChange] = []
        for card_uuid in self._list_seen():
            new = self._read_card(card_uuid, reported)
            before = reported.get(card_uuid, ({}, new[1]))
            events += _compare(card_uuid, before[0], new[0])
            if before[1] != new[1]:
                events.append(CardChange(card_uuid=card_uuid))
            reported[card_uuid] = new
        return events

    def _read_card(self, card_uuid: str, reported: Mapping[str, Snapshot]) -> Snapshot:
        """Return what is known of a card now; of one that cannot be read what was reported of it."""
        try:
            return self._read_snapshot(card_uuid)
        except CardAbsentError as error:
            return {None: UnhealthyState(HealthState.LOST, str(error))}, None
        except HardwareBusyError as error:
            _log.debug("card %s cannot be read: %s", card_uuid, error)
            return reported.get(card_uuid, ({}, None))


def _compare(card_uuid: str, before: States, now: States) -> list[HealthChange | CardChange]:
    changed = [part for part in {**before, **now} if before.get(part) != now.get(part)]
    return [
        HealthChange(
            card_uuid=card_uuid,
            partition=part,
            state=state.state if (state := now.get(part)) else HealthState.HEALTHY,
            reason=state.reason if state else "recovered",
            repair=state.repair if state else None,
        )
        for part in changed
    ]
