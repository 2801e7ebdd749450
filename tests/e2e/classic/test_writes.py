"""Every write of the controller fails once in every way, and all pods that wait for it run nevertheless.

The connection breaks before the API server has the write, or before the controller has the answer; the controller is
killed there; somebody else changes the object at that very moment.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import groupby, product
from typing import TypeAlias

import anyio

from tests.e2e.classic.fault_injection import (
    FaultInjectionProxy,
    FaultPoint,
    InjectedFault,
    Write,
    controller_behind_proxy,
    no_effect,
)
from tests.e2e.classic.namespace import CONTEXT, ClassicNamespace
from tests.e2e.wait import eventually
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import CONTROLLER, Kerf

CLAIM = "ResourceClaim"
BEGINNING = (Write.ADD_FINALIZER, Write.ALLOCATION, Write.UNSUITABLE_NODES)
END = (Write.RELEASE, Write.REMOVE_FINALIZER)

Effect: TypeAlias = Callable[[], Awaitable[None]]


async def test_connections_that_break_at_any_write(namespace: ClassicNamespace, kerf: Kerf, cluster: Cluster) -> None:
    async with controller_behind_proxy(cluster, kerf) as (proxy, _):
        lease = proxy.inject(Write.LEASE, CONTROLLER, FaultPoint.AFTER, breaks_connection=True)
        await run_and_delete(namespace, _at_every_write(proxy, no_effect), at_once=10)
        await _all_triggered([lease])


async def test_a_controller_that_is_killed_at_any_write(
    namespace: ClassicNamespace, kerf: Kerf, cluster: Cluster
) -> None:
    """And again when its successor fences off what it had begun."""
    async with controller_behind_proxy(cluster, kerf) as (proxy, address):

        async def kill() -> None:
            await cluster.processes.kill(CONTROLLER)
            await kerf.start_controller(server=address)

        faults = _at_every_write(proxy, kill)
        for when in FaultPoint:
            faults.append(
                proxy.inject(Write.ADD_FINALIZER, f"fence-{when}", FaultPoint.AFTER, kill, breaks_connection=True)
            )
            faults.append(proxy.inject(Write.FENCE, f"fence-{when}", when, kill, breaks_connection=True))
        await run_and_delete(namespace, faults, at_once=1)  # a kill at one pod's write may spare another pod its write


async def test_objects_that_somebody_else_changes_at_any_write(
    namespace: ClassicNamespace, kerf: Kerf, cluster: Cluster
) -> None:
    # Q-11, C-6, C-7, C-16, C-19
    async with controller_behind_proxy(cluster, kerf) as (proxy, _):
        faults = []
        for write in (*BEGINNING, *END):
            kind = CONTEXT if write is Write.UNSUITABLE_NODES else CLAIM

            async def change(kind: str = kind, name: str = write) -> None:
                annotated = {"metadata": {"annotations": {"kerf.test/changed": "by somebody else"}}}
                await namespace.api.patch(namespace.resource, kind, name, annotated, namespace.name)

            faults.append(proxy.inject(write, write, FaultPoint.BEFORE, change, breaks_connection=False))
        await run_and_delete(namespace, faults, at_once=5)

        async def statuses() -> dict[str, int]:
            return {str(fault): fault.status for fault in faults}

        async def are_answered() -> bool:
            return all((await statuses()).values())

        await eventually("the API server has answered all writes", are_answered, but=statuses)
    assert await statuses() == {str(fault): 409 for fault in faults}


def _at_every_write(proxy: FaultInjectionProxy, effect: Effect) -> list[InjectedFault]:
    """Inject a fault at every write, each with a claim and a pod of its own; all break the connection."""
    writes = product((*BEGINNING, *END), FaultPoint)
    return [proxy.inject(write, f"{write}-{when}", when, effect, breaks_connection=True) for write, when in writes]


async def run_and_delete(namespace: ClassicNamespace, faults: Sequence[InjectedFault], *, at_once: int) -> None:
    """Run and delete a pod with a claim for each name of ``faults``, ``at_once`` of them concurrently."""
    by_name = {name: list(found) for name, found in groupby(faults, key=lambda fault: fault.name)}
    limiter = anyio.CapacityLimiter(at_once)

    async def run(name: str) -> None:
        async with limiter:
            await namespace.claim(name, "gpu-small")
            await namespace.pod(name, {"gpu": {"resourceClaimName": name}})
            await namespace.wait_allocated(name)
            await _all_triggered(fault for fault in by_name[name] if fault.write not in END)

    async def end(name: str) -> None:
        async with limiter:
            await namespace.delete_pod(name)
            await namespace.wait_deallocated(name)
            await _all_triggered(by_name[name])

    async with anyio.create_task_group() as group:
        for name in by_name:
            group.start_soon(run, name)
    await namespace.wait_allocated_count(len(by_name))
    for name in by_name:
        await namespace.wait_running(name)
    async with anyio.create_task_group() as group:
        for name in by_name:
            group.start_soon(end, name)


async def _all_triggered(faults: Iterable[InjectedFault]) -> None:
    expected = list(faults)

    async def missing() -> list[str]:
        return [str(fault) for fault in expected if not fault.is_triggered]

    async def probe() -> bool:
        return not await missing()

    await eventually("all strikes have struck", probe, but=missing)
