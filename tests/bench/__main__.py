"""``python -m tests.bench [NAME …]``: one table of everything measured, or of the named modules."""

import importlib
import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import anyio
import click

from kerf_dra.driver.cli.output import OutputFormat, format_table, output_option, print_document
from tests.bench import noise
from tests.bench.measurement import HEADER, Row, say
from tests.bench.plot import draw_ratios
from tools.realcluster.builds import BuildError
from tools.realcluster.requirements import MissingRequirementsError

MODULES: Final = (
    "allocation",
    "diagnostics",
    "cdi",
    "memory",
    "plugin",
    "samples",
    "hardware",
    "scale",
    "queue_wait",
    "placement",
    "demo",
)
SETS: Final = {
    "realcluster": ("node", "prepares", "example_driver", "beside_nvidia", "many_nodes", "node_decisions", "classic")
}
"""Modules that go together: those need root and Go (``make bench-e2e``)."""
BESIDE: Final = ("revisions",)
"""Modules that need another checkout."""
NAMES: Final = (*MODULES, *SETS, *(name for names in SETS.values() for name in names), *BESIDE)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice(NAMES), metavar="[NAME]...")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Draw each row beside its baseline, as SVG.",
)
@output_option
def main(names: tuple[str, ...], output: OutputFormat, plot: Path | None) -> None:
    """Measure the modules of these names, or all that need nothing but Python."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as in an image: a start that compiles takes longer, and memory
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "load": os.getloadavg()}
    try:
        rows = anyio.run(_measure, list(_modules(names or MODULES)))
    except (BuildError, MissingRequirementsError) as failure:
        raise click.ClickException(str(failure)) from failure
    if plot is not None:
        plot.write_text(draw_ratios(rows))
    if output != "text":
        print_document({"machine": machine, "rows": [row.document() for row in rows]}, output)
        return
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    click.echo(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load {load} at the end\n")
    click.echo(format_table(HEADER, [row.cells() for row in rows]))


def _modules(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield from SETS.get(name, (name,))


async def _measure(names: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    steadiness = [*noise.samples()]
    for name in names:
        say(f"measuring {name}")
        rows += await importlib.import_module(f"tests.bench.{name}").measure()
        steadiness += noise.samples()
    return [*rows, noise.row(steadiness)]


if __name__ == "__main__":
    main(prog_name="python -m tests.bench")
