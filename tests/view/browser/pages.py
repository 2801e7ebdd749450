"""What tests in a browser share: a server in a thread, pages of it, and what the browser says of them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Self

import anyio
from anyio.from_thread import BlockingPortal
from playwright.sync_api import Browser, Page

from kerf_dra.driver.allocation import Budget
from kerf_dra.driver.diagnostics.cluster_state import ClusterState, PartialState
from kerf_dra.driver.view.server import ViewServer
from kerf_dra.driver.view.snapshots import Snapshots

TOKEN: Final = "the-token"
PHONE: Final = 360
"""Pixels of the narrowest page."""
DESKTOP: Final = 1280


class ServedView:
    """A server in the thread of a portal."""

    def __init__(self, portal: BlockingPortal, state: ClusterState | None) -> None:
        self._portal = portal
        self._snapshots = Snapshots(state, Budget(), "Live")
        self._server = ViewServer(self._snapshots, TOKEN)

    def __enter__(self) -> Self:
        self._task, self.port = self._portal.start_task(self._server.serve, 0)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._task.cancel()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        return self._server.address

    def show(self, state: ClusterState) -> None:
        """Show another snapshot."""
        self._portal.call(self._snapshots.replace, state)

    def show_arrived(self, arrived: PartialState) -> None:
        """Show what has arrived of the first snapshot."""
        self._portal.call(self._snapshots.show_arrived, arrived)

    def note_problem(self, problem: str) -> None:
        self._portal.call(self._snapshots.note_problem, problem)

    def wait_for_open_pages(self, count: int) -> None:
        """Wait until so many pages are kept up to date."""

        async def wait() -> None:
            while self._server.open_pages != count:
                await anyio.lowlevel.checkpoint()

        self._portal.call(wait)


class OpenView(AbstractContextManager["OpenView"]):
    """A page of a browser, in which nothing may go wrong."""

    def __init__(
        self, browser: Browser, served: ServedView, *, width: int = DESKTOP, scheme: Any = "light", **options: Any
    ) -> None:
        viewport: Any = {"width": width, "height": 800}
        self.context = browser.new_context(viewport=viewport, color_scheme=scheme, **options)
        self.served = served
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        """What the browser has said: errors of scripts, violations of the content security policy, dialogs."""
        self.requested: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.page.goto(served.address)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.context.close()

    def go(self, address: str) -> Page:
        self.page.goto(f"{self.served.base}{address}")
        return self.page

    def read_focus(self) -> str:
        """Return the text, or else the name, of the element that has the focus."""
        return str(self.page.evaluate("document.activeElement.textContent || document.activeElement.name || ''"))

    def tab_to(self, text: str, most: int = 60) -> None:
        """Press Tab until the element with this text has the focus."""
        passed: list[str] = []
        while self.read_focus() != text:
            assert len(passed) < most, f"Tab does not lead to {text!r}: {passed}"
            self.page.keyboard.press("Tab")
            passed.append(self.read_focus())

    def check(self, allowed: Sequence[str] = ()) -> None:
        """Fail for what the browser has complained of, and for requests to elsewhere."""
        assert [each for each in self.complaints if not any(part in each for part in allowed)] == []
        assert [each for each in self.requested if not each.startswith(f"{self.served.base}/")] == []
