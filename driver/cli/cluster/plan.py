"""``kerf plan``: predicts what would be placed where, and how much more would fit."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from kerf_dra.api.errors import InvalidDocumentError, Problem
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.names import list_names
from kerf_dra.driver.cli.cluster.why import reason_lines
from kerf_dra.driver.cli.options import option
from kerf_dra.driver.cli.options.cluster import (
    Progress,
    build_cluster_index,
    choose_nodes,
    cluster_options,
    deadline_option,
    format_count,
    namespace_option,
    node_option,
    read_state,
    require_scheduler_allocation,
    with_exit_codes,
)
from kerf_dra.driver.cli.output import (
    EXIT_BAD_INPUT,
    EXIT_DOES_NOT_FIT,
    EXIT_NO_ANSWER,
    OutputFormat,
    format_table,
    make_printable,
    output_formats,
    print_document,
    print_text,
    wrap_sentence,
)
from kerf_dra.driver.cli.terminal_pictures import draw_in_terminal
from kerf_dra.driver.controller.planned_classes import compile_classes
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.explain.report import Verdict
from kerf_dra.driver.diagnostics.manifests.documents import PlacedDocument, find_problems, place_documents
from kerf_dra.driver.diagnostics.manifests.workload import read_workloads
from kerf_dra.driver.diagnostics.plan import PLANNED, Headroom, PlacedCopy, PlanReport, find_planned, plan_workloads
from kerf_dra.driver.runtime.documents.input_file import describe_read_error, read_file, read_standard_input
from kerf_dra.driver.runtime.documents.yaml_file import NotYamlError, parse_manifests

_PASSED_OVER = 6
"""Documents without devices that are named where there are no others."""
_CARDS = 8
"""Cards drawn as text: as many as one node has; ``-o wide`` draws all."""
_ROWS = 60
"""Placements listed as text; ``-o wide`` lists all of them."""


@click.command(short_help="Say what would be placed where, and how much more would fit.")
@option(
    "-f",
    "--filename",
    "files",
    type=click.Path(exists=True, allow_dash=True, path_type=Path),
    multiple=True,
    required=True,
    help="Manifests of pods, workloads, claims, templates, classes: a file, a directory, or standard input (-). "
    "Repeatable.",
)
@namespace_option
@node_option
@option("--count", "copies", type=click.IntRange(min=1), default=1, help="Number of copies of all manifests.")
@cluster_options
@deadline_option
@output_formats("text", "wide", "json", "yaml")
@with_exit_codes
def command(
    files: tuple[Path, ...],
    namespace: str | None,
    nodes: tuple[str, ...],
    copies: int,
    kubeconfig: Path | None,
    context: str | None,
    dump: Path | None,
    deadline_s: float,
    output: OutputFormat,
) -> int:
    """Say what would be placed where, device by device, how many more would fit, and which sizes would be left.

    Nothing is created. Exit code 0: everything fits; 1: something does not; 2: bad input; 3: no answer.
    """
    documents = [document for file in files for document in read_placed_documents(file)]
    source = read_state(kubeconfig, context, dump)
    require_scheduler_allocation(source, "plan")
    if problems := [*find_problems(documents)]:
        for line in problems:
            print_text(line, err=True)
        return EXIT_BAD_INPUT
    cluster = build_cluster_index(source, deadline_s)
    manifests = read_workloads(
        cluster,
        [each.body for each in documents],
        namespace=namespace or source.namespace,
        compile_classes=compile_classes,
    )
    if not manifests.workloads:
        names = ", ".join(map(str, files))
        passed_over = (
            f"; passed over: {list_names(manifests.passed_over, _PASSED_OVER)}" if manifests.passed_over else ""
        )
        message = f"asks for nothing: there is no pod, claim or claim template{passed_over}"
        raise InvalidDocumentError(names, [Problem("", message)])
    cluster = cluster.with_classes(manifests.classes).restricted_to(choose_nodes(cluster, nodes))
    answer = plan_workloads(
        cluster,
        manifests.workloads,
        copies=copies,
        placements=manifests.placements,
        passed_over=manifests.passed_over,
        warnings=manifests.warnings,
        track=Progress(),
    )
    if output in ("text", "wide"):
        click.echo("\n".join(_lines(cluster, answer, is_wide=output == "wide")))
    else:
        print_document(answer, output)
    return _exit(answer)


def _exit(answer: PlanReport) -> int:
    if any(each.why.verdict is Verdict.UNDECIDED for each in answer.unplaced):
        return EXIT_NO_ANSWER
    return 0 if answer.fits else EXIT_DOES_NOT_FIT


def read_documents(path: Path) -> Iterator[JsonObject]:
    """Yield every document of a file, or of the manifests in a directory. Raises InvalidDocumentError."""
    return (each.body for each in read_placed_documents(path))


def read_placed_documents(path: Path) -> Iterator[PlacedDocument]:
    """Yield every document of a file, or of the manifests in a directory. Raises InvalidDocumentError."""
    if path.is_dir():
        for file in sorted(each for each in path.iterdir() if each.suffix in {".yaml", ".yml", ".json"}):
            if not file.is_dir():  # it may be a link to the directory that it is in
                yield from read_placed_documents(file)
        return
    try:
        bodies = parse_manifests(read_standard_input() if str(path) == "-" else read_file(path))
    except (OSError, NotYamlError) as error:
        raise InvalidDocumentError(str(path), [Problem("", describe_read_error(error))]) from error
    yield from place_documents(str(path), bodies)


def _lines(cluster: ClusterIndex, found: PlanReport, *, is_wide: bool) -> Iterator[str]:
    answer = make_printable(found)
    if answer.placed:
        yield _placements(answer.placed, sys.maxsize if is_wide else _ROWS)
        yield ""
        yield from _draw_cards(cluster, found.placed, sys.maxsize if is_wide else _CARDS)
    waiting = sum(each.copies for each in answer.unplaced)
    total = len(answer.placed) + waiting
    verdict = (
        f"all {format_count(total, 'copy')} would be placed" if answer.fits else f"{waiting} of {total} would wait"
    )
    if answer.warnings:
        verdict += f", {format_count(len(answer.warnings), 'warning')}"
    yield click.style(verdict, fg="green" if answer.fits else "red")
    for each in answer.unplaced:
        yield f"\n{each.demand}: {each.why.message}"
        yield from reason_lines(each.why, is_wide=is_wide)
    if answer.more:
        yield ""
        yield from map(_more, answer.more)
    changed = {each.model for each in answer.sizes if each.before != each.after}
    if changed:
        yield ""
        rows = [(each.model, each.size, each.before, each.after) for each in answer.sizes if each.model in changed]
        yield format_table(("MODEL", "SIZE", "FREE NOW", "FREE THEN"), rows)
    if answer.unheeded:
        yield f"\nthis cluster ignores {', '.join(answer.unheeded)}: its API server drops the field"
    for text in (*(f"warning: {each}" for each in answer.warnings), *(f"note: {each}" for each in answer.notes)):
        yield ""
        yield from wrap_sentence(text)
    if answer.unjudged:
        yield f"\n{answer.unjudged}"
    if answer.passed_over:
        yield f"\npassed over: {', '.join(answer.passed_over)}"


def _draw_cards(cluster: ClusterIndex, placed: Sequence[PlacedCopy], most: int) -> Iterator[str]:
    """Draw the cards on which something would be placed, with what is there already."""
    planned = find_planned(placed)
    pictures = [
        replace(each, gauges=())
        for each in cluster.build_pictures([(id_.driver, id_.pool) for id_ in planned], planned)
        if any(holder.startswith(PLANNED) for holder in each.holders)
    ]
    if pictures:
        yield from draw_in_terminal(pictures[:most])
        if len(pictures) > most:
            yield f"and {format_count(len(pictures) - most, 'card')} more; --output wide has them all"
        yield ""


def _placements(placed: Sequence[PlacedCopy], most: int) -> str:
    rows = [
        (each.demand, each.copy, _node(each), device.claim, device.request, device.device)
        for each in placed
        for device in each.devices
    ]
    rows += [
        (each.demand, each.copy, _node(each), "-", name, f"{amount}, chosen by the kubelet")
        for each in placed
        for name, amount in each.resources.items()
    ]
    rows += [
        (each.demand, each.copy, _node(each), "-", "-", "-")
        for each in placed
        if not each.devices and not each.resources
    ]
    text = format_table(("FOR", "COPY", "NODE", "CLAIM", "REQUEST", "DEVICE"), rows[:most])
    return text if len(rows) <= most else f"{text}\nand {len(rows) - most} more; --output wide has them all"


def _node(placed: PlacedCopy) -> str:
    if placed.fitting_nodes <= 1:
        return placed.node
    others = placed.fitting_nodes - 1
    return f"{placed.node} (preferred to {others} more)" if placed.placement else f"{placed.node} (or {others} more)"


def _more(more: Headroom) -> str:
    least = "at least " if more.is_bound else ""
    return f"{least}{more.copies or 'no'} more of {more.demand} would fit"
