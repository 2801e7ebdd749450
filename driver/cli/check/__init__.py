"""``kerf check``: whether a cluster and a node have what Kerf needs, and whether it can be uninstalled."""

import shutil
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from kerf_dra.driver.cli import event_loop
from kerf_dra.driver.cli.options import (
    DIRECTORY,
    BackendParameter,
    InstanceParameter,
    SubdomainParameter,
    card_options,
    family_option,
    option,
    state_options,
)
from kerf_dra.driver.cli.options.cluster import access_options, format_count, with_exit_codes
from kerf_dra.driver.cli.output import EXIT_FAILED, OutputFormat, make_printable, output_option, print_document
from kerf_dra.driver.diagnostics.preflight.results import CheckLevel, CheckResult, PreflightReport
from kerf_dra.driver.kubeletplugin.backends.card_selection import CardEntry
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice, select_cards
from kerf_dra.driver.kubeletplugin.settings import CDI_DIR

_COLORS: Final = {CheckLevel.OK: "green", CheckLevel.WARNING: "yellow", CheckLevel.PROBLEM: "red"}
_CONTAINERD_CONFIG: Final = Path("/etc/containerd/config.toml")
"""Containerd's own default."""
_LEVEL_WIDTH: Final = 9
"""The longest level, and a space."""
_NARROWEST: Final = 20
"""Columns that a message has on the narrowest terminal: with fewer each word would be a line."""


@click.group(short_help="Check whether a cluster or a node has what Kerf needs.")
def command() -> None:
    """Check whether a cluster or a node has what Kerf needs, and whether Kerf can be uninstalled; say what to do.

    Each line is ok, a warning (Kerf works, but something is missing or could not be found out), or a problem. Exit code
    0: no problem; 1: a problem; 2: bad input; 3: the cluster cannot be read.
    """


@command.command(short_help="Check the cluster: version, API, gates, definitions, permissions, nodes.")
@access_options
@option("--kerf-namespace", type=SubdomainParameter(), default="kerf-system", help="Namespace of Kerf's accounts.")
@option("--controller-account", type=SubdomainParameter(), default="kerf-controller", help="The controller's account.")
@option(
    "--plugin-account",
    "plugin_accounts",
    type=SubdomainParameter(),
    multiple=True,
    default=["kerf-kubelet-plugin"],
    help="A kubelet plugin's account. Repeatable.",
)
@output_option
@with_exit_codes
def cluster(
    kubeconfig: Path | None,
    context: str | None,
    kerf_namespace: str,
    controller_account: str,
    plugin_accounts: tuple[str, ...],
    output: OutputFormat,
) -> int:
    """Check the API server, what it lets Kerf's accounts do, and what its nodes report.

    Nothing is changed. What the account that asks may not read is a warning that says so; an administrator's account
    may read all of it.
    """
    from kerf_dra.driver.cli.check.cluster_reader import Accounts, read_cluster  # needs aiohttp
    from kerf_dra.driver.diagnostics.preflight.cluster import check_cluster

    accounts = Accounts(namespace=kerf_namespace, controller=controller_account, plugins=plugin_accounts)
    facts = event_loop.run(read_cluster, kubeconfig, context, accounts, _now)
    return _print(check_cluster(facts), output)


