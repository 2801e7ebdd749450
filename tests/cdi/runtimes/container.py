"""A container of a test: its files on the host, the OCI spec that its runtime passed to runc, its observed properties.

Runtimes call runc through a script that stores the OCI spec. The root file system is busybox, and the spec directory of
the test replaces the machine's ``/var/run/cdi``.
"""

import json
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kerf_dra.cdi import Spec, Store
from tools.realcluster.requirements import BUSYBOX

_RUN_S: Final = 60.0
"""A container takes a second."""
_RUNC: Final = """#!/bin/sh
bundle= previous=
for argument in "$@"; do
    [ "$previous" = --bundle ] && bundle=$argument
    previous=$argument
done
if [ -n "$bundle" ]; then
    cp "$bundle/config.json" "{kept}"
    [ -e "{halt}" ] && exit 1
fi
exec runc "$@"
"""
_SEE_SPECS: Final = 'mkdir -p /run/cdi && mount --bind "$0" /run/cdi && exec "$@"'
_HOOK: Final = """#!/bin/sh
echo "$STAGE $*" >> "{called}"
"""
_PROBE: Final = """
echo "env: $(env | tr '\\n' '\\036')"
echo "groups: $(grep ^Groups: /proc/self/status | cut -f2)"
echo "mounts: $(cut -d' ' -f5,6 /proc/self/mountinfo | tr '\\n' '\\036')"
for node in "$@"; do
    echo "node: $(stat -c '%n %F %t %T %a %u %g' "$node")"
    [ -p "$node" ] && continue
    (: < "$node") 2>&1 | sed 's/^/read: /'
    (: > "$node") 2>&1 | sed 's/^/write: /'
done
"""


class ContainerSetup:
    """A folder with the files for the containers of one test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = f"cdi-{secrets.token_hex(4)}"
        """The name of every container of the test, so that OCI specs do not differ by it."""
        self.root_fs = folder / "rootfs"
        self.specs = folder / "specs"
        self.runc = folder / "runc"
        self.shared = folder / "shared"
        """A folder that specs with hooks mount at its own path, so that hooks of every stage find their program."""
        self.deep = self.shared / "deep"
        """A mount point."""
        self._make()

    @property
    def hook(self) -> str:
        """The path of a program that records the variable STAGE and its arguments."""
        return str(self.shared / "hook")

    @property
    def calls(self) -> Sequence[str]:
        """The records of hooks."""
        return (self.shared / "called").read_text().splitlines()

    def reset(self) -> None:
        """Remove all records, and let runc run."""
        (self.shared / "called").write_text("")
        for name in ("kept.json", "halt"):
            (self._folder / name).unlink(missing_ok=True)

    def make_runc_fail(self) -> None:
        """Store the OCI spec and fail from now on, for specs that runc or the machine cannot carry out."""
        (self._folder / "halt").touch()

    def write(self, name: str, spec: Spec) -> None:
        Store(self.specs).write(name, spec)

    @property
    def oci(self) -> dict[str, Any]:
        """The last OCI spec that was passed to runc."""
        kept: dict[str, Any] = json.loads((self._folder / "kept.json").read_text())
        return kept

    def _make(self) -> None:
        for directory in (*(self.root_fs / name for name in ("bin", "etc", "dev", "proc", "sys", "tmp")), self.deep):
            directory.mkdir(parents=True)
        (self.root_fs / "bin/busybox").write_bytes(BUSYBOX.read_bytes())
        (self.root_fs / "bin/busybox").chmod(0o755)
        for command in ("sh", "env", "stat", "cut", "tr", "grep", "sed"):
            (self.root_fs / "bin" / command).symlink_to("busybox")
        _write_program(self.runc, _RUNC.replace("{kept}", str(self._folder / "kept.json")), halt=self._folder / "halt")
        _write_program(self.shared / "hook", _HOOK, called=self.shared / "called")
        self.reset()


def with_spec_directory(specs: Path, command: Sequence[str]) -> Sequence[str]:
    """Return ``command`` in a mount namespace of its own, with ``specs`` as its ``/var/run/cdi``."""
    return ["unshare", "--mount", "sh", "-c", _SEE_SPECS, str(specs), *command]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedContainer:
    """The properties of a container as a process in it sees them."""

    env: Mapping[str, str]
    groups: frozenset[int]
    mounts: Mapping[str, frozenset[str]]
    """The options of mounts, by destination."""
    nodes: Mapping[str, str]
    """The type, numbers (hexadecimal), mode (octal) and owner of device nodes, by path."""
    refused: frozenset[tuple[str, str]]
    """Paths with the operation, read or write, that the container's cgroup denied."""


def observe_container(command: Sequence[str], nodes: Sequence[str]) -> ObservedContainer:
    """Run a container with ``command``, the probe appended, and observe it and its device nodes ``nodes``."""
    probe = ["/bin/sh", "-c", f"export PATH=/bin\n{_PROBE}", "probe", *nodes]
    done = subprocess.run([*command, *probe], capture_output=True, text=True, timeout=_RUN_S, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return _parsed(done.stdout)


def _parsed(output: str) -> ObservedContainer:
    lines = [line.partition(": ") for line in output.removesuffix("\n").split("\n")]
    said = {key: value for key, _, value in lines}
    stats = [value.partition(" ")[::2] for key, _, value in lines if key == "node"]
    refusals = [(key, value) for key, _, value in lines if key in ("read", "write") and "not permitted" in value]
    return ObservedContainer(
        env=dict(entry.split("=", 1) for entry in said["env"].split("\x1e") if "=" in entry),
        groups=frozenset(map(int, said["groups"].split())),
        mounts={
            place: frozenset(options.split(","))
            for place, options in (row.split(" ") for row in said["mounts"].split("\x1e") if row)
        },
        nodes=dict(stats),
        refused=frozenset((path, how) for how, value in refusals for path, _ in stats if f" {path}:" in value),
    )


def _write_program(path: Path, text: str, **places: Path) -> None:
    for name, place in places.items():
        text = text.replace(f"{{{name}}}", str(place))
    path.write_text(text)
    path.chmod(0o755)
