"""AMD's runtime library: loads an image into a card, in a process of its own for each load (``load_process.py``).

The library ends its process where it finds a fault, and a load may hang: so it is never in the plugin's process, and a
load that takes too long is ended. Every failure becomes one of Kerf's errors here, by the number that the library
leaves in ``errno``: that of the driver (Xilinx/XRT,
``src/runtime_src/core/pcie/driver/linux/xocl/userpf/xocl_ioctl.c``), or none.

XRT finds its parts by the variable XILINX_XRT (2.13, which Debian has; newer ones look beside the library).
"""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, HardwareBusyError, HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.fpga.images.files import ImageBits
from kerf_dra.driver.kubeletplugin.backends.xrt import load_process

_LIBRARY: Final = "lib/libxrt_coreutil.so.2"
"""The library, below XRT's folder."""
_PARTS: Final = (_LIBRARY, "lib/libxrt_core.so.2")
"""The library and what it loads for PCIe cards."""
_CHECK_S: Final = 60.0
"""The most seconds to load the library alone, which takes a tenth of one."""
_LONGEST_S: Final = 600.0
"""The most seconds for an image that states no load time: large cards take about a minute."""
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
_Version: TypeAlias = tuple[tuple[int, int, int], ...]
"""Of each part inode, size and the time of its last change: another one, another library."""


class Loader(Protocol):
    """What changes cards."""

    def find_fault(self) -> str:
        """Return why nothing can be loaded on this node; empty: it can."""
        ...

    def load(self, pci_address: str, bits: ImageBits, limit_s: float | None) -> None:
        """Load an image into the card with this user function, which may take a minute; ``limit_s`` is the most
        seconds, None: as many as any card needs.

        Raises HardwareBusyError, HardwareRefusedError or CardAbsentError.
        """
        ...


class XrtLibrary:
    """The library of this node."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is that of XRT, such as ``/opt/xilinx/xrt``."""
        self._folder = folder
        self._usable: _Version | None = None

    def find_fault(self) -> str:
        """Return as Loader says. The library is loaded once for that, and again when it has changed or has failed."""
        try:
            version = self._read_version()
            if version != self._usable:
                self._run("no image can be loaded", (), (), _CHECK_S)
                self._usable = version
        except (HardwareBusyError, HardwareRefusedError) as error:
            return str(error)
        return ""

    def load(self, pci_address: str, bits: ImageBits, limit_s: float | None) -> None:
        self._read_version()
        arguments = (pci_address, str(bits.descriptor), str(bits.offset))
        what = f"the image cannot be loaded into {pci_address}"
        call, number = self._run(what, arguments, (bits.descriptor,), _LONGEST_S if limit_s is None else limit_s)
        if call == load_process.OPEN:
            number = number if number in _OPEN_CAUSES else errno.ENODEV
            raise _translate(number, f"card {pci_address} cannot be opened")
        if call != load_process.DONE:
            raise _translate(number, what)

    def _read_version(self) -> _Version:
        """Return which library this is. Raises HardwareBusyError: a part is not there; it may come.

        XRT itself would say less.
        """
        found = []
        for part in _PARTS:
            try:
                status = (self._folder / part).stat()
            except OSError as error:
                message = f"no image can be loaded: {self._folder / part} is not there; install XRT"
                raise HardwareBusyError(message) from error
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        return tuple(found)

    def _run(self, what: str, arguments: Sequence[str], descriptors: Sequence[int], limit_s: float) -> tuple[str, int]:
        """Run the process to its end, and return which call of the library has failed with which error number.

        Raises HardwareBusyError and HardwareRefusedError, saying that ``what`` has happened.
        """
        library = str(self._folder / _LIBRARY)
        try:
            done = subprocess.run(  # noqa: S603  (Kerf's own program)
                [sys.executable, "-I", "-S", load_process.__file__, str(os.getpid()), library, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env={**os.environ, "XILINX_XRT": str(self._folder)},
                pass_fds=descriptors,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise HardwareRefusedError(
                f"{what}: XRT has not ended it within {limit_s:g} s, and its process was killed; no more are allowed "
                "(timeoutSeconds of the FpgaConfig, loadSeconds of the image)"
            ) from error
        except OSError as error:
            raise HardwareBusyError(f"{what}: no process can be started for it: {error.strerror}") from error
        if done.returncode or not done.stdout:
            end = _describe_end(done.returncode)
            raise HardwareBusyError(f"{what}: XRT has ended its process ({end}); the plugin's log has what it wrote")
        call, number, said = done.stdout.decode(errors="replace").split(" ", 2)
        if call == load_process.LIBRARY:
            raise HardwareBusyError(f"{what}: {library} cannot be used: {said}")
        return call, abs(int(number))  # the driver's own is negative, and some versions pass it on as it is


def _describe_end(status: int) -> str:
    """Return how a process has ended, which is what ``subprocess`` has as its status."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def _translate(number: int, what: str) -> KerfError:
    """Return Kerf's error for an error number."""
    cause, kind = _CAUSES.get(number, (_NO_CAUSE, HardwareBusyError))
    return kind(f"{what}: {cause}")
