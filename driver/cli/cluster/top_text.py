"""The text of ``kerf top``: rows of claims in the width of a terminal, and what is free, in words.

Pure functions. Names of others are made printable here; what has a color, ``click.style`` gives it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import click

from kerf_dra.api.model.names import list_names
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.cli.cluster.why import render_summary
from kerf_dra.driver.cli.options.cluster import format_count
from kerf_dra.driver.cli.output import format_table, wrap_sentence
from kerf_dra.driver.diagnostics.overview.claim_rows import ClaimRow, Idleness
from kerf_dra.driver.diagnostics.overview.cluster_overview import ClusterOverview
from kerf_dra.driver.diagnostics.times import format_seconds

_WIDE: Final = 60
"""Columns from which rows have the pod and what it has or waits for; below, the row that is chosen shows it."""
_NARROW: Final = (0, 3, 2)
"""The columns of HEADER that narrower terminals show."""
_NAMES_SHARE: Final = (0.3, 0.22)
"""The most of the width that the names of claims and of pods have: what is left is for reasons."""
_LEAST: Final = 12
"""The least columns of names and reasons: what is shorter shows nothing."""
_GAP: Final = "  "
_DEVICES: Final = 3
"""Devices of a row that are named: a claim has one, or as many as its node has cards."""
_SIZES: Final = 12
"""Sizes that are named for a model, which has seven profiles and the whole card."""
_NAMES: Final = 4
"""Nodes and drivers named in a sentence."""

HEADER: Final = ("CLAIM", "POD", "AGE", "STATE", "DEVICES, OR WHY IT WAITS")


def format_rows(rows: Sequence[ClaimRow], width: int) -> tuple[str, list[str]]:
    """Return the header and a line for each row, of at most ``width`` columns: longer texts are cut."""
    chosen = range(len(HEADER)) if width >= _WIDE else _NARROW
    cells = [[row[column] for column in chosen] for row in (HEADER, *map(_list_cells, rows))]
    widths = [max(len(row[place]) for row in cells) for place in range(len(chosen))]
    gaps = len(_GAP) * (len(widths) - 1)
    if width >= _WIDE:
        for place, share in enumerate(_NAMES_SHARE):
            widths[place] = min(widths[place], int(width * share))
        widths[-1] = max(_LEAST, width - sum(widths[:-1]) - gaps)
    else:
        widths[0] = min(widths[0], max(_LEAST, width - sum(widths[1:]) - gaps))
    header, *lines = (
        _GAP.join(_cut(cell, each).ljust(each) for cell, each in zip(row, widths, strict=True))[:width].rstrip()
        for row in cells
    )
    return header, lines


def _list_cells(row: ClaimRow) -> tuple[str, ...]:
    name = f"{row.subject.namespace}/{row.subject.name}" if row.subject.kind != "Pod" else "-"
    pods = row.pods if row.subject.kind != "Pod" else (f"{row.subject.namespace}/{row.subject.name}",)
    cells = name, list_names(pods, 1) or "-", format_age(row), row.shown_state, _describe_holding(row)
    return tuple(map(to_one_line, cells))


def format_age(row: ClaimRow) -> str:
    """Return how old a row's claim is, such as ``5 min``."""
    return "-" if row.age_s is None else format_seconds(row.age_s)


def _describe_holding(row: ClaimRow) -> str:
    """Return the devices of a row; of one that waits, why."""
    if row.why is not None:
        return f"{row.cause.code}: {row.why.message}" if row.cause else row.why.message
    if row.waits:
        return "waits"
    return list_names([_shorten(each, row.nodes) for each in row.devices], _DEVICES) or "-"


def _shorten(device: str, nodes: Sequence[str]) -> str:
    """Return ``node/device`` of a device on one node, else ``pool/device``."""
    _, _, in_pool = device.partition("/")
    return f"{nodes[0]}/{in_pool.rpartition('/')[2]}" if len(nodes) == 1 else in_pool


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def describe_row(row: ClaimRow, width: int) -> list[str]:
    """Return the whole of a row in lines: whose it is, what it has, why it waits and what to do."""
    pods = f"pod {list_names(row.pods, _NAMES)}" if row.pods else "no pod"
    where = f", on {list_names(row.nodes, _NAMES)}" if row.nodes else ""
    devices = f", has {list_names(row.devices, _DEVICES)}" if row.devices else ""
    kind = "pod" if row.subject.kind == "Pod" else "claim"
    state = f"{row.state}, {describe_idleness(row.idle)}" if row.idle is not None else row.state
    about = f"{kind} {row.subject.namespace}/{row.subject.name}: {state}, {pods}{where}{devices}"
    lines = [] if row.why is not None and not row.devices else wrap_sentence(to_one_line(about), width)
    if row.why is not None:
        lines += render_summary(row.why, width, is_short=width < _WIDE)
    elif row.waits:
        lines += wrap_sentence("why it waits is being found out; Enter asks at once", width)
    return lines


