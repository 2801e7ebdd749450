"""How commands print: text for people, or one JSON or YAML document for programs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import click

from api.wire import to_builtins

OutputFormat: TypeAlias = Literal["text", "json", "yaml"]
Command = TypeVar("Command", bound=Callable[..., Any])

output_option = click.option(
    "-o",
    "--output",
    "output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_envvar=True,
    help="How to print.",
)


def print_document(value: object, output: OutputFormat) -> None:
    """Print ``value`` (structs, dataclasses, plain data) as one JSON or YAML document."""
    document = to_builtins(value)
    if output == "json":
        import json

        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        import yaml

        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows under a header, columns aligned, two spaces apart, as ``kubectl get`` prints them."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)
