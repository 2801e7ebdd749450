"""What the machine must have for a real cluster, and how to get it where that can be done by itself."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.realcluster.versions import NEWEST

BUSYBOX: Final = Path("/bin/busybox")
"""Statically linked (``busybox-static``): the whole of our container image."""
CNI_PLUGINS: Final = Path("/usr/lib/cni")

_GO: Final = "https://go.dev/dl"


class MissingRequirementsError(RuntimeError):
    """The machine lacks something; the message names everything, with what to do."""


@dataclass(frozen=True, slots=True)
class _Tool:
    path: str
    """An absolute path, or a program on PATH."""
    package: str
    """Of Debian."""

    @property
    def is_there(self) -> bool:
        return Path(self.path).exists() if self.path.startswith("/") else shutil.which(self.path) is not None


_TOOLS: Final = (
    _Tool("runc", "runc"),
    _Tool(str(BUSYBOX), "busybox-static"),
    _Tool(str(CNI_PLUGINS / "ptp"), "containernetworking-plugins"),
    _Tool("iptables", "iptables"),  # the kubelet and CNI plugins look for it at start
    _Tool("unshare", "util-linux"),
    _Tool("mount", "mount"),
    _Tool("podman", "podman"),  # a second container engine that reads CDI: tests/cdi/runtimes
)


def ensure() -> None:
    """Install the Debian packages that are missing. Raises MissingRequirementsError for what cannot be had so."""
    packages = [tool.package for tool in _TOOLS if not tool.is_there]
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        _install(packages)
    problems = list(_problems())
    if problems:
        raise MissingRequirementsError("a real cluster cannot run here:\n" + "\n".join(f"- {one}" for one in problems))


def _problems() -> Iterator[str]:
    if not sys.platform.startswith("linux"):
        yield f"it needs Linux, this is {sys.platform}"
    if os.geteuid() != 0:
        yield "it needs root: containerd mounts and the kubelet sets up cgroups"
    if shutil.which("go") is None:
        yield f"it needs Go as new as {NEWEST.module_file} says, on PATH: see {_GO}"
    for tool in _TOOLS:
        if not tool.is_there:
            yield f"{tool.path} is missing: install the package {tool.package} (Debian's name)"


def _install(packages: list[str]) -> None:
    print(f"installing {' '.join(packages)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = "\n".join(done.stderr.splitlines()[-5:])
            raise MissingRequirementsError(f"apt-get {' '.join(command)} failed:\n{last}")
