"""OCI archives: an image in one file, which container runtimes import.

OCI Image Format 1.1: layers, their configuration, a manifest and an index, each found by its digest.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.image.description import architecture

_CONFIGURATION: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"


class _Blob(NamedTuple):
    digest: str
    size: int
    content: bytes | Path


def write_archive(name: str, archive: Path, layers: Sequence[Path], configuration: Mapping[str, Any]) -> None:
    """Write the image, to be known as ``name``, to the file ``archive``; ``layers`` from the lowest."""
    layer_blobs = [_blob_of_file(layer) for layer in layers]
    document = {
        "architecture": architecture(),
        "os": "linux",
        "config": configuration,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{blob.digest}" for blob in layer_blobs]},
    }
    configuration_blob = _blob(document)
    manifest_blob = _blob(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _entry(_CONFIGURATION, configuration_blob),
            "layers": [_entry(_LAYER, blob) for blob in layer_blobs],
        }
    )
    annotations = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    index = {"schemaVersion": 2, "manifests": [{**_entry(_MANIFEST, manifest_blob), "annotations": annotations}]}
    with tarfile.open(archive, "w") as tar:
        add_file(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        add_file(tar, "index.json", _json(index))
        for blob in (manifest_blob, configuration_blob, *layer_blobs):
            add_file(tar, f"blobs/sha256/{blob.digest}", blob.content)


def add_file(tar: tarfile.TarFile, name: str, content: bytes | Path, *, mode: int = 0o644) -> None:
    """Add a file that belongs to root and has no time, with the bytes of ``content`` or of a file."""
    entry = tarfile.TarInfo(name)
    entry.mode = mode
    if isinstance(content, bytes):
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    else:
        entry.size = content.stat().st_size
        with content.open("rb") as file:
            tar.addfile(entry, file)


def _entry(media_type: str, blob: _Blob) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{blob.digest}", "size": blob.size}


def _blob(document: Mapping[str, Any]) -> _Blob:
    content = _json(document)
    return _Blob(hashlib.sha256(content).hexdigest(), len(content), content)


def _blob_of_file(path: Path) -> _Blob:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return _Blob(digest, path.stat().st_size, path)


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()
