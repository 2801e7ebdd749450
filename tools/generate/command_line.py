"""Generates ``docs/reference/command-line.md`` from the commands of ``kerf_dra.driver.cli``.

A test generates the page into another folder and compares.
"""

import argparse
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from kerf_dra.cdi import cli as cdi_cli
from kerf_dra.driver.cli import COMMANDS, kerf
from kerf_dra.driver.families.registry import BUILT_IN
from tools.generate.page_block import ROOT, escape_cell, write_page

__all__ = ["PAGE", "ROOT", "generate"]

PAGE: Final = Path("docs/reference/command-line.md")

_OWN_FAMILIES: Final = frozenset(family.name for family in BUILT_IN)
"""``kerf claim`` has a command for each family that is installed: here are Kerf's own."""


def generate(target: Path) -> list[Path]:
    """Write the page with the present commands below ``target`` and return its path relative to it."""
    top = click.Context(kerf, info_name="kerf", auto_envvar_prefix="KERF")
    lines: list[str] = []
    for name in COMMANDS:
        command = kerf.get_command(top, name)
        assert command is not None, "it is in the table of commands"
        lines += _describe(command, name, top) if name != "cdi" else _describe_cdi()
    return write_page(target, PAGE, "commands", "\n".join(lines))


def _describe(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    yield from (f"## {context.command_path}", "", "```text", usage, "```", "")
    for paragraph in inspect.cleandoc(command.help or "").replace("``", "`").split("\n\n"):
        if paragraph.startswith("\b"):  # click's mark of a paragraph that keeps its lines
            yield from ("```text", *paragraph.splitlines()[1:], "```", "")
        else:
            yield from (" ".join(paragraph.split()), "")
    options = [param for param in command.get_params(context) if isinstance(param, click.Option)]
    rows = [row for param in options if "--help" not in param.opts for row in _describe_option(param, context)]
    if rows:
        yield from ("| option | environment | default | |", "|---|---|---|---|", *rows, "")
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None and (name != "claim" or inner in _OWN_FAMILIES):
                yield from (line.replace("## ", "### ", 1) for line in _describe(found, inner, context))


def _describe_option(option: click.Option, context: click.Context) -> Iterator[str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {escape_cell(option.make_metavar(context))}"
    variable = f"`{context.auto_envvar_prefix}_{str(option.name).upper()}`" if option.show_envvar else ""
    default = "required" if option.required else _show_default(option)
    yield f"| {names}{value} | {variable} | {default} | {escape_cell(option.help or '').replace('``', '`')} |"


def _show_default(option: click.Option) -> str:
    value = option.default
    if value is None or callable(value) or option.is_flag or "UNSET" in repr(value) or value in ("", ()):
        return ""
    return f"`{value}`"


def _describe_cdi() -> Iterator[str]:
    parser = cdi_cli.build_parser("kerf cdi")
    yield from ("## kerf cdi", "", "```text", "kerf cdi [OPTIONS] COMMAND ...", "```", "", str(parser.description), "")
    yield from ("| option | |", "|---|---|")
    commands = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            commands = action._choices_actions
        elif action.dest != "help":
            value = f"{action.metavar or '[' + '|'.join(map(str, action.choices or ())) + ']'}"
            names = ", ".join(f"`{name}`" for name in action.option_strings)
            yield f"| {names} {escape_cell(value)} | {escape_cell(action.help or '')} |"
    yield from ("", "| command | |", "|---|---|")
    yield from (f"| `kerf cdi {each.dest}` | {escape_cell(each.help or '')} |" for each in commands)
    yield ""
