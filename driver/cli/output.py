"""The output of commands: exit codes, and text for people or one JSON or YAML document for programs.

Objects, files and hardware hold text that their authors chose, tenants among them, and nothing of it may move a
terminal's cursor or turn its text around. ``print_text`` replaces what is not printable; a command that adds colors
does so to what ``make_printable`` has returned, and documents have such characters escaped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from textwrap import wrap
from typing import Any, Final, Literal, TypeAlias, TypeVar

import click

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.printable_text import replace_unprintable, to_one_line
from kerf_dra.api.wire import to_builtins

Command = TypeVar("Command", bound=Callable[..., Any])
ReportT = TypeVar("ReportT")

OutputFormat: TypeAlias = Literal["text", "wide", "json", "yaml", "name"]
"""``wide`` is text without limits of rows and names, ``name`` one ``kind/name`` a line for other commands to read."""

WIDTH: Final = 80
"""Columns of sentences: the width of a terminal that has not been resized."""
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


def wrap_sentence(text: str, width: int = WIDTH, first: str = "", others: str = "  ") -> list[str]:
    """Return ``text`` in lines with these indents; names are never broken, because people copy them."""
    return wrap(
        text, width, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


def print_text(text: str, *, err: bool = False) -> None:
    """Print ``text`` on standard output, or with ``err`` on standard error, printable but for its line breaks."""
    click.echo(replace_unprintable(text, kept="\n"), err=err)


def make_printable(report: ReportT) -> ReportT:
    """Return a report (dataclasses, collections, plain data) with each of its texts as one printable line."""
    printable: ReportT = _make_printable(report)
    return printable


def _make_printable(value: Any) -> Any:  # noqa: ANN401  (as ``make_printable``)
    if type(value) is str:  # an enumeration's are Kerf's own
        return to_one_line(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: _make_printable(getattr(value, each.name)) for each in fields(value)})
    if isinstance(value, Mapping):
        return {_make_printable(key): _make_printable(each) for key, each in value.items()}
    if isinstance(value, tuple):
        parts = [_make_printable(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return [_make_printable(each) for each in value] if isinstance(value, list) else value


def print_document(value: object, output: OutputFormat) -> None:
    """Print ``value`` (structs, dataclasses, plain data) as one JSON or YAML document in ASCII."""
    document = to_builtins(value)
    if output == "json":
        import json

        click.echo(json.dumps(document, indent=2))
    else:
        import yaml

        click.echo(yaml.safe_dump(document, sort_keys=False), nl=False)


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return ``rows`` under ``header`` in aligned columns two spaces apart, as ``kubectl get`` prints them."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)
