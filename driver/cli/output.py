"""The output of commands: exit codes, and text for people or one JSON or YAML document for programs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

import click

from api.errors import KerfError
from api.wire import to_builtins

Command = TypeVar("Command", bound=Callable[..., Any])

OutputFormat: TypeAlias = Literal["text", "wide", "json", "yaml", "name"]
"""``wide`` is text without limits of rows and names, ``name`` one ``kind/name`` a line for other commands to read."""

EXIT_FAILED: Final = 1
"""The command failed."""
EXIT_BAD_INPUT: Final = 2
"""The input is wrong, and nothing was done. A wrong option has the same code."""
EXIT_DOES_NOT_FIT: Final = 1
"""The answer is no."""
EXIT_NO_ANSWER: Final = 3
"""There is no answer: the cluster cannot be read, or the search was given up."""


def output_formats(*formats: str) -> Callable[[Command], Command]:
    """Return the option ``--output`` of a command that prints in ``formats``."""
    return click.option(
        "-o",
        "--output",
        "output",
        type=click.Choice(formats),
        default=formats[0],
        show_envvar=True,
        help="How to print.",
    )


output_option: Final = output_formats("text", "json", "yaml")


def describe_error(error: Exception) -> str:
    """Return the message of an error; of one that is neither Kerf's nor about a file its kind as well."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) if isinstance(error, KerfError) else repr(error)


def print_document(value: object, output: OutputFormat) -> None:
    """Print ``value`` (structs, dataclasses, plain data) as one JSON or YAML document."""
    document = to_builtins(value)
    if output == "json":
        import json

        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        import yaml

        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return ``rows`` under ``header`` in aligned columns two spaces apart, as ``kubectl get`` prints them."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)
