"""A real browser, and a server of pages in a thread beside it."""

from collections.abc import Iterator
from importlib.util import find_spec

import anyio.from_thread
import pytest

from tests.view.clusters import two_nodes

if find_spec("playwright") is None:  # `make view-test` installs it
    collect_ignore_glob = ["test_*", "pages.py"]
else:
    from playwright.sync_api import Browser, sync_playwright

    from tests.view.browser.pages import OpenView, ServedView
    from tools.browser import find_chromium

    @pytest.fixture(scope="module")
    def browser() -> Iterator[Browser]:
        """Chromium. Its driver's event loop runs in this thread until the end, so other modules begin without it."""
        with sync_playwright() as program:
            opened = program.chromium.launch(
                executable_path=find_chromium(),
                args=["--no-sandbox", "--host-resolver-rules=MAP rebound.example 127.0.0.1"],
            )
            yield opened
            opened.close()

    @pytest.fixture
    def served() -> Iterator[ServedView]:
        """A server of a small cluster."""
        with anyio.from_thread.start_blocking_portal() as portal, ServedView(portal, two_nodes()) as view:
            yield view

    @pytest.fixture
    def view(browser: Browser, served: ServedView) -> Iterator[OpenView]:
        """Its pages in a browser that has the token."""
        with OpenView(browser, served) as opened:
            yield opened
