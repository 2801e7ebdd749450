"""What pods have of their claims, asked of the API server, the node's files and containerd."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.e2e import pods
from tests.e2e.namespace import Namespace
from tools.realcluster.api import Document
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import CONTROLLER, Kerf

STARTED_S: Final = 300.0
"""The time limit for 20 pods, which take half a minute on an idle machine."""


@dataclass(frozen=True, kw_only=True)
class HeldState:
    """The state of a node whose pods run with their claims; equal to a later one if nothing of it has changed."""

    containers: frozenset[tuple[str, str, str]]
    """ID, process and state, of containers and sandboxes."""
    starts: Mapping[str, Sequence[tuple[str, int]]]
    """ID and restart count of the containers of each pod."""
    claims: Mapping[str, Document]
    """The status of each claim."""
    partitions: Sequence[tuple[str, str, int]]
    uuids: frozenset[str]
    """Those of the partitions."""
    cdi: Mapping[str, object]
    """The content of each CDI file."""
    records: int
    """The claims in the checkpoint of Kerf's plugin."""


async def read_state(cluster: Cluster, namespace: Namespace, names: Sequence[str]) -> HeldState:
    """Return the state of the first node once the pods ``names`` run."""
    node = namespace.node
    return HeldState(
        starts={name: (await namespace.wait_running(name, within_s=STARTED_S)).starts for name in names},
        containers=cluster.list_containers(node.name),
        claims={one["metadata"]["name"]: one["status"] for one in await namespace.claims()},
        partitions=node.gpu_partitions,
        uuids=frozenset(node.hardware.uuids),
        cdi=node.cdi_contents(),
        records=await node.claim_records(),
    )


async def list_slices(namespace: Namespace) -> frozenset[str]:
    """Return the UIDs of all ResourceSlices."""
    return frozenset(one["metadata"]["uid"] for one in await namespace.api.list(pods.RESOURCE, "ResourceSlice"))


async def restart_ended(cluster: Cluster, kerf: Kerf, node: str) -> None:
    """Start what has ended, as systemd would a kubelet to which no containerd answers, and the kubelet the plugin.

    The plugin ends where the API server has become another one, and where one that has just started forbids everything.
    """
    if not cluster.processes.is_running(f"{node}-kubelet"):
        cluster.start_kubelet(node)
    if not kerf.plugin_is_running(node):
        kerf.start_plugin_again(node)
    if not cluster.processes.is_running(CONTROLLER):
        await kerf.start_controller()
