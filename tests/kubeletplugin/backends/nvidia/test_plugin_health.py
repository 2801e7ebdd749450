"""What befalls NVIDIA cards reaches the taints of their devices, and ends: the plugin over stand-ins of cards."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError
from kerf_dra.driver.kubeletplugin.claims.steps import HELD_TRIES
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.kubeletplugin.inventory.publisher import DevicePublisher
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.testing.nvml import NvidiaMachine
from kerf_dra.driver.testing.nvml.demonstration import StandInBackend
from tests.fakes.claims import NODE, ref
from tests.fakes.cluster import FakeCluster
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.node import CLAIM, hardware, machine
from tests.kubeletplugin.claim_fixture import plugin_core
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.observed_state import ObservedState, ReportedEvents
from tests.kubeletplugin.wait import until

pytestmark = NEEDS_COMPILER

INSTANCE = 3
"""GPU instance of 1g.20gb at 0, which the claim has."""


class Node:
    """A node whose claim has two partitions of its only card."""

    def __init__(self, backend: StandInBackend, machine: NvidiaMachine) -> None:
        self.backend, self.machine = backend, machine
        self.publisher: DevicePublisher
        self.state: NodeState

    def tainted(self, effect: str) -> set[str]:
        """Names of the published devices that have a taint of this effect."""
        return {
            device.name
            for pool in self.state.devices.pools
            for slice_ in pool.slices
            for device in slice_.devices
            if any(taint.effect == effect for taint in device.taints)
        }

    @property
    def published(self) -> set[str]:
        return {device.name for pool in self.state.devices.pools for one in pool.slices for device in one.devices}


@asynccontextmanager
async def running(root: Path) -> AsyncIterator[Node]:
    """Prepare the claim, and publish the devices while the health is watched."""
    cluster = FakeCluster()
    cluster.add(CLAIM)
    backend = hardware(root)
    node = Node(backend, machine(root))
    with anyio.fail_after(LONGEST_S), closing(backend):
        async with plugin_core(root, cluster, other_backend=backend) as core:
            await to_thread.run_sync(backend.wait_for_events, 0)  # registers: what is reported earlier is never told
            await core.preparer.prepare_claim(ref(CLAIM))
            node.state = ObservedState(core.checkpoint.records)
            node.publisher = DevicePublisher(
                cluster=cluster,
                card_executor=CardExecutor({backend.name: backend}, call_timeout_s=60, discovery_timeout_s=60),
                state=node.state,
                events=ReportedEvents(),
                settings=Settings(node_name=NODE, family=GPU, backends=(), publish_min_interval_s=0.01),
            )
            async with anyio.create_task_group() as group:
                group.start_soon(node.publisher.watch_health, backend.name)
                group.start_soon(node.publisher.run)
                await until(lambda: bool(node.published))
                yield node
                backend.close()
                group.cancel_scope.cancel()


async def test_a_memory_error_of_an_instance_evicts_the_pods_on_it_and_no_others(tmp_path: Path) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1164: partitions that were made on demand have a health of their own."""
    async with running(tmp_path) as node:
        assert node.tainted("NoExecute") == set()
        while not node.tainted("NoExecute"):
            node.machine.report_xid(0, 95, gpu_instance=INSTANCE, compute_instance=0)
            await anyio.sleep(0.05)
        tainted = node.tainted("NoExecute")
        assert {"gpu-0-1g-20gb-at-0", "gpu-0-1g-10gb-at-1", "gpu-0"} <= tainted
        assert not {"gpu-0-3g-40gb-at-4", "gpu-0-1g-10gb-at-2"} & tainted


async def test_an_error_that_takes_a_reset_keeps_the_card_from_claims_until_the_reset(tmp_path: Path) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1455: a taint leaves with its cause, without a start of the plugin.

    kubernetes-sigs/dra-driver-nvidia-gpu#1316: an error of the card concerns its partitions, too.
    """
    async with running(tmp_path) as node:
        node.machine.remap_rows(0, uncorrectable=1, is_pending=True)
        node.machine.report_xid(0, 64)
        await until(lambda: node.tainted("NoSchedule") == node.published)
        node.machine.reload_driver()
        await until(lambda: node.tainted("NoSchedule") == set())
        assert node.tainted("NoExecute") == set()


async def test_a_card_that_falls_off_the_bus_evicts_its_pods_and_is_as_before_when_it_is_back(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        before = node.published
        node.machine.drop_card(0)
        await until(lambda: bool(node.tainted("NoExecute")))
        assert node.tainted("NoExecute") == node.published == before
        node.machine.restore_card(0)
        await until(lambda: node.tainted("NoExecute") == set())
        assert node.published == before


async def test_a_process_that_does_not_end_lets_the_claim_end_and_the_rest_follows_by_itself(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.add(CLAIM)
    with closing(hardware(tmp_path)) as backend:
        async with plugin_core(tmp_path, cluster, other_backend=backend) as core:
            await core.preparer.prepare_claim(ref(CLAIM))
            machine(tmp_path).start_process(0, 4711, gpu_instance=INSTANCE, compute_instance=0)
            for _ in range(HELD_TRIES - 1):
                with pytest.raises(DevicesFailedError, match=r"gpu-0-1g-20gb-at-0: GPU instance 3 .* by process 4711"):
                    await core.preparer.unprepare_claim(ref(CLAIM))
            await core.preparer.unprepare_claim(ref(CLAIM))
            (card,) = backend.discover()
            assert [str(one) for one in backend.survey(card.uuid).partitions] == ["1g.20gb at 0"]
            machine(tmp_path).end_process(4711)
            core.state.note_surveyed(card.uuid)
            await core.garbage_collector.collect(core.state.suspects.take())
            assert (backend.survey(card.uuid).partitions, dict(core.checkpoint.records)) == ((), {})
