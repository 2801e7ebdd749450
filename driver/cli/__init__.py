"""The command line ``kerf``: one module for each subcommand, which turns arguments into settings and runs an app.

``daemons`` run until SIGTERM, ``cluster`` reads a cluster, ``node`` the node that it runs on, ``check`` both, and
``catalog`` prints what the installed families know. ``options`` has the options of several commands.

Subcommands are imported when they are called, so that a daemon starts without the tables and colors of the others.
"""

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from typing import Final

import click

from kerf_dra.api.errors import InvalidDocumentError, KerfError
from kerf_dra.driver import VERSION
from kerf_dra.driver.cli.output import EXIT_BAD_INPUT, EXIT_FAILED, print_text
from kerf_dra.driver.cli.program_name import find_program_name
from kerf_dra.driver.cli.terminal_colors import choose_color
from kerf_dra.driver.runtime.lifecycle import iter_leaf_errors

TRACEBACK: Final = "KERF_TRACEBACK"
"""The environment variable that has the traceback of an unexpected error shown."""
GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    # name: what `kerf --help` says
    "For users of devices": {
        "demo": "Show Kerf at work on an embedded cluster.",
        "claim": "Print a claim template for devices of a size of your own.",
        "why": "Say why a pod or a claim waits for devices, and what would help.",
        "view": "Show cards and claims in a browser, live and read-only.",
        "plan": "Say what would be placed where, and how much more would fit.",
        "models": "List the models of GPUs that Kerf knows.",
        "families": "List the installed families of devices, their attributes and capacities.",
        "migrate": "Convert what asks for devices in older ways to claims.",
        "completion": "Print the shell code that completes kerf's arguments.",
        "version": "Print the version and what it speaks.",
    },
    "For administrators": {
        "top": "Watch all cards and claims: who holds what, what is free, what waits and why.",
        "check": "Check whether a cluster or a node has what Kerf needs, and say what to do.",
        "frag": "Say how fragmented the cards are, and what to recreate for a large partition.",
        "drain": "Take one card from its pods, while the other cards of its node go on.",
        "undrain": "End the maintenance of a card: it gets claims again.",
        "sanity": "Test the kubelet plugin of any DRA driver at its sockets.",
        "placement": "Have kube-scheduler prefer the nodes where a pod's partitions take least from others.",
        "gather": "Write what why, plan and frag read to one file.",
        "devices": "Show what this node's backends see and what would be published.",
        "checkpoint": "Show or copy what this node's plugin has recorded of its claims.",
        "fpga": "Show FPGA shells, images and slots, and check documents and image files.",
        "new-driver": "Make a folder with a DRA driver for new hardware, which works at once.",
        "cdi": "Inspect, validate and apply CDI specs.",
        "rbac": "Print the permissions of the kubelet plugin for the drivers of families.",
    },
    "Programs of a cluster, which the chart runs": {
        "controller": "Run the cluster's controller.",
        "kubelet-plugin": "Run the plugin of one node.",
        "mps-daemons": "Keep the MPS control daemons of one node.",
    },
}
"""The commands, by those who use them."""
COMMANDS: Final[Mapping[str, str]] = {name: help_ for group in GROUPS.values() for name, help_ in group.items()}
_PACKAGES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("controller", "kubelet-plugin", "mps-daemons"), "daemons."),
    **dict.fromkeys(
        ("why", "plan", "frag", "top", "view", "drain", "undrain", "placement", "gather", "migrate", "sanity"),
        "cluster.",
    ),
    **dict.fromkeys(("devices", "checkpoint"), "node."),
    **dict.fromkeys(("claim", "families", "rbac", "models", "new-driver"), "catalog."),
}
"""The packages of this one that have the modules of commands, for those that are not beside this file."""

_MAY_BE_LEFT_OUT: Final = frozenset({"demo"})
"""The commands that imitate a cluster and hardware, which an image has only if it was built so."""


