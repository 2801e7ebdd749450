"""The files that containers read about their devices (``describing``): one folder for each claim, below the plugin's.

A file appears whole or not at all; nothing is synced, because after a crash of the machine every claim is prepared
again. One that has the content is left alone: a running container has it mounted.
"""

import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from api.errors import TransientError

FOLDER: Final = "dra-device-metadata"
"""As in drivers that use the Go package (``k8s.io/dynamic-resource-allocation/kubeletplugin``)."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
"""UIDs and request names: no slash, and no dot in front."""
_FOLDER_MODE: Final = 0o755
_FILE_MODE: Final = 0o644
"""Whatever user the container's process is."""


class MetadataFileError(TransientError):
    """A file could not be written or removed."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"device metadata in {path}: {reason}")


class MetadataFiles:
    """All of one node's, in ``folder``, which is made when it is needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, uid: str, documents: Mapping[str, bytes]) -> Mapping[str, Path]:
        """Have exactly ``documents``, by request, for the claim; returns where they lie. Raises MetadataFileError."""
        paths = {request: self._of(uid) / f"{_checked(request)}.json" for request in documents}
        if not documents:
            self.remove(uid)
            return {}
        try:
            self._of(uid).mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            for request, content in documents.items():
                _replace(paths[request], content)
            for stray in set(self._of(uid).iterdir()) - set(paths.values()):
                stray.unlink()
        except OSError as error:
            raise MetadataFileError(self._of(uid), f"cannot be written: {error.strerror}") from error
        return paths

    def remove(self, uid: str) -> None:
        """Remove the claim's files; none there is fine. Raises MetadataFileError."""
        try:
            shutil.rmtree(self._of(uid))
        except FileNotFoundError:
            return
        except OSError as error:
            raise MetadataFileError(self._of(uid), f"cannot be removed: {error.strerror}") from error

    def sweep(self, kept: Collection[str]) -> list[str]:
        """Remove the files of all claims but ``kept`` (UIDs); returns whose. Raises MetadataFileError."""
        found = [path.name for path in self._folder.iterdir()] if self._folder.exists() else []
        strays = sorted(uid for uid in found if uid not in kept)
        for uid in strays:
            self.remove(uid)
        return strays

    def _of(self, uid: str) -> Path:
        return self._folder / _checked(uid)


def _checked(name: str) -> str:
    """A name from outside as part of a path."""
    if not _NAME.fullmatch(name):
        raise MetadataFileError(Path(name), "this is no UID and no request's name")
    return name


def _replace(path: Path, content: bytes) -> None:
    if path.exists() and path.read_bytes() == content:
        return
    unborn = path.with_suffix(".new")
    unborn.write_bytes(content)
    unborn.chmod(_FILE_MODE)
    unborn.rename(path)
