"""The directories that dfx-mgrd loads from: base designs with ``shell.json``, and in them packages with ``accel.json``.

A package ``aes-1`` of a base ``k26_2rp`` with an image for slot 1 is ``k26_2rp/aes-1/aes-1_slot1``, with
``accel.json``, the partial image and its device tree overlay (Xilinx/dfx-mgr, ``README.md``). The daemon loads a
package into the first free slot for which it has a directory. So a package that Kerf loads must have exactly one: then
it gets there or nowhere. A *flat* base design has no slots: it is the package of its one function, and Kerf reads an
``accel.json`` in its own directory, which the daemon ignores there.

The digest of a directory is that of all its files, as ``sha256sum -- * | sha256sum`` computes it in the directory.
"""

import hashlib
import os
import re
import stat
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from kerf_dra.driver.kubeletplugin.backends.base import HardwareRefusedError

_NAMESPACE: Final = uuid.UUID("5c1c7f0e-8f1e-5d3a-9a57-1e0d7a9c2b64")
"""The namespace of the interface UUIDs of base designs (RFC 9562, version 5)."""
_DYNAMIC: Final = "PL_DFX"
"""The type of a base design with slots."""
_FLAT: Final = frozenset({"PL_FLAT", "XRT_FLAT"})
"""The types of base designs without slots."""
_MAX_SLOTS: Final = 16
"""The most slots of a described shell (``kerf_dra.api.kerf.fpga_objects.MAX_SLOTS``)."""
_MAX_DOCUMENT: Final = 64 * 1024
"""Bytes of a ``shell.json`` or ``accel.json`` that are read: the daemon's own parser takes 128 tokens."""
_MAX_FILES: Final = 64
_MAX_BYTES: Final = 256 * 1024 * 1024
"""Files of one directory, and their bytes: several times what the image of a whole Zynq UltraScale+ has."""
_MAX_LEVELS: Final = 5
"""Levels of directories in which the daemon looks for base designs."""
_MAX_FOLDERS: Final = 2048
"""Directories that are looked at: far more than the 500 that the daemon can watch."""
_CHUNK: Final = 1024 * 1024
_QUOTED: Final = 80
"""Characters of a document that messages for people quote."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
"""Names of files whose digest is taken: ``sha256sum`` writes others in another way."""
_SLOT_FOLDER: Final = re.compile(r"(.+)_slot([0-9]{1,3})")
_DEVICE: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._,:@+-]{0,127}")
"""Names of platform devices, which are parts of paths in ``/sys``."""

FolderVersion: TypeAlias = tuple[tuple[str, int, int, int, int], ...]
"""Name, inode, size, and the times of the last change of content and state of each file: another one, other files."""


_DocumentT = TypeVar("_DocumentT", bound=msgspec.Struct)


class InvalidPackageError(HardwareRefusedError):
    """A directory is no base design or package that Kerf can use; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseDesign:
    """A base design."""

    path: str
    """Below the firmware folder, such as ``k26_2rp``."""
    interface_uuid: str
    """Made of its files: other files, another interface."""
    slots: int
    """The number of its slots; of a flat one 1, which is all of it."""
    uid: int
    """The id that packages name as their parent; 0: it has none."""
    is_flat: bool = False
    """Whether it has no slots, but is the design of one function."""
    is_loaded_before: bool = False
    """Whether the daemon never loads it, because it is there from the boot (``load_base_design``)."""

    @property
    def name(self) -> str:
        """What the daemon calls it."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """What a package says of itself."""

    kind: str
    """Such as ``XRT_PL_DFX``."""
    parent: int
    """The id of the base design that it was built for; 0: it names none."""
    devices: tuple[str, ...]
    """Its platform devices, such as ``20100000000.AES128``."""


class ShellSummary(NamedTuple):
    """What a ``shell.json`` says."""

    kind: str
    slots: int
    uid: int
    is_loaded_before: bool


class _ShellFile(msgspec.Struct):
    """What is read of ``shell.json``; the daemon reads more."""

    shell_type: str = ""
    num_pl_slots: Annotated[int, msgspec.Meta(ge=0)] = 0
    uid: str | int = 0
    load_base_design: object = ""
    """``no``, or something that begins so: the daemon does not load the base design (``initBaseDesign``)."""


class _DeviceEntry(msgspec.Struct):
    dev_name: str = ""


class _AccelFile(msgspec.Struct):
    """What is read of ``accel.json``."""

    accel_type: str = ""
    pid: str | int = 0
    accel_devices: Annotated[list[_DeviceEntry], msgspec.Meta(max_length=32)] = []


def parse_shell(data: bytes) -> ShellSummary:
    """Return what a ``shell.json`` says. Raises InvalidPackageError."""
    found = _decode(data, _ShellFile, "shell.json")
    is_loaded_before = isinstance(found.load_base_design, str) and found.load_base_design[:2] in {"no", "No"}
    return ShellSummary(found.shell_type, found.num_pl_slots, _read_id(found.uid, "shell.json: uid"), is_loaded_before)


def parse_accelerator(data: bytes) -> Accelerator:
    """Return what an ``accel.json`` says. Raises InvalidPackageError."""
    found = _decode(data, _AccelFile, "accel.json")
    names = tuple(one.dev_name for one in found.accel_devices)
    for name in names:
        if not _DEVICE.fullmatch(name):
            raise InvalidPackageError(f"accel.json: {name[:_QUOTED]!r} is no name of a platform device")
    return Accelerator(kind=found.accel_type, parent=_read_id(found.pid, "accel.json: pid"), devices=names)


def find_base_folders(root: Path) -> Iterator[Path]:
    """Yield the directories below ``root`` that have a ``shell.json``, by name; none inside another."""
    seen = 0
    todo: list[tuple[Path, int]] = [(root, 0)]
    while todo:
        folder, level = todo.pop()
        seen += 1
        if level and (folder / "shell.json").is_file():
            yield folder
        elif level < _MAX_LEVELS and seen < _MAX_FOLDERS:
            todo += [(one, level + 1) for one in sorted(_list_folders(folder), reverse=True)]


def read_base(root: Path, folder: Path) -> BaseDesign:
    """Read a base design. Raises InvalidPackageError and OSError."""
    found = parse_shell(_read_document(folder / "shell.json"))
    if found.kind not in {_DYNAMIC, *_FLAT}:
        kinds = ", ".join(sorted({_DYNAMIC, *_FLAT}))
        raise InvalidPackageError(f"{folder}: shell_type is {found.kind[:_QUOTED]!r}; possible are {kinds}")
    is_flat = found.kind in _FLAT
    if not is_flat and not 1 <= found.slots <= _MAX_SLOTS:
        raise InvalidPackageError(f"{folder}: num_pl_slots is {found.slots}; 1 to {_MAX_SLOTS} are possible")
    return BaseDesign(
        path=str(folder.relative_to(root)),
        interface_uuid=str(uuid.uuid5(_NAMESPACE, compute_digest(folder))),
        slots=1 if is_flat else found.slots,
        uid=found.uid,
        is_flat=is_flat,
        is_loaded_before=found.is_loaded_before,
    )


def read_accelerator(folder: Path) -> Accelerator:
    """Read ``accel.json`` of a package's directory for a slot. Raises InvalidPackageError and OSError."""
    return parse_accelerator(_read_document(folder / "accel.json"))


