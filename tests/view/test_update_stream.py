"""How often an open page is brought up to date, and when it is given up."""

import anyio
import pytest

from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.view.html.elements import Html
from kerf_dra.driver.view.html.page import Page, PartBuilder, build_page
from kerf_dra.driver.view.page_builder import Target
from kerf_dra.driver.view.update_stream import UpdateStream
from tests.runtime.virtual_time import VIRTUAL_TIME, pass_time

QUIET_S = 15.0


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


class Pages:
    """Implements ``PageSource``: a page that shows a number, and takes its time to be made."""

    def __init__(self) -> None:
        self.changed = Notifier()
        self.state_line = Html("<p>Live</p>")
        self.takes_s = 0.0
        self.number = 0
        self.rendered = 0

    async def render(self, target: Target) -> Page:
        self.rendered += 1
        await anyio.sleep(self.takes_s)
        parts = PartBuilder()
        return build_page("x", target.path, parts, parts.add("p", "a", str(self.number)), parts.add("p", "b", "same"))

    def change(self) -> None:
        self.number += 1
        self.changed.notify()


class Browser:
    """Implements ``PageConnection``: notes what arrives, and may take nothing."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.is_stuck = False

    async def write(self, data: bytes) -> None:
        if self.is_stuck:
            await anyio.sleep_forever()
        self.received.append(data.decode())


async def run_for(seconds: float, browser: Browser, pages: Pages, every_s: float = 0.0) -> None:
    """Let a page be open for a while, in which the cluster changes every so often."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(UpdateStream(browser, pages, Target("/"), "").run, QUIET_S)
        for _ in range(int(seconds / every_s) if every_s else 0):
            await pass_time(every_s)
            pages.change()
        await pass_time(0 if every_s else seconds)
        tasks.cancel_scope.cancel()


async def test_each_change_is_sent_with_its_part_only() -> None:
    browser, pages = Browser(), Pages()
    await run_for(2.5, browser, pages, every_s=1.0)
    await pass_time(1)
    state, main, *parts = browser.received
    assert state.startswith("event: state\n")
    assert main.startswith("event: main\n")
    assert [each.partition("data: ")[2] for each in parts] == ['{"a": "<p id=\\"a\\">1</p>"}\n\n']


async def test_a_page_that_takes_long_is_made_a_quarter_of_the_time() -> None:
    browser, pages = Browser(), Pages()
    pages.takes_s = 5.0
    await run_for(199, browser, pages, every_s=0.5)
    assert pages.rendered == 10
    assert len(browser.received) == 1 + pages.rendered, "the state, and each time the newest number"


async def test_nothing_changes_and_comments_show_that_both_are_there() -> None:
    browser, pages = Browser(), Pages()
    await run_for(61, browser, pages)
    assert browser.received[2:] == [": still there\n\n"] * 4


async def test_a_page_that_takes_nothing_is_given_up() -> None:
    browser, pages = Browser(), Pages()
    browser.is_stuck = True
    with pytest.raises(ExceptionGroup) as raised:
        await run_for(11, browser, pages)
    assert raised.group_contains(TimeoutError)
