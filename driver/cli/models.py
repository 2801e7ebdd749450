"""``kerf models``: the GPU models and FPGA shells that Kerf knows."""

import click

from driver.cli.output import OutputFormat, format_table, output_option, print_document
from driver.partitions.catalog import gpu_models, shells

_GIB = 2**30


@click.command(short_help="List the GPU models and FPGA shells that Kerf knows.")
@output_option
def command(output: OutputFormat) -> None:
    """List the GPU models and FPGA shells that Kerf knows, with their profiles and functions."""
    if output != "text":
        print_document({"gpus": gpu_models(), "fpgas": shells()}, output)
        return
    gpu_rows = [
        (model.id, model.architecture, f"{model.memory_bytes / _GIB:.1f} GiB", model.memory_slices, profiles)
        for model in gpu_models()
        for profiles in (" ".join(profile.name for profile in model.profiles),)
    ]
    click.echo(format_table(("GPU MODEL", "ARCHITECTURE", "MEMORY", "UNITS", "PROFILES"), gpu_rows))
    shell_rows = [
        (shell.name, shell.family, len(shell.slots), " ".join(function.name for function in shell.functions))
        for shell in shells()
    ]
    click.echo("\n" + format_table(("FPGA SHELL", "FAMILY", "SLOTS", "FUNCTIONS"), shell_rows))
