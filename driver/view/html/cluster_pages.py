"""The pages of the cluster, of a node, and of a card: from many nodes to one card."""

from collections.abc import Sequence
from typing import Final

from kerf_dra.api.core.v1 import Pod
from kerf_dra.driver.allocation.explain.holders import PoolKey
from kerf_dra.driver.diagnostics.frag import SizeFigures, count_sizes
from kerf_dra.driver.partitions.card_pictures.card_picture import CardPicture
from kerf_dra.driver.view.html import addresses
from kerf_dra.driver.view.html.card_figures import CardStyle, show_legend
from kerf_dra.driver.view.html.elements import NOTHING, Child, Html, element, join
from kerf_dra.driver.view.html.page import Page, PartBuilder, build_page
from kerf_dra.driver.view.snapshot_view import (
    DRAWN_NODES,
    NODES_OF_A_PAGE,
    ColorBy,
    ListExcerpt,
    SnapshotView,
    cut_page,
)

_WAITING: Final = 20
"""Waiting pods listed on the cluster's page."""


def show_cluster(view: SnapshotView, *, color: ColorBy, text: str, number: int) -> Page:
    """Return the cluster's page ``number``: of the nodes with ``text`` in their names, every card."""
    parts = PartBuilder()
    found = view.find_nodes(text)
    listed = cut_page(found, number, NODES_OF_A_PAGE)
    style = CardStyle(
        view=view,
        colors=view.choose_colors(color),
        are_distinct=color is ColorBy.CLAIM,
        is_strip=len(found) > DRAWN_NODES,
    )
    sections = [_show_node(view, parts, style, name) for name in listed.names]
    shared = view.build_pictures("") if listed.number == 1 and not text else []
    if shared:
        sections.append(_show_cards(parts, style, "Devices of no single node", shared))
    return build_page(
        "Cluster",
        addresses.CLUSTER,
        parts,
        parts.add("p", "summary", _summarize(view)),
        parts.add("div", "unread", show_unread(view)),
        _show_waiting(parts, view.waiting_pods),
        _show_form(color, text),
        show_legend(),
        sections or element("p", "No node has such a name." if text else "No node and no device is there."),
        show_pager(listed, addresses.CLUSTER, "nodes", color=color, text=text),
        _show_sizes(parts, count_sizes(view.cluster, {*found})),
    )


def show_node(view: SnapshotView, name: str) -> Page | None:
    """Return a node's page with its cards; None: there is no such node."""
    if name not in view.nodes:
        return None
    parts = PartBuilder()
    style = CardStyle(view=view, colors=view.colors)
    pictures = view.build_pictures(name)
    cards = [style.show(parts, each) for each in pictures]
    return build_page(
        f"Node {name}",
        addresses.NODE,
        parts,
        element("div", cards, class_="cards") if cards else element("p", "The node has published no devices."),
        show_legend(),
        _show_sizes(parts, count_sizes(view.cluster, {name})),
    )


def show_card(view: SnapshotView, pool: PoolKey, name: str) -> Page | None:
    """Return a card's page; None: there is no such card."""
    picture = next((each for each in view.build_pictures_of_pool(pool) if each.name == name), None)
    if picture is None:
        return None
    parts = PartBuilder()
    style = CardStyle(view=view, colors=view.colors)
    facts = [("Driver", picture.driver), ("Pool", picture.pool), ("Model", picture.model)]
    node = (
        element("p", "On ", element("a", f"node {picture.node}", href=addresses.address_of_node(picture.node)))
        if picture.node
        else NOTHING
    )
    return build_page(
        f"Card {picture.title}",
        addresses.CARD,
        parts,
        node,
        element("div", style.show(parts, picture), class_="cards large"),
        show_legend(),
        element("dl", [(element("dt", term), element("dd", value)) for term, value in facts if value]),
        parts.add("p", "units", picture.description),
    )


