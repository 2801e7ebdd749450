"""The simulated hardware's memory: one directory with a JSON file for each card, shared by every process that opens it.

Every read-modify-write holds the directory's lock (which the kernel frees when its holder dies) and replaces the file
at once, so that a process killed at any point leaves the state before or after the change. Nothing is synced to
disk: what these files stand for does not survive a power cut either.

The files are read and written in the event loop: a change takes some 0.2 ms and the lock is never held across an await.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from driver.kubeletplugin.backends.base import HardwareRefusedError
from driver.kubeletplugin.backends.simulated.faults import Fault, Faults, Moment
from driver.kubeletplugin.backends.simulated.steps import Step
from driver.runtime import file_lock

StateT = TypeVar("StateT", bound=msgspec.Struct)

_FAULTS: Final = "faults.json"
_PRIVATE: Final = 0o700
"""Only the owner may change what hardware does."""


class StateDirectory:
    """A directory that several processes may use at once; made when it is not there."""

    def __init__(self, path: Path) -> None:
        path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        self.path = path

    def faults(self) -> Faults:
        """Raises HardwareRefusedError, naming the file, when it cannot be understood."""
        return _read(self.path / _FAULTS, Faults) or Faults()

    def strike(self, step: Step, card: str, when: Moment) -> Fault | None:
        """The fault that strikes now, if any, counted down."""
        if not (self.path / _FAULTS).exists():
            return None
        with file_lock.acquire(self.path):
            fault, left = self.faults().strike(step, card, when)
            if fault is not None:
                _write(self.path / _FAULTS, left)
        return fault


class CardFile(Generic[StateT]):
    """The state of one card."""

    def __init__(self, directory: StateDirectory, name: str, blank: StateT) -> None:
        self._directory = directory
        self._path = directory.path / f"{name}.json"
        self._blank = blank

    def read(self) -> StateT:
        """The state now; blank when nothing was ever done to the card."""
        return _read(self._path, type(self._blank)) or self._blank

    def change(self, change: Callable[[StateT], StateT]) -> StateT:
        """Replace the state by ``change`` of it; when that raises, the state stays."""
        with file_lock.acquire(self._directory.path):
            state = change(self.read())
            _write(self._path, state)
        return state


def _read(path: Path, type_: type[StateT]) -> StateT | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=type_)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise HardwareRefusedError(f"simulated hardware: {path}: {error}; correct or remove the file") from error


def _write(path: Path, value: msgspec.Struct) -> None:
    temporary = path.with_name(f".{path.name}.tmp")  # one name is enough under the lock, and a dead writer's is reused
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2))
    temporary.replace(path)
