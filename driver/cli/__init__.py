"""The command line ``kerf``: one module for each subcommand, which turns arguments into settings and runs an app.

Subcommands are imported when they are called, so that a daemon starts without the tables and colors of the others.
"""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Final

import click

from api.errors import InvalidDocumentError, KerfError
from driver.cli.output import EXIT_BAD_INPUT, EXIT_FAILED
from driver.runtime.lifecycle import iter_leaf_errors

COMMANDS: Final[Mapping[str, str]] = {
    # name: what `kerf --help` says; the module is driver.cli.<name with _>, the command its attribute `command`
    "demo": "Show Kerf at work on an embedded cluster.",
    "controller": "Run the cluster's controller.",
    "kubelet-plugin": "Run the plugin of one node.",
    "mps-daemons": "Keep the MPS control daemons of one node.",
    "migrate": "Write a classic cluster's classes and templates for a newer one.",
    "devices": "Show what this node's backends see and what would be published.",
    "checkpoint": "Show or copy what this node's plugin has recorded of its claims.",
    "claim": "Print a claim template for devices of a size of your own.",
    "why": "Say why a pod or a claim waits for devices, and what would help.",
    "plan": "Say what would be placed where, and how much more would fit.",
    "frag": "Say how fragmented the cards are, and what to recreate for a large partition.",
    "gather": "Write what why, plan and frag read to one file.",
    "families": "List the installed families of devices, their attributes and capacities.",
    "rbac": "Print the permissions of the kubelet plugin for the drivers of families.",
    "models": "List the GPU models and FPGA shells that Kerf knows.",
    "cdi": "Inspect, validate and apply CDI specs.",
    "completion": "Print the shell code that completes kerf's arguments.",
    "version": "Print the version and what it speaks.",
}


class _LazyGroup(click.Group):
    """A group that lists commands from a table and imports one only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"driver.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "KERF", "show_default": True},
)
def kerf() -> None:
    """Cut GPUs and FPGAs to size on demand, for Kubernetes.

    Every option can also be set by the environment variable that its help names.
    """


def main(arguments: list[str] | None = None) -> int:
    """Run ``kerf`` and return its exit code: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    try:
        result = kerf.main(args=arguments, prog_name="kerf", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.Abort:
        return 128 + 2  # as a shell reports SIGINT
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except InvalidDocumentError as error:
        for problem in error.problems:
            click.echo(f"{error.subject}: {problem}", err=True)
        return EXIT_BAD_INPUT
    except KerfError as error:
        click.echo(f"kerf: {error}", err=True)
        return EXIT_FAILED
    except BaseExceptionGroup as group:
        return _report(group)
    except BrokenPipeError:  # the reader of the pipe, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return result if isinstance(result, int) else 0


def _report(group: BaseExceptionGroup[BaseException]) -> int:
    """Report the errors of a group; an unexpected one is raised with its traceback."""
    errors = list(iter_leaf_errors(group))
    if not all(isinstance(error, KerfError) for error in errors):
        raise group
    for error in errors:
        click.echo(f"kerf: {error}", err=True)
    return EXIT_FAILED
