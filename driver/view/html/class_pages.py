"""The pages of classes: what each selects of the published devices, and how much more of it would fit."""

from collections.abc import Sequence
from typing import Final

from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.api.model.names import list_names
from kerf_dra.driver.allocation.semantics.matching import selector_expressions
from kerf_dra.driver.view.class_matches import ClassMatches, count_more, find_matches, list_claims_of
from kerf_dra.driver.view.html import addresses
from kerf_dra.driver.view.html.card_figures import separate
from kerf_dra.driver.view.html.cluster_pages import show_table
from kerf_dra.driver.view.html.elements import NOTHING, Child, Html, element, escape_text
from kerf_dra.driver.view.html.page import Page, PartBuilder, build_page
from kerf_dra.driver.view.snapshot_view import SnapshotView

_CLASSES: Final = 100
"""Classes whose devices are counted for their list; each tries all published devices."""
_NODES: Final = 50
"""Nodes listed of one class."""
_CLAIMS: Final = 100
"""Claims listed of one class."""


def show_classes(view: SnapshotView) -> Page:
    """Return the list of DeviceClasses."""
    parts = PartBuilder()
    classes = sorted(view.cluster.classes.items())
    rows = [_list_class(view, class_) for _, class_ in classes[:_CLASSES]]
    more = len(classes) - _CLASSES
    header = ("Class", "Matching devices", "On nodes", "Claims")
    table = show_table(header, rows, caption="Device classes") if rows else element("p", "There is no class.")
    return build_page(
        "Classes",
        addresses.CLASSES,
        parts,
        element("p", "Parts of one card that exclude one another are all counted: a class's page says what would fit."),
        parts.add("div", "classes", table, element("p", f"and {more} more") if more > 0 else NOTHING),
    )


def show_class(view: SnapshotView, name: str) -> Page | None:
    """Return a class's page; None: there is no such class."""
    class_ = view.cluster.classes.get(name)
    if class_ is None:
        return None
    parts = PartBuilder()
    matches = find_matches(view.cluster, class_)
    headroom = count_more(view.cluster, class_)
    copies = headroom.copies if headroom else 0
    least = "At least " if headroom and headroom.is_bound else ""
    fits = f"{least}{copies or 'No'} more claim{'' if copies == 1 else 's'} for one device would fit now."
    rows: list[Sequence[Child]] = [
        (element("a", node, href=addresses.address_of_node(node)) if node else "no single node", str(count))
        for node, count in [*matches.by_node.items()][:_NODES]
    ]
    more = len(matches.by_node) - _NODES
    claims = list_claims_of(view.cluster, name)
    links = [element("a", str(each), href=addresses.address_of_claim(each)) for each in claims[:_CLAIMS]]
    left = len(claims) - _CLAIMS
    return build_page(
        f"Class {name}",
        addresses.CLASSES,
        parts,
        parts.add("p", "fits", fits),
        element("h2", "What it selects"),
        [element("pre", element("code", escape_text(each)), tabindex="0") for each in _list_selectors(class_)]
        or element("p", "Every device: the class has no selector."),
        parts.add("div", "problem", _show_problem(matches)),
        show_table(("Node", "Matching devices"), rows, caption="Devices that match") if rows else NOTHING,
        element("p", f"and {more} more nodes") if more > 0 else NOTHING,
        parts.add(
            "section",
            "claims",
            element("h2", "Claims for it"),
            element("p", separate(links), f" and {left} more" if left > 0 else "") if links else element("p", "None."),
        ),
    )


def _list_selectors(class_: DeviceClass) -> Sequence[str]:
    return selector_expressions(class_.spec.selectors)


def _list_class(view: SnapshotView, class_: DeviceClass) -> Sequence[Child]:
    matches = find_matches(view.cluster, class_)
    name = class_.metadata.name
    link = element("a", name, href=addresses.build_address(addresses.CLASS, name=name))
    nodes = [each or "no single node" for each in matches.by_node]
    claims = len(list_claims_of(view.cluster, name))
    return link, (str(matches.devices), _show_problem(matches)), list_names(nodes), str(claims)


def _show_problem(matches: ClassMatches) -> Html:
    return element("p", matches.problem, class_="fault") if matches.problem else NOTHING
