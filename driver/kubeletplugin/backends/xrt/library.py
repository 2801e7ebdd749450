"""AMD's runtime library: the few C functions that load an image, declared for ctypes (XRT, ``xrt/xrt_device.h``).

Every failure becomes one of Kerf's errors here, by the number that the library leaves in ``errno``: that of the driver
(Xilinx/XRT, ``src/runtime_src/core/pcie/driver/linux/xocl/userpf/xocl_ioctl.c``).
"""

import ctypes
import errno
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, Protocol

from api.errors import KerfError
from driver.kubeletplugin.backends.base import CardAbsentError, HardwareBusyError, HardwareRefusedError
from driver.kubeletplugin.backends.fpga_images.files import ImageBits

SONAME: Final = "libxrt_coreutil.so.2"
_PLACES: Final = (SONAME, f"/opt/xilinx/xrt/lib/{SONAME}")
"""Where the library is: Debian's ``libxrt1`` has it on the linker's path, AMD's package below its own folder."""
_NO_CAUSE: Final = "XRT says no cause; the kernel's log may"
_CAUSES: Final[Mapping[int, tuple[str, type[KerfError]]]] = MappingProxyType(
    {
        errno.EOPNOTSUPP: ("the image does not match the card's shell", HardwareRefusedError),
        errno.EINVAL: ("the driver takes no such image: see the kernel's log", HardwareRefusedError),
        errno.EKEYREJECTED: ("the card's driver trusts no signature of the image", HardwareRefusedError),
        errno.E2BIG: ("the image needs more memory of the host than is enabled for the card", HardwareRefusedError),
        errno.EPERM: ("it is not allowed; is the plugin's pod privileged?", HardwareRefusedError),
        errno.EACCES: ("it is not allowed; is the plugin's pod privileged?", HardwareRefusedError),
        errno.EBUSY: ("a program has a compute unit of the card open", HardwareBusyError),
        errno.ETIMEDOUT: ("the driver of the management function, or its daemon, does not answer", HardwareBusyError),
        errno.EDEADLK: ("a compute unit hangs: reset the card (xrt-smi reset, xbutil reset)", HardwareBusyError),
        errno.ENODEV: ("the card is not there, or its driver is not loaded", CardAbsentError),
        errno.ENOENT: ("the card is not there, or its driver is not loaded", CardAbsentError),
        errno.ENXIO: ("the card is not there, or its driver is not loaded", CardAbsentError),
    }
)
"""By error number: what it means, and whether a later try may succeed."""


class Loader(Protocol):
    """What changes cards."""

    def find_fault(self) -> str:
        """Return why nothing can be loaded on this node; empty: it can."""
        ...

    def load(self, pci_address: str, bits: ImageBits) -> None:
        """Load an image into the card with this user function, which may take a minute.

        Raises HardwareBusyError, HardwareRefusedError or CardAbsentError.
        """
        ...


class XrtLibrary:
    """The library of this node, which is loaded when it is first needed."""

    def __init__(self, path: str) -> None:
        """``path`` may be empty: the usual places are tried."""
        self._places = (path,) if path else _PLACES
        self._lock = threading.Lock()
        self._library: ctypes.CDLL | None = None

    def find_fault(self) -> str:
        try:
            self._open()
        except HardwareBusyError as error:
            return str(error)
        return ""

    def load(self, pci_address: str, bits: ImageBits) -> None:
        library = self._open()
        with _open_device(library, pci_address) as device:
            image = ctypes.c_void_p(bits.address)
            _call(library.xrtDeviceLoadXclbin, device, image, what=f"the image cannot be loaded into {pci_address}")

    def _open(self) -> ctypes.CDLL:
        """Return the library. Raises HardwareBusyError: it is not there, or has not the functions; it may come."""
        with self._lock:
            if self._library is None:
                self._library = _declare(_find_library(self._places))
            return self._library


def _find_library(places: tuple[str, ...]) -> ctypes.CDLL:
    faults = []
    for place in places:
        try:
            return ctypes.CDLL(place, use_errno=True)
        except OSError as error:
            faults.append(str(error))
    reason = "; ".join(faults)
    raise HardwareBusyError(f"no image can be loaded: there is no {SONAME} (Debian: libxrt1, AMD: xrt): {reason}")


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the functions that are used (``xrtDeviceHandle`` is a pointer)."""
    try:
        library.xrtDeviceOpenByBDF.argtypes = [ctypes.c_char_p]
        library.xrtDeviceOpenByBDF.restype = ctypes.c_void_p
        library.xrtDeviceLoadXclbin.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.xrtDeviceLoadXclbin.restype = ctypes.c_int
        library.xrtDeviceClose.argtypes = [ctypes.c_void_p]
        library.xrtDeviceClose.restype = ctypes.c_int
    except AttributeError as error:
        raise HardwareBusyError(f"no image can be loaded: {SONAME} is another library: {error}") from error
    return library


@contextmanager
def _open_device(library: ctypes.CDLL, pci_address: str) -> Iterator[int]:
    ctypes.set_errno(0)
    device = library.xrtDeviceOpenByBDF(pci_address.encode())
    if not device:
        raise _translate(ctypes.get_errno() or errno.ENODEV, f"card {pci_address} cannot be opened")
    try:
        yield device
    finally:
        library.xrtDeviceClose(device)


def _call(function: Any, *arguments: object, what: str) -> None:  # noqa: ANN401  (ctypes has no public type for it)
    ctypes.set_errno(0)
    result: int = function(*arguments)
    if result:  # older versions return the number, newer ones -1
        raise _translate(ctypes.get_errno() or result, what)


def _translate(number: int, what: str) -> KerfError:
    """Return Kerf's error for a number; the driver's own is negative, and some versions pass it on as it is."""
    cause, kind = _CAUSES.get(abs(number), (_NO_CAUSE, HardwareBusyError))
    return kind(f"{what}: {cause}")
