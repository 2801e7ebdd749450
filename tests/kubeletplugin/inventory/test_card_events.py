"""What a backend reports of its cards reaches the health of devices, also after the backend has failed to report."""

import anyio
import pytest

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.inventory.publisher import DevicePublisher
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.backoff import Backoff
from tests.fakes.cards import gpu
from tests.fakes.claims import NODE
from tests.fakes.cluster import FakeCluster
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.observed_state import ObservedState, ReportedEvents
from tests.kubeletplugin.wait import until


async def test_events_are_applied_also_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    backend, cluster = FakeBackend([gpu(0)]), FakeCluster()
    state = ObservedState()
    publisher = DevicePublisher(
        cluster=cluster,
        card_executor=CardExecutor({"gpus": backend}, call_timeout_s=60, discovery_timeout_s=60),
        state=state,
        events=ReportedEvents(),
        settings=Settings(
            node_name=NODE, family=GPU, backends=(), retry=Backoff(first_s=0.001, factor=1, limit_s=0.001, jitter=0)
        ),
    )
    with anyio.fail_after(LONGEST_S):
        async with anyio.create_task_group() as group:
            await publisher.refresh()
            group.start_soon(publisher.watch_health, "gpus")
            backend.report("GPU-0", "Xid 79")
            await until(lambda: bool(state.health.unhealthy))
            backend.break_events(RuntimeError("event set lost"))
            await until(lambda: "event set lost" in (publisher.problem or ""))
            backend.report("GPU-0")
            await until(lambda: not state.health.unhealthy)
            assert publisher.problem is None, "it was told by a readiness check, until events are watched again"
            group.cancel_scope.cancel()
    backend.close()
    assert state.noted["health"] == 2
    assert "backend gpus cannot watch its cards: RuntimeError('event set lost')" in caplog.text