def split_slot_folder(path: str) -> tuple[str, str, int] | None:
    """Return the base's path, the package's name and the slot of ``BASE/NAME/NAME_slotN``; None: it is none such."""
    base, _, rest = path.rpartition("/")
    base, _, package = base.rpartition("/")
    found = _SLOT_FOLDER.fullmatch(rest)
    if not base or found is None or found[1] != package:
        return None
    return base, package, int(found[2])


def list_slot_folders(package: Path) -> list[int]:
    """Return the slots for which a package has a directory. Raises OSError."""
    found = (_SLOT_FOLDER.fullmatch(one.name) for one in _list_folders(package))
    return sorted(int(one[2]) for one in found if one is not None and one[1] == package.name)


def read_version(folder: Path) -> FolderVersion:
    """Return what changes with the files of a directory. Raises InvalidPackageError and OSError."""
    return tuple(
        (name, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns) for name, found in _list_files(folder)
    )


def compute_digest(folder: Path) -> str:
    """Return the digest of a directory's files, directories in it left out. Raises InvalidPackageError and OSError."""
    lines = hashlib.sha256()
    for name, found in _list_files(folder):
        lines.update(f"{_digest_file(folder / name, found.st_size)}  {name}\n".encode())
    return lines.hexdigest()


def _list_files(folder: Path) -> Sequence[tuple[str, os.stat_result]]:
    """Return the files of a directory by name, in the order of the bytes."""
    found: list[tuple[str, os.stat_result]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) or entry.name.startswith("."):
                continue  # a shell's * leaves out what begins with a dot
            if not stat.S_ISREG(status.st_mode):
                raise InvalidPackageError(f"{folder}: {entry.name!r} is no file: write the file itself there")
            if not _NAME.fullmatch(entry.name):
                raise InvalidPackageError(f"{folder}: the name {entry.name!r} has other signs than letters and ._+-")
            found.append((entry.name, status))
            if len(found) > _MAX_FILES:
                raise InvalidPackageError(f"{folder} has more than {_MAX_FILES} files")
    if (size := sum(status.st_size for _, status in found)) > _MAX_BYTES:
        raise InvalidPackageError(f"{folder} has {size} bytes in files; at most {_MAX_BYTES} are read")
    return sorted(found)


def _digest_file(path: Path, size: int) -> str:
    digest, count = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while count <= size and (chunk := stream.read(_CHUNK)):
            count += len(chunk)
            digest.update(chunk)
    if count != size:
        raise InvalidPackageError(f"{path} changes while it is read")
    return digest.hexdigest()


def _list_folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # it goes meanwhile, or may not be read
        return []


def _read_document(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        data = stream.read(_MAX_DOCUMENT + 1)
    if len(data) > _MAX_DOCUMENT:
        raise InvalidPackageError(f"{path} has more than {_MAX_DOCUMENT} bytes")
    return data


def _decode(data: bytes, type_: type[_DocumentT], name: str) -> _DocumentT:
    try:
        return msgspec.json.decode(data, type=type_, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPackageError(f"{name} cannot be read: {error}") from error


def _read_id(value: str | int, where: str) -> int:
    """Return an id, which the daemon reads as hexadecimal digits."""
    try:
        return int(str(value) or "0", 16)
    except ValueError:
        raise InvalidPackageError(f"{where}: {str(value)[:_QUOTED]!r} is no hexadecimal number") from None
