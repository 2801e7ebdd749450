"""Every write of the controller fails once, in every way, while pods wait for it: each of them runs all the same.

The connection breaks before the API server has the write, or before the controller has the answer; the controller is
killed there; somebody else changes the object at that very moment.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import groupby, product
from typing import TypeAlias

import anyio

from tests.e2e.classic.fault_injection import Proxy, Strike, When, Write, controller_behind_proxy, nothing
from tests.e2e.classic.scene import CONTEXT, Scene
from tests.e2e.wait import eventually
from tests.realcluster.cluster import Cluster
from tests.realcluster.kerf import CONTROLLER, Kerf

CLAIM = "ResourceClaim"
BEGINNING = (Write.MARK, Write.ALLOCATION, Write.REPORT)
END = (Write.RELEASE, Write.UNMARK)

Effect: TypeAlias = Callable[[], Awaitable[None]]


async def test_connections_that_break_at_any_write(scene: Scene, kerf: Kerf, cluster: Cluster) -> None:
    async with controller_behind_proxy(cluster, kerf) as (proxy, _):
        lease = proxy.strike(Write.LEASE, CONTROLLER, When.AFTER, loses=True)
        await live_and_end(scene, _at_every_write(proxy, nothing), at_once=10)
    assert lease.struck


async def test_a_controller_that_is_killed_at_any_write(scene: Scene, kerf: Kerf, cluster: Cluster) -> None:
    """And again when its successor fences off what it had begun."""
    async with controller_behind_proxy(cluster, kerf) as (proxy, address):

        async def kill() -> None:
            await cluster.processes.kill(CONTROLLER)
            await kerf.start_controller(server=address)

        strikes = _at_every_write(proxy, kill)
        for when in When:
            strikes.append(proxy.strike(Write.MARK, f"fence-{when}", When.AFTER, kill, loses=True))
            strikes.append(proxy.strike(Write.FENCE, f"fence-{when}", when, kill, loses=True))
        await live_and_end(scene, strikes, at_once=1)  # a kill at one pod's write may spare another pod its write


async def test_objects_that_somebody_else_changes_at_any_write(scene: Scene, kerf: Kerf, cluster: Cluster) -> None:
    # Q-11, C-6, C-7, C-16, C-19
    async with controller_behind_proxy(cluster, kerf) as (proxy, _):
        strikes = []
        for write in (*BEGINNING, *END):
            kind = CONTEXT if write is Write.REPORT else CLAIM

            async def change(kind: str = kind, name: str = write) -> None:
                annotated = {"metadata": {"annotations": {"kerf.test/changed": "by somebody else"}}}
                await scene.api.patch(scene.resource, kind, name, annotated, scene.namespace)

            strikes.append(proxy.strike(write, write, When.BEFORE, change, loses=False))
        await live_and_end(scene, strikes, at_once=5)
    assert {str(strike): strike.status for strike in strikes} == {str(strike): 409 for strike in strikes}


def _at_every_write(proxy: Proxy, effect: Effect) -> list[Strike]:
    """Each to a claim, and a pod, of its own; the connection breaks."""
    writes = product((*BEGINNING, *END), When)
    return [proxy.strike(write, f"{write}-{when}", when, effect, loses=True) for write, when in writes]


async def live_and_end(scene: Scene, strikes: Sequence[Strike], *, at_once: int) -> None:
    """A pod with a claim for each name that is struck, ``at_once`` of them at a time: all run, and all claims end."""
    by_name = {name: list(found) for name, found in groupby(strikes, key=lambda strike: strike.name)}
    turns = anyio.CapacityLimiter(at_once)

    async def live(name: str) -> None:
        async with turns:
            await scene.claim(name, "gpu-small")
            await scene.pod(name, {"gpu": {"resourceClaimName": name}})
            await scene.allocated(name)
            await _all_struck(strike for strike in by_name[name] if strike.write not in END)

    async def end(name: str) -> None:
        async with turns:
            await scene.delete_pod(name)
            await scene.deallocated(name)
            await _all_struck(by_name[name])

    async with anyio.create_task_group() as group:
        for name in by_name:
            group.start_soon(live, name)
    await scene.all_allocated(len(by_name))
    for name in by_name:
        await scene.runs(name)
    async with anyio.create_task_group() as group:
        for name in by_name:
            group.start_soon(end, name)


async def _all_struck(strikes: Iterable[Strike]) -> None:
    expected = list(strikes)

    async def missing() -> list[str]:
        return [str(strike) for strike in expected if not strike.struck]

    async def probe() -> bool:
        return not await missing()

    await eventually("all strikes have struck", probe, but=missing)
