"""The documents between the kubelet plugin and ``kerf mps-daemons``: one folder for each device that is shared by MPS.

===============  ===================  ============================================================
file             writer               what
===============  ===================  ============================================================
``request.json``  the plugin           a daemon is wanted, with these limits; gone: it is not
``state.json``    ``kerf mps-daemons``  what the daemon does; gone: there is none
``pipe/``         the daemon           its sockets, which containers get as ``CUDA_MPS_PIPE_DIRECTORY``
``log/``          the daemon           its logs, which stay when it has ended
===============  ===================  ============================================================

The folder of a device is named by the device's UUID. A request is answered when the state has its id: so a state that a
process left which is gone is never taken for an answer. A document is replaced as a whole, and one of another boot is
as good as none: no daemon survives a boot.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from kerf_dra.api.errors import TransientError
from kerf_dra.driver.runtime.boot import read_boot_id
from kerf_dra.driver.runtime.documents.output_file import replace_durably, sync_folder

LOCK: Final = "lock"
"""The file, in the folder of all devices, that a running ``kerf mps-daemons`` holds locked."""
SHARED_MEMORY: Final = "shm"
"""The folder beside those of the devices that daemons and containers have as ``/dev/shm``, where none is named."""
_PREFIXES: Final = ("GPU-", "MIG-")
"""Begin the UUIDs of NVIDIA's devices, and so the names of their folders."""
_MODE: Final = 0o644
_LARGEST: Final = 65_536
"""Bytes of a document: a hundred times what one has."""

Document = TypeVar("Document", bound=msgspec.Struct)


class UnreadableDocumentError(TransientError):
    """A document cannot be read, or is not what its writer writes: it is of another version, or of another program."""


class UnwritableDocumentError(TransientError):
    """A document could not be written or removed; the one that was there before may be there still."""


class DaemonRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The plugin's wish for a daemon."""

    id: str
    """Another one for each write."""
    boot_id: str
    device: str
    """UUID of the GPU or the MIG device."""
    active_thread_percentage: int = 100
    """The percentage of the device's multiprocessors that no client may exceed."""
    pinned_memory_mib: int | None = None
    """The device memory in MiB that no client may exceed; None: all of it."""


class DaemonState(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """What the daemon of a request does. Defaults are not written: a plugin of before a field reads the rest."""

    request: str
    """The id of the last request whose limits the daemon has; empty: of none."""
    is_ready: bool
    """Whether the daemon answers."""
    pid: int = 0
    """The daemon's number, for people; 0: there is none."""
    restarts: int = 0
    """How often a daemon had to be started again for this device."""
    error: str = ""
    """Why the daemon is not ready."""
    is_failing: bool = False
    """Whether the daemon is not ready although it was: its clients have failed, or hang."""


@dataclass(frozen=True, slots=True)
class DaemonFolder:
    """The folder of one device."""

    path: Path

    @property
    def device(self) -> str:
        return self.path.name

    @property
    def request(self) -> Path:
        return self.path / "request.json"

    @property
    def state(self) -> Path:
        return self.path / "state.json"

    @property
    def pipe(self) -> Path:
        return self.path / "pipe"

    @property
    def log(self) -> Path:
        return self.path / "log"

    def read_request(self) -> DaemonRequest | None:
        """Return the request; None: no daemon is wanted, or one of another boot. Raises UnreadableDocumentError."""
        request = read_document(self.request, DaemonRequest)
        return request if request is not None and request.boot_id == read_boot_id() else None

    def check_root(self) -> None:
        """Check that the folder of all devices is there, so that a document that is not was removed or never written.

        Raises UnreadableDocumentError: the file system may not be mounted.
        """
        root = self.path.parent
        try:
            is_there = any(root.iterdir())
        except OSError as error:
            raise UnreadableDocumentError(f"{root} cannot be read: {error.strerror}; mount its file system") from error
        if not is_there:
            raise UnreadableDocumentError(f"{root} is empty, but devices are shared by it: mount its file system")

    def read_state(self) -> DaemonState | None:
        """Return the state; None: there is no daemon. Raises UnreadableDocumentError."""
        return read_document(self.state, DaemonState)


def list_folders(root: Path) -> list[DaemonFolder]:
    """Return the folders of devices in ``root``, by name."""
    try:
        names = sorted(entry.name for entry in root.iterdir() if entry.name.startswith(_PREFIXES))
    except FileNotFoundError:
        return []
    return [DaemonFolder(root / name) for name in names]


def read_document(path: Path, kind: type[Document]) -> Document | None:
    """Return the document at ``path``; None: there is none. Raises UnreadableDocumentError."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST)
        return msgspec.json.decode(data, type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableDocumentError(f"{path} cannot be read: {error.strerror}; see to its disk") from error
    except msgspec.MsgspecError as error:
        raise UnreadableDocumentError(f"{path} cannot be read: {error}; remove it when no pod uses the GPU") from error


def write_document(path: Path, document: msgspec.Struct) -> None:
    """Replace the document at ``path`` as a whole, durably, and make its folder. That has one writer of this name.

    Raises UnwritableDocumentError; the earlier document then remains.
    """
    with _changes(path, "written"):
        replace_durably(path, msgspec.json.encode(document), _temporary_of(path), mode=_MODE)


def remove_document(path: Path) -> None:
    """Remove the document at ``path`` durably, and what a killed writer of it has left; none there is success.

    To be called by the writer of this name. Raises UnwritableDocumentError.
    """
    with _changes(path, "removed"):
        _temporary_of(path).unlink(missing_ok=True)
        try:
            path.unlink()
        except FileNotFoundError:
            return
        sync_folder(path.parent)


@contextmanager
def _changes(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = "see to it that its disk has space and can be written"
        raise UnwritableDocumentError(f"{path} cannot be {verb}: {error.strerror}; {advice}") from error


def _temporary_of(path: Path) -> Path:
    return path.with_name(f".{path.name}")
