"""The process of one load: AMD's library may end it, as it does where it finds a fault, and the plugin goes on.

``python -I -S load_process.py PARENT LIBRARY [PCI_ADDRESS DESCRIPTOR OFFSET]`` loads the library, and then the image
that the file of the descriptor has from that offset into the card. It answers by one line: the call that failed, the
number that the library has left in ``errno``, and words for people. It imports little of the standard library and
nothing else, so that it starts within milliseconds.
"""

import ctypes
import mmap
import os
import sys

DONE = "done"
"""In place of the call that failed: none has."""
OPEN = "open"
LOAD = "load"
LIBRARY = "library"
"""It cannot be used; the words say why."""

_SIGKILL = 9
_PR_SET_PDEATHSIG = 1
"""Linux ``include/uapi/linux/prctl.h``."""


def open_library(path: str) -> ctypes.CDLL:
    """Load the library and declare the functions that are used (``xrtDeviceHandle`` is a pointer).

    Raises OSError or AttributeError: it cannot be loaded, or has not the functions.
    """
    library = ctypes.CDLL(path, use_errno=True)
    library.xrtDeviceOpenByBDF.argtypes = [ctypes.c_char_p]
    library.xrtDeviceOpenByBDF.restype = ctypes.c_void_p
    library.xrtDeviceLoadXclbin.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.xrtDeviceLoadXclbin.restype = ctypes.c_int
    library.xrtDeviceClose.argtypes = [ctypes.c_void_p]
    library.xrtDeviceClose.restype = ctypes.c_int
    return library


def load(library: ctypes.CDLL, pci_address: str, address: int) -> tuple[str, int]:
    """Load the image at ``address`` in this process into the card with this user function.

    Returns the call that failed, and the number in ``errno``, which some versions leave negative; 0: none.
    """
    ctypes.set_errno(0)
    device = library.xrtDeviceOpenByBDF(pci_address.encode())
    if not device:
        return OPEN, ctypes.get_errno()
    try:
        ctypes.set_errno(0)
        has_failed = library.xrtDeviceLoadXclbin(device, address)
        return (LOAD, ctypes.get_errno()) if has_failed else (DONE, 0)
    finally:
        library.xrtDeviceClose(device)


def _run(path: str, pci_address: str = "", descriptor: str = "", offset: str = "") -> tuple[str, int, str]:
    try:
        library = open_library(path)
    except (OSError, AttributeError) as error:
        return LIBRARY, 0, str(error)
    if not pci_address:
        return DONE, 0, ""
    image = mmap.mmap(int(descriptor), 0, access=mmap.ACCESS_COPY)
    return *load(library, pci_address, ctypes.addressof(ctypes.c_char.from_buffer(image, int(offset)))), ""


def main(parent: str, *arguments: str) -> None:
    # No load outlives the plugin, whose successor would find a card in use.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != int(parent):
        return
    answers = os.dup(1)
    os.dup2(2, 1)  # the library writes its log to the standard output
    os.write(answers, "{} {} {}".format(*_run(*arguments)).encode())
    os._exit(0)  # what the library does at the end of a process changes nothing any more


if __name__ == "__main__":
    main(*sys.argv[1:])
