"""The reclaimer's loop on the virtual clock: how often it looks, and what wakes it."""

import anyio
import pytest
from msgspec.structs import replace

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.controller.reclaim.repairer import SliceRepairs
from kerf_dra.driver.kube.store import ObjectChange
from tests.runtime.virtual_time import VIRTUAL_TIME

from .cluster import Cluster


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


async def looks(cluster: Cluster, seconds: float) -> int:
    """Run the reclaimer for so long; returns how often it has looked at the node."""
    before = len(cluster.calls)
    async with anyio.create_task_group() as group:
        group.start_soon(cluster.reclaimer.run)
        await anyio.sleep(seconds)
        group.cancel_scope.cancel()
    return sum(call == ("list", "resourceslices") for call in cluster.calls[before:])


async def test_without_maintenances_nothing_is_read() -> None:
    assert await looks(Cluster(), 3600) == 0


async def test_a_card_that_is_free_is_looked_at_twice_a_minute_and_one_that_is_drained_every_few_seconds() -> None:
    cluster = Cluster()
    cluster.drain("gpu-1")
    cluster.follow_maintenances()
    cluster.deliver()
    assert 100 < await looks(cluster, 3600) <= 121
    cluster.run_pod("web", "gpu-1")
    cluster.deliver()
    assert 1400 < await looks(cluster, 3600) <= 1441


async def test_a_change_of_a_maintenance_or_of_a_claim_of_its_card_is_looked_at_soon() -> None:
    cluster = Cluster()
    cluster.run_pod("web", "gpu-1", owner=None)
    cluster.run_pod("other", "gpu-0")
    name = cluster.drain("gpu-1")
    cluster.follow_maintenances()
    cluster.deliver()
    held, other = (cluster.claims[ObjectRef("default", f"{one}-gpu")] for one in ("web", "other"))
    async with anyio.create_task_group() as group:
        group.start_soon(cluster.reclaimer.run)
        await anyio.sleep(5)
        for change, is_looked_at in (
            (ObjectChange(other.ref, other, replace(other)), False),
            (ObjectChange(held.ref, held, replace(held)), True),
            (ObjectChange(held.ref, held, None), True),
        ):
            before = len(cluster.calls)
            cluster.reclaimer.on_claim(change)
            await anyio.sleep(1)
            assert (len(cluster.calls) > before) is is_looked_at
        before = len(cluster.calls)
        cluster.reclaimer.on_maintenance(ObjectChange(ObjectRef("", name), None, None))
        await anyio.sleep(1)
        assert len(cluster.calls) > before
        group.cancel_scope.cancel()


async def test_a_slice_that_asks_for_a_repair_is_looked_at_soon_and_others_are_not() -> None:
    cluster = Cluster()
    cluster.repairs = {"gpu-1": "reset.xid-95"}
    cluster.deliver()
    well = SliceRepairs()
    asks = replace(well, node="node-1")
    ref = ObjectRef("", "slice")
    async with anyio.create_task_group() as group:
        group.start_soon(cluster.repairer.run)
        await anyio.sleep(10)
        for change, is_looked_at in (
            (ObjectChange(ref, well, replace(well)), False),
            (ObjectChange(ref, None, asks), True),
            (ObjectChange(ref, asks, None), True),
        ):
            before = len(cluster.calls)
            cluster.repairer.on_slice(change)
            await anyio.sleep(3)
            assert (len(cluster.calls) > before) is is_looked_at
            await anyio.sleep(3)
        before = len(cluster.calls)
        await anyio.sleep(60)
        assert len(cluster.calls) > before, "it looks again by itself"
        group.cancel_scope.cancel()
