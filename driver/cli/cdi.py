"""``kerf cdi``: the CDI package's own command line, under Kerf's name."""

import click


@click.command(
    short_help="Inspect, validate and apply CDI specs.",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Inspect, validate and apply CDI specs; see ``kerf cdi --help``."""
    from kerf_dra.cdi import cli

    return cli.main(list(arguments), program="kerf cdi")
