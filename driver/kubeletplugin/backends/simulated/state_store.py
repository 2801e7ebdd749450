"""The state of simulated hardware: a directory of JSON files, which several processes may use at once.

Every read-modify-write holds the directory's lock and replaces the file at once, so that a process killed at any point
leaves the state before or after the change. Nothing is synced to disk: the state of real hardware does not survive a
power cut either.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError, HardwareRefusedError
from kerf_dra.driver.runtime import file_lock

StateT = TypeVar("StateT", bound=msgspec.Struct)

_PRIVATE: Final = 0o700
"""Only the owner may change the hardware's state."""
_CHUNK: Final = 65_536
"""Bytes of one read(2): more than states usually have, so that one is enough."""


class StateFile(Generic[StateT]):
    """One file of the state ``directory``, which is made when it is not there."""

    def __init__(self, directory: Path, name: str, blank: StateT) -> None:
        directory.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        self._directory = directory
        self._path = directory / f"{name}.json"
        self._blank = blank
        self._own: bytes | None = None
        """What this process wrote last."""
        self._seen = self._content()

    def read(self) -> StateT:
        """Return the state now, ``blank`` when its directory is there without the file.

        Raises HardwareBusyError when the directory is not there, and HardwareRefusedError, naming the file, when the
        file cannot be decoded.
        """
        try:
            return msgspec.json.decode(_read(self._path), type=type(self._blank))
        except FileNotFoundError:
            return self._read_blank()
        except msgspec.MsgspecError as error:
            reason = f"{self._path}: {error}; correct or remove the file"
            raise HardwareRefusedError(f"simulated hardware: {reason}") from error

    def change(self, change: Callable[[StateT], StateT]) -> StateT:
        """Replace the state by what ``change`` makes of it; when ``change`` raises, the state stays."""
        with file_lock.acquire(self._directory):
            state = change(self.read())
            temporary = self._path.with_name(f".{self._path.name}.tmp")  # under the lock one name is enough
            self._own = msgspec.json.format(msgspec.json.encode(state), indent=2)
            temporary.write_bytes(self._own)
            temporary.replace(self._path)
        return state

    def _read_blank(self) -> StateT:
        """Return the state of hardware that nothing was ever done to. Raises HardwareBusyError."""
        try:
            names = os.listdir(self._directory)  # noqa: PTH208  (as fast as _read)
        except OSError as error:
            where = f"the state directory {self._directory} cannot be read: {error.strerror}"
            raise HardwareBusyError(f"simulated hardware: {where}") from error
        if self._path.name in names:  # written since
            return msgspec.json.decode(_read(self._path), type=type(self._blank))
        return self._blank

    def was_changed_by_others(self) -> bool:
        """Whether another process has changed the state since the last call, which is seen by its content."""
        content = self._content()
        if content == self._seen:
            return False
        self._seen = content
        return content != self._own

    def _content(self) -> bytes | None:
        try:
            return _read(self._path)
        except FileNotFoundError:
            return None


def _read(path: Path) -> bytes:
    """Read the file in three system calls; Path.read_bytes makes eight.

    At each one the thread parts with the interpreter's lock, which all cards' threads and the event loop share: waiting
    for it took longer than the reads.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(descriptor, _CHUNK)]
        while len(parts[-1]) == _CHUNK:
            parts.append(os.read(descriptor, _CHUNK))
    finally:
        os.close(descriptor)
    return b"".join(parts)
