"""The files of NVIDIA's driver that do not depend on instances: ``/proc``, ``/dev``, ``/sys`` and the driver's root.

What depends on them is kept true by the library (``source/tree.c``), as the kernel driver keeps it.
"""

import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Final

from kerf_dra.driver.testing.nvml.layout import MAX_COMPUTE_INSTANCES, MAX_MINORS, StateLayout
from kerf_dra.driver.testing.nvml.library import SONAME

DRIVER_ROOT: Final = "driver"
"""The driver's root below the machine's folder, as ``/run/nvidia/driver`` is one."""
LIBRARIES: Final = Path(DRIVER_ROOT, "usr", "lib64")
_FRONTEND_MAJOR: Final = 195
_CAPABILITIES_MAJOR: Final = 236
_UVM_MAJOR: Final = 511
"""The first is NVIDIA's own; the others are given out by the kernel at each load."""
_BLOCK_MAJORS: Final = {"sd": 8, "blkext": 259}
"""Block devices, which every machine has: programs look for the section (proc_devices(5))."""
_NULL_DEVICE: Final = os.makedev(1, 3)
"""null(4)."""
_GPU_INSTANCES: Final = 15
"""GPU instances for which ``mig-minors`` lists capabilities."""
_CONTROL_NODES: Final = ("nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools")
_PLACEHOLDERS: Final = ("libcuda.so", "libnvidia-ptxjitcompiler.so")
"""Libraries of the driver that are there for programs that list it; they are empty."""
_PROGRAMS: Final = {"nvidia-cuda-mps-control": "mps_control.py", "nvidia-smi": "smi.py"}
"""Stand-ins for programs of the driver."""
_LONGEST_INTERPRETER: Final = 124
"""Of a script's first line Linux before 5.1 has 127 bytes: "#!", the path, and the end."""
_ROOTS: Final = ("pci0000:00", "pci0000:80")
"""PCIe root complexes of the two sockets."""


def write_driver_tree(folder: Path, state: StateLayout, library: Path) -> None:
    """Write the tree into the machine's ``folder``; ``library`` is the compiled stand-in."""
    version = state.driver_version.decode()
    proc = folder / "proc" / "driver" / "nvidia"
    for directory in (proc / "gpus", proc / "capabilities" / "mig", folder / "dev" / "nvidia-caps"):
        directory.mkdir(parents=True, exist_ok=True)
    (proc / "version").write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}\n")
    for number, name in enumerate(("config", "monitor"), start=1):
        access = f"DeviceFileMinor: {number}\nDeviceFileMode: {256 if number == 1 else 292}\nDeviceFileModify: 1\n"
        (proc / "capabilities" / "mig" / name).write_text(access)
        (folder / "dev" / "nvidia-caps" / f"nvidia-cap{number}").touch()
    (folder / DRIVER_ROOT / "dev").mkdir(parents=True, exist_ok=True)
    for name in _CONTROL_NODES:
        (folder / "dev" / name).touch()
        _write_null_node(folder / DRIVER_ROOT / "dev" / name)
    caps = folder / "proc" / "driver" / "nvidia-caps"
    caps.mkdir(exist_ok=True)
    (caps / "mig-minors").write_text("".join(_list_capabilities()))
    majors = {"nvidia-frontend": _FRONTEND_MAJOR, "nvidia-caps": _CAPABILITIES_MAJOR, "nvidia-uvm": _UVM_MAJOR}
    (folder / "proc" / "devices").write_text(
        "Character devices:\n"
        + "".join(f"{major:3} {name}\n" for name, major in majors.items())
        + "\nBlock devices:\n"
        + "".join(f"{major:3} {name}\n" for name, major in _BLOCK_MAJORS.items())
    )
    _write_sys(folder / "sys", state)
    _write_root(folder / LIBRARIES, version, library)


def _write_null_node(path: Path) -> None:
    """Make a node that opens and does nothing; without the right to make devices, a link to the machine's own."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, _NULL_DEVICE)
        path.chmod(0o666)  # whatever the umask
    except PermissionError:
        path.symlink_to(os.devnull)


def write_program(name: str, folder: Path) -> None:
    """Write the stand-in for the driver's program ``name`` into ``folder``.

    This process's interpreter runs it: where ``python3`` is a shell script that looks for a version, that takes a tenth
    of a second at each start. ``python3`` it is where Linux could not start the interpreter by its path.
    """
    program = folder / name
    is_plain = " " not in sys.executable and len(sys.executable) <= _LONGEST_INTERPRETER
    interpreter = sys.executable if is_plain else "/usr/bin/env python3"
    program.write_text(f"#!{interpreter}\n{Path(__file__).with_name(_PROGRAMS[name]).read_text()}")
    program.chmod(0o755)


def _list_capabilities() -> list[str]:
    """Return the lines of ``mig-minors``: the machine's two, then each GPU instance and its compute instances."""
    lines = ["config 1\n", "monitor 2\n"]
    for card in range(MAX_MINORS):
        for gpu_instance in range(_GPU_INSTANCES):
            where = f"gpu{card}/gi{gpu_instance}"
            lines.append(f"{where}/access {len(lines) + 1}\n")
            for compute_instance in range(MAX_COMPUTE_INSTANCES):
                lines.append(f"{where}/ci{compute_instance}/access {len(lines) + 1}\n")
    return lines


def _write_sys(sys: Path, state: StateLayout) -> None:
    links = sys / "bus" / "pci" / "devices"
    links.mkdir(parents=True, exist_ok=True)
    for card in state.cards[: state.n_cards]:
        address = f"{card.pci_domain:04x}:{card.pci_bus:02x}:{card.pci_device:02x}.0"
        root = _ROOTS[card.numa_node % len(_ROOTS)]
        device = sys / "devices" / root / f"{root[3:]}:01.0" / address
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{card.numa_node}\n")
        (links / address).symlink_to(Path("..", "..", "..", "devices", root, f"{root[3:]}:01.0", address))


def _write_root(libraries: Path, version: str, library: Path) -> None:
    libraries.mkdir(parents=True)
    programs = libraries.parent / "bin"
    programs.mkdir()
    for program in _PROGRAMS:
        write_program(program, programs)
    name = f"{SONAME.removesuffix('.1')}.{version}"
    shutil.copy2(library, libraries / name)
    (libraries / SONAME).symlink_to(name)
    for placeholder in _PLACEHOLDERS:
        (libraries / f"{placeholder}.{version}").touch()
        (libraries / f"{placeholder}.1").symlink_to(f"{placeholder}.{version}")
