"""The guest: its first files, and one run of it that ends in any case."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.kernel_dfl.packages import NoKernelError, find_loader

RESULTS: Final = "/dev/ttyS1"
"""The device to which a program in the guest writes what comes out as ``GuestRun.results``."""
_TAIL: Final = 20
"""The lines of the guest's console that are shown where it did not end by itself."""
_LAST: Final = "kerf-init: the command ended with "
_MACHINE: Final = (
    *("-nodefaults", "-no-user-config", "-nographic", "-vga", "none", "-no-reboot", "-smp", "1", "-m", "1024"),
    # Emulated on every machine: under KVM the kernel has died where a machine was itself a guest. The guest's time
    # goes by instructions, so a busy machine makes no time-out, and waits for a time-out of the kernel take no time.
    *("-accel", "tcg", "-icount", "shift=2,sleep=off", "-rtc", "clock=vm", "-cpu", "max"),
    # The cards: devices whose BAR 0 is memory.
    *("-device", "bochs-display,vgamem=16M,romfile=") * 2,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestRun:
    """What a run of the guest has left."""

    results: str
    fault: str
    """Why the command did not end as it should, with the end of the console; empty: it did."""


def pack_archive(files: Mapping[str, bytes]) -> bytes:
    """Pack files, by their paths, into the archive that a kernel unpacks as its first root (cpio, ``newc``).

    The format is that of Linux ``Documentation/driver-api/early-userspace/buffer-format.rst``.
    """
    folders = {str(parent) for name in files for parent in Path(name).parents if str(parent) != "."}
    packed = [_pack_entry(name, 0o040755, b"") for name in sorted(folders)]
    packed += [_pack_entry(name, 0o100755, content) for name, content in files.items()]
    return b"".join([*packed, _pack_entry("TRAILER!!!", 0, b"")])


def _pack_entry(name: str, mode: int, content: bytes) -> bytes:
    fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(f"{field:08x}".encode() for field in fields) + name.encode() + b"\0"
    return b"".join(part + bytes(-len(part) % 4) for part in (head, content))


def write_command(folder: Path, environment: Mapping[str, str], command: Sequence[str]) -> bytes:
    """Return what ``init.c`` reads of the command to run, in ``folder`` of this machine."""
    words = [str(folder), *(f"{name}={value}" for name, value in environment.items()), "", *command]
    return "\n".join(words).encode()


def find_kernel(root: Path) -> Path:
    """Return the kernel of the packages. Raises NoKernelError."""
    found = sorted(root.glob("boot/vmlinuz-*"))
    if not found:
        raise NoKernelError(f"{root}/boot has no kernel: remove {root}, and start again")
    return found[-1]


def build_qemu_command(root: Path, files: Path, folder: Path) -> list[str]:
    """Return the command that runs the guest with the archive ``files``; its two consoles are files in ``folder``."""
    [modules] = root.glob("usr/lib/*-linux-gnu/qemu")
    return [
        *("env", f"QEMU_MODULE_DIR={modules}"),  # it looks beside the program, which is the loader here
        *find_loader(root),
        *(str(root / "usr/bin/qemu-system-x86_64"), "-L", str(root / "usr/share/qemu")),
        *("-L", str(root / "usr/share/seabios"), *_MACHINE),
        *("-kernel", str(find_kernel(root)), "-initrd", str(files)),
        *("-append", "console=ttyS0 quiet panic=-1 oops=panic mitigations=off"),
        *("-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"),
        *("-serial", f"file:{folder / 'console'}", "-serial", f"file:{folder / 'results'}"),
    ]


def run_guest(command: Sequence[str], folder: Path, limit_s: float) -> GuestRun:
    """Run the guest until it is switched off, ``limit_s`` seconds at most."""
    said, fault = b"", ""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            fault = f"the guest was still running after {limit_s:g} s and was ended"
        finally:
            process.kill()
        if fault:
            said, _ = process.communicate()
    console = _read(folder / "console")
    if not fault and f"{_LAST}0\n" not in console:
        fault = "the guest ended before its command did" if _LAST not in console else "the command failed"
    if fault:
        lines = [*console.splitlines(), *said.decode(errors="replace").splitlines()][-_TAIL:]
        fault = "\n".join([f"{fault}; the end of its console:", *lines])
    return GuestRun(results=_read(folder / "results"), fault=fault)


def _read(path: Path) -> str:
    text = path.read_bytes().decode(errors="replace") if path.exists() else ""
    return text.replace("\r\n", os.linesep)