def describe_idleness(idle: Idleness) -> str:
    """Return for how long devices of a claim have been idle, such as ``idle for 3 h, since 2026-11-21T05:00:00Z``."""
    part = "" if idle.is_whole else f"in part ({list_names(idle.devices, _DEVICES)}) "
    return f"{part}idle for {format_seconds(idle.seconds)}, since {idle.since}"


def describe_free(overview: ClusterOverview, width: int) -> list[str]:
    """Return what is free, in lines: partitions of each size by model, else devices by driver."""
    sentences = [
        *_describe_sizes(overview),
        *_describe_counter_sets(overview),
        *_describe_whole_devices(overview),
    ]
    return [line for sentence in sentences for line in wrap_sentence(sentence, width)]


def _describe_sizes(overview: ClusterOverview) -> Iterator[str]:
    for model in dict.fromkeys(each.model for each in overview.sizes):
        sizes = [each for each in overview.sizes if each.model == model]
        free = [f"{each.free} {each.size}" for each in sizes if each.free]
        none = [each.size for each in sizes if not each.free]
        words = [f"free {', or '.join(free[:_SIZES])}" if free else "", f"none of {list_names(none)}" if none else ""]
        yield to_one_line(f"{model}: {'; '.join(filter(None, words))}")


def _describe_counter_sets(overview: ClusterOverview) -> Iterator[str]:
    for driver in dict.fromkeys(each.driver for each in overview.counter_sets):
        sets = [each for each in overview.counter_sets if each.driver == driver]
        fitting, devices = sum(each.would_fit for each in sets), sum(each.devices for each in sets)
        cards = format_count(len(sets), "card")
        yield to_one_line(f"{driver}: any one of {fitting} of the {devices} devices on {cards} would fit")


def _describe_whole_devices(overview: ClusterOverview) -> Iterator[str]:
    for driver in dict.fromkeys(each.driver for each in overview.whole_devices):
        pools = [each for each in overview.whole_devices if each.driver == driver]
        devices, in_use = sum(each.devices for each in pools), sum(each.in_use for each in pools)
        yield to_one_line(f"{driver}: {devices - in_use} of {format_count(devices, 'whole device')} free")


def describe_counts(overview: ClusterOverview) -> str:
    """Return how much of the cluster there is."""
    cards = len(overview.cards) + len(overview.counter_sets)
    not_ready = sum(not each.is_ready for each in overview.nodes)
    words = [
        format_count(len(overview.nodes), "node") + (f" ({not_ready} not ready)" if not_ready else ""),
        format_count(cards, "card") if cards else format_count(len(overview.whole_devices), "pool"),
        format_count(len(overview.claims), "claim"),
        f"{len(overview.waiting)} waiting",
        *([f"{idle} idle"] if (idle := sum(row.idle is not None for row in overview.claims)) else []),
    ]
    return ", ".join(words)


def format_time(rfc3339: str) -> str:
    """Return the time of day of a time in UTC, such as ``08:00:00 UTC``."""
    return f"{rfc3339[11:19]} UTC"


def render_table(overview: ClusterOverview, width: int) -> Iterator[str]:
    """Yield all claims as a table whose names are whole, and below it why those wait whose reports there are."""
    rows = [(*_list_cells(row)[:4], _list_nodes(row), _list_devices(row)) for row in overview.claims]
    if rows:
        yield format_table((*HEADER[:4], "NODE", "DEVICES"), rows)
    else:
        yield "no claim, and no pod waits for devices"
    for row in overview.claims:
        if row.why is not None:
            yield ""
            yield from render_summary(row.why, width)
    if left := sum(row.why is None for row in overview.waiting):
        yield ""
        yield from wrap_sentence(
            f"{format_count(left, 'more claim')} waiting: `kerf why pods -A` says why each does", width
        )


def _list_nodes(row: ClaimRow) -> str:
    return to_one_line(list_names(row.nodes, _NAMES)) or "-"


def _list_devices(row: ClaimRow) -> str:
    return to_one_line(list_names([each.rpartition("/")[2] for each in row.devices], _DEVICES)) or "-"


def describe_forbidden(lists: Mapping[str, str], width: int) -> Iterator[str]:
    """Yield what may not be read, and why, in lines."""
    for plural, why in lists.items():
        yield from wrap_sentence(
            to_one_line(f"{plural} could not be read, so what they say is missing here: {why}"), width
        )


def style_lines(lines: Iterable[str], **style: str | bool) -> Iterator[str]:
    """Yield lines in a style of ``click.style``."""
    return (click.style(line, **style) for line in lines)  # type: ignore[arg-type]
