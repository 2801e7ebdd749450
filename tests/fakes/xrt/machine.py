"""A machine with Alveo cards that is a folder, as the drivers xocl and xclmgmt would show it, and image files for it.

The trees are those of Xilinx/XRT (``userpf/xocl_sysfs.c``, ``subdev/firewall.c``). What a card does when it is called
is in ``library.c``; what befalls it without Kerf's doing, a test writes into files here.
"""

import hashlib
import json
import shutil
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from kerf_dra.driver.testing.nvml.library import compile_library
from tests.fakes.dfl.machine import build_document
from tests.fakes.xrt.xclbin import build_xclbin

NEEDS_COMPILER = pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in for XRT needs a C compiler (cc)")
_NAME: Final = "libxrt_coreutil.so.2"
BASE: Final = "862c7020-a250-493e-3203-6f19956669e5"
"""The interface of the lower stage of the cards' shells."""
INTERFACE: Final = "d7612a7c-701e-012c-1095-9c59e9cad082"
BLANK_ID: Final = "0f1d2c3b-4a59-4687-9695-a4b3c2d1e0f1"
AES_ID: Final = "5c1b7a30-51b4-4f0e-8d5e-2f64a1c0b701"
FFT_ID: Final = "67e2c5f4-3a1d-4be8-a2c9-d0b4e6f81903"
PID: Final = 4711


