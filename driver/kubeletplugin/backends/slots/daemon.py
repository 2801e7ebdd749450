"""The socket of dfx-mgrd: lists what is loaded, loads and unloads. Nothing else changes the card.

The daemon answers one request after another: while it loads for one caller, all others wait. A failure becomes one of
Kerf's errors here, with what can be done about it.
"""

import errno
import socket
import struct
from typing import Final, Protocol

from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    HardwareBusyError,
    HardwareConflictError,
    HardwareRefusedError,
)
from kerf_dra.driver.kubeletplugin.backends.slots import messages
from kerf_dra.driver.kubeletplugin.backends.slots.messages import Listing, UnexpectedReplyError

_QUERY_S: Final = 20.0
"""Seconds to wait for an answer to a question, or an unload: a load that the daemon makes for another may take some."""
_CREDENTIALS: Final = struct.Struct("3i")
"""struct ucred: pid, uid, gid (unix(7), SO_PEERCRED)."""


class Exchange(Protocol):
    """One request and its answer."""

    def __call__(self, request: bytes, timeout_s: float) -> bytes:
        """Send a message and return the answer. Raises OSError, TimeoutError among them."""
        ...


class DaemonSocket:
    """The daemon's socket itself."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, request: bytes, timeout_s: float) -> bytes:
        with self._connect(timeout_s) as connection:
            connection.send(request)
            return connection.recv(messages.MAX_MESSAGE)

    def find_pid(self) -> int:
        """Return the daemon's process id, as far as it is seen from here; 0: it is not. Raises OSError."""
        with self._connect(_QUERY_S) as connection:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(credentials)[0])

    def _connect(self, timeout_s: float) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.settimeout(timeout_s)
            connection.connect(self._path)
        except BaseException:
            connection.close()
            raise
        return connection


class DfxDaemon:
    """The daemon; every method raises CardAbsentError where it does not run, and HardwareBusyError while it is busy."""

    def __init__(self, path: str, exchange: Exchange | None = None) -> None:
        """Tests give ``exchange``."""
        self._path = path
        self._socket = DaemonSocket(path)
        self._exchange = exchange or self._socket

    def read_listing(self) -> Listing:
        """Return what it can load, and what is loaded. Raises UnexpectedReplyError."""
        request = messages.pack_request(messages.LIST_PACKAGE, flags=messages.SHOW_ALL)
        return messages.parse_listing(self._ask(request, _QUERY_S, "dfx-mgrd does not say what is loaded"))

    def load(self, package: str, limit_s: float) -> int:
        """Load a package into the first free slot for which it has a directory, and return the handle.

        Raises HardwareConflictError where no such slot is free, HardwareRefusedError where the package is unknown or
        the load takes more than ``limit_s`` seconds, and HardwareBusyError where the load failed.
        """
        what = f"package {package} cannot be loaded"
        request = messages.pack_request(messages.LOAD_ACCEL, package)
        try:
            answer = self._ask(request, limit_s, what, is_load=True)
        except TimeoutError:
            raise HardwareRefusedError(
                f"{what}: dfx-mgrd has not answered for {limit_s:g} s, and no more are allowed (timeoutSeconds of the "
                "FpgaConfig, loadSeconds of the image)"
            ) from None
        result, state = messages.parse_result(answer)
        if result >= 0:
            return result
        if result == messages.NO_PACKAGE:
            raise HardwareRefusedError(
                f"{what}: dfx-mgrd does not know it; a base design may have ten packages, and each needs an accel.json"
            )
        if result == messages.NO_SLOT:
            raise HardwareConflictError(f"in use outside of Kerf: the slot of package {package}")
        said = f"the FPGA manager's state is {state}; " if state else ""
        raise HardwareBusyError(f"{what}: {said}the log of dfx-mgrd has the reason (journalctl -u dfx-mgr)")

    def unload(self, handle: int) -> None:
        """Unload what has ``handle``. Raises HardwareBusyError where it refuses, as for one that is gone already."""
        request = messages.pack_request(messages.UNLOAD_ACCEL, str(handle))
        what = f"handle {handle} cannot be unloaded"
        result, _ = messages.parse_result(self._ask(request, _QUERY_S, what))
        if result != 0:
            raise HardwareBusyError(f"{what}: dfx-mgrd answers {result}; its log has the reason")

    def unload_base(self, name: str) -> None:
        """Remove the base design that is loaded, which is called ``name``, with slots that are all empty.

        It answers the same when there is nothing to remove, and when it could not: what is loaded then has to be read.
        Raises HardwareBusyError where it refuses.
        """
        request = messages.pack_request(messages.UNLOAD_ACCEL, messages.BASE)
        what = f"base design {name} cannot be removed"
        result, _ = messages.parse_result(self._ask(request, _QUERY_S, what))
        if result != 0:
            raise HardwareBusyError(
                f"{what}: dfx-mgrd answers {result}, which means that a slot is in use, or that it was restarted "
                "since the base design was loaded: then boot the node"
            )

    def find_pid(self) -> int:
        """Return its process id, as far as it is seen from here; 0: it is not."""
        try:
            return self._socket.find_pid()
        except OSError as error:
            raise self._translate(error, "dfx-mgrd cannot be asked") from error

    def _ask(self, request: bytes, timeout_s: float, what: str, *, is_load: bool = False) -> str:
        try:
            answer = self._exchange(request, timeout_s)
        except TimeoutError as error:
            if is_load:
                raise
            raise HardwareBusyError(f"{what}: dfx-mgrd has not answered for {timeout_s:g} s; is it loading?") from error
        except OSError as error:
            raise self._translate(error, what) from error
        if not answer:
            raise HardwareBusyError(f"{what}: dfx-mgrd has ended the connection; did it end itself?")
        try:
            return messages.unpack_reply(answer)
        except UnexpectedReplyError as error:
            raise UnexpectedReplyError(f"{what}: {error}") from error

    def _translate(self, error: OSError, what: str) -> HardwareRefusedError | CardAbsentError | HardwareBusyError:
        if error.errno in {errno.EACCES, errno.EPERM}:
            return HardwareRefusedError(f"{what}: {self._path} may not be opened; only root may")
        if error.errno in {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTSOCK}:
            return CardAbsentError(f"{what}: no dfx-mgrd listens at {self._path}")
        return HardwareBusyError(f"{what}: {error.strerror or error}")
