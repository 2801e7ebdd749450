"""``kerf frag``: reports how fragmented the cards are, and which claims to recreate for a large partition."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from kerf_dra.api.model.names import list_names
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.cli.options import option
from kerf_dra.driver.cli.options.cluster import (
    Progress,
    build_cluster_index,
    choose_nodes,
    cluster_options,
    format_count,
    node_option,
    read_state,
    require_pods,
    require_scheduler_allocation,
    with_exit_codes,
)
from kerf_dra.driver.cli.output import (
    OutputFormat,
    format_table,
    make_printable,
    output_formats,
    print_document,
    wrap_sentence,
)
from kerf_dra.driver.cli.terminal_pictures import draw_in_terminal
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.counter_usage import CounterSetFigures, PoolFigures
from kerf_dra.driver.diagnostics.defragmentation import Advice
from kerf_dra.driver.diagnostics.frag import CardFigures, FragmentationReport, measure_fragmentation
from kerf_dra.driver.partitions.card_pictures.card_picture import UnitState

_SIZES = 8
"""Sizes listed of each model: a model has seven profiles, and the whole card."""
_GAINS = 3
"""Sizes of which packing would free more, the largest first: smaller ones follow from these."""
_CARDS = 40
"""Cards listed as text; of larger clusters only those with stranded units are shown. ``-o wide`` lists all."""


@click.command(short_help="Say how fragmented the cards are, and what to recreate for a large partition.")
@node_option
@option(
    "--size",
    help="Which size to free by recreating claims: a profile, an FPGA function, `slots` or `whole`. "
    "[default: each that lacks]",
)
@cluster_options
@output_formats("text", "wide", "json", "yaml")
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
    require_pods(source, "frag")
    cluster = build_cluster_index(source)
    answer = measure_fragmentation(cluster, nodes=choose_nodes(cluster, nodes), size=size, track=Progress())
    if output in ("text", "wide"):
        most = _CARDS if output == "text" else sys.maxsize
        click.echo("\n".join(_lines(cluster, answer, most)).lstrip("\n"))
    else:
        print_document(answer, output)
    return 0


def _lines(cluster: ClusterIndex, found: FragmentationReport, most: int) -> Iterator[str]:
    """Yield the report; cards to draw are looked up by their names as they are, which are made printable later."""
    answer = make_printable(found)
    if not (answer.cards or answer.counter_sets or answer.whole_devices):
        yield "no card is published"
    if answer.cards:
        rows = [(each.model, each.size, each.free, each.possible) for each in answer.sizes]
        yield format_table(("MODEL", "SIZE", "FREE", "OF"), rows)
        yield ""
        yield from _cards(answer.cards, most)
        yield from _packing(answer)
        yield from _drawn_cards(cluster, _select_shown(found.cards, most))
    for advice in answer.advice:
        yield ""
        yield from _advice(advice)
    if answer.no_advice:
        yield ""
        yield from wrap_sentence(f"free only when claims end, not by recreating them elsewhere: {_list_sizes(answer)}")
    for unknown in answer.unknown_cards:
        yield ""
        yield from wrap_sentence(f"shown by its counters only, because its geometry is unknown: {unknown}")
    yield from _counter_sets(cluster, found.counter_sets, most)
    if found.whole_devices:
        yield ""
        yield from _whole_devices(cluster, found.whole_devices, most)


def _list_sizes(answer: FragmentationReport) -> str:
    """Return the sizes for which there is no advice, by model."""
    sizes: dict[str, list[str]] = {}
    for each in answer.no_advice:
        sizes.setdefault(each.model, []).append(each.size)
    return "; ".join(f"{list_names(names, _SIZES)} of {model}" for model, names in sizes.items())


def _list_capacities(pool: PoolFigures) -> str:
    return ", ".join(f"{each.used} of {each.total} {each.name}" for each in pool.capacities)


def _counter_sets(cluster: ClusterIndex, sets: tuple[CounterSetFigures, ...], most: int) -> Iterator[str]:
    shown = sets[:most]
    pictures = {
        (each.driver, each.pool, each.name): each
        for each in cluster.build_pictures((each.driver, each.pool) for each in shown)
    }
    for each in shown:
        yield ""
        where = (each.node, each.driver) if each.node else (f"{each.driver}/{each.pool}",)
        yield click.style("  ".join(map(to_one_line, (*where, each.counter_set))), bold=True)
        devices = format_count(each.devices, "device")
        yield f"  {each.in_use} of {devices} in use; any one of {each.would_fit} others would fit"
        picture = pictures[each.driver, each.pool, each.counter_set]
        yield from draw_in_terminal([picture], has_titles=False, indent="  ")
    if len(sets) > most:
        yield f"\nand {format_count(len(sets) - most, 'card')} more; --output wide has them all"


def _drawn_cards(cluster: ClusterIndex, cards: Sequence[CardFigures]) -> Iterator[str]:
    """Draw the cards of which something is in use or of no use; the table has the others."""
    names = {(each.node, each.card) for each in cards}
    known = [each for each in cluster.cards.known if (each.node, each.name) in names]
    pictures = [
        replace(each, gauges=())
        for each in cluster.build_pictures((each.driver, each.pool) for each in known)
        if (each.node, each.name) in names and {unit.state for unit in each.units} != {UnitState.FREE}
    ]
    if pictures:
        yield ""
        yield from draw_in_terminal(pictures)


def _whole_devices(cluster: ClusterIndex, pools: Sequence[PoolFigures], most: int) -> Iterator[str]:
    header = ("DRIVER", "POOL", "WHOLE DEVICES", "IN USE", "CAPACITY IN USE")
    printable = make_printable(tuple(pools[:most]))
    rows = [(each.driver, each.pool, each.devices, each.in_use, _list_capacities(each) or "-") for each in printable]
    columns = len(header) if any(map(_list_capacities, pools)) else len(header) - 1
    yield format_table(header[:columns], [row[:columns] for row in rows])
    if len(pools) > most:
        yield f"and {format_count(len(pools) - most, 'pool')} more; --output wide has them all"
    found = cluster.build_pictures((each.driver, each.pool) for each in pools[:most])
    pictures = [replace(each, gauges=()) for each in found if not each.name]
    if any({unit.state for unit in each.units} != {UnitState.FREE} for each in pictures):
        yield ""
        yield from draw_in_terminal(pictures)


def _select_shown(cards: Sequence[CardFigures], most: int) -> Sequence[CardFigures]:
    """Return the cards that are listed: all, or the first with stranded units where there are too many."""
    return [card for card in cards if len(cards) <= most or card.stranded_units][:most]


def _cards(cards: tuple[CardFigures, ...], most: int) -> Iterator[str]:
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
        for each in _select_shown(cards, most)
    ]
    yield format_table(("NODE", "CARD", "MODEL", "CLAIMS", "FREE UNITS", "LARGEST RUN", "STRANDED"), rows)
    if len(cards) > len(rows):
        yield f"and {format_count(len(cards) - len(rows), 'card')} more; --output wide has them all"
    free, units = sum(each.free_units for each in cards), sum(each.units for each in cards)
    yield f"\n{free} of {units} units are free, {sum(each.stranded_units for each in cards)} of them stranded"


def _packing(answer: FragmentationReport) -> Iterator[str]:
    """Say what packing all claims would gain, by what waits, or else by the largest sizes that would be free."""
    found = answer.packing
    if found is None:
        return
    if (more := found.packed - found.as_now) > 0:
        pods = format_count(found.fit_packed - found.fit_now, "more waiting pod")
        yield from wrap_sentence(f"packed, {more} more of {found.units} units would be in use: {pods} would fit")
    elif answer.packed_sizes:
        gains = [f"{each.packed} {each.size} of {each.model} instead of {each.as_now}" for each in answer.packed_sizes]
        yield from wrap_sentence(f"packed, more would be free: {list_names(list(reversed(gains)), _GAINS)}")
    else:
        yield from wrap_sentence("packed in the order of publication, nothing more would fit")


def _advice(advice: Advice) -> Iterator[str]:
    if not advice.moves:
        yield from wrap_sentence(f"{advice.size} of {advice.model} is free: {advice.device} on {advice.node}")
        return
    heading = wrap_sentence(
        f"for one {advice.size} of {advice.model}, {advice.device} on {advice.node}, recreate "
        f"{format_count(len(advice.moves), 'claim')}; there is room for them elsewhere:"
    )
    yield from (click.style(line, bold=True) for line in heading)
    rows = [
        (move.claim, list_names(move.pods) or "-", list_names(move.devices), list_names(move.room_at))
        for move in advice.moves
    ]
    yield "\n".join(f"  {line}" for line in format_table(("CLAIM", "POD", "DEVICE", "ROOM AT"), rows).splitlines())