@cache
def build_library() -> Path:
    """The path of the compiled ``library.c``."""
    return compile_library("the stand-in for libxrt", Path(__file__).parent, _NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardLayout:
    """A card and where it is."""

    pci_address: str
    """Of the user function; the management function is the card's function 0."""
    render: int
    interfaces: tuple[str, ...] = (BASE, INTERFACE)
    numa_node: int = 0
    root: str = "pci0000:3a"
    queue: bool = False
    """Whether its shell has a QDMA, with a device node of its own."""


TWO_CARDS: Final = (
    CardLayout(pci_address="0000:3b:00.1", render=128),
    CardLayout(pci_address="0001:d8:02.1", render=129, numa_node=1, root="pci0001:d7", queue=True),
)


class XrtMachine:
    """The machine in ``folder``: ``sys``, ``dev`` and ``proc``, ``descriptions``, ``images`` and its libxrt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.descriptions = folder / "descriptions"
        self.images = folder / "images"
        self.log = folder / "log"
        self.xrt = folder / "xrt"

    @classmethod
    def create(cls, folder: Path, cards: tuple[CardLayout, ...] = TWO_CARDS) -> "XrtMachine":
        """Make the machine, with the blank image loaded in each card."""
        machine = cls(folder)
        for part in ("sys/bus/pci/drivers/xocl", "sys/bus/pci/devices", "dev/dri", "dev/xfpga", "proc"):
            (folder / part).mkdir(parents=True)
        machine.descriptions.mkdir()
        machine.images.mkdir()
        _write(folder / "proc/sys/kernel/osrelease", "5.15.0-91-generic\n")
        _write(folder / "sys/module/xocl/version", "2.13.466,f5505e402c2ca1ffe45eb6d3a9399b23a0dc8776\n")
        for number, card in enumerate(cards):
            machine._add_card(number, card)
        (machine.xrt / "lib").mkdir(parents=True)
        shutil.copy(build_library(), machine.xrt / "lib" / _NAME)
        (machine.xrt / "lib/libxrt_core.so.2").touch()
        return machine

    def describe(self, *, has_blank: bool = True, slots: int = 1) -> None:
        """Describe the shell ``u250`` and two functions: ``aes`` with two compute units, ``fft`` with one."""
        blank = self.add_image("blank.xclbin", BLANK_ID, kernels=())
        self.write_description(
            "shell.yaml",
            build_document(
                "FpgaShell",
                "u250",
                interfaceUUID=INTERFACE,
                family="virtexuplus",
                slots=[{"lut": 1_728_000, "ff": 3_456_000, "bram": 2688, "dsp": 12_288}] * slots,
                **({"blank": {"afuID": BLANK_ID, "files": [{**blank, "slots": [[0]]}]}} if has_blank else {}),
            ),
        )
        self.describe_function("aes", AES_ID, parameters={"KEY_BITS": "256"})
        self.describe_function("fft", FFT_ID, kernels=("fft:fft_1",))

    def describe_function(
        self, name: str, afu_id: str, *, kernels: tuple[str, ...] = ("aes:aes_1", "aes:aes_2"), **fields: object
    ) -> None:
        """Add a function with its image."""
        self.write_description(f"{name}.yaml", self.build_image(name, afu_id, kernels=kernels, **fields))

    def build_image(
        self, name: str, afu_id: str, *, kernels: tuple[str, ...] = ("aes:aes_1", "aes:aes_2"), **fields: object
    ) -> dict[str, object]:
        """The FpgaImage of a function, whose file is written, too."""
        file = self.add_image(f"{name}.xclbin", afu_id, kernels=kernels)
        spec = {"function": name, "version": "1.2.0", "interfaceUUID": INTERFACE, "afuID": afu_id, "loadSeconds": 8}
        return build_document("FpgaImage", name, **{**spec, "files": [{**file, "slots": [[0]]}], **fields})

    def write_description(self, name: str, document: object) -> None:
        """Write a description; JSON is YAML."""
        _write(self.descriptions / name, json.dumps(document))

    def add_image(
        self, name: str, afu_id: str, content: bytes | None = None, *, kernels: tuple[str, ...] = ("aes:aes_1",)
    ) -> dict[str, str]:
        """Write an image file, and return what a description says of it."""
        content = build_xclbin(afu_id, interface=INTERFACE, kernels=kernels) if content is None else content
        (self.images / name).write_bytes(content)
        return {"file": name, "sha256": hashlib.sha256(content).hexdigest()}

    # What a card has

    def card_folder(self, card: int) -> Path:
        """The folder of the user function of card 0 or 1."""
        return sorted((self.folder / "sys/bus/pci/drivers/xocl").iterdir())[card].resolve()

    def set_state(self, card: int, name: str, content: str) -> None:
        """Write an attribute of a card's user function."""
        _write(self.card_folder(card) / name, content)

    def trip_firewall(self, card: int, level: int | str) -> None:
        """Let a firewall trip, which the management function shows."""
        folder = self.card_folder(card)
        _write(folder.with_name(f"{folder.name.rpartition('.')[0]}.0") / "firewall.m.1/level", f"{level}\n")

    def read_loaded(self, card: int) -> str:
        """The UUID of the image that is loaded; empty: none is."""
        return (self.card_folder(card) / "xclbinuuid").read_text().strip()

    def set_loaded(self, card: int, afu_id: str) -> None:
        """Load an image past Kerf."""
        self.set_state(card, "xclbinuuid", f"{afu_id}\n")

    def calls(self) -> list[str]:
        """The calls that have changed cards, in order."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    # What befalls it

    def add_fault(self, call: str, effect: str, argument: str = "") -> None:
        """Let the next call of this kind have this effect (``library.c``)."""
        with (self.folder / "faults").open("a") as file:
            file.write(f"{call} {effect} {argument}\n")

    def change_library(self) -> None:
        """Install the library anew."""
        (self.xrt / "lib" / _NAME).unlink()
        shutil.copy(build_library(), self.xrt / "lib" / _NAME)

    def open_node(self, card: int, node: str) -> None:
        """Let a process have a device node of the card open, and none of its compute units."""
        process = self.folder / f"proc/{PID + card}"
        (process / "fd").mkdir(parents=True)
        (process / "fd/3").symlink_to(node)
        (process / "comm").write_text("host.exe\n")

    def use(self, card: int) -> None:
        """Let a process that is not seen in /proc have a compute unit of the card open."""
        self.set_state(card, "kdsstat", _format_kdsstat([PID + card]))

    def stop_using(self, card: int) -> None:
        shutil.rmtree(self.folder / f"proc/{PID + card}", ignore_errors=True)
        self.set_state(card, "kdsstat", _format_kdsstat([]))

    def take_away(self, card: int) -> None:
        """Take the card off the bus: its directories vanish."""
        link = sorted((self.folder / "sys/bus/pci/drivers/xocl").iterdir())[card]
        link.rename(self.folder / f"away-{card}")

    def bring_back(self, card: int) -> None:
        link = self.folder / f"away-{card}"
        link.rename(self.folder / "sys/bus/pci/drivers/xocl" / link.resolve().name)

    # The tree

    def _add_card(self, number: int, card: CardLayout) -> None:
        slot = self.folder / "sys/devices" / card.root
        user, management = slot / card.pci_address, slot / f"{card.pci_address.rpartition('.')[0]}.0"
        for path, content in {
            user / "numa_node": f"{card.numa_node}\n",
            user / "vendor": "0x10ee\n",
            user / "ready": "0x1\n",
            user / "dev_offline": "0\n",
            user / "device_bad_state": "0\n",
            user / "interface_uuids": "".join(f"{uuid.UUID(one).hex}\n" for one in card.interfaces),
            user / "logic_uuids": f"{uuid.UUID(INTERFACE).hex[::-1]}\n",
            user / "xclbinuuid": f"{BLANK_ID}\n",
            user / "kdsstat": _format_kdsstat([]),
            user / "rom.u.1/VBNV": "xilinx_u250_gen3x16_xdma_shell_4_1\n",
            management / "instance": f"{15104 + number}\n",
            management / "firewall.m.1/level": "0\n",
            management / "firewall.m.2/level": "0\n",
        }.items():
            _write(path, content)
        (user / f"drm/renderD{card.render}").mkdir(parents=True)
        (user / f"drm/card{card.render - 127}").mkdir()
        (self.folder / f"dev/dri/renderD{card.render}").touch()
        (self.folder / f"dev/xclmgmt{15104 + number}").touch()
        if card.queue:
            (self.folder / "dev/xfpga/dma.qdma.u120849.0").touch()
            (self.folder / "dev/xfpga/dma.qdma.m120848.0").touch()
        (self.folder / "sys/bus/pci/drivers/xocl" / card.pci_address).symlink_to(user)
        for function in (user, management):
            (self.folder / "sys/bus/pci/devices" / function.name).symlink_to(function)


def _format_kdsstat(pids: list[int]) -> str:
    """The attribute ``kdsstat``: counters, and the processes that have compute units open."""
    head = f"outstanding execs:\t0\ntotal execs:\t\t7\ncontexts:\t\t{len(pids)}\nclient pid:\n"
    return head + "".join(f"\t\t\t{pid}\n" for pid in pids)


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
