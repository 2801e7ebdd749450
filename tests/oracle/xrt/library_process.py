"""A process with AMD's library in it: ``python -m tests.oracle.xrt.library_process FOLDER``, JSON lines in and out.

``{"file": PATH}`` is answered by what the library says of an xclbin file, ``{"load": PATH}`` by Kerf's own load of it
in the mode ``noop``: by the call that has failed, or by the UUID that the library reports before Kerf closes the card.
"""

import ctypes
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any, cast

from kerf_dra.driver.kubeletplugin.backends.xrt import load_process

_NO_NUMBER = ctypes.c_size_t(-1).value


class Judge:
    """The library's functions of xclbin files (``experimental/xrt_xclbin.h``)."""

    def __init__(self, folder: Path) -> None:
        os.environ["XILINX_XRT"] = str(folder)
        libraries = folder / "lib"
        for name in ("libprotobuf.so.32", "libboost_filesystem.so.1.74.0"):
            ctypes.CDLL(str(libraries / name), mode=ctypes.RTLD_GLOBAL)
        self._path = str(libraries / "libxrt_coreutil.so.2")
        self._library = library = ctypes.CDLL(self._path)
        for function, result in (
            ("xrtXclbinAllocRawData", ctypes.c_void_p),
            ("xrtXclbinGetNumKernels", ctypes.c_size_t),
            ("xrtXclbinGetNumKernelComputeUnits", ctypes.c_size_t),
        ):
            getattr(library, function).restype = result
        for function in ("GetNumKernels", "GetNumKernelComputeUnits", "FreeHandle"):
            getattr(library, f"xrtXclbin{function}").argtypes = [ctypes.c_void_p]
        library.xrtXclbinGetUUID.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        library.xrtXclbinGetXSAName.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
        library.xrtDeviceGetXclbinUUID.argtypes = [ctypes.c_void_p, ctypes.c_char_p]

    def read(self, data: bytes) -> dict[str, Any]:
        handle = self._library.xrtXclbinAllocRawData(data, len(data))
        if not handle:
            return {"refused": True}
        own, platform = ctypes.create_string_buffer(16), ctypes.create_string_buffer(65)
        assert self._library.xrtXclbinGetUUID(handle, own) == 0
        assert self._library.xrtXclbinGetXSAName(handle, platform, len(platform), None) == 0
        kernels = self._library.xrtXclbinGetNumKernels(handle)
        units = self._library.xrtXclbinGetNumKernelComputeUnits(handle)
        assert _NO_NUMBER not in (kernels, units)
        self._library.xrtXclbinFreeHandle(handle)
        return {
            "uuid": str(uuid.UUID(bytes=own.raw)),
            "platform": platform.value.decode(),
            "kernels": kernels,
            "units": units,
        }

    def load(self, data: bytes) -> dict[str, Any]:
        declared = cast("Any", load_process.open_library(self._path))
        image, own = ctypes.create_string_buffer(data), ctypes.create_string_buffer(16)
        close = declared.xrtDeviceClose

        def read_and_close(device: int) -> None:  # what was loaded is forgotten when the last handle is closed
            assert self._library.xrtDeviceGetXclbinUUID(device, own) == 0
            assert close(device) == 0

        declared.xrtDeviceClose = read_and_close
        call, _ = load_process.load(declared, "0", ctypes.addressof(image))
        return {"uuid": str(uuid.UUID(bytes=own.raw))} if call == load_process.DONE else {"failed": call}


def main() -> None:
    judge, answers = Judge(Path(sys.argv[1])), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the library writes its log to the standard output
    for line in sys.stdin:
        asked = json.loads(line)
        name, path = next(iter(asked.items()))
        data = Path(path).read_bytes()
        print(json.dumps(judge.load(data) if name == "load" else judge.read(data)), file=answers, flush=True)


if __name__ == "__main__":
    main()
