"""The device health service (NodeWatchResources, KEP-4680), every version of it by one implementation."""

from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

import anyio

from kerf_dra.api.dra.health import DeviceHealth
from kerf_dra.api.dra.registry import HEALTH_SERVICES
from kerf_dra.driver.kubeletplugin.grpc.server import Handlers, stream
from kerf_dra.driver.runtime.notifier import Notifier

MIN_INTERVAL_S: Final = 0.2
"""Least time between two reports: a claim changes its record four times in its life, and pods come in groups."""


class HealthSource(Protocol):
    """Reports the health of devices."""

    def report_health(self) -> Sequence[DeviceHealth] | None:
        """Return the health of every device in use; None: there is nothing to report now."""
        ...


class HealthFeed:
    """Streams the health of the devices in use: when it changes, and again before the kubelet lets it expire.

    Every report holds every device, so one report covers all changes since the last.
    """

    def __init__(self, source: HealthSource, *, interval_s: float) -> None:
        self._source = source
        self._interval_s = interval_s
        self.change = Notifier()
        """To be notified when the health of devices in use may have changed: then a report is sent."""
        self._closed = anyio.Event()

    @property
    def handlers(self) -> Handlers:
        return dict(stream(row.watch, self.watch) for row in HEALTH_SERVICES)

    def close(self) -> None:
        """End all streams: a server cannot stop while one of its calls goes on."""
        self._closed.set()
        self.change.notify()

    async def watch(self, _request: None) -> AsyncIterator[Sequence[DeviceHealth]]:
        while not self._closed.is_set():
            change = self.change.next_event
            reports = self._source.report_health()
            if reports is not None:
                yield reports
                with anyio.move_on_after(min(MIN_INTERVAL_S, self._interval_s)):
                    await self._closed.wait()
            with anyio.move_on_after(self._interval_s):
                await change.wait()
