"""The page on which a person asks what a manifest would get, and the answer."""

from collections.abc import Iterator, Sequence
from typing import Final

from kerf_dra.driver.diagnostics.plan import Headroom, PlacedCopy, PlanReport
from kerf_dra.driver.partitions.card_pictures.claim_colors import assign_colors
from kerf_dra.driver.view.html import addresses
from kerf_dra.driver.view.html.card_figures import CardStyle, show_legend
from kerf_dra.driver.view.html.cluster_pages import show_table
from kerf_dra.driver.view.html.elements import NOTHING, Child, Html, element
from kerf_dra.driver.view.html.page import Page, PartBuilder, build_page
from kerf_dra.driver.view.html.why_section import show_report
from kerf_dra.driver.view.snapshot_view import SnapshotView
from kerf_dra.driver.view.what_if import WhatIf

MOST_REPEATED: Final = 100
"""Copies of a manifest that the form takes."""
_CARDS: Final = 8
"""Cards drawn: as many as one node has."""
_ROWS: Final = 60
"""Placements listed, as in a terminal."""


def show_what_if(view: SnapshotView, *, text: str, namespace: str, copies: int, answer: WhatIf | None) -> Page:
    """Return the form with what was given, and below it the answer, if something was asked."""
    parts = PartBuilder()
    manifest = element(
        "textarea", text, name="manifest", id="manifest", rows=12, spellcheck="false", aria_describedby="hint"
    )
    form = element(
        "form",
        element("label", "Manifest", for_="manifest"),
        manifest,
        element("p", "Pods, workloads, claims, templates and classes, as YAML or JSON.", id="hint"),
        element("label", "Namespace ", element("input", name="namespace", value=namespace, size=16)),
        element(
            "label",
            "Copies ",
            element("input", type="number", name="copies", value=copies, min=1, max=MOST_REPEATED),
        ),
        element("button", "Where would it go?"),
        method="post",
        action=addresses.WHAT_IF,
        class_="what-if",
    )
    shown = element("section", *_show_answer(view, parts, answer), id="answer") if answer is not None else NOTHING
    return build_page(
        "What if",
        addresses.WHAT_IF,
        parts,
        element("p", "Paste a manifest: what would be placed where, device by device. Nothing is created."),
        shown,
        form,
        is_live=False,
    )


def _show_answer(view: SnapshotView, parts: PartBuilder, answer: WhatIf) -> Iterator[Html]:
    yield element("h2", "Answer")
    if answer.report is None:
        yield element("ul", [element("li", each, class_="fault") for each in answer.problems])
        return
    yield from _show_plan(answer.report)
    if answer.pictures:
        holders = [holder for each in answer.pictures for holder in each.holders]
        marked = frozenset(holder for holder in holders if holder not in view.colors)
        colors = assign_colors([*view.colors, *holders], view.colors)
        style = CardStyle(view=view, colors=colors, has_nodes=True, marked=marked)
        yield element("h3", "Where it would go")
        yield element("div", [style.show(parts, each) for each in answer.pictures[:_CARDS]], class_="cards")
        if len(answer.pictures) > _CARDS:
            yield element("p", f"and {len(answer.pictures) - _CARDS} more cards")
        yield show_legend()


def _show_plan(report: PlanReport) -> Iterator[Html]:
    waiting = sum(each.copies for each in report.unplaced)
    total = len(report.placed) + waiting
    verdict = f"All {total} would be placed." if report.fits else f"{waiting} of {total} would wait."
    yield element("p", verdict, class_="verdict good" if report.fits else "verdict bad")
    rows = [row for each in report.placed for row in _list_placements(each)]
    if rows:
        header = ("For", "Copy", "Node", "Claim", "Request", "Device")
        yield show_table(header, rows[:_ROWS], caption="Placements")
        if len(rows) > _ROWS:
            yield element("p", f"and {len(rows) - _ROWS} more placements")
    for each in report.unplaced:
        yield element("h3", f"Why {each.demand} would wait")
        yield show_report(each.why)
    yield element("ul", [element("li", _describe_headroom(each)) for each in report.more]) if report.more else NOTHING
    changed = {each.model for each in report.sizes if each.before != each.after}
    sizes = [each for each in report.sizes if each.model in changed]
    if sizes:
        cells = [(each.model, each.size, str(each.before), str(each.after)) for each in sizes]
        yield show_table(("Model", "Size", "Free now", "Free then"), cells, caption="What would be free")
    for warning in report.warnings:
        yield element("p", f"Warning: {warning}", class_="fault")
    ignored = f"This cluster ignores {', '.join(report.unheeded)}." if report.unheeded else ""
    passed_over = f"Passed over: {', '.join(report.passed_over)}" if report.passed_over else ""
    for text in (*report.notes, report.unjudged, ignored, passed_over):
        yield element("p", text) if text else NOTHING


def _list_placements(placed: PlacedCopy) -> Iterator[Sequence[Child]]:
    node = element("a", placed.node, href=addresses.address_of_node(placed.node))
    others = f" or {placed.fitting_nodes - 1} more" if placed.fitting_nodes > 1 else ""
    start = (placed.demand, str(placed.copy), (node, others))
    for device in placed.devices:
        yield (*start, device.claim, device.request, device.device)
    for name, amount in placed.resources.items():
        yield (*start, "-", name, f"{amount}, chosen by the kubelet")
    if not placed.devices and not placed.resources:
        yield (*start, "-", "-", "-")


def _describe_headroom(more: Headroom) -> str:
    least = "At least " if more.is_bound else ""
    return f"{least}{more.copies or 'No'} more of {more.demand} would fit."
