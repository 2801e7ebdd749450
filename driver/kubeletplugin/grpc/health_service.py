"""The kubelet's device health service (NodeWatchResources, KEP-4680), every version of it from one implementation."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import anyio

from api.dra.health import DeviceHealth
from api.dra.registry import HEALTH_SERVICES
from driver.kubeletplugin.grpc.server import Handlers, stream
from driver.kubeletplugin.proxy import Relay
from driver.runtime.notifier import Pulse

REST_S: Final = 0.2
"""Between two reports: a claim changes its record four times in its life, and pods come in groups."""


class HealthFeed:
    """Sends the health of devices in use: at once when it changes, and again before the kubelet lets it expire.

    Every report holds every device, so changes that follow at once are told together.
    """

    def __init__(self, relay: Relay, *, interval_s: float) -> None:
        self._relay = relay
        self._interval_s = interval_s
        self._change = Pulse()
        self._closed = anyio.Event()

    @property
    def handlers(self) -> Handlers:
        return dict(stream(row.watch, self.watch) for row in HEALTH_SERVICES)

    def changed(self) -> None:
        self._change.beat()

    def close(self) -> None:
        """End all streams: a server cannot stop while one of its calls goes on."""
        self._closed.set()
        self._change.beat()

    async def watch(self, _request: None) -> AsyncIterator[Sequence[DeviceHealth]]:
        while not self._closed.is_set():
            change = self._change.next
            reports = self._relay.health()
            if reports is not None:
                yield reports
                with anyio.move_on_after(min(REST_S, self._interval_s)):
                    await self._closed.wait()
            with anyio.move_on_after(self._interval_s):
                await change.wait()
