"""What Intel's GPUs are used for: the energy of a card from its hwmon, and the use of each client from fdinfo.

A client is an open device node of a card; the kernel says in ``/proc/PID/fdinfo/FD`` how long each class of engines has
worked for it (Linux ``Documentation/gpu/drm-usage-stats.rst``): ``i915`` in nanoseconds, ``xe`` in cycles beside the
cycles that the engine has had. A card is as busy as its busiest class of engines. Which tile a client uses is not said.

Clients are seen from the first PID namespace only. From another one nothing is known of them, and no card is idle.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import listdir, readlink
from pathlib import Path
from typing import Final, NamedTuple

from kerf_dra.driver.kubeletplugin.backends.base import DeviceSample
from kerf_dra.driver.kubeletplugin.backends.intel.sysfs import IntelCardReading
from kerf_dra.driver.kubeletplugin.backends.kernel_files import (
    UnreadableFilesError,
    is_first_namespace,
    parse_number,
    read_optional,
)

_NODES: Final = "/dev/dri/"
"""Begins the paths of device nodes, in containers as well."""
_KEPT_S: Final = 5.0
"""Seconds for which a list of all clients is used again: the cards are sampled one after the other, and the list takes
a look at each open file of the machine."""
_MJ: Final = 1000
"""Microjoules of a millijoule: hwmon counts the former (Linux ``Documentation/hwmon/sysfs-interface.rst``)."""
_NS: Final = 1e9
_KEY: Final = re.compile(r"drm-(engine-capacity|engine|cycles|total-cycles|resident|total)-([a-z0-9_-]+)")
_UNITS: Final = {"": 1, "KiB": 2**10, "MiB": 2**20}
_LOCAL: Final = re.compile(r"(?:vram|local)[0-9]+")
"""The regions of a card's own memory, of ``xe`` and of ``i915``."""


class _Client(NamedTuple):
    """What the kernel says of one client at one moment."""

    pid: int
    engines: Mapping[str, int]
    """By class of engines: the nanoseconds (``i915``) or cycles (``xe``) for which it has worked for the client."""
    elapsed: Mapping[str, int]
    """By class: the cycles that the engine has had (``xe``); none: the time is to be compared with."""
    capacity: Mapping[str, int]
    """By class: the number of engines, where there are several."""
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class _Moment:
    """The clients of all cards at one moment, by the card's PCI address and the client's number."""

    at: float
    clients: Mapping[str, Mapping[int, _Client]]


class ClientUsage:
    """The use of the cards of one machine by clients; of each card the moment before is kept."""

    def __init__(self, root: Path) -> None:
        """``root`` is the one that has ``proc``, ``/`` on a node."""
        self._proc = root / "proc"
        self._latest: _Moment | None = None
        self._before: dict[str, _Moment] = {}

    def sample(self, card: IntelCardReading, now: float) -> DeviceSample:
        """Return what a whole card is used for; ``now`` is monotonic time in seconds.

        Raises UnreadableFilesError when the processes cannot be listed.
        """
        if not is_first_namespace(self._proc):
            return DeviceSample()
        moment = self._latest
        if moment is None or not 0 <= now - moment.at < _KEPT_S:
            moment = self._latest = _Moment(now, self._list_clients())
        before = self._before.get(card.uuid)
        self._before[card.uuid] = moment
        clients = moment.clients.get(card.pci_address, {})
        busy = None
        if before is not None and before.at < moment.at:
            busy = _measure(before.clients.get(card.pci_address, {}), clients, moment.at - before.at)
        return DeviceSample(
            memory_bytes=sum(client.memory_bytes for client in clients.values()),
            processes=len({client.pid for client in clients.values()}),
            busy=busy,
        )

    def _list_clients(self) -> Mapping[str, Mapping[int, _Client]]:
        found: defaultdict[str, dict[int, _Client]] = defaultdict(dict)
        try:
            pids = [int(name) for name in listdir(self._proc) if name.isdecimal()]  # noqa: PTH208  (as kernel_files)
        except OSError as error:
            raise UnreadableFilesError(f"{self._proc} cannot be read: {error.strerror}") from error
        for pid in pids:
            for lines in self._read_descriptors(pid):
                address, number = lines.get("drm-pdev", ""), lines.get("drm-client-id", "")
                if address and number.isdecimal():  # a client may be open under several numbers
                    found[address][int(number)] = _read_client(pid, lines)
        return found

    def _read_descriptors(self, pid: int) -> Iterator[Mapping[str, str]]:
        """Yield what the kernel says of each device node that a process has open, by key."""
        folder = f"{self._proc}/{pid}"
        with suppress(OSError):  # it ends meanwhile, or is another user's
            for number in listdir(f"{folder}/fd"):  # noqa: PTH208  (a busy node has 100,000)
                with suppress(OSError):
                    if readlink(f"{folder}/fd/{number}").startswith(_NODES):  # noqa: PTH115
                        text = read_optional(Path(f"{folder}/fdinfo/{number}"))
                        pairs = (line.partition(":") for line in text.splitlines())
                        yield {key.strip(): value.strip() for key, _, value in pairs}


def read_energy(root: Path, card: IntelCardReading) -> int | None:
    """Return the millijoules that a card has used since its driver was loaded; None: the driver does not count them.

    ``energy1_input`` of the card's own sensor is the whole card's; sensors of ``i915`` for its units have other names.
    """
    for folder in sorted((root / f"sys/class/drm/card{card.number}/device/hwmon").glob("hwmon*")):
        if read_optional(folder / "name") == card.driver and (text := read_optional(folder / "energy1_input")):
            energy = parse_number(text, -1)
            return energy // _MJ if energy >= 0 else None
    return None


def _measure(before: Mapping[int, _Client], now: Mapping[int, _Client], elapsed_s: float) -> float:
    """Return the part of the time in which the busiest class of engines worked."""
    parts: defaultdict[str, float] = defaultdict(float)
    for number, client in now.items():
        old = before.get(number)
        for engine, used in client.engines.items():
            worked = used - (0 if old is None else old.engines.get(engine, 0))
            if engine in client.elapsed:  # how many cycles a new client's time has is not known
                passed = 0.0 if old is None else float(client.elapsed[engine] - old.elapsed.get(engine, 0))
            else:
                passed = elapsed_s * _NS
            if passed > 0:
                parts[engine] += max(0, worked) / passed / max(1, client.capacity.get(engine, 1))
    return min(1.0, max(parts.values(), default=0.0))


def _read_client(pid: int, lines: Mapping[str, str]) -> _Client:
    values: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for key, text in lines.items():
        if match := _KEY.fullmatch(key):
            number, _, unit = text.partition(" ")
            values[match[1]][match[2]] = max(0, parse_number(number)) * _UNITS.get(unit, 1)
    resident = values["resident"] or values["total"]
    return _Client(
        pid=pid,
        engines=values["cycles"] or values["engine"],
        elapsed=values["total-cycles"],
        capacity=values["engine-capacity"],
        memory_bytes=sum(size for region, size in resident.items() if _LOCAL.fullmatch(region)),
    )
