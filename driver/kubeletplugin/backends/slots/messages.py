"""The messages of dfx-mgrd: requests, replies, and the table of what it can load and has loaded. Pure.

A message is a struct in the machine's byte order: id, size of the data, flags, slot (each 32 bits), then the data; and
the sender adds 8 bytes more than that, as the daemon's constant for the length of the header is 24 instead of 16
(Xilinx/dfx-mgr, ``src/dfxmgr_client.h``). Daemons from before June 2025 have no field for flags: they are refused.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.base import HardwareRefusedError

LOAD_ACCEL: Final = 6
"""Load a package by its name into the first free slot for which it has a directory."""
UNLOAD_ACCEL: Final = 7
"""Unload what has a handle, or with the text BASE the base design."""
BASE: Final = "base"
"""The base design, of which no slot may be in use; of a flat one the handle is unloaded (``unload_accel_base``)."""
LIST_PACKAGE: Final = 8
"""List all packages."""
SHOW_ALL: Final = 1 << 2
"""The flag of LIST_PACKAGE for all columns: without it newer daemons leave the handles out."""
LOAD_FAILED: Final = -1
NO_PACKAGE: Final = -2
NO_SLOT: Final = -3
"""The results of a load that failed; older daemons have only the first."""
_HEADER: Final = struct.Struct("=IIII")
_TRAILER: Final = bytes(8)
"""HEADERSIZE (24) less the header that there is."""
_MAX_DATA: Final = 32 * 1024
"""The length of the data's array."""
MAX_MESSAGE: Final = _HEADER.size + _MAX_DATA + len(_TRAILER)
_MAX_ROWS: Final = 1024
"""Rows of a table that are read: the daemon has room for 500 designs, and its table for some 80 rows."""
_RESULT: Final = re.compile(r"(-?[0-9]{1,9})(?::(.*))?", re.DOTALL)
_SLOTS: Final = re.compile(r"(?:id_err)?\(([0-9]{1,3})\+([0-9]{1,3})\+([0-9]{1,3})\)")
_PAIR: Final = re.compile(r"([0-9]{1,9})->([0-9]{1,9})")
_NUMBERS: Final = re.compile(r"[0-9]{1,9}(,[0-9]{1,9})*")
_ROW: Final = re.compile(r"[0-9]{1,9}")
_HANDLE: Final = re.compile(r"-1|[0-9]{1,9}")
"""The handle of a file; the daemon has 30, and gives -1 once they are used up."""
_OLD_COLUMN: Final = "slot->handle"
"""The column for slots with their handles in one, until March 2026."""
_SHOWN: Final = 8
"""The characters of a base's name in the table if it has more than three more, followed by as many dots."""
_QUOTED: Final = 80
"""Characters of an answer that messages for people quote."""


class UnexpectedReplyError(HardwareRefusedError):
    """The daemon has answered something that no known version of it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Something that is loaded."""

    package: str
    base: str
    """The base design, as the table shows it (``show_base``); ``-``: none, a file that another program has loaded by
    hand."""
    slot: int | None
    """None: not in a slot of a base."""
    handle: int
    """By which it is unloaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What the daemon knows."""

    packages: tuple[str, ...]
    """The names of what it can load, once for each package of this name."""
    loaded: tuple[Loaded, ...]
    """What is loaded into the programmable logic; firmware of processors is left out."""


def pack_request(kind: int, text: str = "", flags: int = 0) -> bytes:
    """Return the message of a request. Raises UnicodeEncodeError for a text that is not ASCII."""
    data = text.encode("ascii") + b"\0"
    return _HEADER.pack(kind, len(data), flags, 0) + data + _TRAILER


def unpack_request(message: bytes) -> tuple[int, str, int]:
    """Return the kind, the text and the flags of a request. Raises UnexpectedReplyError."""
    if len(message) < _HEADER.size:
        raise UnexpectedReplyError(f"a message of dfx-mgrd has {len(message)} bytes")
    kind, size, flags, _ = _HEADER.unpack_from(message)
    return kind, _read_text(message, size), flags


def pack_reply(text: str) -> bytes:
    """Return the message of an answer."""
    data = text.encode("ascii") + b"\0"
    return _HEADER.pack(0, len(data), 0, 0) + data + _TRAILER


