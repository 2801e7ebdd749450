"""The methods of a backend whose hardware reports nothing by itself, and that needs no connection."""

import threading
from collections.abc import Sequence

from kerf_dra.driver.kubeletplugin.backends.base import CardChange, HealthChange


class EventlessBackend:
    """A base class: what changes on the cards is found by the surveys that the plugin makes at an interval."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def open(self) -> None:
        """Begin to wait for nothing."""
        self._closed.clear()

    def close(self) -> None:
        """End a wait."""
        self._closed.set()

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange]:
        """Wait until the time is over, or the backend is closed."""
        self._closed.wait(timeout_s)
        return ()
