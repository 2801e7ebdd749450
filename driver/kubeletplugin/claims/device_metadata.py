"""Device metadata (KEP-5304): documents that describe its devices to a container, where class or claim enables them.

Each request has one document, made from the claim's record alone, so that a restart makes the same one again. It lies
in a file in the claim's folder, below the plugin's; containers have it mounted. A file appears complete or not at all.
Nothing is synced, because after a crash of the machine every claim is prepared again.
"""

import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.device_attributes import ATTRIBUTE_DEVICE_UUID
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.prepared import DeviceDescription, PreparedClaim, PreparedDevice
from kerf_dra.api.resource.device_metadata import (
    DescribedDevice,
    DescribedRequest,
    DeviceMetadata,
    container_path,
    encode,
)
from kerf_dra.cdi import ContainerEdits, Mount

FOLDER: Final = "dra-device-metadata"
"""The name that drivers with the Go package use (``k8s.io/dynamic-resource-allocation/kubeletplugin``)."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
"""UIDs and request names: no slash, and no dot in front."""
_FOLDER_MODE: Final = 0o755
_FILE_MODE: Final = 0o644
"""Readable by whatever user the container's process has."""


class MetadataFileError(TransientError):
    """A file could not be written or removed."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"device metadata in {path}: {reason}")


def build_documents(record: PreparedClaim, find_uuid: Callable[[PreparedDevice], str]) -> Mapping[str, bytes]:
    """Build the encoded documents by request, without sub-request; none for requests that do not ask for one.

    ``find_uuid`` returns the UUID by which programs address a prepared device, empty where there is none.
    """
    devices: dict[str, list[tuple[DeviceDescription, PreparedDevice]]] = {}
    for device in record.devices:
        if device.description is not None:
            for request in device.requests:
                devices.setdefault(request, []).append((device.description, device))
    return {request: encode(_build_document(record, described, find_uuid)) for request, described in devices.items()}


def build_mount(driver: str, record: PreparedClaim, request: str, host_path: str) -> ContainerEdits:
    """Build the mount of the document at ``host_path`` to the path where containers look for it."""
    inside = container_path(driver, record.claim.name, record.pod_claim_name, request)
    return ContainerEdits(mounts=(Mount(host_path=host_path, container_path=inside, options=("ro", "bind")),))


def _build_document(
    record: PreparedClaim,
    described: list[tuple[DeviceDescription, PreparedDevice]],
    find_uuid: Callable[[PreparedDevice], str],
) -> DeviceMetadata:
    claim = record.claim
    return DeviceMetadata(
        metadata=ObjectMeta(name=claim.name, namespace=claim.namespace, uid=claim.uid, generation=1),
        pod_claim_name=record.pod_claim_name or None,
        requests=(
            DescribedRequest(
                name=described[0][0].request,
                devices=tuple(
                    DescribedDevice(
                        driver=device.share.id.driver,
                        pool=device.share.id.pool,
                        name=device.share.id.device,
                        attributes=_add_uuid(description.attributes, find_uuid(device)),
                    )
                    for description, device in described
                ),
            ),
        ),
    )


def _add_uuid(attributes: dict[str, Attribute], uuid: str) -> dict[str, Attribute]:
    return attributes | {ATTRIBUTE_DEVICE_UUID: Attribute.of(uuid)} if uuid else attributes


class MetadataFiles:
    """The metadata files of one node, in ``folder``, which is made when it is needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def paths(self, uid: str, requests: Iterable[str]) -> Mapping[str, Path]:
        """Return the paths of the claim's files by request. Raises MetadataFileError for what is no path's part."""
        return {request: self._folder_of(uid) / f"{_check_name(request)}.json" for request in requests}

    def write(self, uid: str, documents: Mapping[str, bytes]) -> None:
        """Make the claim's files exactly ``documents``, by request. Raises MetadataFileError.

        A file with the right content is left alone, because a running container may have it mounted. What another
        program has put in the place of the folder or of a file, such as a link, is replaced and never followed.
        """
        if not documents:
            self.remove(uid)
            return
        paths = self.paths(uid, documents)
        try:
            self._make_folder(self._folder_of(uid))
            for request, content in documents.items():
                _replace(paths[request], content)
            for stray in set(self._folder_of(uid).iterdir()) - set(paths.values()):
                _remove(stray)
        except OSError as error:
            raise MetadataFileError(self._folder_of(uid), f"cannot be written: {error.strerror}") from error

    def remove(self, uid: str) -> None:
        """Remove the claim's files; none there is success. Raises MetadataFileError."""
        try:
            _remove(self._folder_of(uid))
        except FileNotFoundError:
            return
        except OSError as error:
            raise MetadataFileError(self._folder_of(uid), f"cannot be removed: {error.strerror}") from error

    def remove_others(self, kept: Collection[str]) -> list[str]:
        """Remove the files of all claims but ``kept``; returns the UIDs of those removed. Raises MetadataFileError."""
        try:
            found = [path.name for path in self._folder.iterdir()] if self._folder.exists() else []
        except OSError as error:
            raise MetadataFileError(self._folder, f"cannot be listed: {error.strerror}") from error
        strays = sorted(uid for uid in found if uid not in kept)
        for uid in strays:
            self.remove(uid)
        return strays

    def _folder_of(self, uid: str) -> Path:
        return self._folder / _check_name(uid)

    def _make_folder(self, folder: Path) -> None:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            _remove(folder)
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)


def _check_name(name: str) -> str:
    """Return a name from outside that is safe as part of a path."""
    if not _NAME.fullmatch(name):
        raise MetadataFileError(Path(f"{name:.80}"), "this is neither a UID nor a request's name")
    return name


def _replace(path: Path, content: bytes) -> None:
    if _has_content(path, content):
        return
    if path.is_dir() and not path.is_symlink():
        _remove(path)
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)  # what an interrupted write has left, or a link to another program's file
    with temporary.open("xb") as file:
        file.write(content)
    temporary.chmod(_FILE_MODE)
    temporary.rename(path)


def _has_content(path: Path, content: bytes) -> bool:
    """Whether the file itself, not one that it links to, is as ``_replace`` writes it."""
    try:
        mode = path.lstat().st_mode
        return stat.S_ISREG(mode) and stat.S_IMODE(mode) == _FILE_MODE and path.read_bytes() == content
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    """Remove a file, a link, or a folder with what is in it. The folder is the plugin's own."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
