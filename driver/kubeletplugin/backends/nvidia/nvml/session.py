"""A process's use of NVML: its library is loaded and opened, its functions are called, its error codes become errors.

Which functions are called, and with which structures, is in ``backends.nvidia.nvml.library``.

NVML has one library for the life of a process. When the kernel driver was loaded again, NVML is opened again at the
next call; handles of before are void then, which ``generation`` shows.
"""

import ctypes
import logging
import os
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from kerf_dra.api.errors import KerfError, PermanentError
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    HardwareBusyError,
    HardwareInUseError,
    HardwareRefusedError,
    OutdatedProcessError,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.file_root import FileIdentity, identify_file
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.return_codes import (
    CARD_IS_AWAY,
    DRIVER_IS_AWAY,
    IN_USE,
    LIBRARY_LACKS,
    LIBRARY_MISSING,
    OTHER_VERSION,
    REFUSED,
    RESET_REQUIRED,
    find_answers,
)

_log = logging.getLogger(__name__)

SONAME: Final = "libnvidia-ml.so.1"
_FOLDERS: Final = (
    *("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib"),
    *("lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib"),
)
"""Where distributions and NVIDIA's driver container have the library, below the driver's root."""


class NvmlUnavailableError(CardAbsentError):
    """NVML cannot be opened now: its library is not there, or the kernel driver is not loaded or of another version.

    No card is there then, whether that is so at the start or later.
    """


class NvmlFailedError(HardwareBusyError):
    """NVML cannot be opened now, for a reason that says nothing of the driver or its cards."""


class NvmlBindingsMissingError(PermanentError):
    """The Python package nvidia-ml-py is not installed."""


