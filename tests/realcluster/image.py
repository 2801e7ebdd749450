"""The container image of all test pods: busybox alone, as an OCI archive that containerd imports.

OCI Image Format 1.0: a layer, its configuration, a manifest, an index, each found by its digest.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.realcluster.requirements import BUSYBOX

_COMMANDS: Final = ("sh", "sleep", "cat", "env", "ls", "echo", "true", "false", "test", "grep", "stat", "find", "head")
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_DIRECTORIES: Final = ("bin", "etc", "tmp", "dev", "proc", "sys", "var", "root")


def write_image(name: str, archive: Path) -> None:
    """Write the image, to be known as ``name``, to the file ``archive``."""
    layer = _layer()
    blobs: dict[str, bytes] = {}

    def add(media_type: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    layer_entry = add("application/vnd.oci.image.layer.v1.tar", layer)
    configuration = {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [layer_entry["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": add("application/vnd.oci.image.config.v1+json", _json(configuration)),
        "layers": [layer_entry],
    }
    entry = add(_MANIFEST, _json(manifest))
    entry["annotations"] = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    with tarfile.open(archive, "w") as tar:
        _add_file(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add_file(tar, "index.json", _json({"schemaVersion": 2, "manifests": [entry]}))
        for digest, content in blobs.items():
            _add_file(tar, f"blobs/sha256/{digest}", content)


def _layer() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for directory in _DIRECTORIES:
            _add(tar, directory, tarfile.DIRTYPE)
        _add_file(tar, "bin/busybox", BUSYBOX.read_bytes(), mode=0o755)
        for command in _COMMANDS:
            _add(tar, f"bin/{command}", tarfile.SYMTYPE, link="busybox")
        _add_file(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, type_: bytes, *, link: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = type_, link, 0o755
    tar.addfile(entry)


def _add_file(tar: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()
