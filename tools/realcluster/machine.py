"""A node's machine: a process and a mount namespace, so that a node can be switched off like a computer.

Everything on the node (containerd, its shims, containers, the kubelet) is a descendant of one process, the machine's
init. When that is killed the kernel kills all of them, and with the last one their mounts, network namespaces and veth
pairs go: nothing is left to clean but control groups and files. What parts of a node write to fixed places of the file
system (``_PRIVATE``) lands on file systems in memory, as it would after a boot. The network and the control groups are
the host's.
"""

import os
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

from tools.realcluster.paths import NodePaths
from tools.realcluster.processes import Processes

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""The kernel's identity of this boot (random(4))."""
_BOOT_S: Final = 10.0
"""A time limit for what takes milliseconds."""
_CGROUPS: Final = Path("/sys/fs/cgroup")
_PRIVATE: Final = ("/run/netns", "/run/containerd", "/var/lib/cni", "/var/log/containers", "/var/log/pods")
"""Network namespaces, shims' sockets, CNI's results, the kubelet's links to logs."""
_DEVICE_PLUGINS: Final = Path("/var/lib/kubelet/device-plugins")
"""The folder of the device plugin interface, which a kubelet has whatever its ``--root-dir`` is."""


class Machine:
    """One machine. ``processes`` are those of the cluster; the node has the name of its folder."""

    def __init__(self, processes: Processes, paths: NodePaths) -> None:
        self._processes = processes
        self._paths = paths
        self._name = f"{paths.root.name}-machine"

    async def switch_on(self) -> None:
        """Boot the machine: it has a new boot ID, nothing runs, and file systems in memory are empty."""
        self._paths.boot_id.write_text(f"{uuid.uuid4()}\n")
        self._make_mount_points()
        is_up = self._paths.root / "is-up"
        is_up.unlink(missing_ok=True)
        mounts = [f"mount -t tmpfs tmpfs {directory}" for directory in _PRIVATE]
        mounts += _binds(self._paths)
        # The shell stays as the init that reaps orphans: `wait` without arguments waits for any child.
        script = " && ".join([*mounts, f"touch {shlex.quote(str(is_up))}", "{ sleep infinity & wait; }"])
        launcher = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._processes.start(self._name, ["sh", "-c", script], launcher=launcher)
        with anyio.fail_after(_BOOT_S):
            while not is_up.exists():
                self._processes.pid(self._name)
                await anyio.sleep(0.01)

    async def switch_off(self) -> None:
        """Kill everything on the machine; what is on disk stays."""
        await self._processes.kill(self._name)
        for bundle in self._paths.containerd_state.glob("io.containerd.runtime.v2.task/k8s.io/*"):
            _remove_control_groups(bundle.name)
        shutil.rmtree(self._paths.containerd_state, ignore_errors=True)

    async def remove(self) -> None:
        """Switch the machine off. Empty folders stay on the host: the machines of other clusters may be mounted there.

        Linux ends mounts of all namespaces on a folder that is removed (mount_namespaces(7)).
        """
        await self.switch_off()

    def start(self, name: str, command: Sequence[str], *, path: Sequence[Path] = ()) -> None:
        """Start ``command`` on the machine as the cluster's process ``name``, with ``path`` before the default PATH."""
        environment = {**os.environ, "PATH": os.pathsep.join([*map(str, path), os.environ["PATH"]])}
        self._processes.start(name, command, environment=environment, launcher=self._enter())

    def run(self, command: Sequence[str]) -> str:
        """Run ``command`` on the machine to its end. Raises CalledProcessError with its output when it fails."""
        done = subprocess.run([*self._enter(), *command], capture_output=True, text=True, check=True)
        return done.stdout

    def _make_mount_points(self) -> None:
        for directory in (self._paths.device_plugins, *map(Path, _PRIVATE), _DEVICE_PLUGINS):
            directory.mkdir(parents=True, exist_ok=True)

    def _enter(self) -> Sequence[str]:
        return ["nsenter", f"--target={self._processes.pid(self._name)}", "--mount", "--pid", "--"]


def with_boot_id(paths: NodePaths, command: Sequence[str]) -> Sequence[str]:
    """Return ``command`` in a new mount namespace in which it sees what a container on the node does.

    That is the node's boot ID, and the folder of its kubelet's device plugins.
    """
    return ["unshare", "--mount", "sh", "-c", f'{" && ".join(_binds(paths))} && exec "$@"', "sh", *command]


def _binds(paths: NodePaths) -> Sequence[str]:
    binds = {paths.boot_id: BOOT_ID, paths.device_plugins: _DEVICE_PLUGINS}
    return [f"mount --bind {shlex.quote(str(own))} {there}" for own, there in binds.items()]


def _remove_control_groups(container: str) -> None:
    """Remove the control groups of a container without processes; runc creates one in each hierarchy."""
    for group in (*_CGROUPS.glob(f"*/k8s.io/{container}"), *_CGROUPS.glob(f"k8s.io/{container}")):
        with suppress(OSError):
            group.rmdir()
            group.parent.rmdir()  # with the last container
