"""What holds of every page: accessible, on a phone, light and dark, by keyboard only, whatever the names are."""

from typing import Final

import anyio.from_thread
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from tests.view.browser.pages import DESKTOP, PHONE, OpenView, ServedView
from tests.view.clusters import HOSTILE, LONGEST, many_nodes, named_cluster
from tests.view.test_pages import ADDRESSES, MANIFEST

pytestmark = pytest.mark.browser

TOLD: Final = """
- figure "gpu-0 h100-80gb-sxm":
  - link "gpu-0":
    - /url: /card?driver=gpu.kerf.dev&pool=node-1%2Fgpu&card=gpu-0
  - text: h100-80gb-sxm
  - 'img "node-1 gpu-0: memory-slice 0-7: 0 1g.10gb default/b, 1-3 free, 4-7 3g.40gb default/a"': 0 1 2 3 4 5 6 7 1g.… b free free free 3g.40gb default/a
  - paragraph: 3 of 8 memory-slice free
  - list:
    - listitem:
      - link "pod default/b":
        - /url: /pod?namespace=default&name=b
      - link "claim default/b":
        - /url: /claim?namespace=default&name=b
      - text: 1g.10gb, memory-slice 0
    - listitem:
      - link "pod default/a":
        - /url: /pod?namespace=default&name=a
      - link "claim default/a":
        - /url: /claim?namespace=default&name=a
      - text: 3g.40gb, memory-slice 4-7
  - paragraph:
    - 'meter "memory: 50432Mi of 81559Mi"'
    - text: "memory: 50432Mi of 81559Mi"
  - paragraph:
    - 'meter "multiprocessors: 76 of 132"'
    - text: "multiprocessors: 76 of 132"
  - paragraph:
    - 'meter "ofa: 0 of 1"'
    - text: "ofa: 0 of 1"
"""  # noqa: E501  (a line of the browser's)
"""The accessibility tree of one card."""
GROUNDS: Final = {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}


@pytest.mark.parametrize(
    ("width", "scheme"), [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), (PHONE, "dark")]
)
def test_every_page_is_accessible(browser: Browser, served: ServedView, width: int, scheme: str) -> None:
    with OpenView(browser, served, width=width, scheme=scheme) as view:
        for address in ADDRESSES:
            page = view.go(address)
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == GROUNDS[scheme]
            for each in page.locator("summary").all():
                if not each.evaluate("element => element.parentElement.open"):
                    each.click()
            results = Axe().run(page)
            assert results.violations_count == 0, f"{address}: {results.generate_report()}"
        view.check()


@pytest.mark.parametrize("name", [HOSTILE, LONGEST], ids=["markup", "longest"])
def test_every_page_has_the_width_of_a_phone_whatever_the_names_are(browser: Browser, name: str) -> None:
    for_name: ClusterState = named_cluster(name)
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        ServedView(portal, for_name) as served,
        OpenView(browser, served, width=PHONE) as view,
    ):
        claims = [each.get_attribute("href") for each in view.go("/claims").locator("main td a").all()]
        for address in (*ADDRESSES, *(each for each in claims if each)):
            page = view.go(address)
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE, address
            assert page.evaluate("document.querySelectorAll('script').length") == 1, address
            assert page.locator("main img").count() == 0
        view.check(allowed=["404"])


def test_a_page_of_a_large_cluster_is_shown_on_a_phone(browser: Browser) -> None:
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        ServedView(portal, many_nodes(500)) as served,
        OpenView(browser, served, width=PHONE) as view,
    ):
        page = view.page
        assert page.locator("main .strip").count() == 25
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
        assert page.get_by_text("Page 1 of 20, 500 nodes").is_visible()
        page.get_by_role("link", name="Next").click()
        assert page.get_by_role("link", name="node-025", exact=True).is_visible()
        page.get_by_label("Nodes with").fill("node-499")
        page.get_by_role("button", name="Show").click()
        assert page.locator("main .card").count() == 1, "one node is shown large"
        page.get_by_role("link", name="gpu-0").click()
        assert page.get_by_role("heading", name="Card gpu-0").is_visible()
        assert Axe().run(page).violations_count == 0
        view.check()


def test_the_pages_are_used_by_keyboard_alone(view: OpenView) -> None:
    page, press = view.page, view.page.keyboard.press
    press("Tab")
    assert view.read_focus() == "Skip to the content"
    press("Enter")
    press("Tab")
    assert view.read_focus() == "why default/big", "what is before the content is skipped"
    press("Enter")
    page.wait_for_url("**/pod?*")
    view.tab_to("default/big")
    press("Enter")
    page.wait_for_url("**/claim?*")
    view.tab_to("Classes")
    press("Enter")
    page.wait_for_url("**/classes")
    view.tab_to("3g-40gb")
    press("Enter")
    page.wait_for_url("**/class?*")
    view.tab_to("node-2")
    press("Enter")
    page.wait_for_url("**/node?*")
    view.tab_to("What the patterns mean")
    press("Enter")
    assert page.locator(".legend li", has_text="stranded").is_visible()
    view.tab_to("gpu-1")
    press("Enter")
    page.wait_for_url("**/card?*")
    view.check()


def test_a_manifest_is_asked_about_by_keyboard_alone(view: OpenView) -> None:
    page = view.go("/what-if")
    view.tab_to("manifest")
    page.keyboard.insert_text(MANIFEST)
    view.tab_to("Where would it go?")
    page.keyboard.press("Enter")
    page.wait_for_selector("#answer")
    assert page.get_by_text("All 1 would be placed.").is_visible()
    assert page.get_by_label("Manifest").input_value().strip() == MANIFEST.strip()
    assert Axe().run(page).violations_count == 0
    view.check()


def test_colors_are_chosen_by_keyboard_and_no_color_is_the_only_sign(view: OpenView) -> None:
    page = view.page
    view.page.get_by_label("Color by").focus()
    page.keyboard.press("ArrowDown")
    view.tab_to("Show")
    page.keyboard.press("Enter")
    page.wait_for_url("**color=namespace*")
    assert page.get_by_label("Color by").input_value() == "namespace"
    assert read_svg_texts(view)[:1] == ["0"]


def read_svg_texts(view: OpenView) -> list[str]:
    return [each.text_content() or "" for each in view.page.locator("figure.card").first.locator("svg text").all()]


def test_a_card_is_drawn_and_told(view: OpenView) -> None:
    held = view.page.locator("figure.card", has_text="3g.40gb").first
    texts = [each.text_content() for each in held.locator("svg text").all()]
    assert texts == [*map(str, range(8)), "1g.…", "b", "free", "free", "free", "3g.40gb", "default/a"]
    assert held.aria_snapshot() == TOLD.strip()


@pytest.mark.parametrize("address", ADDRESSES)
def test_pages_can_be_read_without_scripts(browser: Browser, served: ServedView, address: str) -> None:
    with OpenView(browser, served, java_script_enabled=False) as view:
        page = view.go(address)
        assert page.get_by_role("heading", level=1).is_visible()
        view.check()
