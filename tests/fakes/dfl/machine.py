"""A machine with DFL cards that is a folder, as the kernel would show it, and image files for its cards.

The trees are those of ``Documentation/fpga/dfl.rst`` and of the ABI documents of Linux that it names. What a card does
when it is called is in ``driver.c``; what befalls it without Kerf's doing, a test writes into files here.
"""

import ctypes
import errno
import hashlib
import json
import os
import shutil
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from kerf_dra.driver.kubeletplugin.backends.dfl.gbs import MAGIC
from kerf_dra.driver.testing.nvml.library import compile_library

NEEDS_COMPILER = pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in for DFL needs a C compiler (cc)")
NAME: Final = "libkerf-dfl.so"
INTERFACE: Final = "1d0b24b2-6a5f-5c0e-9b0e-6a0e7a1f3c55"
BLANK_ID: Final = "8a1c3f60-6f0d-5b0a-8a43-0c9b5d5e2f10"
PID: Final = 4711


@cache
def build_library() -> Path:
    """The path of the compiled ``driver.c``, for LD_PRELOAD or for FakeSystemCalls."""
    return compile_library("the stand-in for DFL cards", Path(__file__).parent, NAME)


def build_gbs(
    afu_id: str, *, interface: str = INTERFACE, bits: bytes | None = None, clusters: int = 1, padding: int = 64
) -> bytes:
    """An image of the format GBS, whose bits the stand-in takes."""
    cluster = {"total-contexts": 1, "name": "function", "accelerator-type-uuid": afu_id.upper()}
    image = {"interface-uuid": interface, "magic-no": 488605312, "accelerator-clusters": [cluster] * clusters}
    metadata = json.dumps({"version": 640, "afu-image": image, "platform-name": ""}).encode()
    if bits is None:
        bits = build_bits(afu_id, interface=interface, padding=padding)
    return MAGIC + struct.pack("<I", len(metadata)) + metadata + bits


def build_bits(afu_id: str, *, interface: str = INTERFACE, padding: int = 64) -> bytes:
    """The bits of an image: the stand-in reads their head, the card of ``make kernel-dfl`` the last 32 of them."""
    function = uuid.UUID(afu_id).bytes
    return b"BITS" + uuid.UUID(interface).bytes + function + bytes(padding) + function[:-5:-1]


