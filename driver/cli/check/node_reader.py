"""Reads the facts that `kerf check` judges from a node: its folders, its runtime's configuration, its cards."""

import os
import re
import socket
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from kerf_dra.api.core.v1 import NODE_SETUPS
from kerf_dra.api.kerf.card_maintenance import is_hook_name
from kerf_dra.driver.cli.check.cluster_reader import connect, list_slices, read_or_unread, review_self
from kerf_dra.driver.cli.node.devices import DiscoveryFailedError, FamilyDevices, find_devices
from kerf_dra.driver.cli.output import describe_error
from kerf_dra.driver.diagnostics.preflight.node import (
    ApiServerFacts,
    CardFacts,
    FolderFacts,
    HardwareFacts,
    HookFacts,
    NodeFacts,
    UnlistedCardFacts,
)
from kerf_dra.driver.diagnostics.preflight.permissions import plugin_permissions
from kerf_dra.driver.diagnostics.preflight.results import Unread
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.kube.discovery import discover_classic
from kerf_dra.driver.kube.http.config import in_cluster, load_access
from kerf_dra.driver.kubeletplugin.backends.base import UnlistedCard
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice, FamilyChoice, choose_families
from kerf_dra.driver.kubeletplugin.grpc.server import SocketError, check_path
from kerf_dra.driver.kubeletplugin.maintenance.hooks import HookFolder, HookUnavailableError
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.partitions.device_names import card_name
from kerf_dra.driver.runtime.boot import BootUnknownError, read_boot_id
from kerf_dra.driver.runtime.documents.input_file import describe_read_error, read_regular_file

