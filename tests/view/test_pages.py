"""What the pages show of a cluster."""

import re
from html.parser import HTMLParser
from typing import Final

import pytest

from kerf_dra.api.core.v1 import Pod
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.view.html.card_figures import separate_colors
from kerf_dra.driver.view.html.page import Page, render_document, render_state
from kerf_dra.driver.view.page_builder import Target, answer_form, show_target
from tests.diagnostics import vendor_slices
from tests.fakes.cluster_states import (
    CLASSES,
    allocate_claims,
    claim,
    gpu_cluster,
    node,
    pod,
    replace,
    report_devices,
    state,
)
from tests.view.clusters import HOSTILE, many_nodes, named_cluster, rename, two_nodes, view_of

ADDRESSES: Final = (
    "/",
    "/?color=namespace",
    "/node?name=node-1",
    "/card?driver=gpu.kerf.dev&pool=node-1%2Fgpu&card=gpu-0",
    "/claims",
    "/claim?namespace=default&name=a",
    "/pod?namespace=default&name=big",
    "/classes",
    "/class?name=3g-40gb",
    "/what-if",
)
"""An address of each page."""


def show(now: ClusterState, address: str) -> Page:
    target = Target.parse(address)
    assert target is not None, address
    return show_target(view_of(now), target)


class Texts(HTMLParser):
    """The texts of a page without its markup, links with their addresses, and all tags."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.links: dict[str, str] = {}
        self.tags: set[str] = set()
        self.labels: list[str] = []
        self._link = ""
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        self._link = given.get("href") or "" if tag == "a" else self._link
        self.labels += [given["aria-label"] or ""] if "aria-label" in given else []

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self._link:
            self.links[data] = self._link

    def handle_endtag(self, tag: str) -> None:
        self._link = "" if tag == "a" else self._link

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(page: Page) -> Texts:
    return Texts(page.main)


def test_the_cluster_shows_who_has_which_part_of_each_card_and_what_is_free() -> None:
    found = read(show(two_nodes(), "/"))
    assert "2 nodes; 2 of 3 claims have devices; 1 pod with devices waits" in found.text
    assert "pod default/a claim default/a 3g.40gb, memory-slice 4-7" in found.text
    assert "node-1 gpu-0: memory-slice 0-7: 0-5 free, 6 1g.10gb default/b, 7 free" in " ".join(found.labels) or (
        "3g.40gb default/a" in " ".join(found.labels)
    )
    assert "8 of 8 memory-slice free" in found.text
    assert re.search(r"h100-80gb-sxm whole 3 4", found.text)
    assert found.links["why default/big"] == "/pod?namespace=default&name=big"


def test_a_pods_page_says_why_it_waits_and_what_would_make_room() -> None:
    now = allocate_claims(gpu_cluster(2), claim("a", "1g-10gb"), claim("b", "1g-10gb"), claim("c", "whole"))
    waiting = two_nodes().pods[2]
    now = replace(now, claims=(*now.claims, claim("big", "whole")), pods=(waiting,))
    found = read(show(now, "/pod?namespace=default&name=big"))
    assert "it fits on none of 2 nodes" in found.text
    assert "It would fit if these claims ended: on node-2: default/c (pod default/c)" in found.text
    assert found.links["default/c"] == "/claim?namespace=default&name=c"
    assert "Cards in the way node-2 gpu-0" in found.text, "the card that would have room comes first"


def test_a_claims_page_says_what_the_container_gets() -> None:
    found = read(show(two_nodes(), "/claim?namespace=default&name=a"))
    assert "Used by pod default/a" in found.text
    assert "r0: gpu.kerf.dev/node-1/gpu/gpu-0-3g-40gb-at-4" in found.text
    assert "profile 3g.40gb" in found.text
    assert "its driver has not reported it" in found.text.lower()


def test_a_claim_that_does_not_use_its_devices_is_shown_as_idle_since_when() -> None:
    now = report_devices(two_nodes(), "a", {"sampled": True, "idleSince": "2026-11-20T08:00:00Z"})
    now = report_devices(now, "b", {"sampled": True})
    assert (
        "Idle for 24 h: not used since 2026-11-20T08:00:00Z ."
        in read(show(now, "/claim?namespace=default&name=a")).text
    )
    assert "not used since" not in read(show(now, "/claim?namespace=default&name=b")).text
    assert "idle 24 h" in read(show(now, "/claims")).text


def test_claims_that_wait_come_first_and_names_find_some() -> None:
    assert [*read(show(two_nodes(), "/claims")).links] == ["default/big", "default/a", "default/b"]
    assert [*read(show(two_nodes(), "/claims?text=/a")).links] == ["default/a"]
    assert "There is no such claim." in read(show(two_nodes(), "/claims?text=none")).text


def test_a_pod_without_a_claim_is_listed_with_those_that_wait() -> None:
    early = pod("early", "not-made-yet")
    found = read(show(replace(two_nodes(), pods=(*two_nodes().pods, early)), "/claims"))
    assert "default/early none yet pending" in found.text
    assert found.links["default/early"] == "/pod?namespace=default&name=early"
    assert "default/a default/a allocated node-1 node-1/gpu/gpu-0-3g-40gb-at-4" in found.text


def test_claims_of_one_card_have_different_colors() -> None:
    now = allocate_claims(gpu_cluster(2), *(claim(f"c{number}", "1g-10gb") for number in range(14)))
    for picture in view_of(now).build_pictures("node-1") + view_of(now).build_pictures("node-2"):
        colors = separate_colors(picture.holders, dict.fromkeys(picture.holders, 3))
        assert len({*colors.values()}) == len(picture.holders) == 7
        assert colors[picture.holders[0]] == 3, "the first keeps its own"


def test_what_could_not_be_read_is_said_where_it_counts() -> None:
    now = replace(two_nodes(), forbidden_lists={"events": "no right"}, unreadable=("ResourceClaim default/x",))
    for address in ("/", "/pod?namespace=default&name=big", "/claim?namespace=default&name=a"):
        text = read(show(now, address)).text
        assert "events could not be read, so what they say is missing here: no right" in text
        assert "ResourceClaim default/x cannot be read; devices that it may hold count as free" in text


def test_classes_say_what_they_match_and_how_much_more_fits() -> None:
    found = read(show(two_nodes(), "/classes"))
    assert re.search(r"whole 4 node-1, node-2 1 ", found.text + " "), found.text
    found = read(show(two_nodes(), "/class?name=whole"))
    assert "3 more claims for one device would fit now." in found.text
    assert "node-1 2 node-2 2" in found.text
    assert found.links["default/big"] == "/claim?namespace=default&name=big"


@pytest.mark.parametrize("address", [*ADDRESSES, "/claim?namespace=default&name=big"])
def test_names_with_markup_make_no_elements(address: str) -> None:
    page = show(named_cluster(HOSTILE), address)
    assert {"script", "img", "b"}.isdisjoint(read(page).tags)
    document = render_document(page, render_state(HOSTILE, is_current=True))
    assert document.count("<script") == 1, "that of the page itself"
    assert "<img" not in document
    assert "\x1b" not in document
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in document


def test_a_page_of_a_hostile_name_shows_it() -> None:
    now = named_cluster(HOSTILE)
    shown = HOSTILE.replace("\N{RIGHT-TO-LEFT OVERRIDE}", "\N{REPLACEMENT CHARACTER}").replace(
        "\x1b", "\N{REPLACEMENT CHARACTER}"
    )
    links = read(show(now, "/claims")).links
    address = links[f"{shown}/{shown}"]
    page = show(now, address)
    assert page.status == 200, "its address leads to it"
    assert f"{shown}/{shown}" in read(page).text


@pytest.mark.parametrize("address", ["/node?name=x", "/card?card=x", "/claim?name=x", "/pod?name=x", "/class?name=x"])
def test_what_is_not_there_is_said(address: str) -> None:
    page = show(two_nodes(), address)
    assert page.status == 404
    assert "x; it may have ended since" in read(page).text


@pytest.mark.parametrize("address", ["/elsewhere", "//host/", "http://host/", "/?" + "&".join(map(str, range(99)))])
def test_other_addresses_are_no_pages(address: str) -> None:
    assert Target.parse(address) is None or address.startswith("/?")


def test_many_nodes_are_shown_on_pages_of_strips() -> None:
    now = many_nodes(60)
    first, last = show(now, "/"), show(now, "/?page=999999")
    assert len(first.parts) == 25 + 4
    assert "Page 1 of 3, 60 nodes" in read(first).text
    assert read(first).links["Next"] == "/?color=claim&page=2"
    assert "Page 3 of 3" in read(last).text
    assert "node-059" in read(last).links
    nodes = [name for name in read(show(now, "/?text=node-01")).links if name.startswith("node")]
    assert nodes == [f"node-{number:03}" for number in range(10, 20)]


@pytest.mark.parametrize("color", ["claim", "namespace", "state", "nonsense"])
def test_colors_say_what_was_chosen(color: str) -> None:
    now = allocate_claims(two_nodes(), claim("c", "1g-10gb"))
    claims = [rename(each, each.metadata.name, "other") if each.metadata.name == "c" else each for each in now.claims]
    page = show(replace(now, claims=tuple(claims)), f"/?color={color}")
    colors = {each for part in page.parts.values() for each in re.findall(r"part (c\d)", part)}
    assert len(colors) == {"claim": 3, "namespace": 2, "state": 1, "nonsense": 3}[color]


def test_a_change_of_one_card_changes_its_part_only() -> None:
    now = two_nodes()
    other = allocate_claims(now, claim("c", "2g-20gb"))
    former, fresh = show(now, "/"), show(replace(other, pods=now.pods), "/")
    changed = fresh.find_changed_parts(former)
    assert changed is not None
    assert sum(each.startswith("card-") for each in changed) == 1
    assert {each for each in changed if not each.startswith("card-")} == {"summary", "sizes"}
    assert show(now, "/").find_changed_parts(former) == {}


def test_another_node_changes_the_page_as_a_whole() -> None:
    assert show(gpu_cluster(2), "/").find_changed_parts(show(gpu_cluster(1), "/")) is None


@pytest.mark.parametrize(
    ("published", "card", "text"),
    [
        (vendor_slices.nvidia_slices("node-1"), "gpu-0", "memory-slice free"),
        (vendor_slices.intel_slices("node-1"), "gpu.intel.com", "devices free"),
    ],
)
def test_cards_of_other_drivers_are_shown(published: list[object], card: str, text: str) -> None:
    now = state(node("node-1"), published=published, classes=CLASSES)  # type: ignore[arg-type]
    found = read(show(now, "/"))
    assert text in found.text
    assert any(card in link for link in found.links), found.links


MANIFEST: Final = """
apiVersion: v1
kind: Pod
metadata: {name: new}
spec:
  containers: [{name: main, image: x, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: half}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: half}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: 3g-40gb}}]}}}
