"""``kerf frag``: reports how fragmented the cards are, and which claims to recreate for a large partition."""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

import click

from kerf_dra.api.model.names import list_names
from kerf_dra.api.model.quantity import Quantity
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
from kerf_dra.driver.cli.output import OutputFormat, format_table, make_printable, output_formats, print_document
from kerf_dra.driver.diagnostics.counter_usage import CounterSetFigures, PoolFigures
from kerf_dra.driver.diagnostics.defragmentation import Advice
from kerf_dra.driver.diagnostics.frag import CardFigures, FragmentationReport, measure_fragmentation
from kerf_dra.driver.partitions.card_pictures.text_picture import assign_letters, draw_units

_BAR = 20
"""Characters of a bar."""
_WIDTH = 80
"""Columns of sentences and legends: the width of a terminal that has not been resized."""
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
        click.echo("\n".join(_lines(make_printable(answer), most)).lstrip("\n"))
    else:
        print_document(answer, output)
    return 0


def _lines(answer: FragmentationReport, most: int) -> Iterator[str]:
    if not (answer.cards or answer.counter_sets or answer.whole_devices):
        yield "no card is published"
    if answer.cards:
        rows = [(each.model, each.size, each.free, each.possible) for each in answer.sizes]
        yield format_table(("MODEL", "SIZE", "FREE", "OF"), rows)
        yield ""
        yield from _cards(answer.cards, most)
        yield from _packing(answer)
    for advice in answer.advice:
        yield ""
        yield from _advice(advice)
    if answer.no_advice:
        yield ""
        yield from _wrapped(f"free only when claims end, not by recreating them elsewhere: {_list_sizes(answer)}")
    for unknown in answer.unknown_cards:
        yield ""
        yield from _wrapped(f"shown by its counters only, because its geometry is unknown: {unknown}")
    yield from _counter_sets(answer.counter_sets, most)
    if answer.whole_devices:
        yield ""
        header = ("DRIVER", "POOL", "WHOLE DEVICES", "IN USE", "CAPACITY IN USE")
        pools = [
            (each.driver, each.pool, each.devices, each.in_use, _list_capacities(each) or "-")
            for each in answer.whole_devices[:most]
        ]
        columns = len(header) if any(map(_list_capacities, answer.whole_devices)) else len(header) - 1
        yield format_table(header[:columns], [row[:columns] for row in pools])
        if len(answer.whole_devices) > most:
            yield f"and {format_count(len(answer.whole_devices) - most, 'pool')} more; --output wide has them all"


def _list_sizes(answer: FragmentationReport) -> str:
    """Return the sizes for which there is no advice, by model."""
    sizes: dict[str, list[str]] = {}
    for each in answer.no_advice:
        sizes.setdefault(each.model, []).append(each.size)
    return "; ".join(f"{list_names(names, _SIZES)} of {model}" for model, names in sizes.items())


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    """Return a sentence in lines; names are never broken, because people copy them."""
    return wrap(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _list_capacities(pool: PoolFigures) -> str:
    return ", ".join(f"{each.used} of {each.total} {each.name}" for each in pool.capacities)


def _counter_sets(sets: tuple[CounterSetFigures, ...], most: int) -> Iterator[str]:
    for each in sets[:most]:
        yield ""
        where = f"{each.node}  {each.driver}" if each.node else f"{each.driver}/{each.pool}"
        yield click.style(f"{where}  {each.counter_set}", bold=True)
        devices = format_count(each.devices, "device")
        yield f"  {each.in_use} of {devices} in use; any one of {each.would_fit} others would fit"
        yield from _drawing(each)
    if len(sets) > most:
        yield f"\nand {format_count(len(sets) - most, 'card')} more; --output wide has them all"


def _drawing(card: CounterSetFigures) -> Iterator[str]:
    """Draw the units of a card with a letter for each claim, and its other counters as bars."""
    letters = assign_letters(card.claims)
    rows = [
        (
            f"{row.name} {row.first}-{row.first + len(row.holders) - 1}",
            draw_units(row.holders, letters),
            "",
        )
        for row in card.units
    ]
    for counter in card.counters:
        used, total = Quantity(counter.used), Quantity(counter.total)
        filled = min(_BAR, -(-used.nano * _BAR // total.nano)) if total else 0
        rows.append((counter.name, f"[{'#' * filled}{'.' * (_BAR - filled)}]", f"{counter.used} of {counter.total}"))
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for name, picture, amounts in rows:
        yield f"  {name.ljust(widths[0])}  {picture.ljust(widths[1])}  {amounts}".rstrip()
    if card.units and letters:
        legend = ", ".join(f"{letter} = {claim}" for claim, letter in letters.items())
        yield from wrap(legend, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _cards(cards: tuple[CardFigures, ...], most: int) -> Iterator[str]:
    shown = [card for card in cards if len(cards) <= most or card.stranded_units]
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
        for each in shown[:most]
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
        yield from _wrapped(f"packed, {more} more of {found.units} units would be in use: {pods} would fit")
    elif answer.packed_sizes:
        gains = [f"{each.packed} {each.size} of {each.model} instead of {each.as_now}" for each in answer.packed_sizes]
        yield from _wrapped(f"packed, more would be free: {list_names(list(reversed(gains)), _GAINS)}")
    else:
        yield from _wrapped("packed in the order of publication, nothing more would fit")


def _advice(advice: Advice) -> Iterator[str]:
    if not advice.moves:
        yield from _wrapped(f"{advice.size} of {advice.model} is free: {advice.device} on {advice.node}")
        return
    heading = _wrapped(
        f"for one {advice.size} of {advice.model}, {advice.device} on {advice.node}, recreate "
        f"{format_count(len(advice.moves), 'claim')}; there is room for them elsewhere:"
    )
    yield from (click.style(line, bold=True) for line in heading)
    rows = [
        (move.claim, list_names(move.pods) or "-", list_names(move.devices), list_names(move.room_at))
        for move in advice.moves
    ]
    yield "\n".join(f"  {line}" for line in format_table(("CLAIM", "POD", "DEVICE", "ROOM AT"), rows).splitlines())