_REGISTRATION: Final = re.compile(r"(.+?)(?:-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})?-reg\.sock")
"""A driver's registration socket; the UID of its pod is in the name where a rolling update may start two
(k8s.io/dynamic-resource-allocation, kubeletplugin)."""
_MOST_HOOKS: Final = 256
"""The most files of a folder of hooks that are looked at: a node has a handful."""
_CONNECT_S: Final = 1.0
"""The limit for connecting to a socket of this machine, where a connection takes no time or fails."""
_MAX_CONFIG_BYTES: Final = 2**18
"""The most bytes of containerd's configuration: twenty times what distributions write."""
_MAX_LINE: Final = 4096
"""The most characters of a line: the effort for a dotted key grows with the square of its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """The options of the plugin that is to run here."""

    node_name: str
    """Empty: the API server is not asked."""
    families: tuple[str, ...]
    backends: tuple[BackendChoice, ...]
    kubeconfig: Path | None
    context: str | None
    kubelet_root: Path
    state_dir: Path | None
    cdi_dir: Path
    instance: str
    containerd_config: Path
    maintenance_hooks: Path | None = None
    """None: the plugin has no folder of hooks."""


async def read_node(options: NodeOptions, now: Callable[[], datetime]) -> NodeFacts:
    """Read the facts of this node. What cannot be read is Unread; raises for options that contradict one another."""
    choices = choose_families(options.families, options.backends) if options.backends else ()
    hosted = [_build_settings(choice.family, options) for choice in choices]
    hosted = hosted or [_build_settings(family, options) for family in BUILT_IN]
    hardware = await anyio.to_thread.run_sync(_read_hardware, choices, hosted) if choices else None
    drivers = [plugin.driver_name for plugin in hosted]
    pod_resources = hosted[0].pod_resources_socket
    return NodeFacts(
        node_name=options.node_name,
        boot_id=_read_boot_id(),
        long_sockets=tuple(_find_long_sockets(hosted)),
        folders=tuple(_read_folders(hosted, options)),
        pod_resources=str(pod_resources),
        has_pod_resources=pod_resources.is_socket(),
        cdi_dir=str(options.cdi_dir),
        runtime_config=_read_runtime_config(options.containerd_config),
        runtime_config_path=str(options.containerd_config),
        hardware=hardware,
        registered=tuple(await anyio.to_thread.run_sync(_find_registered, hosted[0].registration_socket.parent)),
        api_server=await _read_api_server(options, drivers, now) if options.node_name else None,
        hooks=None if options.maintenance_hooks is None else _read_hooks(HookFolder(path=options.maintenance_hooks)),
    )


def _build_settings(family: Family, options: NodeOptions) -> Settings:
    return Settings(
        node_name=options.node_name,
        family=family,
        backends=(),
        kubelet_root=options.kubelet_root,
        state_dir=options.state_dir,
        cdi_dir=options.cdi_dir,
        instance=options.instance,
    )


def _read_boot_id() -> str | Unread:
    try:
        return read_boot_id()
    except BootUnknownError as error:
        return Unread(reason=str(error))


def _find_long_sockets(plugins: Sequence[Settings]) -> Iterator[str]:
    for plugin in plugins:
        for path in (plugin.dra_socket, plugin.registration_socket):
            try:
                check_path(path)
            except SocketError as error:
                yield str(error)


def _read_folders(plugins: Sequence[Settings], options: NodeOptions) -> Iterator[FolderFacts]:
    for plugin in plugins:
        if plugin.state != plugin.plugin_dir:
            yield _read_folder(plugin.state, f"checkpoint of {plugin.driver_name}")
            yield _read_folder(plugin.plugin_dir, f"socket of {plugin.driver_name}")
        else:
            yield _read_folder(plugin.plugin_dir, f"checkpoint and socket of {plugin.driver_name}")
    yield _read_folder(plugins[0].registration_socket.parent, "the kubelet's registrations")
    yield _read_folder(options.cdi_dir, "CDI specs")


def _read_folder(path: Path, use: str) -> FolderFacts:
    there = next(folder for folder in (path, *path.parents) if folder.is_dir())
    system = os.statvfs(there)
    return FolderFacts(
        path=str(path),
        use=use,
        exists=there == path,
        is_writable=os.access(there, os.W_OK | os.X_OK),
        file_system=there.stat().st_dev,
        free_bytes=system.f_bavail * system.f_frsize,
        free_files=system.f_favail if system.f_files else None,
    )


def _read_hooks(folder: HookFolder) -> HookFacts:
    """Read which hooks can be run. What is no hook by its name, such as a text beside them, is left out."""
    names: list[str] = []
    problems: list[str] = []
    try:
        folder.check()
        with os.scandir(folder.path) as entries:
            listed = sorted(entry.name for entry in islice(entries, _MOST_HOOKS))
    except (HookUnavailableError, OSError) as error:
        return HookFacts(path=str(folder.path), names=(), problems=(str(error),))
    for name in filter(is_hook_name, listed):
        try:
            folder.find(name)
        except HookUnavailableError as error:
            problems.append(str(error))
        else:
            names.append(name)
    return HookFacts(path=str(folder.path), names=tuple(names), problems=tuple(problems))


def _find_registered(folder: Path) -> Sequence[str]:
    """Return the drivers with a socket in the kubelet's folder of registrations that a program listens at: a program
    that was killed leaves its socket.
    """
    found = ((_REGISTRATION.fullmatch(path.name), path) for path in folder.glob("*-reg.sock"))
    return sorted({name[1] for name, path in found if name and _is_open(path)})


def _is_open(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_CONNECT_S)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def _read_runtime_config(path: Path) -> Mapping[str, Any] | Unread | None:
    try:
        text = read_regular_file(path, max_bytes=_MAX_CONFIG_BYTES).decode()
        if max(map(len, text.splitlines()), default=0) > _MAX_LINE:
            return Unread(reason=f"it has a line of more than {_MAX_LINE} characters")
        return tomllib.loads(text)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return Unread(reason=describe_read_error(error))
    except RecursionError:
        return Unread(reason="it is nested too deeply")


def _read_hardware(choices: Sequence[FamilyChoice], plugins: Sequence[Settings]) -> tuple[HardwareFacts, ...]:
    return tuple(_read_family(choice, plugin) for choice, plugin in zip(choices, plugins, strict=True))


def _read_family(choice: FamilyChoice, plugin: Settings) -> HardwareFacts:
    backends = tuple(backend.name for backend in choice.backends)
    try:
        found = find_devices(choice, plugin.node_name or "this-node", plugin.state)
    except Exception as error:  # noqa: BLE001  (backends are third parties': the others are checked)
        unlisted = error.unlisted if isinstance(error, DiscoveryFailedError) else ()
        return HardwareFacts(
            driver=choice.family.driver,
            backends=backends,
            cards=(),
            problems=(describe_error(error),),
            unlisted=tuple(map(_describe_unlisted, unlisted)),
        )
    return HardwareFacts(
        driver=choice.family.driver,
        backends=backends,
        cards=tuple(_describe_cards(found)),
        problems=found.problems,
        unlisted=tuple(map(_describe_unlisted, found.unlisted)),
        kept_out=tuple(map(str, found.kept_out)),
        unknown=found.unknown,
    )


def _describe_unlisted(card: UnlistedCard) -> UnlistedCardFacts:
    return UnlistedCardFacts(description=str(card), next_step=card.next_step, is_expected=card.is_expected)


def _describe_cards(found: FamilyDevices) -> Iterator[CardFacts]:
    surveys = {survey.card_uuid: survey for survey in found.surveys}
    for card in found.cards:
        survey = surveys.get(card.uuid)
        holders = (found.holders or {}).get(card.uuid, {})
        yield CardFacts(
            name=card_name(card),
            model=card.geometry.model,
            no_whole=survey.no_whole if survey else "",
            no_partitions=survey.no_partitions if survey else "",
            unhealthy=tuple(
                f"{change.state}: {change.reason}" for change in found.unhealthy if change.card_uuid == card.uuid
            ),
            others=tuple(
                str(each)
                for each in (survey.partitions if survey else ())
                if not each.is_static and not holders.get(each.id)
            ),
        )


async def _read_api_server(
    options: NodeOptions, drivers: Sequence[str], now: Callable[[], datetime]
) -> ApiServerFacts | Unread:
    return await read_or_unread(_ask_api_server(options, drivers, now))


async def _ask_api_server(options: NodeOptions, drivers: Sequence[str], now: Callable[[], datetime]) -> ApiServerFacts:
    """Ask as the plugin does, or as the user of a kubeconfig. Raises KerfError."""
    is_plugin = options.kubeconfig is None and in_cluster(os.environ) is not None
    access = await load_access(options.kubeconfig, options.context)
    async with connect(access, now) as connection:
        client = connection.client
        is_classic = await discover_classic(client) is not None
        needed = plugin_permissions(drivers, minor=connection.kubernetes[1], is_classic=is_classic)
        return ApiServerFacts(
            node=await read_or_unread(client.get(NODE_SETUPS, options.node_name)),
            slices=() if is_classic else await read_or_unread(list_slices(client, options.node_name)),
            review=await review_self(client, needed) if is_plugin else None,
            is_classic=is_classic,
            skew_s=connection.skew_s,
        )
