"""What ``nvidia-ctk cdi generate`` writes for a tree, and what of it is compared."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kerf_dra.cdi import ContainerEdits, DeviceNode, Spec, load
from tests.fakes.nvidia_driver import NvidiaTree

HOOK = "/usr/bin/nvidia-cdi-hook"
_IN_NAMESPACE = """
mount --bind "$1/proc/driver" /proc/driver && mount --bind "$1/sys" /sys && shift && PATH= && exec "$@"
"""
"""The toolkit reads both at fixed paths, and looks for programs in the folders of PATH before the usual ones."""


@dataclass(frozen=True)
class Generator:
    """The program nvidia-ctk."""

    binary: Path

    def generate(self, tree: NvidiaTree, mode: str, environment: Mapping[str, str] | None = None) -> Spec:
        """Return the spec of all devices of ``tree``, in a mount namespace with its ``/proc/driver`` and ``/sys``.

        ``environment``: variables beside those of this process.
        """
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _IN_NAMESPACE, "sh", str(tree.host)]
        command += [str(self.binary), "--quiet", "cdi", "generate", f"--mode={mode}", "--format=json"]
        command += [f"--driver-root={tree.driver}", f"--dev-root={tree.host}", f"--nvidia-cdi-hook-path={HOOK}"]
        variables = {**os.environ, **(environment or {})}
        done = subprocess.run(command, env=variables, capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        return load(done.stdout)


@dataclass(frozen=True)
class Comparable:
    """Edits without what depends on order and on who makes the spec."""

    env: frozenset[str]
    mounts: Mapping[str, tuple[str, frozenset[str]]]
    """Path on the host without links, and options, by path in containers."""
    links: Mapping[str, str]
    """Targets of links by their paths."""
    hooks: Mapping[str, frozenset[str]]
    """Arguments of each other hook, by its subcommand."""
    nodes: Mapping[str, tuple[int, int]]
    """Major and minor number by path."""


def comparable(edits: ContainerEdits) -> Comparable:
    hooks = {hook.args[1]: frozenset(hook.args[2:]) for hook in edits.hooks}
    hooks.pop("create-symlinks", None)
    return Comparable(
        env=frozenset(edits.env),
        mounts={
            mount.container_path: (str(Path(mount.host_path).resolve()), frozenset(mount.options))
            for mount in edits.mounts
        },
        links=dict(_links(edits)),
        hooks=hooks,
        nodes=_numbers(edits.device_nodes),
    )


def _links(edits: ContainerEdits) -> Iterable[tuple[str, str]]:
    for hook in edits.hooks:
        if hook.args[1] == "create-symlinks":
            for target, _, path in (argument.partition("::") for argument in hook.args[3::2]):
                yield path, target


def _numbers(nodes: Iterable[DeviceNode]) -> dict[str, tuple[int, int]]:
    return {node.path: (node.major, node.minor) for node in nodes}
