"""``kerf models``: the models of cards that the installed families know."""

import click

from driver.cli.output import OutputFormat, format_table, output_option, print_document
from driver.families.registry import installed_families
from driver.partitions.geometry import Geometry


@click.command(short_help="List the models of cards that Kerf knows.")
@output_option
def command(output: OutputFormat) -> None:
    """List the models of cards that the installed families know, with their profiles and functions."""
    geometries = {family.name: tuple(family.geometries()) for family in installed_families().values()}
    if output != "text":
        print_document(geometries, output)
        return
    tables = [
        format_table(("FAMILY", "MODEL", "ARCHITECTURE", "UNITS", "PARTITIONS"), map(_row, known))
        for known in geometries.values()
        if known
    ]
    click.echo("\n\n".join(tables))


def _row(geometry: Geometry) -> tuple[object, ...]:
    names = dict.fromkeys(spec.profile or spec.function for spec in geometry.specs)
    architecture = dict(geometry.attributes).get("architecture")
    return (
        geometry.kind,
        geometry.model,
        architecture.value if architecture else "",
        geometry.units,
        " ".join(name for name in names if name),
    )
