"""The container image of all test pods: busybox alone, as an OCI archive that containerd imports."""

import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tools.image.archive import add_file, write_archive
from tools.realcluster.requirements import BUSYBOX

_COMMANDS: Final = ("sh", "sleep", "cat", "env", "ls", "echo", "true", "false", "test", "grep", "stat", "find", "head")
_DIRECTORIES: Final = ("bin", "etc", "tmp", "dev", "proc", "sys", "var", "root")


def write_image(name: str, archive: Path) -> None:
    """Write the image, to be known as ``name``, to the file ``archive``."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        layer = Path(folder) / "layer.tar"
        _write_layer(layer)
        configuration = {"Entrypoint": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]}
        write_archive(name, archive, [layer], configuration)


def _write_layer(layer: Path) -> None:
    with tarfile.open(layer, "w") as tar:
        for directory in _DIRECTORIES:
            _add(tar, directory, tarfile.DIRTYPE)
        add_file(tar, "bin/busybox", BUSYBOX, mode=0o755)
        for command in _COMMANDS:
            _add(tar, f"bin/{command}", tarfile.SYMTYPE, link="busybox")
        add_file(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")


def _add(tar: tarfile.TarFile, name: str, type_: bytes, *, link: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = type_, link, 0o755
    tar.addfile(entry)