"""


def test_what_if_says_where_a_manifest_would_go_and_draws_it() -> None:
    page = answer_form(view_of(two_nodes()), {"manifest": MANIFEST, "copies": "2"})
    found = read(page)
    assert "All 2 would be placed." in found.text
    assert "Pod default/new 1 node-1 or 1 more" in found.text
    assert "planned: Pod default/new, copy 1" in found.text
    assert any(part.startswith("card-") for part in page.parts)
    assert "4 more of Pod default/new would fit." in found.text
    assert "half" in found.text, "what was asked stays in the form"


def test_lines_as_browsers_send_them_stay_lines() -> None:
    page = answer_form(view_of(two_nodes()), {"manifest": MANIFEST.replace("\n", "\r\n")})
    assert "All 1 would be placed." in read(page).text
    assert "\N{REPLACEMENT CHARACTER}" not in page.main


def test_what_if_says_why_something_would_wait() -> None:
    found = read(answer_form(view_of(two_nodes()), {"manifest": MANIFEST, "copies": "9"}))
    assert "3 of 9 would wait." in found.text
    assert "Why Pod default/new would wait" in found.text
    assert [name for name in found.links if name.startswith("default/new")] == [], "planned claims have no pages"


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("", "asks for nothing"),
        ("a: [", "is not YAML"),
        ("- 1", "is a list, not an object"),
        (MANIFEST.replace("half}]", "missing}]"), "missing"),
        (MANIFEST.replace("kind: Pod", "kind: Deployment").replace("v1\nkind", "apps/v1\nkind"), "Deployment"),
        ("a: " + "[" * 30_000, "is nested"),
        ("<script>alert(1)</script>", "not an object"),
    ],
)
def test_what_if_says_what_is_wrong_with_a_manifest(manifest: str, message: str) -> None:
    page = answer_form(view_of(two_nodes()), {"manifest": manifest})
    assert message in read(page).text
    assert "script" not in read(page).tags
    assert page.status == 200


def test_what_if_refuses_more_copies_than_it_tries() -> None:
    head = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: many}\nspec: {parallelism: 1000000, template: "
    spec = "{containers: [{name: m, image: x}], resourceClaims: [{name: gpu, resourceClaimTemplateName: half}]}"
    manifest = f"{head}{{spec: {spec}}}}}\n---{MANIFEST.partition('---')[2]}"
    found = read(answer_form(view_of(two_nodes()), {"manifest": manifest}))
    assert "asks for 1000000 copies; at most 1000 are tried" in found.text


def test_pods_that_wait_are_listed_and_those_that_run_are_not() -> None:
    waiting: list[Pod] = [*view_of(two_nodes()).waiting_pods]
    assert [each.metadata.name for each in waiting] == ["big"]
