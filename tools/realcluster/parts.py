"""The command line of every part. Pure.

The control plane listens on 127.0.0.1 and speaks TLS with a certificate of its own; each part is a user with its own
token. There is no leader election: there is one of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.realcluster.builds import Programs
from tools.realcluster.paths import ClusterPaths, NodePaths, Ports
from tools.realcluster.versions import KubernetesVersion

_CALLS: Final = ("--kube-api-qps=5000", "--kube-api-burst=5000")
"""More in a second than any part makes: by default the parts hold themselves back at 20 and 50, which tests would wait
for and a bench would measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the command lines depend on."""

    version: KubernetesVersion
    programs: Programs
    paths: ClusterPaths
    ports: Ports
    service_network: str
    """The API server has the first address; its certificate names that, too."""
    has_bare_nodes: bool
    """Some nodes have no kubelet: their leases are not renewed, so no controller may watch them."""

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports.api_server}"


def etcd(plan: Plan) -> Sequence[str]:
    clients = f"http://127.0.0.1:{plan.ports.etcd}"
    peers = f"http://127.0.0.1:{plan.ports.etcd_peers}"
    return [
        *_kube(plan, "etcd"),
        f"--data-dir={plan.paths.etcd}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",  # a cluster of minutes survives no power cut anyway
        "--log-level=warn",
    ]


def api_server(plan: Plan) -> Sequence[str]:
    paths = plan.paths
    served = ",".join(f"resource.k8s.io/{version}=true" for version in plan.version.resource_versions)
    return [
        *_kube(plan, "apiserver"),
        f"--etcd-servers=http://127.0.0.1:{plan.ports.etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={plan.ports.api_server}",
        "--endpoint-reconciler-type=none",  # it refuses to publish a loopback address
        f"--cert-dir={paths.certificates}",
        f"--service-account-key-file={paths.account_key}",
        f"--service-account-signing-key-file={paths.account_key}",
        "--service-account-issuer=https://kerf.test",
        f"--token-auth-file={paths.tokens}",
        "--allow-privileged",  # deploy/nvidia; kubeadm and distributions allow it
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-cluster-ip-range={plan.service_network}",
        f"--runtime-config={served}",
        *_gates(plan.version),
    ]


def controller_manager(plan: Plan) -> Sequence[str]:
    left_out = ["-node-ipam-controller", *(["-node-lifecycle-controller"] if plan.has_bare_nodes else [])]
    return [
        *_kube(plan, "controller-manager"),
        f"--kubeconfig={plan.paths.kubeconfig('controller-manager')}",
        f"--secure-port={plan.ports.controller_manager}",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={plan.paths.account_key}",
        f"--root-ca-file={plan.paths.authority}",
        "--leader-elect=false",
        *_CALLS,
        f"--controllers={','.join(['*', *left_out])}",
        *_gates(plan.version),
    ]


def scheduler(plan: Plan) -> Sequence[str]:
    configuration = plan.paths.scheduler_config
    return [
        *_kube(plan, "scheduler"),
        *([f"--config={configuration}"] if configuration.exists() else []),  # kubeconfig and rates are in there, too
        f"--kubeconfig={plan.paths.kubeconfig('scheduler')}",
        f"--secure-port={plan.ports.scheduler}",
        "--leader-elect=false",
        *_CALLS,
        "--authentication-skip-lookup",
        *_gates(plan.version),
    ]


def containerd(plan: Plan, node: NodePaths) -> Sequence[str]:
    return [str(plan.programs.containerd / "containerd"), f"--config={node.containerd_config}"]


def kubelet(plan: Plan, node: NodePaths) -> Sequence[str]:
    name = node.root.name
    return [
        *_kube(plan, "kubelet"),
        f"--config={node.kubelet_config}",
        f"--root-dir={node.kubelet}",
        f"--cert-dir={node.root / 'pki'}",
        f"--kubeconfig={plan.paths.kubeconfig(name)}",
        f"--hostname-override={name}",
    ]


def import_image(plan: Plan, node: NodePaths, archive: Path) -> Sequence[str]:
    return [*_ctr(plan, node), "images", "import", str(archive)]


def list_containers(plan: Plan, node: NodePaths) -> Sequence[str]:
    return [*_ctr(plan, node), "tasks", "list"]


def _ctr(plan: Plan, node: NodePaths) -> Sequence[str]:
    return [str(plan.programs.containerd / "ctr"), f"--address={node.containerd_socket}", "--namespace=k8s.io"]


def _kube(plan: Plan, part: str) -> Sequence[str]:
    return [str(plan.programs.kube), part]


def _gates(version: KubernetesVersion) -> Sequence[str]:
    gates = ",".join(f"{gate}=true" for gate in version.feature_gates)
    return [f"--feature-gates={gates}"] if gates else []
