"""The requirements of a real cluster on the machine, and the installation of missing packages."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.realcluster.versions import NEWEST

BUSYBOX: Final = Path("/bin/busybox")
"""The statically linked busybox (``busybox-static``), which is the whole container image."""
CNI_PLUGINS: Final = Path("/usr/lib/cni")

_GO: Final = "https://go.dev/dl"


class MissingRequirementsError(RuntimeError):
    """The machine lacks something; the message lists everything with a remedy."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program or file that a Debian package has."""

    path: str
    """An absolute path, or the name of a program on PATH."""
    package: str


TOOLS: Final = (
    Tool("runc", "runc"),
    Tool(str(BUSYBOX), "busybox-static"),
    Tool(str(CNI_PLUGINS / "ptp"), "containernetworking-plugins"),
    Tool("iptables", "iptables"),  # the kubelet and CNI plugins look for it at start
    Tool("unshare", "util-linux"),
    Tool("mount", "mount"),
    Tool("mmdebstrap", "mmdebstrap"),  # Kerf's image: tools/image
    Tool("podman", "podman"),  # a second container engine that reads CDI: tests/cdi/runtimes
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The properties of the machine that matter."""

    platform: str
    """The name of the operating system in Python."""
    is_root: bool
    may_unshare: bool
    """Whether namespaces can be created, which root in an unprivileged container may not."""
    has_go: bool
    missing: Sequence[Tool]


def ensure() -> None:
    """Install missing Debian packages. Raises MissingRequirementsError for what cannot be installed."""
    facts = _inspect_machine()
    if facts.missing and facts.is_root and shutil.which("apt-get"):
        install_packages([tool.package for tool in facts.missing])
        facts = _inspect_machine()
    found = list(problems(facts))
    if found:
        raise MissingRequirementsError("a real cluster cannot run here:\n" + "\n".join(f"- {one}" for one in found))


def problems(facts: Facts) -> Iterator[str]:
    """Return what keeps a cluster from running on such a machine, each problem with a remedy."""
    if facts.platform != "linux":
        yield f"it needs Linux, this is {facts.platform}"
    if not facts.is_root:
        yield "it needs root: containerd mounts and the kubelet sets up cgroups"
    elif not facts.may_unshare:
        yield "it needs CAP_SYS_ADMIN to make namespaces: a container must be privileged"
    if not facts.has_go:
        yield f"it needs Go as new as {NEWEST.module_file} says, on PATH: see {_GO}"
    for tool in facts.missing:
        yield f"{tool.path} is missing: install the package {tool.package} (Debian's name)"


def _inspect_machine() -> Facts:
    return Facts(
        platform=sys.platform,
        is_root=os.geteuid() == 0,
        may_unshare=_may_unshare(),
        has_go=shutil.which("go") is not None,
        missing=[tool for tool in TOOLS if not _is_there(tool)],
    )


def _may_unshare() -> bool:
    program = shutil.which("unshare")
    if program is None:  # that is a problem of its own
        return True
    command = [program, "--mount", "--pid", "--fork", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _is_there(tool: Tool) -> bool:
    return Path(tool.path).exists() if tool.path.startswith("/") else shutil.which(tool.path) is not None


def install_packages(packages: list[str]) -> None:
    """Install Debian packages. Raises MissingRequirementsError."""
    print(f"installing {' '.join(packages)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = "\n".join(done.stderr.splitlines()[-5:])
            raise MissingRequirementsError(f"apt-get {' '.join(command)} failed:\n{last}")
