"""The image files: which of them are what their descriptions say, and their bits for the card.

A file lies in a folder that the administrator fills, or was fetched into the cache. It is checked before it is stored
in the cache, when its description is read, so that no function is offered whose image is wrong, and again from the
very bytes that are loaded.
"""

import ctypes
import hashlib
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.families.fpga.descriptions import ImageReference
from kerf_dra.driver.families.fpga.refused_images import ImageRefusal
from kerf_dra.driver.kubeletplugin.backends.base import HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.fpga.images.cache import ImageCache
from kerf_dra.driver.kubeletplugin.backends.fpga.images.header import ImageFormat, ImageHeader, ReadAt
from kerf_dra.driver.kubeletplugin.backends.fpga.images.signatures import KeyRing

MAX_BYTES: Final = 256 * 1024 * 1024
"""Several times the configuration of a large Agilex FPGA: a load reads its file into memory, of which the plugin's pod
has 512 MiB."""
_CHUNK: Final = 1024 * 1024

_Version: TypeAlias = tuple[int, int, int, int]
"""Inode, size, and the times of the last change of content and state: another one, another file."""


class ImageRefusedError(HardwareRefusedError):
    """An image file cannot be loaded; ``reason`` is one word for it."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBits:
    """The content of a checked image file, in memory of this process that another one can be given."""

    descriptor: int
    """The descriptor of a file in memory (memfd_create(2)) with the content."""
    data: mmap.mmap
    """The content."""
    offset: int
    """Where the bits for the card begin."""

    @property
    def size(self) -> int:
        """The number of bytes for the card."""
        return len(self.data) - self.offset

    @property
    def address(self) -> int:
        """The address of the first byte for the card in this process, valid as long as ``data`` lives unchanged."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.data, self.offset))