class _LazyGroup(click.Group):
    """A group that lists commands from a table and imports one only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(
                f"kerf_dra.driver.cli.{_PACKAGES.get(cmd_name, '')}{cmd_name.replace('-', '_')}"
            )
        except ModuleNotFoundError as error:
            if cmd_name not in _MAY_BE_LEFT_OUT or not (error.name or "").startswith("kerf_dra."):
                raise
            return _build_left_out(cmd_name, str(error.name))
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first argument. Raises UsageError for an unknown one, with the most similar."""
        name = args[0]
        if name not in COMMANDS and name[:1] not in ("", "-") and not ctx.resilient_parsing:
            close = get_close_matches(name, COMMANDS, n=1)
            raise click.UsageError(
                f"there is no command {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""), ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, COMMANDS))
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(longest), text) for name, text in commands.items()])


def _build_left_out(name: str, package: str) -> click.Command:
    """Return a command that says, whatever its arguments are, that this installation is without it."""

    def command() -> int:
        from kerf_dra.driver.families.registry import describe_left_out

        print_text(f"kerf: {describe_left_out(f'kerf {name}', package)}", err=True)
        return EXIT_BAD_INPUT

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=command, context_settings=settings, add_help_option=False, hidden=True)


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "KERF", "show_default": True},
)
@click.version_option(VERSION, message="kerf %(version)s")
def kerf() -> None:
    """Cut GPUs and FPGAs to size on demand, for Kubernetes.

    Every option but those of cdi can also be set by the environment variable that its help names.
    """


def main(arguments: list[str] | None = None) -> int:
    """Run ``kerf`` and return its exit code: 0 done, 1 failed, 2 bad input, 130 interrupted, 141 the reader is gone.

    What a user can cause ends in one line on standard error, without a traceback. A fault of Kerf itself is one line,
    too, unless TRACEBACK is set in the environment.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else the library writes of each connection that is closed
    try:
        color = choose_color(os.environ)
        result = kerf.main(args=arguments, prog_name=find_program_name(), standalone_mode=False, color=color)
        if sys.stdout is not None:
            sys.stdout.flush()  # what fails at the end of the process cannot be reported any more
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.Abort:
        return 128 + signal.SIGINT
    except click.ClickException as error:
        _write_error(error.show)
        return error.exit_code
    except SystemExit:  # click ends so when the reader of a pipe has closed it
        return _report(BrokenPipeError())
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  (any error becomes an exit code)
        return _report(error)
    return result if isinstance(result, int) else 0


def _report(error: BaseException) -> int:
    """Report ``error``, or the errors in a group; returns the exit code."""
    errors = list(iter_leaf_errors(error))
    if os.environ.get(TRACEBACK) and not all(isinstance(each, KerfError) for each in errors):
        traceback.print_exception(error)
    for line in dict.fromkeys(line for each in errors for line in _lines_of(each)):
        _write_error(partial(print_text, line, err=True))
    if any(isinstance(each, OSError) and each.filename is None for each in errors):
        _drop_output()
    if any(isinstance(each, BrokenPipeError) for each in errors):
        return 128 + signal.SIGPIPE
    return EXIT_BAD_INPUT if isinstance(error, InvalidDocumentError) else EXIT_FAILED


def _lines_of(error: BaseException) -> list[str]:
    match error:
        case InvalidDocumentError():
            return [f"{error.subject}: {problem}" for problem in error.problems]
        case KerfError():
            return [f"kerf: {error}"]
        case BrokenPipeError():  # the reader of the pipe, such as `head`, has closed it
            return []
        case OSError(filename=None):
            return [f"kerf: the output cannot be written: {error.strerror or error}"]
        case OSError():
            return [f"kerf: {error.filename}: {error.strerror or error}"]
        case _:
            return [
                f"kerf: a fault in Kerf, please report it: {type(error).__name__}: {error}",
                f"kerf: {TRACEBACK}=1 in the environment shows where it is",
            ]


def _write_error(write: Callable[[], object]) -> None:
    """Write to standard error, unless that cannot be written either."""
    with suppress(OSError):
        write()


def _drop_output() -> None:
    """Send what Python still has to write to nowhere, so that its end does not fail as well."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                try:
                    stream.flush()
                except OSError:
                    os.dup2(nowhere, stream.fileno())
