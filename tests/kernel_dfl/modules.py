"""The kernel modules of the guest: its DFL drivers, built from the kernel's source, and the cards' own module.

Debian's kernel has no driver for FPGAs (``CONFIG_FPGA`` is off), but its source has them all.
"""

import hashlib
import lzma
import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.kernel_dfl.packages import NoKernelError

CARD: Final = Path(__file__).with_name("card")
_DRIVERS: Final = (
    *("fpga-mgr", "fpga-bridge", "fpga-region", "dfl"),
    *("dfl-fme", "dfl-fme-mgr", "dfl-fme-br", "dfl-fme-region", "dfl-afu", "dfl-pci"),
)
"""Each after those that it needs."""
_OPTIONS: Final = (
    *("FPGA", "FPGA_BRIDGE", "FPGA_REGION", "FPGA_DFL", "FPGA_DFL_FME", "FPGA_DFL_FME_MGR"),
    *("FPGA_DFL_FME_BRIDGE", "FPGA_DFL_FME_REGION", "FPGA_DFL_AFU", "FPGA_DFL_PCI"),
)
_TRANSPORT: Final = ("netfs", "9pnet", "9pnet_virtio", "9p")
"""Modules of the kernel's package for the machine's files."""
_BUILD_S: Final = 600
"""The time limit of a build, which takes 20 s on two cores."""
_TAIL: Final = 15
"""The lines of a failed build that are shown."""


def build_modules(root: Path, cache: Path) -> list[Path]:
    """Return the guest's modules in the order of their loading, built in ``cache`` if needed. Raises NoKernelError."""
    return [
        *_unpack_transport(root, cache),
        _build(root, cache, CARD, ("kerf_dfl_card",), ())[0],
        *_build(root, cache, _unpack_source(root, cache), _DRIVERS, [f"CONFIG_{one}=m" for one in _OPTIONS]),
    ]


def build_init(cache: Path) -> Path:
    """Return the guest's first program, built in ``cache`` if needed. Raises NoKernelError."""
    source = Path(__file__).with_name("init.c")
    program = cache / f"init-{_key([source])}"
    if not program.exists():
        partial = program.with_suffix(f".{os.getpid()}")
        _call(("cc", "-O1", "-Wall", "-static", "-o", str(partial), str(source)))
        partial.rename(program)
    return program


def _build(root: Path, cache: Path, source: Path, names: Sequence[str], options: Sequence[str]) -> list[Path]:
    folder = cache / f"{names[-1]}-{_key(sorted(source.glob('*.[ch]')))}"
    if not folder.exists():
        partial = folder.with_suffix(f".{os.getpid()}")
        shutil.copytree(source, partial)
        headers = _adapt_headers(root)
        # Without debugging information (BTF), which needs more programs.
        _call(
            ("make", "-C", str(headers), f"M={partial}", "CC=cc", "CONFIG_DEBUG_INFO_BTF_MODULES=", *options, "modules")
        )
        partial.rename(folder)
    return [folder / f"{name}.ko" for name in names]


def _adapt_headers(root: Path) -> Path:
    """Let the packages' headers lie where they were unpacked, not in ``/usr/src``."""
    [headers] = root.glob("usr/src/linux-headers-*-amd64")
    [common] = root.glob("usr/src/linux-headers-*-common")
    (headers / "Makefile").write_text(f"include {common}/Makefile\n")
    return headers


def _unpack_source(root: Path, cache: Path) -> Path:
    folder = cache / "source"
    drivers = folder / "drivers/fpga"
    if not drivers.exists():
        [archive] = root.glob("usr/src/linux-source-*.tar.xz")
        partial = cache / f"source.{os.getpid()}"
        with tarfile.open(archive) as tar:
            for member in tar:
                name = member.name.partition("/")[2]
                if name.startswith("drivers/fpga/") and member.isfile():
                    tar.extract(member.replace(name=name), partial, filter="data")
        partial.rename(folder)
    return drivers


def _unpack_transport(root: Path, cache: Path) -> list[Path]:
    folder = cache / "transport"
    folder.mkdir(exist_ok=True)
    found = []
    for name in _TRANSPORT:
        packed = [
            *root.glob(f"lib/modules/*/kernel/**/{name}.ko*"),
            *root.glob(f"usr/lib/modules/*/kernel/**/{name}.ko*"),
        ]
        if not packed:
            raise NoKernelError(
                f"the kernel's package has no module {name}, by which the guest reads this machine's files"
            )
        content = packed[0].read_bytes()
        module = folder / f"{name}.ko"
        module.write_bytes(lzma.decompress(content) if packed[0].suffix == ".xz" else content)
        found.append(module)
    return found


def _key(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _call(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    except FileNotFoundError as error:
        raise NoKernelError(f"{command[0]} is needed: install a C compiler, libc's static library and make") from error
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-_TAIL:])
        raise NoKernelError(f"{' '.join(command)} failed:\n{said}")
