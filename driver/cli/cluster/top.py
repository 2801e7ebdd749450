"""``kerf top``: all cards and claims of a cluster, on a terminal that follows it, or printed once."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from kerf_dra.driver.cli import event_loop
from kerf_dra.driver.cli.cluster.top_state import Reading, build_reading, draw_nodes, explain_more
from kerf_dra.driver.cli.cluster.top_text import (
    describe_counts,
    describe_forbidden,
    describe_free,
    format_time,
    render_table,
)
from kerf_dra.driver.cli.options import option
from kerf_dra.driver.cli.options.cluster import (
    Progress,
    StateSource,
    build_cluster_index,
    choose_nodes,
    cluster_options,
    node_option,
    read_state,
    require_pods,
    require_scheduler_allocation,
    with_exit_codes,
)
from kerf_dra.driver.cli.options.names import complete_namespaces
from kerf_dra.driver.cli.output import OutputFormat, output_formats, print_document
from kerf_dra.driver.cli.terminal_colors import choose_color
from kerf_dra.driver.diagnostics.overview.cluster_overview import Scope

_WIDTH: Final = 80
"""Columns of sentences, at most: as those of other commands have."""
_EXPLAINED_ONCE: Final = 20
"""Waiting claims whose reasons are printed: two pages, and on hundreds of nodes half a minute."""
_NO_TEXTUAL: Final = (
    "the live terminal needs the Python package textual: pip install '.[view]' in Kerf's checkout, or pip install "
    "textual; `kerf top --once` prints the same once and needs nothing"
)


@click.command(short_help="Watch all cards and claims: who holds what, what is free, what waits and why.")
@node_option
@option(
    "-n",
    "--namespace",
    shell_complete=complete_namespaces,
    help="Only claims of this namespace. [default: those of all]",
)
@option("--once", is_flag=True, help="Print it once, as also happens where the output is no terminal.")
@cluster_options
@output_formats("text", "json", "yaml")
@with_exit_codes
def command(
    nodes: tuple[str, ...],
    namespace: str | None,
    once: bool,
    kubeconfig: Path | None,
    context: str | None,
    dump: Path | None,
    output: OutputFormat,
) -> int:
    """Watch all cards and claims of a cluster: who holds what, what is free, what waits and why.

    Every driver's cards are drawn as its slices say. Enter shows what `kerf why` says of a claim. The cluster is read
    again every 3 seconds, less often if that takes longer than a third of a second. Where the output is no terminal, or
    TERM is dumb, it is printed once.

    Exit code 0; 2: bad input; 3: no answer.
    """
    is_live = not once and output == "text" and _is_interactive(os.environ)
    if is_live:
        _require_textual()
    source = read_state(kubeconfig, context, dump, namespace)
    require_scheduler_allocation(source, "top")
    require_pods(source, "top")
    cluster = build_cluster_index(source)
    scope = Scope(nodes=choose_nodes(cluster, nodes) if nodes else frozenset(), namespace=namespace or "")
    reading = build_reading(source.state, scope)
    if is_live:
        _watch(reading, source, kubeconfig, context, dump)
        return 0
    reading = explain_more(reading, _EXPLAINED_ONCE, Progress())
    if output == "text":
        click.echo("\n".join(_lines(reading)))
    else:
        print_document(reading.overview, output)
    return 0


def _require_textual() -> None:
    """Raise UsageError where the extra ``view`` is not installed."""
    try:
        import kerf_dra.driver.cli.cluster.top_app  # noqa: F401  (it takes half a second, which the table need not)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("kerf_dra"):
            raise
        raise click.UsageError(_NO_TEXTUAL) from error


def _is_interactive(environment: Mapping[str, str]) -> bool:
    """Whether there is a terminal that can move its cursor, and input from a keyboard."""
    return environment.get("TERM", "dumb") != "dumb" and sys.stdin.isatty() and sys.stdout.isatty()


def _lines(reading: Reading) -> Iterator[str]:
    width = min(_WIDTH, shutil.get_terminal_size().columns)
    overview = reading.overview
    yield f"{describe_counts(overview)}; read {format_time(overview.gathered_at)}"
    if reading.pictures:
        yield ""
        yield from draw_nodes(reading, width)
        yield ""
        yield from describe_free(overview, width)
    else:
        yield "no card is published"
    yield ""
    yield from render_table(overview, width)
    if overview.forbidden_lists:
        yield ""
        yield from describe_forbidden(overview.forbidden_lists, width)


def _watch(
    first: Reading, source: StateSource, kubeconfig: Path | None, context: str | None, dump: Path | None
) -> None:
    from kerf_dra.driver.cli.cluster.top_app import watch_api_server, watch_file  # as above

    if choose_color(os.environ) is False:
        os.environ["NO_COLOR"] = "1"  # what Textual reads
    if dump is not None:
        event_loop.run(watch_file, first, source.state)
    else:
        event_loop.run(watch_api_server, first, kubeconfig, context, source.namespace)
