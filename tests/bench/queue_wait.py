"""How long claims wait for a worker of the classic controller, in a cluster of 1000 nodes with 50 claims each (NE-25).

The controller's own code works on new claims, all at once and as they come; the API server is a dict that answers each
call after ``CALL_S``, and at most as many calls at a time as the client makes. All claims and nodes are in the caches.
"""

from collections.abc import Callable
from typing import Final

import anyio

from kerf_dra.api.model.allocations import DeviceAllocationResult, DeviceRequestAllocationResult
from kerf_dra.api.model.classic import ONLY_REQUEST, ClassicAllocation, ClassicClaim
from kerf_dra.api.model.device_attributes import pool_name
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.v1alpha2 import KINDS
from kerf_dra.driver.controller.classic.allocator import only_node
from kerf_dra.driver.controller.classic.app import _WORKERS_FOR_A_CALL
from kerf_dra.driver.controller.classic.reconciler import ClaimReconciler
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.http.transport import ClientSettings
from kerf_dra.driver.runtime.work_queue import WorkQueue
from tests.bench.measurement import Row, percentile, say
from tests.controller.classic.cluster_builder import ClusterBuilder, claim
from tests.controller.classic.hardware import gpu
from tests.controller.classic.server import ResultT, Server, SteppedApi

NODES: Final = 1000
CLAIMS: Final = 50
"""Of each node, of the 56 that its eight cards have room for."""
CARDS: Final = 8
BURST: Final = 500
"""New claims at once."""
RATE: Final = 50
"""New claims in a second, for ``STEADY_S`` seconds."""
STEADY_S: Final = 10
CALL_S: Final = 0.005
"""An API server that is not busy."""
_CALLS: Final = ClientSettings().calls_at_once


class _SlowApi(SteppedApi):
    """The server behind a network: calls take time, and some at once only."""

    def __init__(self, server: Server, builder: ClusterBuilder) -> None:
        super().__init__(server, "x")
        self._calls = anyio.Semaphore(_CALLS)
        self._builder = builder

    async def _call(self, call: str, effect: Callable[[], ResultT]) -> ResultT:
        del call
        async with self._calls:
            await anyio.sleep(CALL_S)
            result = effect()
        if isinstance(result, ClassicClaim):
            self._builder.put_claim(result)  # as its informer shows it
        return result


async def measure() -> list[Row]:
    say(f"{NODES} nodes with {CLAIMS} claims each are made")
    builder, server = _build_cluster(), Server(leader="x")
    reconciler = ClaimReconciler(_SlowApi(server, builder), KINDS, builder.view)
    rows: list[Row] = []
    for name, count, per_s in ((f"{BURST} claims at once", BURST, 0), (f"{RATE} claims/s", RATE * STEADY_S, RATE)):
        say(name)
        waits = await _wait_times(builder, server, reconciler, count, per_s)
        rows.append(
            Row(
                name=f"wait for a worker, {NODES} nodes x {CLAIMS} claims, {name}",
                unit="ms",
                samples=[1000 * wait for wait in waits],
            )
        )
        say(f"p99 {1000 * percentile(waits, 99):.1f} ms")
    return rows


async def _wait_times(
    builder: ClusterBuilder, server: Server, reconciler: ClaimReconciler, count: int, per_s: int
) -> list[float]:
    """Return the seconds from the moment at which each of ``count`` new claims is queued until a worker has it."""
    queue: WorkQueue[str] = WorkQueue()
    queued: dict[str, float] = {}
    waits: list[float] = []
    done = anyio.Event()

    async def work(name: str) -> None:
        waits.append(anyio.current_time() - queued[name])
        await reconciler.reconcile_claim(ObjectRef("ns", name))
        if len(waits) == count:
            done.set()

    async with anyio.create_task_group() as group:
        group.start_soon(lambda: queue.run(work, workers=_WORKERS_FOR_A_CALL * _CALLS))
        for number in range(count):
            name = f"new-{per_s}-{number}"
            server.put(claim(name, immediate=True))
            held = server.claim(name)
            assert held is not None
            builder.put_claim(held)
            queued[name] = anyio.current_time()
            queue.add(name)
            if per_s:
                await anyio.sleep(1 / per_s)
        await done.wait()
        group.cancel_scope.cancel()
    return waits


def _build_cluster() -> ClusterBuilder:
    builder = ClusterBuilder()
    builder.resource_class("gpu", {"profile": "1g.10gb"})
    for number in range(NODES):
        node = f"node{number:04}"
        builder.node(node, *(gpu(node, index) for index in range(CARDS)))
        for index in range(CLAIMS):
            device = f"gpu-{index % CARDS}-1g-10gb-at-{index // CARDS}"
            builder.claim(f"{node}-{index}", allocation=_allocation(node, device))
    return builder


def _allocation(node: str, device: str) -> ClassicAllocation:
    result = DeviceRequestAllocationResult(
        request=ONLY_REQUEST, driver=GPU.driver, pool=pool_name(node, "gpu"), device=device
    )
    return ClassicAllocation(
        devices=DeviceAllocationResult(results=(result,)), node_selector=only_node(node), drivers=(GPU.driver,)
    )
