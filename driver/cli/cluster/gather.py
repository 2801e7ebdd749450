"""``kerf gather``: writes a cluster's state into a file that the other commands read with ``--from``."""

import json
import os
import sys
from pathlib import Path

import click

from kerf_dra.driver.cli.options import option
from kerf_dra.driver.cli.options.cluster import access_options, format_count, read_state, with_exit_codes
from kerf_dra.driver.cli.output import print_text
from kerf_dra.driver.diagnostics.anonymization import anonymize as build_anonymous
from kerf_dra.driver.diagnostics.dump import encode_dump


@click.command(short_help="Write what why, plan and frag read to one file.")
@access_options
@option(
    "--output-file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default="kerf-dump.json",
    help="Where to write it, compressed if it ends with .gz; - for standard output.",
)
@option(
    "--anonymize",
    is_flag=True,
    help="Put pseudonyms in place of names, labels, and all other words that are not of Kubernetes, Kerf or hardware.",
)
@option(
    "--pseudonyms",
    "table",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --anonymize: where to write, for yourself, what each pseudonym stands for.",
)
@with_exit_codes
def command(
    kubeconfig: Path | None, context: str | None, output_file: Path, *, anonymize: bool, table: Path | None
) -> int:
    """Write nodes, claims, classes, slices, pods with claims and events about devices into one JSON file.

    No environments, commands, images, annotations or other drivers' parameters are in it. Names of all objects are,
    what users wrote into CEL selectors, labels of nodes and tolerations, and the messages of events: look before you
    send it to others, or use --anonymize. The option --from of `kerf why`, `kerf plan` and `kerf frag` reads the
    file.
    """
    if table is not None and not anonymize:
        raise click.UsageError("--pseudonyms has a meaning with --anonymize only")
    state = read_state(kubeconfig, context, None).state
    if anonymize:
        state, meanings = build_anonymous(state)
        if table is not None:
            descriptor = os.open(table, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(meanings, file, indent=2, sort_keys=True, ensure_ascii=False)
    data = encode_dump(state, compress=output_file.suffix == ".gz")
    if str(output_file) == "-":
        if sys.stdout is not None:  # as `click.echo`, which writes no bytes
            sys.stdout.buffer.write(data)
        return 0
    output_file.write_bytes(data)
    parts = (
        format_count(len(state.nodes), "node"),
        format_count(len(state.slices), "slice"),
        format_count(len(state.claims), "claim"),
        format_count(len(state.pods), "pod"),
    )
    print_text(f"{output_file}: {', '.join(parts)}, {len(data) / 2**10:,.0f} KiB", err=True)
    return 0
