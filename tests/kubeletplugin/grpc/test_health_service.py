"""Device health as the kubelet and the scheduler learn of it (KEP-4680, KEP-5055)."""

from typing import Any

import anyio
import pytest

from kerf_dra.api.dra.health import DeviceHealth
from kerf_dra.api.model.devices import Device
from kerf_dra.driver.kubeletplugin.backends.base import HealthState
from kerf_dra.driver.kubeletplugin.grpc.health_service import HealthFeed
from tests.fakes.claims import claim
from tests.fakes.kubelet import V1_37, ClaimError
from tests.kubeletplugin.harness import Machine, machine
from tests.kubeletplugin.wait import until

SLICE = "gpu-0-1g-1gb-at-0"
V1_36 = tuple(version for version in V1_37 if version != "v1.DRAResourceHealth")


def devices_of(node: Machine) -> list[Device]:
    """Return the devices that are published now."""
    pools = node.cluster.published[-1] if node.cluster.published else ()
    return [device for pool in pools for content in pool.slices for device in content.devices]


def tainted(node: Machine) -> set[str]:
    return {device.name for device in devices_of(node) if device.taints}


def taints(node: Machine) -> set[tuple[str, str, str]]:
    return {(taint.key, taint.value, taint.effect) for device in devices_of(node) for taint in device.taints}


def seen(report: Any) -> list[tuple[str, str, int, str]]:
    return [(one.device.pool_name, one.device.device_name, one.health, one.message) for one in report.devices]


@pytest.mark.parametrize("known", [V1_37, V1_36])
async def test_the_kubelet_is_told_at_once_when_a_device_in_use_is_prepared_falls_ill_or_recovers(
    known: tuple[str, ...],
) -> None:
    with machine() as node:
        node.kubelet.known = known
        held = node.cluster.add(claim("training", SLICE))
        healthy, ill = 1, 2
        async with node.plugin(), node.kubelet.watching_health() as report:
            assert seen(await report()) == []
            await node.kubelet.prepare(held)
            while seen(told := await report()) == []:
                pass
            assert seen(told) == [("node-1/gpu", SLICE, healthy, "")]
            node.backend.report("GPU-0", "Xid 79: fell off the bus")
            while seen(told) == [("node-1/gpu", SLICE, healthy, "")]:
                told = await report()
            assert seen(told) == [("node-1/gpu", SLICE, ill, "Xid 79: fell off the bus")]
            node.backend.report("GPU-0")
            while seen(told) == [("node-1/gpu", SLICE, ill, "Xid 79: fell off the bus")]:
                told = await report()
            assert seen(told) == [("node-1/gpu", SLICE, healthy, "")]


async def test_reports_come_again_before_the_kubelet_lets_them_expire() -> None:
    with machine(health_interval_s=0.01) as node:
        async with node.plugin(), node.kubelet.watching_health() as report:
            for _ in range(3):
                await report()


async def test_an_ill_card_is_tainted_and_the_taint_goes_when_it_is_well_again() -> None:
    with machine() as node:
        async with node.plugin():
            await until(lambda: bool(devices_of(node)))
            assert not tainted(node)
            node.backend.report("FPGA-0", "thermal shutdown")
            fpga = {device.name for device in devices_of(node) if device.name.startswith("fpga-0")}
            await until(lambda: tainted(node) == fpga)
            assert len(fpga) == 6
            node.backend.report("FPGA-0", "fell off the bus", state=HealthState.LOST)
            evicting = {("gpu.kerf.dev/unhealthy", "lost", "NoExecute")}
            await until(lambda: taints(node) == evicting)
            node.backend.report("FPGA-0")
            await until(lambda: not tainted(node))


async def test_a_claim_that_was_given_an_ill_device_is_still_prepared_because_the_user_may_tolerate_the_taint() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            node.backend.report("GPU-0", "Xid 48")
            await node.kubelet.prepare(held)


async def test_a_card_that_vanished_without_a_word_of_its_backend_is_left_by_its_pods_and_then_withdrawn() -> None:
    """It was withdrawn at once: then its pods are not evicted (kubernetes/kubernetes#140802)."""
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            await node.kubelet.prepare(held)
            gone = {device.name for device in devices_of(node) if device.name.startswith("gpu-0")}
            node.backend.cards = node.backend.cards[1:]
            node.backend.report("FPGA-0")
            await until(lambda: tainted(node) == gone)
            assert ("gpu.kerf.dev/unhealthy", "lost", "NoExecute") in taints(node)
            with pytest.raises(ClaimError, match="there is no card GPU-0"):
                await node.kubelet.prepare(node.cluster.add(claim("other", "gpu-0-1g-1gb-at-1")))
            with pytest.raises(ClaimError, match="it is not known what is left of the prepared devices"):
                await node.kubelet.prepare(held)
            await node.kubelet.unprepare(held)
            await until(lambda: not any(device.name.startswith("gpu-0") for device in devices_of(node)))
            with pytest.raises(ClaimError, match="this node does not have it"):
                await node.kubelet.prepare(node.cluster.add(claim("another", "gpu-0-1g-1gb-at-1")))
        assert node.backend.made == {}


class CountingReporter:
    """Reports no device, and counts how often it was called."""

    computed = 0

    def report_health(self) -> tuple[DeviceHealth, ...]:
        self.computed += 1
        return ()


async def test_changes_that_follow_at_once_are_told_together() -> None:
    reporter = CountingReporter()
    feed = HealthFeed(reporter, interval_s=60)
    async with anyio.create_task_group() as kubelet:
        kubelet.start_soon(_read_to_the_end, feed)
        await until(lambda: reporter.computed == 1)
        for _ in range(100):
            feed.change.notify()
            await anyio.lowlevel.checkpoint()
        await until(lambda: reporter.computed > 1)
        feed.close()
    assert reporter.computed == 2


async def _read_to_the_end(feed: HealthFeed) -> None:
    async for _ in feed.watch(None):
        pass