class NvmlSession:
    """NVML of one driver installation, open or not. All methods may be called in several threads."""

    def __init__(self, driver_root: Path) -> None:
        """``driver_root`` has the driver's files: ``/``, or where a driver container has mounted them."""
        self._root = driver_root
        self._nvml: Any = None
        self._is_wanted = False
        self._lock = threading.Lock()
        self._loaded: ctypes.CDLL | None = None
        self._file: FileIdentity | None = None
        """The library's file when it was loaded: a process never loads another one, whatever is there later."""
        self._driver_version = ""
        self._lacking: set[str] = set()
        """The functions of which was logged that the library lacks them."""
        self.generation = 0
        """How often NVML was opened: another number than before means that the driver was loaded again."""

    def open(self) -> None:
        """Load and initialize NVML.

        Raises NvmlBindingsMissingError, NvmlUnavailableError, NvmlFailedError, and OutdatedProcessError when the driver
        was replaced by another version since the library was loaded.
        """
        with self._lock:
            self._is_wanted = True
            if self._nvml is None:
                self._nvml = self._initialize()

    def close(self) -> None:
        """End the use of NVML; calls that run get an error. May be called twice."""
        with self._lock:
            self._is_wanted = False
            self._shut_down()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Close NVML in this process while the block runs, so that it has no card open. No other thread may call it."""
        with self._lock:
            self._shut_down()
        try:
            yield
        finally:
            with self._lock, suppress(KerfError):  # the next call says what is wrong
                if self._is_wanted and self._nvml is None:
                    self._nvml = self._initialize()

    @property
    def driver_release(self) -> int:
        """The release of the driver that is open, 580 of 580.95.05; 0: it has none that can be read."""
        release = self._driver_version.partition(".")[0]
        return int(release) if release.isdecimal() else 0

    def _call(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401
        """Call a function of the bindings; None for the error codes that are an answer of it (``return_codes``)."""
        nvml, generation = self._bindings(), self.generation
        try:
            return getattr(nvml, name)(*arguments)
        except nvml.NVMLError as error:
            if is_answer(nvml, name, error):
                self._report_lacking(nvml, name, error)
                return None
            raise self._to_error(nvml, name, error, generation) from error
        except UnicodeDecodeError as error:
            raise HardwareRefusedError(f"{name}: the answer is not text: {error}") from error
        except (LookupError, MemoryError) as error:  # the bindings make room for what NVML counts
            raise HardwareBusyError(f"{name}: NVML lists more than it has counted, or can have: {error}") from error

    def _report_lacking(self, nvml: Any, name: str, error: Any) -> None:  # noqa: ANN401
        """Log once that the library does not have a function, or the version of its structure that is asked for."""
        if name not in self._lacking and _is_one_of(nvml, error, LIBRARY_LACKS):
            self._lacking.add(name)
            _log.warning("%s: %s: the driver's library lacks it, so what it says counts as not supported", name, error)

    def _to_error(self, nvml: Any, name: str, error: Any, generation: int) -> KerfError:  # noqa: ANN401
        """Return Kerf's error for one of NVML's opening ``generation``, which it may end."""
        message = f"{name}: {error}"
        if _is_one_of(nvml, error, CARD_IS_AWAY):
            if _is_one_of(nvml, error, DRIVER_IS_AWAY):
                with self._lock:
                    if generation == self.generation:  # else another thread has opened it again: its event sets stay
                        self._shut_down()
            return CardAbsentError(message)
        if _is_one_of(nvml, error, {RESET_REQUIRED}):
            return HardwareRefusedError(f"{message}: the card has to be reset, or the machine booted")
        if _is_one_of(nvml, error, {IN_USE}):
            return HardwareInUseError(message)
        return HardwareRefusedError(message) if _is_one_of(nvml, error, REFUSED) else HardwareBusyError(message)

    def _initialize(self) -> Any:  # noqa: ANN401  (the bindings have no types)
        """Return the bindings once NVML is initialized."""
        try:
            import pynvml  # here: only processes with this backend pay for it, and have to have it
        except ImportError as error:
            message = (
                "the backend nvidia needs the Python package nvidia-ml-py: pip install '.[nvidia]' in Kerf's checkout"
            )
            raise NvmlBindingsMissingError(message) from error
        self._load()
        function = "nvmlInit"
        try:
            pynvml.nvmlInit()
            function = "nvmlSystemGetDriverVersion"
            self._driver_version = _read_version(pynvml)
        except pynvml.NVMLError as error:
            if _is_one_of(pynvml, error, {OTHER_VERSION}) and self._is_replaced():
                raise OutdatedProcessError(
                    f"{self._find()} is of another version than when it was loaded, as is NVIDIA's driver: the process "
                    "has to start again"
                ) from error
            where = "" if self._root == Path("/") else f" below {self._root}"
            is_away = _is_one_of(pynvml, error, DRIVER_IS_AWAY | {LIBRARY_MISSING})
            raise (NvmlUnavailableError if is_away else NvmlFailedError)(
                f"NVML cannot be opened{where}: {function}: {error}; is NVIDIA's driver loaded, and driverRoot where "
                "its files are?"
            ) from error
        except UnicodeDecodeError as error:
            raise NvmlFailedError(f"{function}: the answer is not text: {error}") from error
        self.generation += 1
        return pynvml

    def _bindings(self) -> Any:  # noqa: ANN401
        """Return the bindings, of NVML that is opened again after the kernel driver was loaded again.

        Raises NvmlUnavailableError or NvmlFailedError when that fails, and CardAbsentError after ``close``.
        """
        if (nvml := self._nvml) is not None:
            return nvml
        with self._lock:
            if not self._is_wanted:
                raise CardAbsentError("NVML is not open")
            self._nvml = self._nvml or self._initialize()
            return self._nvml

    def _shut_down(self) -> None:
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _load(self) -> None:
        """Load the library of the driver's root, so that the bindings find it by its soname."""
        if self._loaded is not None:
            return
        path = self._find()
        self._file = self._file or identify_file(path)
        if self._root == Path("/"):  # the linker finds it
            return
        if path is None:
            raise NvmlUnavailableError(f"there is no {SONAME} below the driver's root {self._root}")
        try:
            self._loaded = ctypes.CDLL(os.fspath(path))
        except OSError as error:
            raise NvmlUnavailableError(f"{path} cannot be loaded: {error}") from error

    def _find(self) -> Path | None:
        """Return the path of the library below the driver's root."""
        paths = (self._root / folder / SONAME for folder in _FOLDERS)
        return next((path for path in paths if path.exists()), None)

    def _is_replaced(self) -> bool:
        """Whether another process would load another file."""
        now = identify_file(self._find())
        return now is not None and now != self._file


def is_answer(nvml: Any, function: str, error: Any) -> bool:  # noqa: ANN401
    """Whether an error of a function of the bindings is an answer of it (``return_codes``)."""
    return _is_one_of(nvml, error, find_answers(function))


def read_text(structure: Any, name: str) -> str:  # noqa: ANN401
    """Return a text of one of NVML's structures, with a mark in place of what is no text.

    The structures of the bindings raise an error for one that is not UTF-8, past all handling of calls.
    """
    return _decode_text(ctypes.Structure.__getattribute__(structure, name))


def _decode_text(text: bytes | str) -> str:
    """Return a text of NVML, which some versions of the bindings leave as bytes."""
    return text.decode(errors="replace") if isinstance(text, bytes) else text


def _read_version(nvml: Any) -> str:  # noqa: ANN401  (the bindings have no types)
    """Return the driver's version of NVML that was just opened. Raises NVMLError or UnicodeDecodeError, and ends NVML
    then.

    NVML counts how often it is opened, and works with a driver that was loaded again only once it was closed as often:
    so what fails after the opening ends it.
    """
    try:
        return _decode_text(nvml.nvmlSystemGetDriverVersion())
    except (nvml.NVMLError, UnicodeDecodeError):
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()
        raise


def _is_one_of(nvml: Any, error: Any, names: Collection[str]) -> bool:  # noqa: ANN401
    return any(error.value == getattr(nvml, f"NVML_ERROR_{name}", None) for name in names)  # older bindings lack some
