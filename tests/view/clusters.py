"""Clusters for the tests of pages: two of everything, and badly chosen names."""

from collections.abc import Iterable
from functools import cache
from typing import Final

from kerf_dra.api.core.v1 import Pod, PodStatus
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import Condition
from kerf_dra.driver.allocation.pools.interned_slices import InternedSlices
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState, PartialState
from kerf_dra.driver.view.snapshot_view import SnapshotView
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, node, pod, replace, state

HOSTILE: Final = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\N{RIGHT-TO-LEFT OVERRIDE}\x1b[31m"
"""A name that no API server accepts, and that a page must show as it is."""

LONGEST: Final = "n" * 253
"""The longest name of an object (RFC 1123)."""


def run(name: str, *claims: str) -> Pod:
    """Return a pod that runs on a node."""
    ready = Condition(type="Ready", status="True", last_transition_time="2026-11-21T07:00:09Z")
    return replace(pod(name, *claims, node_name="node-1"), status=PodStatus(phase="Running", conditions=(ready,)))


def rename(claim_: ResourceClaim, name: str, namespace: str = "default") -> ResourceClaim:
    return replace(claim_, metadata=replace(claim_.metadata, name=name, namespace=namespace))


@cache
def two_nodes() -> ClusterState:
    """Two nodes of two cards: claims ``a`` and ``b`` have devices, four cards for pod ``big`` are nowhere."""
    now = allocate_claims(gpu_cluster(2, 2), claim("a", "3g-40gb"), claim("b", "1g-10gb"))
    big = claim("big", "whole", "whole")
    pods = (run("a", "a"), run("b", "b"), pod("big", "big"))
    return replace(now, claims=(*now.claims, big), pods=pods)


def view_of(state: ClusterState) -> SnapshotView:
    return SnapshotView(ClusterIndex(state))


def named_cluster(name: str) -> ClusterState:
    """Return a cluster in which a pod, a claim and a namespace have this name."""
    now = two_nodes()
    claims: Iterable[ResourceClaim] = (
        rename(each, name, name) if each.metadata.name == "a" else each for each in now.claims
    )
    owner = run(name, name)
    pods = (replace(owner, metadata=replace(owner.metadata, namespace=name)), *now.pods[1:])
    waiting = pod(f"waiting {name}", "big")
    return replace(now, claims=tuple(claims), pods=(*pods, waiting))


def many_nodes(count: int) -> ClusterState:
    """Return a cluster of so many nodes of one card, which are equal but for their names."""
    names = [f"node-{number:03}" for number in range(count)]
    example = gpu_cluster(1).slices
    return state(
        *map(node, names),
        published=[
            replace(
                each,
                metadata=replace(each.metadata, name=f"{name}-{number}"),
                spec=replace(each.spec, node_name=name, pool=replace(each.spec.pool, name=f"{name}/gpu")),
            )
            for name in names
            for number, each in enumerate(example)
        ],
    )


def arrive(state: ClusterState, count: int) -> PartialState:
    """Return what there is once all nodes and so many slices have arrived."""
    return PartialState(nodes=len(state.nodes), slices=InternedSlices.of(state.slices).compact[:count])
