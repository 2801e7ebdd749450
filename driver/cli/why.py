"""``kerf why``: explains why a pod or a claim waits for devices."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from api.model.names import ObjectRef
from driver.cli.cluster_options import (
    Progress,
    abbreviate,
    build_cluster_index,
    cluster_options,
    deadline_option,
    format_count,
    namespace_option,
    read_state,
    with_exit_codes,
)
from driver.cli.output import (
    EXIT_DOES_NOT_FIT,
    EXIT_NO_ANSWER,
    OutputFormat,
    format_table,
    output_option,
    print_document,
)
from driver.diagnostics.explain.report import BlockedCard, NearMiss, NodeGroup, NodeReason, Verdict, Victims, WhyReport
from driver.diagnostics.explain.why import explain_claim, explain_pod

_EXITS: Final = {
    Verdict.HAS_DEVICES: 0,
    Verdict.FITS: 0,
    Verdict.DOES_NOT_FIT: EXIT_DOES_NOT_FIT,
    Verdict.BLOCKED: EXIT_DOES_NOT_FIT,
    Verdict.INVALID: EXIT_DOES_NOT_FIT,
    Verdict.UNDECIDED: EXIT_NO_ANSWER,
}
_COLORS: Final = {0: "green", EXIT_DOES_NOT_FIT: "red", EXIT_NO_ANSWER: "yellow"}
_CARDS: Final = 8
"""Cards listed for each group of nodes: as many as one node has."""


@click.command(short_help="Say why a pod or a claim waits for devices, and what would help.")
@click.argument("kind", type=click.Choice(["claim", "pod"]))
@click.argument("name")
@namespace_option
@cluster_options
@deadline_option
@output_option
@with_exit_codes
def command(
    kind: str,
    name: str,
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    dump: Path | None,
    deadline_s: float,
    output: OutputFormat,
) -> int:
    """Say why a pod or a claim waits for devices: the obstacles on each node, and which claims to end.

    Exit code 0: it has its devices, or it fits; 1: it does not fit; 2: bad input; 3: no answer.
    """
    source = read_state(kubeconfig, context, dump)
    ask = explain_pod if kind == "pod" else explain_claim
    answer = ask(build_cluster_index(source, deadline_s), ObjectRef(namespace or source.namespace, name), Progress())
    if output == "text":
        click.echo("\n".join(_lines(answer)))
    else:
        print_document(answer, output)
    return _EXITS[answer.verdict]


def _lines(answer: WhyReport) -> Iterator[str]:
    subject = answer.subject
    kind = "pod" if subject.kind == "Pod" else "claim"
    color = _COLORS[_EXITS[answer.verdict]]
    yield f"{kind} {subject.namespace}/{subject.name}: " + click.style(answer.message, fg=color)
    if len(answer.claims) > 1 or any(claim.devices for claim in answer.claims):
        rows = [
            (claim.name, claim.state, abbreviate(claim.devices, 4) or "-", abbreviate(claim.waits_for) or "-")
            for claim in answer.claims
        ]
        yield ""
        yield format_table(("CLAIM", "STATE", "DEVICES", "WAITS FOR"), rows)
    yield from reason_lines(answer)
    if answer.scheduler_says and answer.verdict is not Verdict.DOES_NOT_FIT:
        yield f"\nthe scheduler says: {answer.scheduler_says}"


def reason_lines(answer: WhyReport) -> Iterator[str]:
    """Yield the obstacles by node, and what would help."""
    for group in answer.groups:
        yield ""
        yield from _group(group)
    if answer.verdict is Verdict.DOES_NOT_FIT:
        yield ""
        yield from _remedies(answer)


def _group(group: NodeGroup) -> Iterator[str]:
    yield click.style(f"{format_count(len(group.nodes), 'node')}: {abbreviate(group.nodes, 6)}", bold=True)
    for reason in group.reasons:
        yield f"  {_where(reason)}{reason.message}"
        for miss in reason.near_misses:
            yield from _near_miss(miss)
    for one in group.in_the_way[:_CARDS]:
        yield f"    {_in_the_way(one, with_node=len(group.nodes) > 1)}"
    if len(group.in_the_way) > _CARDS:
        yield f"    and {format_count(len(group.in_the_way) - _CARDS, 'card')} more; --output json has them all"


def _where(reason: NodeReason) -> str:
    return f"claim {reason.claim}, request {reason.request}: " if reason.claim else ""


def _near_miss(miss: NearMiss) -> Iterator[str]:
    alike = f" and {miss.devices - 1} like it" if miss.devices > 1 else ""
    yield f"    nearest: {miss.device}{alike}"
    for unmet in miss.unmet:
        has = ", ".join(f"{name} is {value}" for name, value in unmet.has.items())
        yield f"      {' '.join(unmet.condition.split())}" + (f": {has}" if has else "") + f"  ({unmet.source})"


def _in_the_way(one: BlockedCard, *, with_node: bool) -> str:
    at = f"{one.node}: " if with_node else ""
    what = _runs(one.counters) if one.counters else "in use"
    holders = f", held by {abbreviate(one.claims, 4)}" if one.claims else ", more than there is"
    return f"{at}{one.card} of {one.pool}: {what}{holders}"


def _runs(names: Sequence[str]) -> str:
    """Join numbered names with consecutive numbers: ``memory-slice-0…3``."""
    runs: list[list[str]] = []
    for name in sorted(names, key=lambda name: (name.rpartition("-")[0], _number(name))):
        stem = name.rpartition("-")[0]
        if runs and _number(name) > 0 and f"{stem}-{_number(name) - 1}" == runs[-1][-1]:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}…{_number(run[-1])}" for run in runs)


def _number(name: str) -> int:
    tail = name.rpartition("-")[2]
    return int(tail) if tail.isdecimal() else -1


def _remedies(answer: WhyReport) -> Iterator[str]:
    if not answer.remedies:
        if answer.remedies_searched:
            nodes = format_count(answer.remedies_searched, "node")
            yield f"no end of running claims would make it fit ({nodes} searched)"
        else:
            yield "no end of running claims would make it fit"
        return
    yield "it would fit if these claims ended:"
    for remedy in answer.remedies:
        yield f"  on {remedy.node}: {_ending(remedy)}"


def _ending(remedy: Victims) -> str:
    return ", ".join(
        f"{claim.claim}" + (f" (pod {abbreviate(claim.pods)})" if claim.pods else "") for claim in remedy.claims
    )