def build_document(kind: str, name: str, **spec: object) -> dict[str, object]:
    """A description, as an administrator writes it."""
    return {"apiVersion": "kerf.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True, slots=True, kw_only=True)
class CardLayout:
    """A card and where it is."""

    pci_address: str
    ports: int = 4
    interface: str = INTERFACE
    numa_node: int = 0
    root: str = "pci0000:3a"


TWO_CARDS: Final = (
    CardLayout(pci_address="0000:3b:00.0"),
    CardLayout(pci_address="0000:d8:00.0", numa_node=1, root="pci0000:d7"),
)


class DflMachine:
    """The machine in ``folder``: ``sys``, ``dev`` and ``proc``, ``descriptions`` and ``images``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.descriptions = folder / "descriptions"
        self.images = folder / "images"
        self.log = folder / "log"

    @classmethod
    def create(cls, folder: Path, cards: tuple[CardLayout, ...] = TWO_CARDS) -> "DflMachine":
        """Make the machine, with blank slots, the shell ``lab``, and images of two functions."""
        machine = cls(folder)
        for part in ("sys/class/fpga_region", "dev", "proc", "users", "reset", "descriptions", "images"):
            (folder / part).mkdir(parents=True)
        _write(folder / "proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
        lines: list[str] = []
        for number, card in enumerate(cards):
            lines += machine._add_card(number, card, first_port=sum(one.ports for one in cards[:number]))
        _write(folder / "ports", "".join(lines))
        return machine

    def describe(self, slots: int = 4, *, has_blank: bool = True) -> None:
        """Describe the shell and two functions: ``aes`` for every slot, with one file; ``fft`` for slots 0 and 1."""
        blank = self.add_image("blank.gbs", BLANK_ID)
        every = list(range(slots))
        any_slot = [[slot] for slot in every]
        self.write_description(
            "shell.yaml",
            build_document(
                "FpgaShell",
                "lab",
                interfaceUUID=INTERFACE,
                family="agilex",
                slots=[{"lut": 60000, "ff": 120000, "bram": 120, "dsp": 300}] * slots,
                **({"blank": {"afuID": BLANK_ID, "files": [{**blank, "slots": any_slot}]}} if has_blank else {}),
            ),
        )
        self.describe_function("aes", AES_ID, every, parameters={"LANES": "8"})
        self.describe_function("fft", FFT_ID, [slot for slot in every if slot < 2])

    def describe_function(self, name: str, afu_id: str, slots: list[int], **fields: object) -> None:
        """Add a function with one image for ``slots``."""
        self.write_description(f"{name}.yaml", self.build_image(name, afu_id, slots, **fields))

    def build_image(self, name: str, afu_id: str, slots: list[int], **fields: object) -> dict[str, object]:
        """The FpgaImage of a function with one file for any of ``slots``, which is written, too."""
        file = self.add_image(f"{name}.gbs", afu_id)
        spec = {"function": name, "version": "1.2.0", "interfaceUUID": INTERFACE, "afuID": afu_id, "loadSeconds": 0.4}
        return build_document(
            "FpgaImage", name, **{**spec, "files": [{**file, "slots": [[slot] for slot in slots]}], **fields}
        )

    def write_description(self, name: str, document: object) -> None:
        """Write a description; JSON is YAML."""
        _write(self.descriptions / name, json.dumps(document))

    def add_image(self, name: str, afu_id: str, content: bytes | None = None) -> dict[str, str]:
        """Write an image file, and return what a description says of it."""
        content = build_gbs(afu_id) if content is None else content
        (self.images / name).write_bytes(content)
        return {"file": name, "sha256": hashlib.sha256(content).hexdigest()}

    # What a card has

    def port_folder(self, port: int) -> Path:
        """The folder of ``dfl-port.PORT``."""
        (found,) = (self.folder / "sys/class/fpga_region").glob(f"region*/dfl-port.{port}")
        return found

    def fme_folder(self, fme: int) -> Path:
        (found,) = (self.folder / "sys/class/fpga_region").glob(f"region*/dfl-fme.{fme}")
        return found

    def read_afu_id(self, port: int) -> str:
        """Raises OSError while the port is in reset."""
        if self.is_in_reset(port):
            raise OSError(errno.EBUSY, "the port is in reset")
        return str(uuid.UUID((self.port_folder(port) / "afu_id").read_text().strip()))

    def set_afu_id(self, port: int, afu_id: str) -> None:
        """Load a function past Kerf."""
        _write(self.port_folder(port) / "afu_id", uuid.UUID(afu_id).hex + "\n")

    def is_in_reset(self, port: int) -> bool:
        count = self.folder / f"reset/dfl-port.{port}"
        return count.exists() and int(count.read_text()) > 0

    def calls(self) -> list[str]:
        """The calls that have changed cards, in order."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    # What befalls it

    def add_fault(self, call: str, effect: str, argument: str = "") -> None:
        """Let the next call of this kind have this effect (``driver.c``)."""
        with (self.folder / "faults").open("a") as file:
            file.write(f"{call} {effect} {argument}\n")

    def use(self, port: int) -> None:
        """Let a process have the port's node open."""
        process = self.folder / f"proc/{PID + port}"
        (process / "fd").mkdir(parents=True)
        (process / "fd/3").symlink_to(f"/dev/dfl-port.{port}")
        (process / "comm").write_text("host_exerciser\n")
        (self.folder / f"users/dfl-port.{port}").touch()

    def stop_using(self, port: int) -> None:
        (self.folder / f"users/dfl-port.{port}").unlink(missing_ok=True)
        shutil.rmtree(self.folder / f"proc/{PID + port}", ignore_errors=True)

    def take_away(self, card: int) -> None:
        """Take the card off the bus: its directories vanish."""
        for kind, place in self._places(card):
            place.rename(self.folder / f"away-{kind}-{card}")

    def bring_back(self, card: int) -> None:
        """Have the driver bound to the card again, which takes its ports out of reset and gives each its driver."""
        for kind, place in self._places(card):
            (self.folder / f"away-{kind}-{card}").rename(place)
        for port in self.folder.glob(f"sys/class/fpga_region/region{10 * card}/dfl-port.*"):
            (self.folder / "reset" / port.name).unlink(missing_ok=True)
            for attribute in (self.folder / "undriven" / port.name).glob("*"):
                attribute.rename(port / attribute.name)

    def bind_again(self, card: int) -> None:
        """Take the driver from the card, and bind it again."""
        self.take_away(card)
        self.bring_back(card)

    def leave_undriven(self) -> None:
        """Let ports that are given back have no driver until that of their card is bound again, as Linux 6.12 does."""
        (self.folder / "undriven").mkdir()

    def refuse_next_assign(self, slot: int) -> None:
        """Let the driver refuse once to take back the port of this slot."""
        (self.folder / f"refuse-assign-{slot}").touch()

    def take_driver(self, port: int) -> None:
        """Take the driver from a port: all of its attributes vanish."""
        away = self.folder / f"undriven/dfl-port.{port}"
        away.mkdir(parents=True, exist_ok=True)
        for attribute in [*self.port_folder(port).iterdir()]:
            attribute.rename(away / attribute.name)

    def _places(self, card: int) -> list[tuple[str, Path]]:
        return [("region", self.folder / f"sys/class/fpga_region/region{10 * card}")]

    # The tree

    def _add_card(self, number: int, card: CardLayout, first_port: int) -> list[str]:
        device = self.folder / "sys/devices" / card.root / card.pci_address
        region = device / f"fpga_region/region{10 * number}"
        _write(device / "numa_node", f"{card.numa_node}\n")
        fme = region / f"dfl-fme.{number}"
        manager = fme / f"dfl-fme-mgr.{number}/fpga_manager/fpga{number}"
        for path, content in {
            fme / "ports_num": f"{card.ports}\n",
            fme / "bitstream_id": "0x123456789abcdef\n",
            fme / "errors/fme_errors": "0x0\n",
            fme / "errors/catfatal_errors": "0x0\n",
            fme / "errors/nonfatal_errors": "0x0\n",
            fme / "errors/pcie0_errors": "0x0\n",
            fme / "errors/inject_errors": "0x0\n",
            fme / "hwmon/hwmon3/name": "dfl_fme_thermal\n",
            fme / "hwmon/hwmon3/temp1_input": "52000\n",
            fme / "hwmon/hwmon3/temp1_max_alarm": "0\n",
            fme / "hwmon/hwmon3/temp1_crit_alarm": "0\n",
            fme / "hwmon/hwmon4/name": "temp_board\n",
            fme / "hwmon/hwmon4/power1_crit_alarm": "0\n",
            manager / "name": "DFL FME FPGA Manager\n",
            manager / "state": "operating\n",
            manager / "status": "",
        }.items():
            _write(path, content)
        (self.folder / f"dev/dfl-fme.{number}").touch()
        lines = []
        for port in range(card.ports):
            name = f"dfl-port.{first_port + port}"
            folder = region / name
            child = f"dfl-fme-region.{first_port + port}/fpga_region/region{10 * number + port + 1}"
            _write(fme / child / "compat_id", uuid.UUID(card.interface).hex + "\n")
            _write(folder / "id", f"{port}\n")
            _write(folder / "afu_id", uuid.UUID(BLANK_ID).hex + "\n")
            _write(folder / "power_state", "0x0\n")
            _write(folder / "errors/errors", "0x0\n")
            (self.folder / "dev" / name).touch()
            shown = Path("sys/class/fpga_region") / region.name
            status = shown / manager.relative_to(region) / "status"
            interface = uuid.UUID(card.interface).hex
            lines.append(f"{number} {interface} {port} {first_port + port} {shown / name} {status}\n")
        (self.folder / "sys/class/fpga_region" / region.name).symlink_to(region)
        return lines


AES_ID: Final = "9c1d7a30-51b4-5f0e-8d5e-2f64a1c0b701"
FFT_ID: Final = "77e2c5f4-3a1d-5be8-a2c9-d0b4e6f81903"


class FakeSystemCalls:
    """The system calls, answered by ``driver.c``; ``at_change`` is called before and after each change."""

    def __init__(self, at_change: Callable[[], None] = lambda: None) -> None:
        self._library = ctypes.CDLL(str(build_library()), use_errno=True)
        self._library.write.restype = self._library.read.restype = ctypes.c_ssize_t
        self._at_change = at_change

    def open(self, path: str, flags: int) -> int:
        return self._check(self._library.open(os.fsencode(path), ctypes.c_int(flags)), path)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def ioctl(self, descriptor: int, request: int, argument: bytes | int) -> None:
        self._at_change()
        pointer = ctypes.c_char_p(argument) if isinstance(argument, bytes) else ctypes.c_void_p(argument)
        self._check(self._library.ioctl(descriptor, ctypes.c_ulong(request), pointer))
        self._at_change()

    def write(self, descriptor: int, data: bytes) -> None:
        self._at_change()
        self._check(self._library.write(descriptor, data, ctypes.c_size_t(len(data))))
        self._at_change()

    def read(self, descriptor: int, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        count = self._check(self._library.read(descriptor, buffer, ctypes.c_size_t(size)))
        return buffer.raw[:count]

    @staticmethod
    def _check(result: int, path: str | None = None) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        return result


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
