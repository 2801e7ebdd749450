"""AMD's runtime library: the few C functions that load an image, declared for ctypes (XRT, ``xrt/xrt_device.h``).

Every failure becomes one of Kerf's errors here, by the number that the library leaves in ``errno``: that of the driver
(Xilinx/XRT, ``src/runtime_src/core/pcie/driver/linux/xocl/userpf/xocl_ioctl.c``), or none.

XRT finds its parts by the variable XILINX_XRT, and ends the process where it does not find them (2.13, which Debian
has; newer ones look beside the library). So they are looked for here first, and the variable is set.
"""

import ctypes
import errno
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

from api.errors import KerfError
from driver.kubeletplugin.backends.base import CardAbsentError, HardwareBusyError, HardwareRefusedError
from driver.kubeletplugin.backends.fpga_images.files import ImageBits

_LIBRARY: Final = "lib/libxrt_coreutil.so.2"
"""The library, below XRT's folder."""
_PARTS: Final = (_LIBRARY, "lib/libxrt_core.so.2")
"""The library and what it loads for PCIe cards."""
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
_OPEN_CAUSES: Final = frozenset({errno.EBUSY, errno.EPERM, errno.EACCES})
"""What else than its absence keeps a card from being opened; of that XRT gives several numbers, or none."""


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
    """The library of this node, which is loaded when it is first needed. Errors that may pass leave it unloaded."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is that of XRT, such as ``/opt/xilinx/xrt``."""
        self._folder = folder
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
                self._library = _load_library(self._folder)
            return self._library


def _load_library(folder: Path) -> ctypes.CDLL:
    """Load the library and declare the functions that are used (``xrtDeviceHandle`` is a pointer)."""
    for part in _PARTS:
        if not (folder / part).exists():
            raise HardwareBusyError(f"no image can be loaded: {folder / part} is not there; install XRT")
    os.environ["XILINX_XRT"] = str(folder)
    try:
        library = ctypes.CDLL(str(folder / _LIBRARY), use_errno=True)
        library.xrtDeviceOpenByBDF.argtypes = [ctypes.c_char_p]
        library.xrtDeviceOpenByBDF.restype = ctypes.c_void_p
        library.xrtDeviceLoadXclbin.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.xrtDeviceLoadXclbin.restype = ctypes.c_int
        library.xrtDeviceClose.argtypes = [ctypes.c_void_p]
        library.xrtDeviceClose.restype = ctypes.c_int
    except (OSError, AttributeError) as error:
        raise HardwareBusyError(f"no image can be loaded: {folder / _LIBRARY} cannot be used: {error}") from error
    return library


@contextmanager
def _open_device(library: ctypes.CDLL, pci_address: str) -> Iterator[int]:
    ctypes.set_errno(0)
    device = library.xrtDeviceOpenByBDF(pci_address.encode())
    if not device:
        number = abs(ctypes.get_errno())
        raise _translate(number if number in _OPEN_CAUSES else errno.ENODEV, f"card {pci_address} cannot be opened")
    try:
        yield device
    finally:
        library.xrtDeviceClose(device)


def _call(function: Any, *arguments: object, what: str) -> None:  # noqa: ANN401  (ctypes has no public type for it)
    ctypes.set_errno(0)
    if function(*arguments):
        raise _translate(ctypes.get_errno(), what)


def _translate(number: int, what: str) -> KerfError:
    """Return Kerf's error for a number; the driver's own is negative, and some versions pass it on as it is."""
    cause, kind = _CAUSES.get(abs(number), (_NO_CAUSE, HardwareBusyError))
    return kind(f"{what}: {cause}")
