"""Stand-ins of Intel GPUs: the files of ``/sys`` that the kernel has of them, and their drivers' answers.

The trees are as Linux 6.12 shows them (``xe``, ``i915``), and as intel-resource-drivers-for-kubernetes makes them for
its own tests; docs/intel.md says which public listings of real cards they were compared with.
"""

import ctypes
import errno
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.intel.drm import I915_QUERY, XE_DEVICE_QUERY

GIB: Final = 2**30
MAX_1550: Final = 0x0BD5
MAX_1100: Final = 0x0BDA
B580: Final = 0xE20B
INTEGRATED: Final = 0x7D67


class IntelMachine:
    """A machine below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "sys/class/drm").mkdir(parents=True)
        (root / "proc/sys/kernel").mkdir(parents=True)
        (root / "proc/sys/kernel/osrelease").write_text("6.12.48-amd64\n")

    def add_card(
        self,
        number: int,
        address: str,
        device_id: int,
        *,
        driver: str = "xe",
        tiles: int = 1,
        render: int | None = 128,
        vendor: int = 0x8086,
        numa_node: int = 0,
        files: dict[str, str] | None = None,
        physical_function: str = "",
        bridges: str = "",
    ) -> Path:
        """Add a card, and return the folder of its PCI device. ``files`` are further ones, by their paths there.

        ``bridges`` are the folders of the PCI bridges that the card is behind.
        """
        device = self.root / "sys/devices/pci0000:00" / bridges / address
        card = device / "drm" / f"card{number}"
        card.mkdir(parents=True)
        for connector in ("DP-1", "HDMI-A-1"):
            folder = card / f"{card.name}-{connector}"
            folder.mkdir()
            (folder / "device").symlink_to(f"../../{card.name}")
            shown = self.root / "sys/class/drm" / folder.name
            shown.symlink_to(os.path.relpath(folder, shown.parent))
        if render is not None:
            (device / "drm" / f"renderD{render}").mkdir()
        (card / "device").symlink_to("../..")
        (self.root / "sys/class/drm" / card.name).symlink_to(os.path.relpath(card, self.root / "sys/class/drm"))
        drivers = self.root / "sys/bus/pci/drivers" / driver
        drivers.mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(os.path.relpath(drivers, device))
        for name, text in {
            "vendor": f"{vendor:#06x}\n",
            "device": f"{device_id:#06x}\n",
            "numa_node": f"{numa_node}\n",
            **(files or {}),
        }.items():
            (device / name).parent.mkdir(parents=True, exist_ok=True)
            (device / name).write_text(text)
        for tile in range(tiles if driver == "xe" else 0):
            for unit in (0, 1):  # the second one is that for media
                (device / f"tile{tile}" / f"gt{unit}" / "freq0").mkdir(parents=True)
        for unit in (0, 1) if driver == "i915" else ():
            (card / "gt" / f"gt{unit}").mkdir(parents=True, exist_ok=True)
        if physical_function:
            (device / "physfn").symlink_to(f"../{physical_function}")
        return device

    def swap_numbers(self, one: str, other: str) -> None:
        """Give the node numbers of two cards, by PCI address, to one another, as drivers do that are bound again."""
        devices = self.root / "sys/devices/pci0000:00"
        (devices / one / "drm").rename(devices / "drm")
        (devices / other / "drm").rename(devices / one / "drm")
        (devices / "drm").rename(devices / other / "drm")
        for link in (self.root / "sys/class/drm").iterdir():
            link.unlink()
        for card in devices.glob("*/drm/card*"):
            link = self.root / "sys/class/drm" / card.name
            link.symlink_to(os.path.relpath(card, link.parent))

    def add_client(self, pid: int, descriptor: int, node: str, lines: dict[str, str]) -> None:
        """Let a process have a device node open, of which the kernel says ``lines``."""
        folder = self.root / "proc" / str(pid)
        for name in ("fd", "fdinfo"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        link = folder / "fd" / str(descriptor)
        link.unlink(missing_ok=True)
        link.symlink_to(node)
        text = "".join(f"{key}:\t{value}\n" for key, value in {"pos": "0", **lines}.items())
        (folder / "fdinfo" / str(descriptor)).write_text(text)

    def enter_namespace(self, name: str = "pid:[4026531836]") -> None:
        """Let this process be in a PID namespace: the first one, or another."""
        link = self.root / "proc/self/ns/pid"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def take_away(self, number: int) -> None:
        (self.root / f"sys/class/drm/card{number}").rename(self.root / f"sys/class/absent-card{number}")

    def bring_back(self, number: int) -> None:
        (self.root / f"sys/class/absent-card{number}").rename(self.root / f"sys/class/drm/card{number}")


@dataclass
class FakeDrmCalls:
    """Drivers of cards that answer with their memory: the machine's region first, then the card's, one a tile."""

    memory: dict[str, list[int]] = field(default_factory=dict)
    """The sizes of a card's own regions by the name of its node; a card that is not here cannot be opened."""
    asked: list[str] = field(default_factory=list)
    announced: int | None = None
    """The number of regions that an answer announces, in place of the true one."""

    def ioctl(self, node: Path, request: int, argument: bytearray) -> None:
        self.asked.append(node.name)
        if node.name not in self.memory:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        regions = [(0, 64 * GIB), *((1, size) for size in self.memory[node.name])]
        count = len(regions) if self.announced is None else self.announced
        packed = b"".join(struct.pack("=HHIQ72x", class_, 0, 4096, size) for class_, size in regions)
        if request == XE_DEVICE_QUERY:
            self._answer_xe(argument, struct.pack("=II", count, 0) + packed)
        elif request == I915_QUERY:
            self._answer_i915(argument, struct.pack("=I12x", count) + packed)
        else:
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))

    def _answer_xe(self, argument: bytearray, answer: bytes) -> None:
        extensions, query, size, data = struct.unpack_from("=QIIQ", argument)
        if query != 1 or size not in (0, len(answer)):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if size:
            ctypes.memmove(data, answer, len(answer))
        struct.pack_into("=QIIQ", argument, 0, extensions, query, len(answer), data)

    def _answer_i915(self, argument: bytearray, answer: bytes) -> None:
        _, _, items = struct.unpack("=IIQ", argument)
        query, length, flags, data = struct.unpack("=QiIQ", ctypes.string_at(items, 24))
        if query != 4 or length not in (0, len(answer)):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if length:
            ctypes.memmove(data, answer, len(answer))
        ctypes.memmove(items, struct.pack("=QiIQ", query, len(answer), flags, data), 24)
