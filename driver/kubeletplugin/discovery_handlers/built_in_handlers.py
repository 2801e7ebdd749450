"""The discovery handlers inside the plugin: ``udev``, ``static``, and ``debugEcho`` for demonstrations.

They have Akri's names and details, where Akri has them, so that configurations can be taken over.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal

import anyio
import msgspec

from kerf_dra.api.discovery.v1alpha1 import DiscoveryRequest, FoundDevice, FoundDeviceNode
from kerf_dra.api.model.base import Value
from kerf_dra.driver.kubeletplugin.discovery_handlers.base import (
    DetailsError,
    HandlerError,
    NodeDiscoveryHandler,
    decode_details,
)
from kerf_dra.driver.kubeletplugin.discovery_handlers.udev_devices import UdevTree
from kerf_dra.driver.kubeletplugin.discovery_handlers.udev_rules import UdevRule, UdevRuleError, parse_udev_rule
from kerf_dra.driver.runtime.worker_threads import Work, start_call

POLL_S: Final = 10.0
"""Seconds between two looks for devices, as in Akri's handlers: udev announces devices, but not to a container."""
SCAN_TIMEOUT_S: Final = 60.0
"""Limit of one look at the node's devices, of milliseconds: a driver whose attribute does not return is broken."""
AVAILABILITY_FILE: Final = "debug-echo-availability.txt"
"""The file in the folder of discovery that takes debugEcho's devices away, while it has the word OFFLINE: as Akri's in
``/tmp``."""


class UdevDetails(Value, forbid_unknown_fields=True):
    """The details of ``udev``."""

    udev_rules: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=64)]
    """Rules of match keys; a device that one of them matches is found."""
    group_recursive: bool = False
    """Whether a device and those behind it are one device, if both are found."""
    permissions: Literal["rwm", "rw", "r", "w", "m", "rm", "wm"] = "rwm"
    """What containers may do with the device node."""


class StaticDetails(Value, forbid_unknown_fields=True):
    """The details of ``static``."""

    devices: tuple[FoundDevice, ...]
    """The devices."""


class DebugEchoDetails(Value, forbid_unknown_fields=True):
    """The details of ``debugEcho``."""

    descriptions: tuple[str, ...]
    """The ids of the devices."""
    shared: bool = False
    """Whether each is one device that all nodes see."""


class StaticHandler:
    """Finds the devices that the configuration lists."""

    async def discover(self, request: DiscoveryRequest) -> AsyncGenerator[Sequence[FoundDevice], None]:
        yield decode_details(request.details, StaticDetails).devices
        await anyio.sleep_forever()


