"""What an open page is sent, so that it shows the newest snapshot: server-sent events (HTML, 9.2).

- ``parts``: the parts that have changed, by identity;
- ``main``: the whole content, where more has changed, or the page shows what is not known here;
- ``state``: the line that says whether this is current.

Each event has the digest of what the page shows then as its ``id``. A page that is slow to read holds nothing up and
has nothing kept for it: what it is sent is worked out when it has taken the last, from the newest snapshot. One that
has taken nothing for some time is disconnected.
"""

import json
from typing import Final, Protocol

import anyio

from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.view.html.elements import Html
from kerf_dra.driver.view.html.page import Page
from kerf_dra.driver.view.page_builder import Target

_WRITE_S: Final = 10.0
"""Time for an open page to take what it is sent."""
_PAUSE: Final = 3
"""The least pause, in durations of an update: a search on many nodes takes seconds, and clusters change often."""


class PageConnection(Protocol):
    """The connection of an open page."""

    async def write(self, data: bytes) -> None:
        """Send bytes, once there is room for them. Raises ConnectionError."""
        ...


class PageSource(Protocol):
    """The pages of the newest snapshot."""

    changed: Notifier
    """Notified when there is something else to be shown."""

    @property
    def state_line(self) -> Html:
        """Whether what is shown is current."""
        ...

    async def render(self, target: Target) -> Page:
        """Return the page of a target."""
        ...


class UpdateStream:
    """Sends one open page what changes of it."""

    def __init__(self, connection: PageConnection, pages: PageSource, target: Target, digest: str) -> None:
        """``digest`` is that of what the page shows."""
        self._connection = connection
        self._pages = pages
        self._target = target
        self._digest = digest
        self._shown: Page | None = None
        """What the page shows, as far as it was sent from here."""
        self._state = ""

    async def run(self, quiet_s: float) -> None:
        """Send until the connection ends; a comment after each ``quiet_s`` without an event.

        Raises ConnectionError, and TimeoutError for a page that takes nothing.
        """
        while True:
            event = self._pages.changed.next_event
            began = anyio.current_time()
            await self._send_changes()
            await anyio.sleep(_PAUSE * (anyio.current_time() - began))
            with anyio.move_on_after(quiet_s) as silence:
                await event.wait()
            if silence.cancelled_caught:
                await self._write(": still there\n\n")

    async def _send_changes(self) -> None:
        state = self._pages.state_line
        if state != self._state:
            await self._send("state", state)
            self._state = state
        page = await self._pages.render(self._target)
        if page.digest != self._digest:
            parts = page.find_changed_parts(self._shown) if self._shown is not None else None
            self._digest = page.digest
            await self._send("main" if parts is None else "parts", page.main if parts is None else parts)
        self._shown = page

    async def _send(self, event: str, data: object) -> None:
        await self._write(f"event: {event}\nid: {self._digest}\ndata: {json.dumps(data)}\n\n")

    async def _write(self, text: str) -> None:
        with anyio.fail_after(_WRITE_S):
            await self._connection.write(text.encode())
