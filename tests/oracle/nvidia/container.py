"""A container of runc with a linker and a C library, whose OCI spec has the edits of devices."""

import json
import re
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerf_dra.cdi import ContainerEdits, apply
from tools.realcluster.requirements import BUSYBOX

_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")
"""The file of a library in what ldd prints."""


@dataclass(frozen=True)
class RuncContainer:
    """The files of one container, which several processes may run in, one after the other."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, probe: Path) -> "RuncContainer":
        """Make the root file system: busybox, the program ``probe``, and the libraries that it needs."""
        container = cls(folder)
        root = container.root
        for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            (root / name).mkdir(parents=True)
        shutil.copy(BUSYBOX, root / "bin/busybox")
        (root / "bin/sh").symlink_to("busybox")
        shutil.copy(probe, root / "bin/probe")
        listed = subprocess.run(["ldd", probe], capture_output=True, check=True, timeout=60).stdout.decode()
        for file in _LIBRARY.findall(listed):
            target = root / file.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
        return container

    @property
    def root(self) -> Path:
        return self.folder / "rootfs"

    def run(self, edits: ContainerEdits, command: Sequence[str]) -> str:
        """Run ``command`` in a container with ``edits``, and return what it prints."""
        (self.folder / "config.json").unlink(missing_ok=True)
        subprocess.run(["runc", "spec", "--bundle", self.folder], check=True, timeout=60)
        oci: dict[str, Any] = json.loads((self.folder / "config.json").read_text())
        oci["process"] |= {"args": [*command], "terminal": False, "rlimits": []}
        oci["root"]["readonly"] = False
        (self.folder / "config.json").write_text(json.dumps(apply(edits, oci)))
        name = f"nvidia-{secrets.token_hex(4)}"
        done = subprocess.run(
            ["runc", "run", "--bundle", self.folder, name], capture_output=True, check=False, timeout=120
        )
        assert done.returncode == 0, f"{done.stdout.decode()}\n{done.stderr.decode()}"
        return done.stdout.decode()
