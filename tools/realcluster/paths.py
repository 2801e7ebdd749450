"""The paths of one cluster and of its nodes, and its TCP ports.

::

    ROOT/cluster.json             what was started, for other processes
    ROOT/pids/PART.json           running programs
    ROOT/logs/PART.log
    ROOT/admin.kubeconfig …       one for each user
    ROOT/NODE/                    a node's own: kubelet, containerd, CDI files, pods' logs
"""

import atexit
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Final

from kerf_dra.driver.runtime import file_lock

_PORTS: Final = range(20_100, 32_700)
"""Below those that the kernel gives to outgoing connections (ip_local_port_range, ip(7)): one of these could take the
port of a server that is about to start again."""
BLOCK: Final = 300
"""Ports of a process: some thirty clusters' worth before one is given again."""
_PORT_LOCKS: Final = Path("/tmp/k8s-ports")
"""A file for each block, locked by the process that it belongs to."""
ROOTS: Final = Path("/tmp/k8s")
"""Short: the registration sockets have a driver and a pod's UID in its name, and 107 bytes at most (sun_path)."""


@dataclass(frozen=True, slots=True)
class ClusterPaths:
    """Paths of one cluster."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / "cluster.json"

    @property
    def pids(self) -> Path:
        return self.root / "pids"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def certificates(self) -> Path:
        return self.root / "certs"

    @property
    def authority(self) -> Path:
        """The certificate that clients trust: the API server's own, which is self-signed."""
        return self.certificates / "apiserver.crt"

    @property
    def account_key(self) -> Path:
        """The key that signs service-account tokens."""
        return self.root / "sa.key"

    @property
    def tokens(self) -> Path:
        """The API server's static tokens of users."""
        return self.root / "tokens.csv"

    @property
    def scheduler_config(self) -> Path:
        """Only where the scheduler has other profiles than its own one."""
        return self.root / "scheduler.yaml"

    @property
    def image(self) -> Path:
        return self.root / "image.tar"

    def kubeconfig(self, user: str) -> Path:
        return self.root / f"{user}.kubeconfig"

    def log(self, part: str) -> Path:
        return self.logs / f"{part}.log"

    def node(self, name: str) -> "NodePaths":
        return NodePaths(self.root / name)


@dataclass(frozen=True, slots=True)
class NodePaths:
    """Paths of one node with a kubelet."""

    root: Path

    @property
    def kubelet(self) -> Path:
        """The kubelet's ``--root-dir``."""
        return self.root / "kubelet"

    @property
    def kubelet_config(self) -> Path:
        return self.root / "kubelet.yaml"

    @property
    def pod_resources(self) -> Path:
        """The socket of the kubelet's pod-resources API."""
        return self.kubelet / "pod-resources" / "kubelet.sock"

    @property
    def device_plugins(self) -> Path:
        """What the kubelet has as the folder of its device plugins."""
        return self.root / "device-plugins"

    @property
    def pod_logs(self) -> Path:
        return self.root / "pod-logs"

    @property
    def cdi(self) -> Path:
        return self.root / "cdi"

    @property
    def cni(self) -> Path:
        return self.root / "cni"

    @property
    def containerd(self) -> Path:
        """containerd's ``root``, which survives a reboot."""
        return self.root / "ctr-root"

    @property
    def containerd_state(self) -> Path:
        """containerd's ``state``, which does not survive a reboot."""
        return self.root / "ctr-state"

    @property
    def containerd_config(self) -> Path:
        return self.root / "containerd.toml"

    @property
    def containerd_socket(self) -> Path:
        return self.root / "containerd.sock"

    @property
    def boot_id(self) -> Path:
        """The file that is mounted as ``/proc/sys/kernel/random/boot_id`` on the node."""
        return self.root / "boot_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """TCP ports of one cluster, on 127.0.0.1."""

    etcd: int
    etcd_peers: int
    api_server: int
    controller_manager: int
    scheduler: int
    kubelet: int
    controller_probes: int
    plugin_probes: int


def free_ports() -> Ports:
    """Return unused ports, which no other process of these tests is given while this one lives."""
    return Ports(**{name: free_port() for name in Ports.__dataclass_fields__})


def free_port() -> int:
    """Return one more unused port, as ``free_ports`` does."""
    for port in _own_ports():
        with suppress(OSError), socket.socket() as free:  # else the port is in use
            free.bind(("127.0.0.1", port))
            return port
    raise AssertionError("the ports of a process are given out round and round")


@cache
def _own_ports() -> Iterator[int]:
    """Yield the ports of a block of this process's own, round and round: a port is used a while after it was given."""
    _PORT_LOCKS.mkdir(exist_ok=True)
    for first in _PORTS[::BLOCK]:
        if (lock := file_lock.try_acquire(_PORT_LOCKS / str(first))) is not None:
            atexit.register(lock.release)
            return cycle(range(first, first + BLOCK))
    raise RuntimeError(f"all ports of {_PORTS} belong to running tests: end some, or see {_PORT_LOCKS}")
