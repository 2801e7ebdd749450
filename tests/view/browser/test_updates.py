"""Open pages follow the cluster: one card's change touches that card alone, and an outage is said."""

from typing import Final

import anyio.from_thread
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, replace
from tests.view.browser.pages import OpenView, ServedView
from tests.view.clusters import arrive, two_nodes

pytestmark = pytest.mark.browser

OBSERVE: Final = """
() => {
  window.touched = [];
  document.querySelectorAll("figure.card").forEach((card) => { card.wasThere = true; });
  new MutationObserver((records) => {
    for (const record of records) {
      const nodes = record.type === "childList" ? [...record.addedNodes, ...record.removedNodes] : [record.target];
      for (const node of nodes) window.touched.push(node.id || node.nodeName);
    }
  }).observe(document.documentElement, { subtree: true, childList: true, attributes: true, characterData: true });
}
"""
"""Notes every element that is added, removed or changed from now on."""


def with_claim(name: str, size: str) -> ClusterState:
    now = allocate_claims(two_nodes(), claim(name, size))
    return replace(now, pods=two_nodes().pods)


def test_a_change_of_one_card_touches_the_elements_of_this_card_alone(view: OpenView) -> None:
    page = view.page
    view.served.wait_for_open_pages(1)
    page.wait_for_function("document.getElementById('state').textContent === 'Live'")
    page.evaluate(OBSERVE)
    view.served.show(with_claim("new", "2g-20gb"))
    page.get_by_text("claim default/new").wait_for()
    touched = page.evaluate("window.touched")
    cards = {each for each in touched if each.startswith("card-")}
    assert len(cards) == 1
    assert {*touched} == {*cards, "summary", "sizes"}, "beside it what is counted of the whole cluster"
    assert len(touched) == 2 * 3, "each is replaced once"
    kept = page.evaluate("[...document.querySelectorAll('figure.card')].filter((card) => card.wasThere).length")
    assert kept == 3, "the other cards are the same elements"
    view.check()


def test_the_focus_and_what_is_unfolded_stay_when_a_card_changes(view: OpenView) -> None:
    page = view.page
    view.served.wait_for_open_pages(1)
    page.get_by_text("What the patterns mean").click()
    page.get_by_label("Nodes with").fill("typed")
    link = page.locator("figure.card", has_text="pod default/b").get_by_role("link", name="pod default/b")
    link.focus()
    view.served.show(with_claim("new", "1g-10gb"))
    page.get_by_text("claim default/new").wait_for()
    assert view.read_focus() == "pod default/b"
    assert page.locator(".legend li", has_text="held by another program").is_visible()
    view.served.show(gpu_cluster(3))
    page.get_by_role("heading", name="node-3").wait_for()
    assert page.get_by_label("Nodes with").input_value() == "typed"
    view.check()


def test_an_outage_is_said_and_its_end(view: OpenView) -> None:
    page = view.page
    view.served.note_problem("GET /api/v1/pods: connection refused")
    page.get_by_text("Not current since 2026-11-21T08:00:00+00:00: GET /api/v1/pods: connection refused").wait_for()
    view.served.show(with_claim("new", "1g-10gb"))
    page.get_by_text("Live", exact=True).wait_for()
    page.get_by_text("claim default/new").wait_for()
    view.check()


def test_nodes_appear_while_the_cluster_is_being_read_and_cards_when_it_has_been(browser: Browser) -> None:
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        ServedView(portal, None) as served,
        OpenView(browser, served) as view,
    ):
        page = view.page
        page.get_by_text("Reading the cluster: 0 nodes, 0 slices so far.").wait_for()
        for count, shown in ((2, "node-1"), (3, "node-2")):
            served.show_arrived(arrive(two_nodes(), count))
            page.get_by_role("heading", name=shown).wait_for()
        assert page.get_by_text("some of its slices have arrived").is_visible()
        assert page.locator("main svg").count() == 0
        assert Axe().run(page).violations_count == 0
        served.show(two_nodes())
        page.get_by_text("claim default/a").first.wait_for()
        page.get_by_text("Live", exact=True).wait_for()
        assert page.locator("figure.card").count() == 4
        view.check()


def test_the_end_of_the_command_is_said(view: OpenView) -> None:
    view.served.wait_for_open_pages(1)
    view.served.stop()
    view.page.get_by_text("kerf view does not answer").wait_for()


SHOWN: Final = """
(is_hidden) => {
  Object.defineProperty(document, "hidden", { value: is_hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}
"""
"""Tells the page whether it is visible, which a browser without windows does not."""


def test_a_page_that_nobody_sees_holds_no_connection_and_catches_up_later(view: OpenView) -> None:
    view.served.wait_for_open_pages(1)
    view.page.evaluate(SHOWN, True)
    view.served.wait_for_open_pages(0)
    view.served.show(with_claim("new", "1g-10gb"))
    view.page.evaluate(SHOWN, False)
    view.page.get_by_text("claim default/new").wait_for()
    view.check()


def test_a_page_that_is_left_is_not_updated_any_more(view: OpenView) -> None:
    view.served.wait_for_open_pages(1)
    view.go("/what-if")
    view.served.wait_for_open_pages(0)
    view.go("/claims")
    view.served.wait_for_open_pages(1)
