"""What other web pages in the same browser can do with the server: nothing."""

from collections.abc import Iterator
from typing import Final

import anyio.from_thread
import pytest
from playwright.sync_api import Browser

from tests.view.browser.pages import OpenView, ServedView
from tests.view.clusters import HOSTILE, named_cluster, two_nodes

pytestmark = pytest.mark.browser

ATTACK: Final = """
async (base) => {
  const tries = {
    page: () => fetch(base + "/"),
    with_cookie: () => fetch(base + "/", { credentials: "include" }),
    opaque: async () => (await fetch(base + "/", { mode: "no-cors", credentials: "include" })).text(),
    form: () => fetch(base + "/what-if", { method: "POST", body: new URLSearchParams({ manifest: "a" }) }),
    updates: () => new Promise((done, fail) => {
      const source = new EventSource(base + "/updates?page=/", { withCredentials: true });
      source.onmessage = source.onopen = done; source.onerror = fail;
    }),
  };
  const got = {};
  for (const [name, attempt] of Object.entries(tries)) {
    try { got[name] = String(await attempt() ?? ""); } catch { got[name] = "refused"; }
  }
  return got;
}
"""


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The address of a page of another origin: another server's."""
    with anyio.from_thread.start_blocking_portal() as portal, ServedView(portal, two_nodes()) as other:
        yield f"http://localhost:{other.port}"


def test_a_page_of_elsewhere_gets_nothing(view: OpenView, elsewhere: str) -> None:
    page = view.context.new_page()
    page.goto(f"{elsewhere}/nowhere")  # a refusal, whose page may send what it likes
    got = page.evaluate(ATTACK, view.served.base)
    assert got.pop("opaque") in ("", "refused"), "what is opaque cannot be read"
    assert {*got.values()} == {"refused"}


def test_a_name_that_leads_here_shows_nothing(view: OpenView) -> None:
    response = view.page.goto(f"http://rebound.example:{view.served.port}/?token=the-token")
    assert response is not None
    assert response.status == 421
    assert "node-1" not in response.text()


def test_a_page_cannot_be_framed(view: OpenView, elsewhere: str) -> None:
    page = view.context.new_page()
    page.goto(f"{elsewhere}/nowhere")
    page.set_content(f'<iframe src="{view.served.base}/"></iframe>')
    page.wait_for_load_state("networkidle")
    assert [frame for frame in page.frames if "node-1" in frame.content()] == []


def test_the_cookie_is_for_no_script_and_no_other_site(view: OpenView) -> None:
    [cookie] = view.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert view.page.evaluate("document.cookie") == ""
    assert "the-token" not in view.page.content()
    assert "token" not in view.page.url


def test_markup_in_names_runs_nothing_also_in_updates(browser: Browser, served: ServedView) -> None:
    with OpenView(browser, served) as view:
        served.wait_for_open_pages(1)
        served.show(named_cluster(HOSTILE))
        view.page.get_by_text("<script>alert(1)</script>").first.wait_for()
        assert view.page.locator("main script, main img").count() == 0
        view.check()
