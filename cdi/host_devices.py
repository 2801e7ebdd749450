"""Looks up the device nodes of the host, the only property of the machine that injection needs."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kerf_dra.cdi.errors import HostDeviceError

_TYPES = {stat.S_IFBLK: "b", stat.S_IFCHR: "c", stat.S_IFIFO: "p"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNode:
    """The properties of a device node on the host."""

    type: str
    """The type: b, c or p."""
    major: int
    minor: int
    file_mode: int
    """The permission bits, without the file type."""


class HostView(Protocol):
    """A source of the host's device nodes."""

    def node(self, path: str) -> HostNode:
        """Return the node at ``path``. Raises HostDeviceError with code host-missing or host-not-device."""
        ...


class Host:
    """The machine that this process runs on, or another one whose file system is mounted at ``root``."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def node(self, path: str) -> HostNode:
        """Return the node at ``path``; a symbolic link is not a device node, because runtimes do not follow it either.

        Raises HostDeviceError, as ``HostView.node``.
        """
        try:
            status = (self._root / path.lstrip("/")).lstat()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise HostDeviceError(path, "host-missing", f"the host has none to complete it from: {reason}") from error
        kind = _TYPES.get(stat.S_IFMT(status.st_mode))
        if kind is None:
            raise HostDeviceError(path, "host-not-device", "what the host has there is no device node")
        return HostNode(
            type=kind,
            major=os.major(status.st_rdev),
            minor=os.minor(status.st_rdev),
            file_mode=stat.S_IMODE(status.st_mode),
        )