def show_pager(listed: ListExcerpt, path: str, noun: str, **query: str) -> Html:
    """Return which part of a list is shown, with links to the pages before and after."""
    if listed.pages == 1:
        return NOTHING
    links: list[Child] = []
    for number, name in ((listed.number - 1, "Previous"), (listed.number + 1, "Next")):
        if 1 <= number <= listed.pages:
            href = addresses.build_address(path, **query, page=str(number))
            links += [" ", element("a", name, href=href, rel="prev" if name == "Previous" else "next")]
    text = f"Page {listed.number} of {listed.pages}, {listed.total} {noun}"
    return element("nav", text, links, class_="pager", aria_label=f"Pages of {noun}")


def show_table(header: Sequence[str], rows: Sequence[Sequence[Child]], *, caption: str) -> Html:
    """Return a table that scrolls by itself where the page is narrow."""
    head = element("tr", [element("th", each, scope="col") for each in header])
    body = [element("tr", [element("td", cell) for cell in row]) for row in rows]
    table = element("table", element("caption", caption), element("thead", head), element("tbody", body))
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=caption)


def show_unread(view: SnapshotView) -> Html:
    """Return what of the cluster could not be read, and what follows from it."""
    state = view.cluster.state
    lists = [
        f"{plural} could not be read, so what they say is missing here: {why}"
        for plural, why in state.forbidden_lists.items()
    ]
    objects = [f"{name} cannot be read; devices that it may hold count as free" for name in state.unreadable]
    return join(element("p", text, class_="fault") for text in (*lists, *objects))


def _summarize(view: SnapshotView) -> str:
    allocated = sum(each.status.allocation is not None for each in view.claims)
    waiting, nodes = len(view.waiting_pods), len(view.nodes)
    return (
        f"{nodes} node{'' if nodes == 1 else 's'}; {allocated} of {len(view.claims)} claims have devices; "
        f"{waiting} pod{'' if waiting == 1 else 's'} with devices wait{'s' if waiting == 1 else ''}"
    )


def _show_waiting(parts: PartBuilder, pods: Sequence[Pod]) -> Html:
    links = [element("li", element("a", f"why {pod.ref}", href=addresses.address_of_pod(pod.ref))) for pod in pods]
    more = len(links) - _WAITING
    entries = [*links[:_WAITING], element("li", f"and {more} more") if more > 0 else NOTHING]
    body = [element("h2", "Waiting for devices"), element("ul", entries)] if links else NOTHING
    return parts.add("section", "waiting", body)


def _show_form(color: ColorBy, text: str) -> Html:
    options = [element("option", each, value=each, selected=each is color) for each in ColorBy]
    return element(
        "form",
        element("label", "Color by ", element("select", options, name="color")),
        element("label", "Nodes with ", element("input", type="search", name="text", value=text, size=16)),
        element("button", "Show"),
        action=addresses.CLUSTER,
        class_="filter",
    )


def _show_node(view: SnapshotView, parts: PartBuilder, style: CardStyle, name: str) -> Html:
    link = element("a", name, href=addresses.address_of_node(name))
    return _show_cards(parts, style, link, view.build_pictures(name))


def _show_cards(parts: PartBuilder, style: CardStyle, title: Child, pictures: Sequence[CardPicture]) -> Html:
    cards = [style.show(parts, each) for each in pictures]
    if style.is_strip:
        body = element("ul", cards, class_="strips") if cards else element("p", "no devices")
        return element("section", element("h2", title), body, class_="node row")
    body = element("div", cards, class_="cards") if cards else element("p", "No devices are published.")
    return element("section", element("h2", title), body, class_="node")


def _show_sizes(parts: PartBuilder, sizes: Sequence[SizeFigures]) -> Html:
    rows = [(each.model, each.size, str(each.free), str(each.possible)) for each in sizes]
    table = show_table(("Model", "Size", "Free", "Of"), rows, caption="What is free, by size") if rows else NOTHING
    return parts.add("section", "sizes", element("h2", "Free") if rows else NOTHING, table)
