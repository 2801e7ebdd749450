"""The configuration files of the parts of a cluster, as pure functions of values."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.realcluster.paths import NodePaths
from tools.realcluster.requirements import CNI_PLUGINS
from tools.realcluster.versions import KubernetesVersion

IMAGE: Final = "kerf.test/busybox:1"
"""The one image there is, also of pod sandboxes. No registry has it: pods say ``imagePullPolicy: Never``."""

USERS: Final[Mapping[str, tuple[str, str]]] = {
    # name of the kubeconfig: user, groups
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
}


def kubeconfig(server: str, authority: Path, user: Mapping[str, str]) -> dict[str, Any]:
    """``user``: ``token`` or ``tokenFile``."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "kerf", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": "user", "user": dict(user)}],
        "contexts": [{"name": "kerf", "context": {"cluster": "kerf", "user": "user"}}],
        "current-context": "kerf",
    }


def tokens(by_user: Mapping[str, str], nodes: Mapping[str, str]) -> str:
    """The API server's ``--token-auth-file``: token, user, UID, groups. ``nodes``: name to token of its kubelet."""
    rows = [f'{token},{USERS[name][0]},{name},"{USERS[name][1]}"' for name, token in by_user.items()]
    rows += [f'{token},system:node:{name},{name},"system:nodes"' for name, token in nodes.items()]
    return "\n".join(rows) + "\n"


def scheduler(
    access: Path, profiles: Sequence[Mapping[str, Any]], extenders: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """KubeSchedulerConfiguration with these profiles and extenders; ``access``: its kubeconfig."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(access), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
        "profiles": list(profiles),
        **({"extenders": list(extenders)} if extenders else {}),
    }


def kubelet(version: KubernetesVersion, paths: NodePaths, port: int) -> dict[str, Any]:
    """KubeletConfiguration for a node in a test: no eviction, no QoS cgroups, callers are not authenticated."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": 0,
        "readOnlyPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{paths.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "oomScoreAdj": 0,  # lowering it needs CAP_SYS_RESOURCE
        "localStorageCapacityIsolation": False,
        "evictionHard": {"memory.available": "1Mi"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "makeIPTablesUtilChains": False,  # nothing is to be left on the machine
        "volumePluginDir": str(paths.root / "volume-plugins"),
        "podLogsDir": str(paths.pod_logs),
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",
        "featureGates": {"KubeletInUserNamespace": True, **dict.fromkeys(version.feature_gates, True)},
        **version.kubelet_options,
    }


def cni(paths: NodePaths, pod_network: str) -> dict[str, Any]:
    """Pods get an address in ``pod_network`` and a route; no NAT, so no iptables rules."""
    ipam = {
        "type": "host-local",
        "subnet": pod_network,
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(paths.root / "addresses"),
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": ipam}]}


def containerd(paths: NodePaths, runc: str) -> str:
    """containerd's configuration, version 3."""
    return f"""\
version = 3
root = "{paths.containerd}"
state = "{paths.containerd_state}"
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
address = "{paths.containerd_socket}"

[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{IMAGE}"

[plugins.'io.containerd.cri.v1.runtime']
cdi_spec_dirs = ["{paths.cdi}"]
# Machines without CAP_SYS_RESOURCE or the hugetlb controller are good enough.
restrict_oom_score_adj = true
disable_hugetlb_controller = true
tolerate_missing_hugetlb_controller = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{CNI_PLUGINS}"]
conf_dir = "{paths.cni}"

[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
BinaryName = "{runc}"
"""
