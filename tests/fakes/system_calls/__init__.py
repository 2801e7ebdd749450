"""The system calls of a process on files below some folders: counted, and one of them its last, or failing; syncs may
wait.

A C library (``system_calls.c``) stands before libc by LD_PRELOAD, so a process has it from its start or not at all; it
is compiled at its first use.
"""

import ctypes
import errno
import os
from collections.abc import Sequence
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Final

from kerf_dra.driver.testing.nvml.library import compile_library

NAME: Final = "libkerf-system-calls.so"


class CallKind(IntFlag):
    """What a call does; the numbers are those of ``system_calls.c``."""

    CHANGE = 1
    SPACE = 2
    """It fails on a full disk."""
    LOOK = 4
    LOCK = 8
    UNLOCK = 16


class CallFault(IntEnum):
    """What befalls a call; the numbers are those of ``system_calls.c``."""

    NONE = 0
    KILL_BEFORE = 1
    """The process is killed, and nothing is done."""
    KILL_HALFWAY = 2
    """A write of several pages ends with the first, and the process is killed; another call has not been made."""
    KILL_AFTER = 3
    """All is done, and the process is killed."""
    FAIL = 4
    """Nothing is done, and EIO is the answer."""
    FULL = 5
    """The disk is full from this call on: a write ends with its first page, then nothing that needs space is done."""
    DENY = 6
    """All is done, and yet EIO is the answer."""

    @property
    def kinds(self) -> CallKind:
        """The calls that it may befall."""
        return _KINDS[self]

    @property
    def is_kill(self) -> bool:
        return self in (self.KILL_BEFORE, self.KILL_HALFWAY, self.KILL_AFTER)


_EVERY_KIND: Final = CallKind.CHANGE | CallKind.SPACE | CallKind.LOOK | CallKind.LOCK | CallKind.UNLOCK
_KINDS: Final = {
    CallFault.NONE: _EVERY_KIND,
    CallFault.KILL_BEFORE: CallKind.CHANGE | CallKind.LOCK | CallKind.UNLOCK,
    CallFault.KILL_HALFWAY: CallKind.CHANGE | CallKind.LOCK | CallKind.UNLOCK,
    CallFault.KILL_AFTER: CallKind.CHANGE,
    CallFault.FAIL: CallKind.CHANGE | CallKind.LOOK | CallKind.LOCK,
    CallFault.FULL: CallKind.SPACE,
    CallFault.DENY: CallKind.CHANGE,
}


def build_library() -> Path:
    """Return the path of the library for LD_PRELOAD, compiled now if it is not in the cache. Raises NoCompilerError."""
    return compile_library("what counts system calls", Path(__file__).parent, NAME)


class SystemCalls:
    """The system calls of this process, which was started with the library in LD_PRELOAD."""

    def __init__(self, folders: Sequence[Path], log: Path) -> None:
        """Watch ``folders``, whose names are not links; each call that is counted is written to ``log``.

        Syncs are counted, but not made.
        """
        self._library = ctypes.CDLL(NAME)  # the one that is loaded
        self._library.disarm.restype = ctypes.c_long
        self._library.watch_folders("".join(f"{folder}\n" for folder in folders).encode(), 1)
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    def arm(self, fault: CallFault, at: int) -> None:
        """Count the calls that ``fault`` may befall, and let it befall number ``at`` (from 1); 0: none."""
        os.ftruncate(self._log, 0)
        number = errno.ENOSPC if fault is CallFault.FULL else errno.EIO
        self._library.arm(int(fault.kinds), int(fault), ctypes.c_long(at), number, self._log)

    def disarm(self) -> int:
        """Let all calls go well; returns how many were counted."""
        return int(self._library.disarm())


def hold_syncs(folders: Sequence[Path], log: int, gate: int) -> None:
    """Let each sync in ``folders`` by this process write a line to ``log``, and wait for a byte from ``gate``.

    Both are descriptors of pipes. The process was started with the library in LD_PRELOAD.
    """
    library = ctypes.CDLL(NAME)
    library.watch_folders("".join(f"{folder}\n" for folder in folders).encode(), 0)
    library.hold_syncs(log, gate)
