"""The calls to the kernel's DFL driver: partial reconfiguration, reset, clearing of errors, and what it says of a port.

Numbers and structures are those of Linux ``include/uapi/linux/fpga-dfl.h``. Every OSError becomes one of Kerf's errors
here, with what can be done about it.

**A port in reset** has no ``afu_id``: the driver answers EBUSY. It counts what puts a port into reset, and a load that
fails, or a reset that the card does not answer within 1 ms, leaves that count above 0; each later load and reset adds
one and takes one away (``disable_count`` in Linux 6.12 ``drivers/fpga/dfl-afu-main.c``). So only binding the driver
again ends such a reset. A load has the port in reset, too, while the FPGA manager's state says so, but for a
moment at its begin and end; a reset alone never shows, as the driver has the port locked for it.
"""

import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, HardwareBusyError, HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.dfl.sysfs import CardFiles, DflCardReading, PortReading, parse_id
from kerf_dra.driver.kubeletplugin.backends.fpga.images.files import ImageBits
from kerf_dra.driver.kubeletplugin.backends.kernel_files import read_attribute

PORT_RESET: Final = 0xB640
"""DFL_FPGA_PORT_RESET: _IO(0xB6, 0x40); its argument must be 0."""
FME_PORT_PR: Final = 0xB680
"""DFL_FPGA_FME_PORT_PR: _IO(0xB6, 0x80), with a pointer to PORT_PR."""
FME_PORT_RELEASE: Final = 0x4004B681
"""DFL_FPGA_FME_PORT_RELEASE: _IOW(0xB6, 0x81, int), with a pointer to the port's id."""
FME_PORT_ASSIGN: Final = 0x4004B682
"""DFL_FPGA_FME_PORT_ASSIGN: _IOW(0xB6, 0x82, int), likewise."""
_PORT_ID: Final = struct.Struct("=i")
PORT_PR: Final = struct.Struct("=IIIIQ")
"""struct dfl_fpga_fme_port_pr: argsz, flags (0), port_id, buffer_size, buffer_address."""

_LOAD_CAUSES: Final[Mapping[str, tuple[str, type[KerfError]]]] = MappingProxyType(
    {
        "reconfig operation error": ("the card refused an operation of the load", HardwareBusyError),
        "reconfig CRC error": ("the image's checksum was wrong when it arrived at the card", HardwareBusyError),
        "reconfig incompatible image": ("the card says that the image was built for another one", HardwareRefusedError),
        "reconfig IP protocol error": ("the card's loader reports a protocol error", HardwareBusyError),
        "reconfig fifo overflow error": ("the card's loader got more than it could take", HardwareBusyError),
    }
)
"""By line of the FPGA manager's status (``Documentation/ABI/testing/sysfs-class-fpga-manager``): what it means, and
whether a later try may succeed. The image itself has been checked before."""
_ABSENT: Final = frozenset({errno.ENODEV, errno.ENXIO, errno.ENOENT})
_FORBIDDEN: Final = frozenset({errno.EPERM, errno.EACCES, errno.EROFS})
_PAUSE_S: Final = 0.01
"""The seconds between the two readings that find a port kept in reset: the moments at the begin and the end of a load
that the FPGA manager does not show are of some instructions of the kernel, and this is 1,000 times as long."""
_MAX_ID: Final = 4096
"""An attribute is at most a page."""
BIND_AGAIN: Final = "end the claims that have the card, then unbind and bind its driver, dfl-pci (docs/fpga.md)"
"""What to do about a port that stays as it is until the driver is bound again."""


class SystemCalls(Protocol):
    """The system calls with which cards are changed; each raises OSError."""

    def open(self, path: str, flags: int) -> int:
        """Open a file, and return its descriptor."""
        ...

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        ...

    def ioctl(self, descriptor: int, request: int, argument: bytes | int) -> None:
        """Make a request to a device's driver: with an integer, or with a pointer to some bytes."""
        ...

    def write(self, descriptor: int, data: bytes) -> None:
        """Write to a file at once."""
        ...

    def read(self, descriptor: int, size: int) -> bytes:
        """Read at most so many bytes of a file at once."""
        ...


