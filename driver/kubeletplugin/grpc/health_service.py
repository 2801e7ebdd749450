"""The device health service (NodeWatchResources, KEP-4680), every version of it by one implementation."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import anyio

from kerf_dra.api.dra.health import DeviceHealth
from kerf_dra.api.dra.registry import HEALTH_SERVICES
from kerf_dra.driver.kubeletplugin.grpc.server import Handlers, stream
from kerf_dra.driver.runtime.notifier import Notifier

MIN_INTERVAL_S: Final = 0.2
"""Least time between two reports: a claim changes its record four times in its life, and pods come in groups."""


class HealthFeed:
    """Streams the health of the devices in use: when it changes, and again before the kubelet lets it expire.

    Every report holds every device, so one report covers all changes since the last.
    """

    def __init__(self, report: Callable[[], Sequence[DeviceHealth] | None], *, interval_s: float) -> None:
        """``report`` returns the health of every device in use; None: there is nothing to report now."""
        self._report = report
        self._interval_s = interval_s
        self._change = Notifier()
        self._closed = anyio.Event()

    @property
    def handlers(self) -> Handlers:
        return dict(stream(row.watch, self.watch) for row in HEALTH_SERVICES)

    def notify(self) -> None:
        """Have a report sent, because the health of devices in use may have changed."""
        self._change.notify()

    def close(self) -> None:
        """End all streams: a server cannot stop while one of its calls goes on."""
        self._closed.set()
        self._change.notify()

    async def watch(self, _request: None) -> AsyncIterator[Sequence[DeviceHealth]]:
        while not self._closed.is_set():
            change = self._change.next_event
            reports = self._report()
            if reports is not None:
                yield reports
                with anyio.move_on_after(min(MIN_INTERVAL_S, self._interval_s)):
                    await self._closed.wait()
            with anyio.move_on_after(self._interval_s):
                await change.wait()
