"""``kerf gather``: writes a cluster's state into a file that the other commands read with ``--from``."""

import sys
from pathlib import Path

import click

from driver.cli.options import option
from driver.cli.options.cluster import access_options, format_count, read_state, with_exit_codes
from driver.diagnostics.dump import encode_dump


@click.command(short_help="Write what decides over devices into one file.")
@access_options
@option(
    "-o",
    "--output-file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default="kerf-dump.json",
    help="Where to write it, compressed if it ends with .gz; - for standard output.",
)
@with_exit_codes
def command(kubeconfig: Path | None, context: str | None, output_file: Path) -> int:
    """Write nodes, claims, classes, slices, pods with claims and events about devices into one JSON file.

    No environments, commands, images, annotations or other drivers' parameters are in it. Names of all objects are,
    what users wrote into CEL selectors, labels of nodes and tolerations, and the messages of events: look before you
    send it to somebody. The option --from of `kerf why`, `kerf plan` and `kerf frag` reads the file.
    """
    state = read_state(kubeconfig, context, None).state
    data = encode_dump(state, compress=output_file.suffix == ".gz")
    if str(output_file) == "-":
        sys.stdout.buffer.write(data)
        return 0
    output_file.write_bytes(data)
    parts = (
        format_count(len(state.nodes), "node"),
        format_count(len(state.slices), "slice"),
        format_count(len(state.claims), "claim"),
        format_count(len(state.pods), "pod"),
    )
    click.echo(f"{output_file}: {', '.join(parts)}, {len(data) / 2**10:,.0f} KiB", err=True)
    return 0