class LinuxSystemCalls:
    """The system calls themselves."""

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def ioctl(self, descriptor: int, request: int, argument: bytes | int) -> None:
        fcntl.ioctl(descriptor, request, argument)

    def write(self, descriptor: int, data: bytes) -> None:
        os.write(descriptor, data)

    def read(self, descriptor: int, size: int) -> bytes:
        return os.read(descriptor, size)


class PortInUseError(KerfError):
    """A process has the port's device node open."""


class PortInResetError(HardwareBusyError):
    """The driver keeps the port in reset, and no load goes on: nothing reaches its function until the driver was bound
    again.
    """


class DflDriver:
    """The driver of all cards."""

    def __init__(self, files: CardFiles, calls: SystemCalls) -> None:
        self._files = files
        self._calls = calls

    @contextmanager
    def hold_port(self, card: DflCardReading, port: PortReading) -> Iterator[int]:
        """Keep every process from opening the port's node, and yield the node's descriptor.

        When the last descriptor is closed, the kernel resets the port. Raises PortInUseError where a process has the
        node open already, and as ``program`` does.
        """
        node = self._files.find_port_node(port)
        try:
            descriptor = self._calls.open(str(node), os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise PortInUseError(f"/dev/{node.name} is open") from error
            raise _translate(error, f"/dev/{node.name} cannot be opened", card) from error
        try:
            yield descriptor
        finally:
            self._calls.close(descriptor)

    def read_afu_id(self, card: DflCardReading, port: PortReading) -> str:
        """Return the id of the function in a port's slot, as a UUID; empty: there is none, or it makes no sense.

        Raises PortInResetError, HardwareBusyError during a load and when the id cannot be read, and CardAbsentError.
        """
        self._files.check_port(card, port)
        text = self._try_to_read_id(card, port)
        if text is None and self._files.is_settled(card):
            time.sleep(_PAUSE_S)
            text = self._try_to_read_id(card, port)
            if text is None and self._files.is_settled(card):
                raise PortInResetError(
                    f"slot {port.slot} of {card.pci_address} is held in reset since a load or a reset of it failed: "
                    f"{BIND_AGAIN}"
                )
        if text is None:
            raise HardwareBusyError(f"slot {port.slot} of {card.pci_address} is being loaded")
        return parse_id(text)

    def reset_port(self, card: DflCardReading, port: PortReading, descriptor: int) -> None:
        """Reset the port and the function behind it, which forgets its state. Raises as ``program`` does."""
        try:
            self._calls.ioctl(descriptor, PORT_RESET, 0)
        except OSError as error:
            found = _translate(error, f"/dev/dfl-port.{port.number} cannot be reset", card)
            raise type(found)(f"{found}{self._describe_after(card, port)}") from error

    def program(self, card: DflCardReading, port: PortReading, bits: ImageBits) -> None:
        """Load ``bits`` into the slot of ``port``: by the kernel's limits this ends within half a minute.

        Raises HardwareBusyError, HardwareRefusedError or CardAbsentError, with the card's own word on the cause.
        """
        node = self._files.find_fme_node(card)
        what = f"the image cannot be loaded through /dev/{node.name} into slot {port.slot}"
        request = PORT_PR.pack(PORT_PR.size, 0, port.slot, bits.size, bits.address)
        with self._open_engine(card) as descriptor:
            try:
                self._calls.ioctl(descriptor, FME_PORT_PR, request)
            except OSError as error:
                found = self._explain_failure(card, what) if error.errno == errno.EIO else _translate(error, what, card)
                raise type(found)(f"{found}{self._describe_after(card, port)}") from error

    def release_port(self, card: DflCardReading, slot: int) -> None:
        """Take a port from the physical function, so that a virtual one can have it. Raises as ``program`` does."""
        self._move_port(card, slot, FME_PORT_RELEASE, "released")

    def assign_port(self, card: DflCardReading, slot: int) -> None:
        """Give a port back to the physical function. Raises as ``program`` does."""
        self._move_port(card, slot, FME_PORT_ASSIGN, "given back")

    def write_attribute(self, card: DflCardReading, path: Path, text: str) -> None:
        """Write to an attribute in ``/sys``. Raises as ``program`` does."""
        try:
            self._write(path, text)
        except OSError as error:
            raise _translate(error, f"{text} cannot be written to {path}", card) from error

    def clear_port_errors(self, card: DflCardReading, port: PortReading, errors: int) -> None:
        """Have the port forget its logged errors, which must be exactly ``errors``. Raises as ``program`` does."""
        try:
            self._write(self._files.find_port_folder(card, port) / "errors/errors", f"{errors:#x}")
        except OSError as error:
            what = f"the errors {errors:#x} of slot {port.slot} cannot be cleared"
            if error.errno == errno.EINVAL:  # another one was logged meanwhile
                raise HardwareBusyError(f"{what}: the port has logged another one") from error
            raise _translate(error, what, card) from error

    def _try_to_read_id(self, card: DflCardReading, port: PortReading) -> str | None:
        """Return the text of a port's ``afu_id``, empty where the port has none; None: the port is in reset."""
        path = self._files.find_port_folder(card, port) / "afu_id"
        try:
            descriptor = self._calls.open(str(path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                return self._calls.read(descriptor, _MAX_ID).partition(b"\0")[0].decode(errors="replace").strip()
            finally:
                self._calls.close(descriptor)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return None
        return read_attribute(self._files.root, path) or ""  # which says what any other error means

    def _describe_after(self, card: DflCardReading, port: PortReading) -> str:
        """Return what a load or a reset that failed has left of a port, as the end of its message; empty: no more than
        the failure itself.
        """
        try:
            self.read_afu_id(card, port)
        except PortInResetError as error:
            return f"; {error}"
        except KerfError:  # what is wrong besides is reported by the next call
            pass
        return ""

    def _move_port(self, card: DflCardReading, slot: int, request: int, done: str) -> None:
        with self._open_engine(card) as descriptor:
            try:
                self._calls.ioctl(descriptor, request, _PORT_ID.pack(slot))
            except OSError as error:
                raise _translate(error, f"slot {slot} of {card.pci_address} cannot be {done}", card) from error

    def _write(self, path: Path, text: str) -> None:
        descriptor = self._calls.open(str(path), os.O_WRONLY | os.O_CLOEXEC)
        try:
            self._calls.write(descriptor, f"{text}\n".encode())
        finally:
            self._calls.close(descriptor)

    @contextmanager
    def _open_engine(self, card: DflCardReading) -> Iterator[int]:
        """Open the card's management engine, and yield its descriptor."""
        node = self._files.find_fme_node(card)
        try:
            descriptor = self._calls.open(str(node), os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise _translate(error, f"/dev/{node.name} cannot be opened", card) from error
        try:
            yield descriptor
        finally:
            self._calls.close(descriptor)

    def _explain_failure(self, card: DflCardReading, what: str) -> KerfError:
        """Return the error for a load of which the card said that it failed."""
        lines = [line.strip() for line in self._files.read_load_status(card).splitlines()]
        known = [_LOAD_CAUSES[line] for line in lines if line in _LOAD_CAUSES]
        if not known:
            return HardwareBusyError(f"{what}: the card reports an error and no cause")
        kind = HardwareRefusedError if any(kind is HardwareRefusedError for _, kind in known) else HardwareBusyError
        return kind(f"{what}: {'; '.join(cause for cause, _ in known)}")


def _translate(error: OSError, what: str, card: DflCardReading) -> KerfError:
    """Return Kerf's error for a system call that failed: what can be done, by its error number."""
    number = error.errno
    if number in _ABSENT:
        return CardAbsentError(f"{what}: card {card.pci_address} is not there, or its driver is not loaded")
    if number == errno.EBUSY:
        return HardwareBusyError(f"{what}: another program has it, such as fpgad, fpgaconf or fpgasupdate")
    if number == errno.ETIMEDOUT:
        return HardwareBusyError(f"{what}: the card did not answer the driver in time")
    if number == errno.EINVAL:
        return HardwareRefusedError(f"{what}: the driver refuses the request; does the card have this slot?")
    if number in _FORBIDDEN:
        return HardwareRefusedError(f"{what}: it is not allowed ({error.strerror}); is the plugin's pod privileged?")
    return HardwareBusyError(f"{what}: {error.strerror}")