class DebugEchoHandler:
    """Finds devices that are not there, while they are not said to be offline."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / AVAILABILITY_FILE

    async def discover(self, request: DiscoveryRequest) -> AsyncGenerator[Sequence[FoundDevice], None]:
        details = decode_details(request.details, DebugEchoDetails)
        devices = tuple(
            FoundDevice(id=each, properties={"DEBUG_ECHO_DESCRIPTION": each}, shared=details.shared)
            for each in details.descriptions
        )
        was_offline = None
        while True:
            if (is_offline := self._is_offline()) != was_offline:
                was_offline = is_offline
                yield () if is_offline else devices
            await anyio.sleep(POLL_S)

    def _is_offline(self) -> bool:
        try:
            return "OFFLINE" in self._file.read_text(errors="replace")
        except OSError:
            return False


class _Scan:
    """One look at the devices of the node."""

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.outcome: Callable[[], Mapping[str, str]] | None = None


class UdevHandler:
    """Finds devices by rules of udev."""

    def __init__(self, tree: UdevTree, *, start: Callable[[Work], None]) -> None:
        """``start`` runs work that may block, in a thread."""
        self._tree = tree
        self._start = start
        self._scans: dict[tuple[str, ...], _Scan] = {}
        """The looks that go on, or hang, by their rules."""

    async def discover(self, request: DiscoveryRequest) -> AsyncGenerator[Sequence[FoundDevice], None]:
        details = decode_details(request.details, UdevDetails)
        rules = _parse_rules(details)
        last = None
        while True:
            nodes = await self._scan(rules)
            devices = tuple(
                _make_device(*each, details) for each in _group(nodes, is_recursive=details.group_recursive)
            )
            if devices != last:
                last = devices
                yield devices
            await anyio.sleep(POLL_S)

    async def _scan(self, rules: Mapping[str, UdevRule]) -> Mapping[str, str]:
        """Look at the devices in a thread, or join who does by the same rules.

        Raises HandlerError when that takes too long. The thread cannot be ended, and no other one begins the same.
        """
        key = tuple(rules)
        scan = self._scans.get(key)
        if scan is None:
            scan = self._scans[key] = _Scan()
            start_call(self._start, partial(self._end, key, scan), find_nodes, self._tree, rules.values())
        with anyio.move_on_after(SCAN_TIMEOUT_S):
            await scan.ended.wait()
        if scan.outcome is None:
            raise HandlerError(f"a look at the node's devices has taken more than {SCAN_TIMEOUT_S:g} s")
        return scan.outcome()

    def _end(self, key: tuple[str, ...], scan: "_Scan", outcome: Callable[[], Mapping[str, str]]) -> None:
        del self._scans[key]
        scan.outcome = outcome
        scan.ended.set()


def find_nodes(tree: UdevTree, rules: Iterable[UdevRule]) -> Mapping[str, str]:
    """Return the devices that one of ``rules`` matches: their device nodes (empty: none) by their paths in ``/sys``."""
    found: dict[str, str] = {}
    for rule in rules:
        for device in tree.list_devices(rule.subsystems):
            if device.devpath not in found and rule.matches(device):
                found[device.devpath] = device.node
    return found


@dataclass(frozen=True, slots=True)
class _BuiltInHandler:
    read_details: Callable[[str], object]
    """Raises DetailsError for details that the handler does not take."""
    make: Callable[[Path, UdevTree, Callable[[Work], None]], NodeDiscoveryHandler]
    """Has the parameters of ``make_handlers``."""


_HANDLERS: Final[Mapping[str, _BuiltInHandler]] = {
    "udev": _BuiltInHandler(
        read_details=lambda details: _parse_rules(decode_details(details, UdevDetails)),
        make=lambda _folder, tree, start: UdevHandler(tree, start=start),
    ),
    "static": _BuiltInHandler(
        read_details=lambda details: decode_details(details, StaticDetails),
        make=lambda _folder, _tree, _start: StaticHandler(),
    ),
    "debugEcho": _BuiltInHandler(
        read_details=lambda details: decode_details(details, DebugEchoDetails),
        make=lambda folder, _tree, _start: DebugEchoHandler(folder),
    ),
}
"""The handlers inside the plugin, by the names that configurations have."""


def make_handlers(folder: Path, tree: UdevTree, *, start: Callable[[Work], None]) -> dict[str, NodeDiscoveryHandler]:
    """Return the handlers by name; ``folder`` is that of discovery, ``start`` runs work that may block."""
    return {name: handler.make(folder, tree, start) for name, handler in _HANDLERS.items()}


def is_built_in(handler: str) -> bool:
    """Whether a handler of this name is inside the plugin."""
    return handler in _HANDLERS


def find_details_fault(handler: str, details: str) -> str | None:
    """Return why a handler of the plugin does not take these details; None: it does, or the handler is another one."""
    try:
        if handler in _HANDLERS:
            _HANDLERS[handler].read_details(details)
    except DetailsError as error:
        return str(error)
    return None


def _parse_rules(details: UdevDetails) -> dict[str, UdevRule]:
    """Raises DetailsError for a text that is no rule."""
    try:
        return {rule: parse_udev_rule(rule) for rule in details.udev_rules}
    except UdevRuleError as error:
        raise DetailsError(f"details.udevRules: {error}") from None


def _group(nodes: Mapping[str, str], *, is_recursive: bool) -> list[tuple[str, tuple[str, ...]]]:
    """Return the devices by path, each with its device nodes: its own, and those of devices behind it that it has."""
    groups: dict[str, list[str]] = {}
    for path in sorted(nodes):
        above = (str(each) for each in reversed(PurePosixPath(path).parents)) if is_recursive else ()
        top = next((each for each in above if each in groups), path)
        groups.setdefault(top, []).extend(filter(None, [nodes[path]]))
    return [(path, tuple(group)) for path, group in groups.items()]


def _make_device(path: str, nodes: Sequence[str], details: UdevDetails) -> FoundDevice:
    suffixes = [f"_{number}" if details.group_recursive else "" for number in range(len(nodes))]
    return FoundDevice(
        id=path,
        properties={
            "UDEV_DEVPATH": path,
            **{f"UDEV_DEVNODE{suffix}": node for suffix, node in zip(suffixes, nodes, strict=True)},
        },
        device_nodes=tuple(FoundDeviceNode(host_path=node, permissions=details.permissions) for node in nodes),
    )