@command.command(short_help="Check this node: folders, disk, runtime, cards, and what the cluster says of it.")
@option(
    "--node-name",
    type=SubdomainParameter(),
    help="This node's name. [default: the API server is not asked]",
)
@family_option
@option(
    "--backend",
    "backends",
    type=BackendParameter(),
    multiple=True,
    help="A hardware backend of the plugin and its configuration; without one no card is checked. Repeatable.",
)
@card_options
@access_options
@state_options
@option("--cdi-dir", type=DIRECTORY, default=CDI_DIR, help="Where the container runtime looks for CDI specs.")
@option(
    "--instance", type=InstanceParameter(), default="", help="The plugin's --instance: a part of its sockets' names."
)
@option(
    "--containerd-config",
    type=click.Path(dir_okay=False, path_type=Path),
    default=_CONTAINERD_CONFIG,
    help="Containerd's configuration; where there is no such file, the runtime's version counts.",
)
@option(
    "--maintenance-hooks",
    type=DIRECTORY,
    help="The folder of programs that CardMaintenances may have run. [default: none]",
)
@output_option
def node(
    node_name: str | None,
    families: tuple[str, ...],
    backends: tuple[BackendChoice, ...],
    include_cards: tuple[CardEntry, ...],
    exclude_cards: tuple[CardEntry, ...],
    kubeconfig: Path | None,
    context: str | None,
    kubelet_root: Path,
    state_dir: Path | None,
    cdi_dir: Path,
    instance: str,
    containerd_config: Path,
    maintenance_hooks: Path | None,
    output: OutputFormat,
) -> int:
    """Check this node, with the options with which its kubelet plugin runs.

    It changes nothing, also beside a running plugin. As an init container of the plugin it keeps it from starting where
    it could not work; an API server that does not answer is a warning, because the plugin waits for it.
    """
    from kerf_dra.driver.cli.check.node_reader import NodeOptions, read_node  # needs aiohttp
    from kerf_dra.driver.diagnostics.preflight.node import check_node

    options = NodeOptions(
        node_name=node_name or "",
        families=families,
        backends=select_cards(backends, include_cards, exclude_cards),
        kubeconfig=kubeconfig,
        context=context,
        kubelet_root=kubelet_root.absolute(),
        state_dir=state_dir and state_dir.absolute(),
        cdi_dir=cdi_dir.absolute(),
        instance=instance,
        containerd_config=containerd_config,
        maintenance_hooks=maintenance_hooks and maintenance_hooks.absolute(),
    )
    return _print(check_node(event_loop.run(read_node, options, _now)), output)


@command.command(short_help="Check whether Kerf can be uninstalled: no claim has its devices.")
@access_options
@option(
    "--driver",
    "drivers",
    type=SubdomainParameter(),
    multiple=True,
    help="A DRA driver that is to be uninstalled. Repeatable. [default: those of all installed families]",
)
@output_option
@with_exit_codes
def uninstall(kubeconfig: Path | None, context: str | None, drivers: tuple[str, ...], output: OutputFormat) -> int:
    """Check whether Kerf can be uninstalled: only its plugins can release the devices of claims.

    Each namespace with claims that have devices is a problem, with the pods to delete first. The chart asks it before
    `helm uninstall`.
    """
    from kerf_dra.driver.cli.check.cluster_reader import read_uninstall  # needs aiohttp
    from kerf_dra.driver.diagnostics.preflight.uninstall import check_uninstall
    from kerf_dra.driver.families.registry import installed_families

    asked = drivers or tuple(family.driver for family in installed_families().values())
    return _print(check_uninstall(event_loop.run(read_uninstall, kubeconfig, context, asked, _now)), output)


def _now() -> datetime:
    return datetime.now(UTC)


def _print(report: PreflightReport, output: OutputFormat) -> int:
    if output == "text":
        report = make_printable(report)
        width = max((len(result.check) for result in report.results), default=0)
        for result in report.results:
            for line in _lines(result, width):
                click.echo(line)
        problems, warnings, fine = (
            sum(result.level is level for result in report.results)
            for level in (CheckLevel.PROBLEM, CheckLevel.WARNING, CheckLevel.OK)
        )
        counted = f"{format_count(problems, 'problem')}, {format_count(warnings, 'warning')}, {fine} ok"
        click.echo(f"\n{report.subject}: {counted}")
    else:
        print_document({"subject": report.subject, "verdict": report.worst, "checks": report.results}, output)
    return EXIT_FAILED if report.worst is CheckLevel.PROBLEM else 0


def _lines(result: CheckResult, width: int) -> Iterator[str]:
    """Yield a result with its next step, wrapped beside the name of its check, which has ``width`` columns."""
    indent = f"{'':{_LEVEL_WIDTH + width}}  "
    columns = max(shutil.get_terminal_size().columns, len(indent) + _NARROWEST)
    first, *others = _wrap(result.message, columns, indent, indent)
    level = click.style(f"{result.level:<{_LEVEL_WIDTH}}", fg=_COLORS[result.level])
    yield f"{level}{result.check:<{width}}  {first.removeprefix(indent)}"
    yield from others
    if result.next_step:
        yield from _wrap(result.next_step, columns, f"{indent}-> ", f"{indent}   ")


def _wrap(text: str, columns: int, first: str, others: str) -> list[str]:
    """Wrap between words: a path or a name that is longer than the line stays whole, so that it can be copied."""
    return textwrap.wrap(
        text, columns, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )
