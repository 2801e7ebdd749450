"""``kerf version``: prints Kerf's version and the API versions that it supports."""

import platform

import click

from kerf_dra.api.resource.registry import VERSIONS
from kerf_dra.driver import VERSION
from kerf_dra.driver.cli.output import OutputFormat, output_option, print_document


@click.command(short_help="Print the version and what it speaks.")
@output_option
def command(output: OutputFormat) -> None:
    """Print Kerf's version, its interpreter, and the API versions it speaks, newest first."""
    facts = {
        "kerf": VERSION,
        "python": platform.python_version(),
        "resourceApi": [f"resource.k8s.io/{version}" for version in VERSIONS],
    }
    if output != "text":
        print_document(facts, output)
        return
    click.echo(f"kerf {facts['kerf']} (Python {facts['python']})")
    click.echo(f"speaks {', '.join(facts['resourceApi'])}")
