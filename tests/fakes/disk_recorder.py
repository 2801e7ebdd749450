"""A disk that records every write and every flush, so that a power cut can be tried at each of them.

The disk is a file of a file system in user space (FUSE), under a loop device with ext4 on it: what the kernel sends to
a disk arrives here as writes and flushes, in order. A disk may lose, after a power cut, any of the writes since its
last flush, and none before (Documentation/block/writeback_cache_control.rst of Linux).

This speaks the kernel's protocol itself (include/uapi/linux/fuse.h, version 7.31), as far as one file needs. Needs
Linux, root, /dev/fuse, loop devices and mkfs.ext4.
"""

import ctypes
import os
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

SIZE: Final = 24 << 20
"""Bytes of the disk: ext4 with blocks of 4 KiB has a journal from about 16 MiB on."""
NEEDS: Final = (Path("/dev/fuse"), Path("/dev/loop-control"), Path("/sbin/mkfs.ext4"))

_ROOT, _FILE = 1, 2
"""Numbers of the two nodes: the folder and the disk in it."""
_NAME: Final = b"disk"
_BUFFER: Final = (1 << 20) + 4096
"""Bytes of the longest request: a write of 1 MiB and its headers."""
_MAX_WRITE: Final = 128 << 10
_LOOKUP, _FORGET, _GETATTR, _SETATTR, _OPEN, _READ, _WRITE, _RELEASE = 1, 2, 3, 4, 14, 15, 16, 18
_FSYNC, _FLUSH, _INIT, _INTERRUPT, _BATCH_FORGET = 20, 25, 26, 36, 42
_DONE: Final = frozenset({_RELEASE, _FSYNC, _FLUSH})
_SILENT: Final = frozenset({_FORGET, _BATCH_FORGET, _INTERRUPT})
_ENOSYS, _ENOENT = 38, 2
_MEMORY: Final = Path("/dev/shm")
"""Copies of the disk are kept in memory: hundreds are made, and none is to survive anything."""
_YEAR_S: Final = 1 << 25
"""How long the kernel may keep what it knows of the nodes: they do not change."""


class Write(NamedTuple):
    """A write of the kernel; ``data`` None: a flush."""

    offset: int
    data: bytes | None


class RecordingDisk:
    """The disk of one test: its first content, and what was written since."""

    def __init__(self, content: bytes) -> None:
        self.first_content = content
        self.log: list[Write] = []
        self._content = bytearray(content)

    def content_after_cut(self, at: int, kept: Sequence[int] = ()) -> bytes:
        """Return what is on the disk after a power cut at entry ``at`` of the log.

        Of the writes since the last flush before it only those in ``kept`` are there, by their place among them.
        """
        flushed = max((index + 1 for index in range(at) if self.log[index].data is None), default=0)
        pending = [write for write in self.log[flushed:at] if write.data is not None]
        content = bytearray(self.first_content)
        for write in (*self.log[:flushed], *(pending[index] for index in sorted(kept) if index < len(pending))):
            if write.data is not None:
                content[write.offset : write.offset + len(write.data)] = write.data
        return bytes(content)

    def count_pending(self, at: int) -> int:
        """Count the writes since the last flush before entry ``at``."""
        flushed = max((index + 1 for index in range(at) if self.log[index].data is None), default=0)
        return at - flushed

    def serve(self, device: int) -> None:
        """Answer the kernel's requests from /dev/fuse, until it is unmounted."""
        while True:
            try:
                request = os.read(device, _BUFFER)
            except OSError:  # ENODEV: unmounted
                return
            _, operation, unique, node = struct.unpack_from("<IIQQ", request)
            if operation in _SILENT:
                continue
            answer = self._answer(operation, node, request[40:])
            error, body = (-answer, b"") if isinstance(answer, int) else (0, answer)
            os.write(device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)

    def _answer(self, operation: int, node: int, body: bytes) -> bytes | int:
        """Return the body of the answer, or the number of an error."""
        if operation == _INIT:
            major, _, readahead, _ = struct.unpack_from("<IIII", body)
            return struct.pack("<IIIIHHIIHH", major, 31, readahead, 0, 12, 9, _MAX_WRITE, 1, 32, 0).ljust(64, b"\0")
        if operation == _LOOKUP:
            if body.rstrip(b"\0") != _NAME:
                return _ENOENT
            return struct.pack("<QQQQII", _FILE, 0, _YEAR_S, _YEAR_S, 0, 0) + _attributes(_FILE)
        if operation in (_GETATTR, _SETATTR):
            return struct.pack("<QII", _YEAR_S, 0, 0) + _attributes(node)
        if operation == _OPEN:
            return bytes(16)
        if operation == _READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            return bytes(self._content[offset : offset + size])
        if operation == _WRITE:
            _, offset, size = struct.unpack_from("<QQI", body)
            data = body[40 : 40 + size]
            self._content[offset : offset + size] = data
            self.log.append(Write(offset, data))
            return struct.pack("<II", size, 0)
        if operation == _FSYNC:
            self.log.append(Write(0, None))
        return b"" if operation in _DONE else _ENOSYS


def _attributes(node: int) -> bytes:
    mode, size = (0o100600, SIZE) if node == _FILE else (0o40700, 0)
    return struct.pack("<6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


@contextmanager
def recording_disk(folder: Path) -> Iterator[tuple[RecordingDisk, Path]]:
    """Mount a new disk below ``folder``; yields it and where its file system is.

    This process must not map files of that file system: a page fault would wait for the thread that serves the disk.
    """
    disk_folder, root = folder / "fuse", folder / "mounted"
    disk_folder.mkdir()
    root.mkdir()
    disk = RecordingDisk(make_file_system(folder / "new.img"))
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    server = threading.Thread(target=disk.serve, args=(device,), daemon=True)
    try:
        _mount_fuse(disk_folder, device)
        server.start()
        try:
            # No commit but those that are asked for: what is tried must not hang on the clock.
            _run("mount", "-o", "loop,commit=600", str(disk_folder / _NAME.decode()), str(root))
            try:
                yield disk, root
            finally:
                _run("umount", str(root))
        finally:
            _run("umount", "--lazy", str(disk_folder))
            server.join(timeout=240)
    finally:
        os.close(device)


@contextmanager
def mounted_copy(content: bytes, folder: Path) -> Iterator[Path]:
    """Mount a disk of this content, as the next boot does: ext4 replays its journal.

    Each has a file of its own: a loop device that somebody still looks at keeps what it has read of the one before.
    """
    with TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else folder) as name:
        image, root = Path(name) / "disk.img", Path(name) / "mounted"
        image.write_bytes(content)
        root.mkdir()
        _run("mount", "-o", "loop", str(image), str(root))
        try:
            yield root
        finally:
            _run("umount", str(root))


def make_file_system(image: Path) -> bytes:
    """Return the content of a disk with an empty ext4."""
    with image.open("wb") as file:
        file.truncate(SIZE)
    _run("mkfs.ext4", "-q", "-F", "-b", "4096", str(image))
    return image.read_bytes()


def _mount_fuse(folder: Path, device: int) -> None:
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"kerf-test", bytes(folder), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=240)