class ImageFiles:
    """The image files of one node."""

    def __init__(self, folder: Path, cache: ImageCache, keys: KeyRing, read_header: ImageFormat) -> None:
        """``folder`` has the files that an administrator puts there; ``read_header`` knows their format."""
        self._folder = folder
        self._cache = cache
        self._keys = keys
        self._read_header = read_header
        self._checked: dict[ImageReference, tuple[_Version, ImageRefusal | ImageHeader]] = {}

    def find_fault(self, image: ImageReference) -> ImageRefusal | None:
        """Return why the image's file cannot be loaded; None: it is as described. Unchanged files are read once."""
        found = self._inspect(image)
        return found if isinstance(found, ImageRefusal) else None

    def find_header(self, image: ImageReference) -> ImageHeader | None:
        """Return what the image's file says of itself; None: it cannot be loaded. Unchanged files are read once."""
        found = self._inspect(image)
        return found if isinstance(found, ImageHeader) else None

    @contextmanager
    def open_bits(self, image: ImageReference) -> Iterator[ImageBits]:
        """Read the image's file into memory and check what was read; the memory is given back after the context.

        Raises ImageRefusedError.
        """
        with ExitStack() as stack:
            source = stack.enter_context(self._open(image))
            size = os.fstat(source).st_size
            try:
                memory = os.memfd_create("image")
                stack.callback(os.close, memory)
                os.truncate(memory, max(size, 1))  # no mapping is empty
                data = mmap.mmap(memory, max(size, 1))
                with os.fdopen(os.dup(source), "rb", buffering=0) as stream, memoryview(data) as view:
                    done = 0
                    while done < size and (count := stream.readinto(view[done:size])):
                        done += count
                    digest = hashlib.sha256(view[:size]).hexdigest()
            except OSError as error:
                raise ImageRefusedError("Unreadable", f"image {image.name} cannot be read: {error.strerror}") from error
            _check_digest(digest, image)
            if (fault := self._keys.find_fault(image)) is not None:
                raise ImageRefusedError(*fault)
            header = self._check_header(lambda offset, length: data[offset : offset + length], size, image)
            yield ImageBits(descriptor=memory, data=data, offset=header.bits_offset)

    def check(self, image: ImageReference, descriptor: int) -> ImageRefusal | None:
        """Return what is wrong with the file of ``descriptor``, from its present offset, as that of ``image``."""
        found = self._check(image, descriptor)
        return found if isinstance(found, ImageRefusal) else None

    def _inspect(self, image: ImageReference) -> ImageRefusal | ImageHeader:
        try:
            with self._open(image) as descriptor:
                version = _read_version(descriptor)
                known = self._checked.get(image)
                if known is None or known[0] != version:
                    known = self._checked[image] = (version, self._check(image, descriptor))
                return known[1]
        except ImageRefusedError as error:
            return ImageRefusal(error.reason, str(error))

    def _check(self, image: ImageReference, descriptor: int) -> ImageRefusal | ImageHeader:
        """Return what the file says of itself, or what is wrong with it."""
        if (fault := self._keys.find_fault(image)) is not None:
            return fault
        try:
            size = _check_content(descriptor, image)
            return self._check_header(lambda offset, length: os.pread(descriptor, length, offset), size, image)
        except OSError as error:
            return ImageRefusal("Unreadable", f"image {image.name} cannot be read: {error.strerror}")
        except ImageRefusedError as error:
            return ImageRefusal(error.reason, str(error))

    def _check_header(self, read_at: ReadAt, size: int, image: ImageReference) -> ImageHeader:
        """Check that the image is for its interface, and the function that it is said to be."""
        try:
            header = self._read_header(read_at, size)
        except KerfError as error:
            raise ImageRefusedError("WrongFormat", f"image {image.name}: {error}") from error
        if header.interface_uuid != image.interface_uuid:
            raise ImageRefusedError(
                "WrongInterface",
                f"image {image.name} was built for the interface {header.interface_uuid}, not for "
                f"{image.interface_uuid}",
            )
        if header.afu_id != image.afu_id:
            raise ImageRefusedError(
                "WrongFunction",
                f"image {image.name} is the accelerator {header.afu_id}, but is described as {image.afu_id}",
            )
        return header

    @contextmanager
    def _open(self, image: ImageReference) -> Iterator[int]:
        """Open the image's file. Raises ImageRefusedError: it is not there, outside of the folder, or too large."""
        if image.file:
            with _open(self._folder, image) as descriptor:
                yield descriptor
            return
        with ExitStack() as stack:
            try:
                descriptor = stack.enter_context(self._cache.open(image.sha256))
            except OSError as error:
                message = f"image {image.name} has not been fetched: {error.strerror or error}"
                raise ImageRefusedError("NotFetched", message) from error
            _check_size(descriptor, image)
            yield descriptor


@contextmanager
def _open(folder: Path, image: ImageReference) -> Iterator[int]:
    """Open the image's file. Raises ImageRefusedError: it is not there, outside of the folder, or too large."""
    try:
        root = folder.resolve(strict=True)
        path = (root / image.file).resolve(strict=True)
        if not path.is_relative_to(root):
            raise ImageRefusedError("Outside", f"image {image.name} is a link that leads out of {folder}")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        reason = getattr(error, "strerror", None) or str(error)
        raise ImageRefusedError("Missing", f"image {image.name} cannot be opened in {folder}: {reason}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ImageRefusedError("NoFile", f"image {image.name} is not a file")
        _check_size(descriptor, image)
        yield descriptor
    finally:
        os.close(descriptor)


def _check_size(descriptor: int, image: ImageReference) -> None:
    size = os.fstat(descriptor).st_size
    if size > MAX_BYTES:
        raise ImageRefusedError("TooLarge", f"image {image.name} has {size} bytes; at most {MAX_BYTES} are read")


def _read_version(descriptor: int) -> _Version:
    found = os.fstat(descriptor)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _check_content(descriptor: int, image: ImageReference) -> int:
    """Check that a file is the one that was described, and return its size. Raises OSError, ImageRefusedError."""
    digest, size = hashlib.sha256(), 0
    with os.fdopen(os.dup(descriptor), "rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            digest.update(chunk)
    _check_digest(digest.hexdigest(), image)
    return size


def _check_digest(digest: str, image: ImageReference) -> None:
    if digest != image.sha256:
        raise ImageRefusedError(
            "WrongDigest",
            f"image {image.name} is another file than the one that was described: its SHA-256 is {digest}, not "
            f"{image.sha256}",
        )
