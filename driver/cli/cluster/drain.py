"""``kerf drain``: withholds one card of a node, and has the pods that hold it evicted."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from kerf_dra.api.kerf.card_maintenance import CardMaintenanceObject
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.cli import event_loop
from kerf_dra.driver.cli.cluster.card_maintenances import (
    ACTS,
    CardArgument,
    FollowingActParameter,
    NodeCardParameter,
    create_maintenance,
    find_maintenance,
    name_maintenances,
    read_input,
    wait_for_end,
    wanted_phase,
)
from kerf_dra.driver.cli.options import option
from kerf_dra.driver.cli.options.cluster import access_options, format_count, with_exit_codes
from kerf_dra.driver.cli.output import (
    EXIT_DOES_NOT_FIT,
    OutputFormat,
    format_table,
    make_printable,
    output_formats,
    print_document,
    print_text,
    wrap_sentence,
)
from kerf_dra.driver.diagnostics.drain.report import DrainedHolder, DrainReport, find_drained_card, plan_drain
from kerf_dra.driver.diagnostics.errors import QueryError
from kerf_dra.driver.diagnostics.explain.resource_faults import explain_unjudged

_HEADER: Final = ("POD", "OWNER", "HOLDS", "ROOM AT")
_TIMEOUT_S: Final = 600.0
"""Seconds that --wait waits: pods have half a minute to end, and disruption budgets minutes."""


@click.command(short_help="Take one card from its pods, while the other cards of its node go on.")
@click.argument("card", type=NodeCardParameter(), metavar="NODE/CARD")
@option("--reason", default="", help="Why, for those who read `kerf why`, events and the status.")
@option(
    "--then",
    type=FollowingActParameter(),
    help=f"What the node does with the free card, which it verifies then and gives back: {', '.join(ACTS)}. "
    "[default: none]",
)
@option("--bare", is_flag=True, help="Also evict pods that no controller creates again.")
@option(
    "--deadline",
    "deadline_s",
    type=click.IntRange(1, 2_592_000),
    metavar="SECONDS",
    help="How long pods are evicted; after that the card is Stuck. [default: without limit]",
)
@option("--dry-run", is_flag=True, help="Only say what would be done.")
@option("--wait", "waits", is_flag=True, help="Wait until the card is free, with --then until it is back, or stuck.")
@option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="With --wait: how long.",
)
@access_options
@output_formats("text", "json", "yaml")
@with_exit_codes
def command(
    card: CardArgument,
    reason: str,
    then: JsonObject | None,
    bare: bool,
    deadline_s: int | None,
    dry_run: bool,
    waits: bool,
    timeout_s: float,
    kubeconfig: Path | None,
    context: str | None,
    output: OutputFormat,
) -> int:
    """Take one card of a node from its pods: it gets no new claims, and the pods that hold it are evicted.

    CARD is the card's name, such as gpu-0, its UUID or its PCI address. What is done is written as a CardMaintenance;
    `kerf controller --reclaim` evicts the pods, by the Eviction API alone, and its status says how far it is. First it
    is shown who holds the card and where each pod fits afterwards. With --then its node resets the free card, switches
    its MIG mode or runs a hook, verifies the card and gives it back. `kerf undrain` ends it.

    Exit code 0: done, or with --dry-run: the card becomes free, and each pod fits elsewhere; 1: it does not, or with
    --wait it is stuck, or not free or back in time; 2: bad input, or the card is in another maintenance; 3: no answer.
    """
    known = event_loop.run(read_input, kubeconfig, context)
    cluster = known.build_index()
    target = find_drained_card(cluster, card.node, card.card)
    report = plan_drain(cluster, target, known.disruption_budgets, evicts_bare=bare)
    report = replace(report, unjudged=explain_unjudged(cluster) if report.evict else "")
    held = find_maintenance(known.maintenances, target.node, target.uuid, target.pci_bus_id)
    was_there = held is not None
    if held is not None and not dry_run:
        _check_same(held, then)
    if held is None and not dry_run:
        spec: JsonObject = {"reason": reason} if reason else {}
        spec |= then or {}
        spec |= {"evictBarePods": True} if bare else {}
        spec |= {"deadlineSeconds": deadline_s} if deadline_s is not None else {}
        held = event_loop.run(create_maintenance, kubeconfig, context, target, spec)
    report = _with_maintenance(report, held)
    if output == "text":
        columns = shutil.get_terminal_size().columns
        lines = render_drain(make_printable(report), held, columns, was_there=was_there, dry_run=dry_run)
        click.echo("\n".join(lines))
    if waits and held is not None and not dry_run:
        held = event_loop.run(wait_for_end, kubeconfig, context, held, timeout_s)
        report = _with_maintenance(report, held)
        if output == "text":
            print_text("\n".join(render_end(make_printable(report), held, timeout_s)))
    if output != "text":
        print_document(report, output)
    if dry_run:
        return 0 if report.is_possible else EXIT_DOES_NOT_FIT
    return EXIT_DOES_NOT_FIT if waits and (held is None or report.phase != wanted_phase(held)) else 0


def _check_same(held: CardMaintenanceObject, wanted: JsonObject | None) -> None:
    """Raise QueryError where the card is in a maintenance already that is over, or does something else."""
    name, then = held.metadata.name, held.spec.get("then", "None")
    if held.status.phase == "Returned":
        raise QueryError(
            f"CardMaintenance {name} has returned the card: end it (kerf undrain), then drain the card again"
        )
    if wanted is not None and (then, held.spec.get("hook")) != (wanted["then"], wanted.get("hook")):
        raise QueryError(
            f"the card is in maintenance by CardMaintenance {name}, then: {then}: end it first (kerf undrain)"
        )


def _with_maintenance(report: DrainReport, held: CardMaintenanceObject | None) -> DrainReport:
    if held is None:
        return replace(report, maintenance="", phase="", message="")
    status = held.status
    return replace(report, maintenance=held.metadata.name, phase=status.phase or "", message=status.message)


def render_drain(
    report: DrainReport, held: CardMaintenanceObject | None, columns: int, *, was_there: bool, dry_run: bool
) -> Iterator[str]:
    """Yield the lines about a card, its pods and its maintenance, for a terminal of ``columns``."""
    pods = format_count(len(report.evict), "pod")
    for line in wrap_sentence(f"card {report.card} of {report.node}: {pods} to evict"):
        yield click.style(line, bold=True)
    named = (("UUID", report.uuid), ("PCI address", report.pci_address))
    yield from wrap_sentence(", ".join(f"{what} {value}" for what, value in named if value))
    if report.evict:
        yield ""
        yield from _list_evicted(report, columns)
    yield from _notes(report)
    yield ""
    if held is None:
        yield from wrap_sentence("nothing is changed: this was a dry run")
    elif was_there:
        since, why = held.metadata.creation_timestamp or "", to_one_line(str(held.spec.get("reason", "")))
        yield from wrap_sentence(
            f"it is in maintenance since {since}{f': {why}' if why else ''} "
            f"({name_maintenances([report.maintenance])} is {report.phase or 'without a status yet'})"
            + ("; nothing is changed" if dry_run else "")
        )
    else:
        yield from wrap_sentence(
            f"{name_maintenances([report.maintenance])} is created: the card gets no new claims, and `kerf controller "
            f"--reclaim` evicts its pods{_then(held)}; `kubectl get cardmaintenances` says how far it is"
        )


def _list_evicted(report: DrainReport, columns: int) -> Iterator[str]:
    """Yield a table of the pods; where one of its lines would be longer than ``columns``, one fact of a pod a line."""
    rows = [(each.pod, each.owner or "-", ", ".join(each.devices), _room(each)) for each in report.evict]
    lines = format_table(_HEADER, rows).splitlines()
    if max(map(len, lines)) <= columns:
        yield from lines
        return
    for pod, *facts in rows:
        yield pod
        for name, fact in zip(_HEADER[1:], facts, strict=True):
            yield from wrap_sentence(fact, first=f"  {name:<9}", others=" " * 11)


def _then(held: CardMaintenanceObject) -> str:
    then = held.spec.get("then", "None")
    if then == "None":
        return ""
    what = f"hook {held.spec.get('hook')}" if then == "Hook" else str(then)
    return f". Its node does {what} then, verifies the card and gives it back"


def _room(holder: DrainedHolder) -> str:
    if holder.new_node:
        return f"{holder.new_node}: {', '.join(holder.new_devices) or 'its claim is there'}"
    if not holder.owner:
        return "- (nothing creates it again)"
    return "unknown (the search took too long)" if holder.is_undecided else "nowhere: it waits for a card"


def _notes(report: DrainReport) -> Iterator[str]:
    """Yield who is not evicted, and what else is to be known."""
    if report.others:
        yield ""
        for each in report.others:
            who = f"pod {each.pod}" if each.pod else f"claim {', '.join(each.claims)}"
            yield from wrap_sentence(f"{who} ({', '.join(each.devices)}): {each.message}")
    blocked = {name: None for each in report.evict for name in each.disruption_budgets}
    if blocked:
        yield ""
        yield from wrap_sentence(
            f"disruption budgets that allow no eviction now, and are waited for: {', '.join(blocked)}"
        )
    if report.evict and not report.budgets_known:
        yield ""
        yield from wrap_sentence("disruption budgets could not be read: how they delay evictions is not known")
    if report.unjudged:
        yield from wrap_sentence(report.unjudged)


def render_end(report: DrainReport, held: CardMaintenanceObject | None, timeout_s: float) -> Iterator[str]:
    """Yield how a wait has ended; ``held`` None: the maintenance was deleted."""
    if held is None:
        yield from wrap_sentence("the CardMaintenance has been deleted meanwhile: the card gets claims again")
    elif report.phase in (wanted_phase(held), "Stuck"):
        yield from wrap_sentence(f"{report.phase}: {report.message}")
    elif report.phase:
        yield from wrap_sentence(f"{_not_yet(held)} after {timeout_s:g} s, {report.phase}: {report.message}")
    else:
        yield from wrap_sentence(
            f"{_not_yet(held)} after {timeout_s:g} s, and without a status: `kerf controller --reclaim` does not run "
            "(reclaim.enabled of the chart), so no pod is evicted"
        )


def _not_yet(held: CardMaintenanceObject) -> str:
    return "not free" if wanted_phase(held) == "Free" else "not back"
