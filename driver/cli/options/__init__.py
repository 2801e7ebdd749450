"""Options of several subcommands."""

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import click

from kerf_dra.api.model.names import is_dns_label, is_dns_subdomain
from kerf_dra.driver.kubeletplugin.backends.card_selection import CardEntry, InvalidCardIdError, normalize_card_id
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice
from kerf_dra.driver.kubeletplugin.settings import KUBELET_ROOT
from kerf_dra.driver.runtime.probe_address import AddressError, parse_address

Command = TypeVar("Command", bound=Callable[..., Any])

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FILE_OR_DIRECTORY = click.Path(exists=True, path_type=Path)
DIRECTORY = click.Path(file_okay=False, path_type=Path)


class BackendParameter(click.ParamType[BackendChoice]):
    """A hardware backend as ``NAME`` or ``NAME=CONFIG``."""

    name = "NAME[=CONFIG]"

    def convert(
        self,
        value: str | BackendChoice,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> BackendChoice:
        if isinstance(value, BackendChoice):
            return value
        name, _, config = value.partition("=")
        if not name:
            self.fail(f"{value!r} names no backend", param, ctx)
        if config and not Path(config).exists():
            self.fail(f"{value!r}: there is no file or folder {config}", param, ctx)
        return BackendChoice(name=name, config=Path(config) if config else None)


class CardParameter(click.ParamType[CardEntry]):
    """A card of a backend as ``BACKEND=CARD``."""

    name = "BACKEND=CARD"

    def convert(self, value: str | CardEntry, param: click.Parameter | None, ctx: click.Context | None) -> CardEntry:
        if isinstance(value, CardEntry):
            return value
        backend, _, card = value.partition("=")
        if not (backend and card):
            self.fail(f"{value!r:.80} does not say which card of which backend: write nvidia=UUID", param, ctx)
        try:
            normalize_card_id(card)
        except InvalidCardIdError as error:
            self.fail(str(error), param, ctx)
        return CardEntry(backend, card)


class SubdomainParameter(click.ParamType[str]):
    """The name of an object: a DNS subdomain."""

    name = "NAME"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_dns_subdomain(value):
            self.fail(
                f"{value!r:.80} is not a name of an object: lower-case letters, digits, - and ., at most 253",
                param,
                ctx,
            )
        return value


class InstanceParameter(click.ParamType[str]):
    """A part of the names of sockets: a pod's UID, or nothing."""

    name = "UID"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value and not is_dns_label(value):
            self.fail(f"{value!r:.80} is not a pod's UID: lower-case letters, digits and -, at most 63", param, ctx)
        return value


class SecondsParameter(click.ParamType[float]):
    """A time in seconds, finite and not negative."""

    name = "SECONDS"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < inf:
            self.fail(f"{value!r:.80} is not a time: write a number of seconds, 0 or more", param, ctx)
        return seconds


class AddressParameter(click.ParamType[str]):
    """An address to listen at, ``host:port``."""

    name = "ADDRESS"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parse_address(value)
        except AddressError as error:
            self.fail(str(error), param, ctx)
        return value


def option(*names: str, help: str, **attributes: Any) -> Callable[[Command], Command]:  # noqa: A002, ANN401
    """Return an option whose help names its environment variable."""
    return click.option(*names, help=help, show_envvar=True, **attributes)


def backend_option(command: Command) -> Command:
    """Add ``--backend``, repeatable."""
    return option(
        "--backend",
        "backends",
        type=BackendParameter(),
        multiple=True,
        required=True,
        help="A hardware backend and its configuration, e.g. simulated=/etc/kerf/cards.yaml. Repeatable.",
    )(command)


def card_options(command: Command) -> Command:
    """Add ``--include-card`` and ``--exclude-card``, repeatable."""
    include = option(
        "--include-card",
        "include_cards",
        type=CardParameter(),
        multiple=True,
        help="Publish only these cards of the backend, by UUID or PCI address. Repeatable. [default: all]",
    )
    exclude = option(
        "--exclude-card",
        "exclude_cards",
        type=CardParameter(),
        multiple=True,
        help="Keep a card out, e.g. nvidia=0000:3b:00.0: claims that have some of it end as usual. Repeatable.",
    )
    return include(exclude(command))


def family_option(command: Command) -> Command:
    """Add ``--family``, repeatable."""
    return option(
        "--family",
        "families",
        multiple=True,
        help="A family of devices; `kerf families` lists them. Repeatable. [default: all that have a chosen backend]",
    )(command)


def state_options(command: Command) -> Command:
    """Add ``--kubelet-root`` and ``--state-dir``, which say where a plugin's checkpoint is."""
    state = option("--state-dir", type=DIRECTORY, help="Folder of the checkpoints. [default: each plugin's folder]")
    root = option("--kubelet-root", type=DIRECTORY, default=KUBELET_ROOT, help="The kubelet's --root-dir.")
    return root(state(command))


def logging_options(command: Command) -> Command:
    """Add ``--log-level`` and ``--log-format``."""
    level = option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        help="Least severe records to log.",
    )
    format_ = option("--log-format", type=click.Choice(["text", "json"]), default="json", help="How to log.")
    return level(format_(command))


def access_option(command: Command) -> Command:
    """Add ``--kubeconfig``."""
    return option(
        "--kubeconfig",
        type=FILE,
        help="How to reach the API server. [default: the pod's service account; outside of a pod $KUBECONFIG, then "
        "~/.kube/config]",
    )(command)
