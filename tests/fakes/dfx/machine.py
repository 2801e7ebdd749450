"""A board that is a folder: base designs and packages for its FPGA, ``sys``, ``proc``, and descriptions.

The directories are those of Xilinx/dfx-mgr's ``README.md`` for the KR260. What the daemon does with them is in
``daemon``; what befalls the board without Kerf's doing, a test writes into files here.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from kerf_dra.driver.kubeletplugin.backends.slots.packages import compute_digest, read_base
from tests.fakes.dfl.machine import build_document

BASE: Final = "kr260/k26_3rp_1409"
HALVES: Final = "kr260/k26_3rp_halves"
FLAT: Final = "kr260/k26_vadd"
"""The base designs of the layouts beside BASE, with two slots and with none.

The daemon's table shortens the name of the first as that of BASE.
"""
BLANK_ID: Final = "3d0c2a5e-1111-5e0a-9b62-2f0d5b0c7a01"
FUNCTION_IDS: Final = {
    "aes": "3d0c2a5e-2222-5e0a-9b62-2f0d5b0c7a02",
    "fft": "3d0c2a5e-3333-5e0a-9b62-2f0d5b0c7a03",
    "vadd": "3d0c2a5e-4444-5e0a-9b62-2f0d5b0c7a04",
}
PID: Final = 4711


class DfxMachine:
    """The board in ``folder``: ``firmware``, ``sys``, ``proc``, ``descriptions``, ``overlays``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.firmware = folder / "firmware"
        self.descriptions = folder / "descriptions"
        self.overlays = folder / "overlays"

    @classmethod
    def create(cls, folder: Path, slots: int = 3) -> "DfxMachine":
        """Make a board with one base design, with packages of ``aes`` for each slot, of ``fft`` for the first two."""
        machine = cls(folder)
        for part in ("proc/sys/kernel", "descriptions", "firmware", "overlays"):
            (folder / part).mkdir(parents=True)
        (folder / "proc/sys/kernel/osrelease").write_text("6.6.10-xilinx\n")
        manager = folder / "sys/devices/platform/firmware:zynqmp-firmware:pcap/fpga_manager/fpga0"
        manager.mkdir(parents=True)
        (manager / "state").write_text("operating\n")
        (manager / "name").write_text("Xilinx ZynqMP FPGA Manager\n")
        (folder / "sys/class/fpga_manager").mkdir(parents=True)
        (folder / "sys/class/fpga_manager/fpga0").symlink_to(manager)
        machine.add_base(BASE, slots)
        for slot in range(slots):
            machine.add_package(BASE, f"blank-{slot}", slot, devices=())
            machine.add_package(BASE, f"aes-{slot}", slot)
        for slot in range(min(slots, 2)):
            machine.add_package(BASE, f"fft-{slot}", slot)
        return machine

    def add_layouts(self) -> None:
        """Add base designs for the layouts ``halves``, with ``aes`` and ``sobel``, and ``flat``, which is ``vadd``."""
        self.add_base(HALVES, 2)
        for slot in range(2):
            self.add_package(HALVES, f"blank-half-{slot}", slot, devices=())
            self.add_package(HALVES, f"aes-half-{slot}", slot)
            self.add_package(HALVES, f"sobel-half-{slot}", slot)
        self.add_base(FLAT, shell_type="PL_FLAT")
        accelerator = {"accel_devices": [{"dev_name": "20100000000.vadd"}]}
        (self.firmware / FLAT / "accel.json").write_text(json.dumps(accelerator))

    def add_base(self, path: str, slots: int = 3, **fields: object) -> None:
        """Write a base design."""
        folder = self.firmware / path
        folder.mkdir(parents=True)
        shell = {"shell_type": "PL_DFX", "num_pl_slots": slots, "num_aie_slots": 0, **fields}
        (folder / "shell.json").write_text(json.dumps(shell))
        (folder / "shell.bit.bin").write_text(f"BASE {path}\n")
        (folder / "shell.dtbo").write_text("overlay\n")

    def add_package(
        self, base: str, name: str, slot: int, *, devices: tuple[str, ...] | None = None, **fields: object
    ) -> Path:
        """Write a package's directory for a slot; its device is of the package's name."""
        folder = self.firmware / base / name / f"{name}_slot{slot}"
        folder.mkdir(parents=True)
        names = (f"2010{slot}000000.{name}",) if devices is None else devices
        entries = [{"dev_name": one, "reg_base": "0x20100000000", "reg_size": "0x10000"} for one in names]
        accelerator = {"accel_type": "XRT_PL_DFX", "accel_devices": entries, **fields}
        (folder / "accel.json").write_text(json.dumps(accelerator))
        (folder / "partial.bit.bin").write_text(f"BITS {base} {slot}\n{name}\n")
        (folder / "partial.dtbo").write_text("overlay\n")
        return folder

    def interface(self, base: str = BASE) -> str:
        """The interface UUID of a base design."""
        return read_base(self.firmware, self.firmware / base).interface_uuid

    def describe(self, slots: int = 3, *, has_blank: bool = True) -> None:
        """Describe the base design and its functions, each with a file for each slot."""
        blank = {"afuID": BLANK_ID, "files": self.files("blank", range(slots))}
        self.write_description(
            build_document(
                "FpgaShell",
                "kr260",
                interfaceUUID=self.interface(),
                family="zynqmp",
                slots=[{"lut": 20000, "ff": 40000, "bram": 50, "dsp": 300}] * slots,
                **({"blank": blank} if has_blank else {}),
            )
        )
        self.describe_function("aes", range(slots), parameters={"LANES": "8"})
        self.describe_function("fft", range(min(slots, 2)))

    def describe_layouts(self, *, has_blank: bool = True, **changes: Any) -> None:
        """Describe the base designs of ``add_layouts`` as layouts of the shell, with their functions."""
        self.describe(has_blank=has_blank)
        file = self.descriptions / "kr260.yaml"
        document = json.loads(file.read_text())
        blank = {"afuID": BLANK_ID, "files": self.files("blank-half", range(2), HALVES)}
        halves = {"interfaceUUID": self.interface(HALVES), "loadSeconds": 40, "slots": [{"lut": 30000}] * 2}
        flat = {"interfaceUUID": self.interface(FLAT), "loadSeconds": 2, "resources": {"lut": 90000}}
        layouts = [
            {"name": "halves", **halves, **({"blank": blank} if has_blank else {})},
            {"name": "flat", **flat},
        ]
        self.write_description({**document, "spec": {**document["spec"], "layouts": layouts, **changes}})
        for name in ("aes", "sobel"):
            files = self.files(f"{name}-half", range(2), HALVES)
            interface = self.interface(HALVES)
            self.describe_function(name, (), document=f"{name}-half", interfaceUUID=interface, files=files)
        digest = compute_digest(self.firmware / FLAT)
        files = [{"file": FLAT, "sha256": digest}]
        self.describe_function("vadd", (), interfaceUUID=self.interface(FLAT), files=files)

    def describe_function(self, name: str, slots: Iterable[int], *, document: str = "", **fields: object) -> None:
        """Describe a function with a package for each of ``slots``, in the document of its or another name."""
        spec: dict[str, Any] = {
            "function": name,
            "version": "1.2.0",
            "interfaceUUID": self.interface(),
            "afuID": FUNCTION_IDS.get(name, "3d0c2a5e-9999-5e0a-9b62-2f0d5b0c7a09"),
            "loadSeconds": 0.4,
            "files": self.files(name, slots),
        }
        self.write_description(build_document("FpgaImage", document or name, **{**spec, **fields}))

    def files(self, name: str, slots: Iterable[int], base: str = BASE) -> list[dict[str, object]]:
        """What a description says of the packages of a function."""
        return [
            {
                "file": f"{base}/{name}-{slot}/{name}-{slot}_slot{slot}",
                "sha256": compute_digest(self.firmware / base / f"{name}-{slot}" / f"{name}-{slot}_slot{slot}"),
                "slots": [[slot]],
            }
            for slot in slots
        ]

    def write_description(self, document: dict[str, Any]) -> None:
        (self.descriptions / f"{document['metadata']['name']}.yaml").write_text(json.dumps(document))

    def calls(self) -> list[str]:
        """The calls that have changed something, in order."""
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    # What befalls it

    def add_fault(self, call: str, effect: str, argument: str = "") -> None:
        """Let the next call of this kind have this effect (``daemon``)."""
        with (self.folder / "faults").open("a") as file:
            file.write(f"{call} {effect} {argument}".rstrip() + "\n")

    def set_manager_state(self, state: str) -> None:
        (self.folder / "sys/class/fpga_manager/fpga0/state").write_text(f"{state}\n")

    def nodes(self, slot: int) -> list[str]:
        """The device nodes of what is loaded in a slot."""
        found = (self.folder / "sys/bus/platform/devices").glob(f"2010{slot}000000.*/uio/uio*")
        return [f"/dev/{one.name}" for one in found]

    def use(self, slot: int, pid: int | None = None) -> None:
        """Let a process have the devices of a slot open."""
        process = self.folder / f"proc/{PID + slot if pid is None else pid}"
        (process / "fd").mkdir(parents=True, exist_ok=True)
        for number, node in enumerate(self.nodes(slot)):
            (process / f"fd/{number + 3}").symlink_to(node)
        (process / "comm").write_text("aes-tool\n")

    def stop_using(self, slot: int) -> None:
        shutil.rmtree(self.folder / f"proc/{PID + slot}", ignore_errors=True)
