"""The loop of garbage collection: what it asks of the API server and the kubelet in an hour, and what wakes it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from kerf_dra.api.model.names import ClaimRef, ObjectRef
from kerf_dra.api.model.prepared import ClaimState
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.kube.http.errors import UnreachableError
from tests.fakes.claims import claim
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import SETTINGS, PluginCore, plugin_core
from tests.kubeletplugin.records import device, record
from tests.runtime.virtual_time import VIRTUAL_TIME

HOUR_S = 3600
SLICE = "gpu-0-1g-1gb-at-0"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@asynccontextmanager
async def collecting(tmp_path: Path) -> AsyncIterator[PluginCore]:
    """The collector runs, on a node with one prepared claim that a pod uses."""
    async with plugin_core(tmp_path, FakeCluster()) as core, anyio.create_task_group() as group:
        add(core, "training")
        core.uses.uses = (ClaimUse(claim=ObjectRef("default", "training"), pod=ObjectRef("default", "pod")),)
        group.start_soon(core.garbage_collector.run)
        await anyio.wait_all_tasks_blocked()
        yield core
        group.cancel_scope.cancel()


def add(core: PluginCore, name: str, state: ClaimState = ClaimState.PREPARED) -> ClaimRef:
    core.checkpoint.put(record(name, device(SLICE), state=state))
    return core.cluster.add(claim(name, SLICE))


async def pass_time(core: PluginCore, seconds: float) -> None:
    ends_at = core.clock[0] + seconds
    while core.clock[0] < ends_at:
        core.clock[0] += 1
        await anyio.sleep(1)


async def test_an_hour_without_changes_costs_seven_reads(tmp_path: Path) -> None:
    """A loop that did not wait read the API 6588 times a second."""
    async with collecting(tmp_path) as core:
        await pass_time(core, HOUR_S)
        assert core.cluster.reads == pytest.approx(1 + HOUR_S / SETTINGS.collect_interval_s, abs=1)


async def test_what_was_only_begun_goes_within_a_minute_of_its_claim_though_its_pod_is_listed(tmp_path: Path) -> None:
    """A killed prepare: the kubelet lists the pod, which waits, and no container runs with what is half made."""
    async with collecting(tmp_path) as core:
        begun = add(core, "begun", ClaimState.STARTED)
        core.uses.uses += (ClaimUse(claim=ObjectRef("default", "begun"), pod=ObjectRef("default", "waiting")),)
        await pass_time(core, SETTINGS.collect_unused_interval_s)
        core.cluster.remove(begun)
        await pass_time(core, SETTINGS.collect_unused_interval_s + SETTINGS.usage_interval_s)
        held = core.checkpoint.get(begun.uid)
        assert held is None or held.state is ClaimState.RELEASING, "its files are removed in a thread"


async def test_a_suspect_claim_is_looked_up_at_once(tmp_path: Path) -> None:
    async with collecting(tmp_path) as core:
        other = add(core, "other")
        assert core.cluster.reads == 1
        core.state.suspects.add(other.uid)
        await anyio.wait_all_tasks_blocked()
        assert core.cluster.reads == 2


async def test_a_claim_that_the_kubelet_no_longer_lists_is_looked_up_at_its_next_answer(tmp_path: Path) -> None:
    async with collecting(tmp_path) as core:
        core.uses.uses = ()
        await pass_time(core, SETTINGS.usage_interval_s + 1)
        assert core.cluster.reads == 2


async def test_a_claim_that_cannot_be_looked_up_keeps_no_other_from_it(tmp_path: Path) -> None:
    async with collecting(tmp_path) as core:
        first, last = add(core, "a-first"), add(core, "z-last")
        core.cluster.errors["a-first"] = UnreachableError("GET claim", "connection refused")
        for one in (first, last):
            core.state.suspects.add(one.uid)
        await anyio.wait_all_tasks_blocked()
        assert core.cluster.reads == 3