def unpack_reply(message: bytes) -> str:
    """Return the text of an answer. Raises UnexpectedReplyError."""
    if len(message) < _HEADER.size + len(_TRAILER):
        raise UnexpectedReplyError(f"dfx-mgrd has answered with {len(message)} bytes")
    _, size, _, slot = _HEADER.unpack_from(message)
    if slot:  # there the text begins that daemons without the field for flags send
        raise UnexpectedReplyError("dfx-mgrd is older than June 2025, or is another program: its messages differ")
    return _read_text(message, size)


def parse_result(text: str) -> tuple[int, str]:
    """Return the result of a load or unload, and the state of the FPGA manager, where the daemon says it.

    Raises UnexpectedReplyError.
    """
    found = _RESULT.fullmatch(text.strip())
    if found is None:
        raise UnexpectedReplyError(f"dfx-mgrd has answered {text[:_QUOTED]!r} in place of a number")
    return int(found[1]), " ".join((found[2] or "").split())[:_QUOTED]


def parse_listing(text: str) -> Listing:
    """Read the table of LIST_PACKAGE with SHOW_ALL.

    The columns differ between versions; the last ones are the number of slots, the slots, the handles (before March
    2026 in one column), and the name. Raises UnexpectedReplyError for a row that has fewer, or others.
    """
    packages: list[str] = []
    loaded: list[Loaded] = []
    lines = text.splitlines()
    if not any("slot" in line for line in lines[:_MAX_ROWS]):
        raise UnexpectedReplyError(f"dfx-mgrd has answered {text[:_QUOTED]!r} in place of its table of packages")
    is_old = any(_OLD_COLUMN in line.split() for line in lines[:_MAX_ROWS])
    for line in lines[:_MAX_ROWS]:
        words = line.split()
        if not words or not _ROW.fullmatch(words[0]):
            continue  # a heading
        try:
            is_package, found = _read_row(words, is_old=is_old)
        except (IndexError, ValueError):
            raise UnexpectedReplyError(f"a row of dfx-mgrd's table is not understood: {line[:_QUOTED]!r}") from None
        packages += [words[-1]] if is_package else []
        loaded += found
    return Listing(packages=tuple(packages), loaded=tuple(loaded))


def show_base(name: str) -> str:
    """Return the name of a base as the table shows it."""
    return name if len(name) <= _SHOWN + 3 else f"{name[:_SHOWN]}..."


def _read_text(message: bytes, size: int) -> str:
    data = message[_HEADER.size : _HEADER.size + min(size, _MAX_DATA)]
    return data.partition(b"\0")[0].decode("ascii", errors="replace")


def _read_row(words: list[str], *, is_old: bool) -> tuple[bool, list[Loaded]]:
    """Return whether a row is of a package, and what of it is loaded. Raises IndexError and ValueError."""
    name, where, counts = words[-1], words[-2], words[-3] if is_old else words[-4]
    if (counted := _SLOTS.fullmatch(counts)) is None:
        if counts != "-":
            raise ValueError(counts)
        handle = where.rpartition(">")[2] if is_old else where
        if not _HANDLE.fullmatch(handle):
            raise ValueError(handle)
        return False, [Loaded(package=name, base="-", slot=None, handle=int(handle))]
    if int(counted[1]):
        return False, []  # firmware of processors, which have slots of their own
    base = words[3 if words[1:3] == ["-", "-"] else 4]  # a package may have no type
    slots = int(counted[2]) + int(counted[3])
    pairs = _read_pairs(where) if is_old else _match_up(words[-3], where)
    return True, [
        Loaded(package=name, base=base, slot=slot if slots else None, handle=handle) for slot, handle in pairs
    ]


def _read_pairs(text: str) -> Iterator[tuple[int, int]]:
    for pair in text.rstrip(",").split(",") if text != "-1" else ():
        if (found := _PAIR.fullmatch(pair)) is None:
            raise ValueError(pair)
        yield int(found[1]), int(found[2])


def _match_up(slots: str, handles: str) -> Iterator[tuple[int, int]]:
    if slots == handles == "-1":
        return
    if not (_NUMBERS.fullmatch(slots) and _NUMBERS.fullmatch(handles)):
        raise ValueError(slots)
    yield from zip(map(int, slots.split(",")), map(int, handles.split(",")), strict=True)
