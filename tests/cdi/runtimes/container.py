"""One container: what it is made of on the host, what a runtime handed to runc, and what was inside.

runc is called through a program of ours that keeps the OCI spec it is given. The root file system is busybox; runtimes
see the specs of a test in place of the machine's ``/var/run/cdi``.
"""

import json
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cdi import Spec, Store
from tests.realcluster.requirements import BUSYBOX

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


class Workshop:
    """A folder with all that containers of one test need."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = f"cdi-{secrets.token_hex(4)}"
        """Of every container of the test: what an OCI spec has of its name is then the same in all."""
        self.root_fs = folder / "rootfs"
        self.specs = folder / "specs"
        self.runc = folder / "runc"
        self.shared = folder / "shared"
        """Mounted at its own path by specs that have hooks: hooks of every stage find themselves."""
        self.deep = self.shared / "deep"
        """Something to mount on."""
        self._make()

    @property
    def hook(self) -> str:
        """A program that notes the variable STAGE and its arguments."""
        return str(self.shared / "hook")

    @property
    def calls(self) -> Sequence[str]:
        """What hooks have noted."""
        return (self.shared / "called").read_text().splitlines()

    def forget(self) -> None:
        """Nothing has been called or kept yet, and runc runs."""
        (self.shared / "called").write_text("")
        for name in ("kept.json", "halt"):
            (self._folder / name).unlink(missing_ok=True)

    def halt(self) -> None:
        """From now on keep the OCI spec and fail, for specs that runc or the machine cannot carry out."""
        (self._folder / "halt").touch()

    def write(self, name: str, spec: Spec) -> None:
        Store(self.specs).write(name, spec)

    @property
    def oci(self) -> dict[str, Any]:
        """The OCI spec that runc was given last."""
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
        self.forget()


def seeing(specs: Path, command: Sequence[str]) -> Sequence[str]:
    """``command`` in a mount namespace of its own, with ``specs`` as its ``/var/run/cdi``."""
    return ["unshare", "--mount", "sh", "-c", _SEE_SPECS, str(specs), *command]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What a process in a container saw."""

    env: Mapping[str, str]
    groups: frozenset[int]
    mounts: Mapping[str, frozenset[str]]
    """Options by destination."""
    nodes: Mapping[str, str]
    """Type, numbers (hexadecimal), mode (octal) and owner by path."""
    refused: frozenset[tuple[str, str]]
    """Paths with what the container's cgroup forbade: read or write."""


def look_inside(command: Sequence[str], nodes: Sequence[str]) -> Inside:
    """Run a container by ``command``, to which what it is to run is added, and look at ``nodes`` and all else."""
    probe = ["/bin/sh", "-c", f"export PATH=/bin\n{_PROBE}", "probe", *nodes]
    done = subprocess.run([*command, *probe], capture_output=True, text=True, timeout=_RUN_S, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return _parsed(done.stdout)


def _parsed(output: str) -> Inside:
    lines = [line.partition(": ") for line in output.removesuffix("\n").split("\n")]
    said = {key: value for key, _, value in lines}
    stats = [value.partition(" ")[::2] for key, _, value in lines if key == "node"]
    refusals = [(key, value) for key, _, value in lines if key in ("read", "write") and "not permitted" in value]
    return Inside(
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
