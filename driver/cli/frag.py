"""``kerf frag``: reports how fragmented the cards are, and which claims to recreate for a large partition."""

from collections.abc import Iterator
from pathlib import Path

import click

from driver.cli.cluster_options import (
    Progress,
    abbreviate,
    build_cluster_index,
    choose_nodes,
    cluster_options,
    format_count,
    node_option,
    read_state,
    require_scheduler_allocation,
    with_exit_codes,
)
from driver.cli.options import option
from driver.cli.output import OutputFormat, format_table, output_option, print_document
from driver.diagnostics.defragmentation import Advice
from driver.diagnostics.frag import CardFigures, FragmentationReport, measure_fragmentation

_CARDS = 40
"""Cards listed as text; of larger clusters only those with stranded units are shown."""


@click.command(short_help="Say how fragmented the cards are, and what to recreate for a large partition.")
@node_option
@option("--size", help="Advise how to win this size: a profile, an FPGA function, or `whole`. [default: all that lack]")
@cluster_options
@output_option
@with_exit_codes
def command(
    nodes: tuple[str, ...],
    size: str | None,
    kubeconfig: Path | None,
    context: str | None,
    dump: Path | None,
    output: OutputFormat,
) -> int:
    """Say how fragmented the cards are: what of each size is free, which units are stranded, which claims to recreate.

    Exit code 0, also when nothing is free; 2: bad input; 3: no answer.
    """
    source = read_state(kubeconfig, context, dump)
    require_scheduler_allocation(source, "frag")
    cluster = build_cluster_index(source)
    answer = measure_fragmentation(cluster, nodes=choose_nodes(cluster, nodes), size=size, track=Progress())
    if output == "text":
        click.echo("\n".join(_lines(answer)))
    else:
        print_document(answer, output)
    return 0


def _lines(answer: FragmentationReport) -> Iterator[str]:
    if not answer.cards:
        yield "no card that Kerf publishes"
    else:
        rows = [(each.model, each.size, each.free, each.possible) for each in answer.sizes]
        yield format_table(("MODEL", "SIZE", "FREE", "OF"), rows)
        yield ""
        yield from _cards(answer.cards)
    for advice in answer.advice:
        yield ""
        yield from _advice(advice)
    if answer.no_advice:
        sizes = abbreviate([f"{each.size} of {each.model}" for each in answer.no_advice], 8)
        yield f"\nno claims could be recreated elsewhere to win {sizes}"
    for unknown in answer.unknown_cards:
        yield f"\nskipped, because its geometry is unknown: {unknown}"


def _cards(cards: tuple[CardFigures, ...]) -> Iterator[str]:
    shown = [card for card in cards if len(cards) <= _CARDS or card.stranded_units]
    rows = [
        (
            each.node,
            each.card,
            each.model,
            each.claims,
            f"{each.free_units}/{each.units}",
            each.largest_free_run,
            each.stranded_units,
        )
        for each in shown[:_CARDS]
    ]
    yield format_table(("NODE", "CARD", "MODEL", "CLAIMS", "FREE UNITS", "LARGEST RUN", "STRANDED"), rows)
    if len(cards) > len(rows):
        yield f"and {format_count(len(cards) - len(rows), 'card')} more; --output json has them all"
    free, units = sum(each.free_units for each in cards), sum(each.units for each in cards)
    yield f"\n{free} of {units} units are free, {sum(each.stranded_units for each in cards)} of them stranded"


def _advice(advice: Advice) -> Iterator[str]:
    if not advice.moves:
        yield f"{advice.size} of {advice.model} is free: {advice.device} on {advice.node}"
        return
    yield click.style(
        f"for one {advice.size} of {advice.model}, {advice.device} on {advice.node}, recreate "
        f"{format_count(len(advice.moves), 'claim')}; there is room for them elsewhere:",
        bold=True,
    )
    rows = [
        (move.claim, abbreviate(move.pods) or "-", abbreviate(move.devices), abbreviate(move.room_at))
        for move in advice.moves
    ]
    yield "\n".join(f"  {line}" for line in format_table(("CLAIM", "POD", "DEVICE", "ROOM AT"), rows).splitlines())
