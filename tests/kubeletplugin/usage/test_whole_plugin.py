"""What a whole plugin makes of samples: figures, the status of claims, and no prepare that waits for one."""

from collections.abc import Iterator

import anyio
import msgspec
import pytest

from kerf_dra.api.kerf.device_status import DeviceStatus
from kerf_dra.driver.kubeletplugin.backends.base import DeviceSample
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.fakes.cards import gpu
from tests.fakes.claims import DRIVER, NODE, claim
from tests.kubeletplugin.harness import Machine, machine
from tests.kubeletplugin.usage.sampled_backend import SampledFakeBackend
from tests.kubeletplugin.wait import until

SLICE, OTHER = "gpu-0-1g-1gb-at-0", "gpu-1-2g-2gb-at-2"


@pytest.fixture
def node() -> Iterator[Machine]:
    """A node with two GPUs, which are sampled so often that a test need not wait."""
    with machine(sample_interval_s=0.02, idle_after_s=0.1) as made:
        made.backend = SampledFakeBackend([gpu(0), gpu(1)], made.root / "hardware.json")
        yield made


def hardware(node: Machine) -> SampledFakeBackend:
    assert isinstance(node.backend, SampledFakeBackend)
    return node.backend


def figure(name: str, device: str, claim_name: str, pod: str = "pod") -> float | None:
    backend_uuid = {SLICE: "uuid-1", OTHER: "uuid-2"}[device]
    labels = {"driver": DRIVER, "node": NODE, "namespace": "default", "pod": pod, "claim": claim_name}
    return REGISTRY.get_sample_value(name, {**labels, "device": device, "uuid": backend_uuid})


def idle_since(node: Machine, name: str) -> str:
    """Return what the only device of a claim shows in its status."""
    [entry] = node.cluster.claims["default", name].status.devices
    return msgspec.convert(entry.data, DeviceStatus).idle_since


async def test_a_claim_shows_what_it_uses_and_that_it_is_idle(node: Machine) -> None:
    backend = hardware(node)
    backend.use = {SLICE: DeviceSample(memory_bytes=4096, processes=1, busy=0.5)}
    async with node.plugin():
        first, second = node.cluster.add(claim("first", SLICE)), node.cluster.add(claim("second", OTHER))
        for one in (first, second):
            await node.kubelet.prepare(one)
        await until(lambda: figure("kerf_claim_memory_bytes", SLICE, "first") == 4096)
        assert figure("kerf_claim_utilization_ratio", SLICE, "first") == 0.5
        assert figure("kerf_claim_idle_seconds", SLICE, "first") == 0
        backend.energy_mj["GPU-0"] = 3000
        await until(lambda: figure("kerf_claim_energy_joules_total", SLICE, "first") == 3)
        assert figure("kerf_claim_energy_joules_total", OTHER, "second") == 0
        await until(lambda: idle_since(node, "second") != "")
        await until(lambda: (figure("kerf_claim_idle_seconds", OTHER, "second") or 0) > 0.1)
        assert idle_since(node, "first") == ""
        backend.use[OTHER] = DeviceSample(processes=1)
        await until(lambda: idle_since(node, "second") == "")
        await node.kubelet.unprepare(first)
        await until(lambda: figure("kerf_claim_memory_bytes", SLICE, "first") is None)
        assert figure("kerf_claim_energy_joules_total", SLICE, "first") is None


async def test_a_successor_shows_at_once_what_its_predecessor_knew(node: Machine) -> None:
    backend = hardware(node)
    async with node.plugin():
        await node.kubelet.prepare(node.cluster.add(claim("first", SLICE)))
        await until(lambda: idle_since(node, "first") != "")
        since = idle_since(node, "first")
        writes = len(node.cluster.written)
    backend.hangs.set()
    async with node.plugin():
        await until(lambda: len(backend.sampled) > 0)
        await until(lambda: (figure("kerf_claim_idle_seconds", SLICE, "first", pod="") or 0) > 0)
        assert idle_since(node, "first") == since
        assert len(node.cluster.written) == writes
    backend.is_released.set()


async def test_a_sample_that_hangs_delays_no_prepare(node: Machine) -> None:
    backend = hardware(node)
    backend.hangs.set()
    async with node.plugin():
        await until(lambda: backend.sampled == ["GPU-0"])
        held = node.cluster.add(claim("first", SLICE))
        with anyio.fail_after(3):
            await node.kubelet.prepare(held)
            await node.kubelet.unprepare(held)
        assert backend.sampled == ["GPU-0"]
    backend.is_released.set()
