"""Diagnostics of 500 nodes with eight H100 each, full of small partitions and half full."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import decode_dump, encode_dump
from kerf_dra.driver.diagnostics.explain.why import explain_claim
from kerf_dra.driver.diagnostics.frag import measure_fragmentation
from kerf_dra.driver.diagnostics.plan import plan_workloads
from tests.bench.measurement import Row
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, parse, replace

NODES: Final = 500
CARDS: Final = 8
LOADS: Final = {"full": 56, "half full": 28}
"""Claims of one slice on each node."""
GOAL: Final = "<= 5 s"
TEMPLATE: Final = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "t"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "7g-80gb"}}]}}},
}


async def measure() -> list[Row]:
    return [row for load, claims in LOADS.items() for row in _measure(load, encode_dump(_busy(claims)))]


def _measure(load: str, data: bytes) -> Iterator[Row]:
    def timed(what: str, work: Callable[[], object]) -> Row:
        begin = time.perf_counter()
        work()
        seconds = time.perf_counter() - begin
        return Row(name=f"diagnostics, {NODES} nodes, {load}: {what}", unit="s", samples=[seconds], goal=GOAL)

    cluster = ClusterIndex(decode_dump(data, "dump"))
    yield timed(f"read a dump of {len(data) / 2**20:.0f} MiB", lambda: decode_dump(data, "dump"))
    yield timed("index it", lambda: cluster.inventory)
    yield timed("why", lambda: explain_claim(cluster, ObjectRef("default", "waiting")))
    yield timed("frag", lambda: measure_fragmentation(cluster))
    workloads = parse(cluster, TEMPLATE).workloads
    yield timed("plan of 10 copies", lambda: plan_workloads(cluster, workloads, copies=10))


def _busy(claims: int) -> ClusterState:
    """Return a cluster whose nodes all hold what the allocator placed on the first."""
    like = allocate_claims(gpu_cluster(1, CARDS), *(claim(f"c{number}", "1g-10gb") for number in range(claims)))
    everywhere = []
    for number in range(1, NODES + 1):
        for one in like.claims:
            allocation = one.status.allocation
            assert allocation is not None
            results = tuple(replace(each, pool=f"node-{number}/gpu") for each in allocation.devices.results)
            moved = replace(allocation, devices=replace(allocation.devices, results=results))
            metadata = replace(one.metadata, name=f"n{number}-{one.metadata.name}")
            everywhere.append(replace(one, metadata=metadata, status=replace(one.status, allocation=moved)))
    return replace(gpu_cluster(NODES, CARDS), claims=(*everywhere, claim("waiting", "7g-80gb")))
