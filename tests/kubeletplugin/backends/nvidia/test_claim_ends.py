"""Claims on NVIDIA cards end: late, early, twice, by force. Nothing of them stays on the card or in the records."""

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.kubeletplugin.claims.allocated_devices import DeviceInUseError, NotAllocatedError
from kerf_dra.driver.kubeletplugin.claims.preparer import ClaimGoneError
from tests.fakes.claims import claim, ref
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.node import NvidiaNode
from tests.kubeletplugin.claim_fixture import GRACE_S, write_status
from tests.kubeletplugin.wait import until

pytestmark = NEEDS_COMPILER

CLAIM = claim("training", "gpu-0-1g-20gb-at-0")
MADE = "1g.20gb at 0"


@pytest.fixture
def node(tmp_path: Path) -> NvidiaNode:
    made = NvidiaNode(tmp_path)
    made.cluster.add(CLAIM)
    return made


async def test_an_unprepare_that_overtakes_a_slow_prepare_is_the_last_to_work_on_the_claim(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1188: no prepare goes on after the unprepare of its claim.

    Theirs tried again in the background, and succeeded after the unprepare had been answered.
    """
    node.machine.add_fault("nvmlDeviceCreateGpuInstanceWithPlacement", delay_s=0.2)
    async with node.plugin() as core, anyio.create_task_group() as kubelet:
        kubelet.start_soon(core.preparer.prepare_claim, ref(CLAIM))
        await until(lambda: bool(core.checkpoint.records))
        await core.preparer.unprepare_claim(ref(CLAIM))
        assert (node.instances(), [*core.checkpoint.records]) == ([], [])


async def test_a_claim_that_is_prepared_twice_has_one_partition_and_is_unprepared_once(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#727: a second prepare set the record back, and every unprepare failed."""
    async with node.plugin() as core:
        first, again = [await core.preparer.prepare_claim(ref(CLAIM)) for _ in range(2)]
        assert again == first
        assert node.instances() == [MADE]
        await core.preparer.unprepare_claim(ref(CLAIM))
        assert (node.instances(), [*core.checkpoint.records]) == ([], [])


@pytest.mark.parametrize("since", [None, claim("training")], ids=["deleted", "deallocated"])
async def test_a_prepare_that_comes_after_the_end_of_its_claim_makes_nothing(
    node: NvidiaNode, since: ResourceClaim | None
) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1188: a call of before finds that the claim has ended."""
    async with node.plugin() as core:
        await core.preparer.prepare_claim(ref(CLAIM))
        await core.preparer.unprepare_claim(ref(CLAIM))
        node.cluster.remove(ref(CLAIM))
        if since is not None:
            node.cluster.add(since)
        with pytest.raises((ClaimGoneError, NotAllocatedError)):
            await core.preparer.prepare_claim(ref(CLAIM))
        assert (node.instances(), [*core.checkpoint.records]) == ([], [])


async def test_what_a_late_prepare_makes_for_a_claim_that_no_pod_has_goes_again(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1188: the claim is there and allocated, but nobody will unprepare it."""
    node.cluster.add(claim("training", "gpu-0-1g-20gb-at-0", is_reserved=False))
    async with node.plugin() as core:
        await core.preparer.prepare_claim(ref(CLAIM))
        for at in (0.0, GRACE_S):
            assert node.instances() == [MADE]
            core.clock[0] = at
            await core.garbage_collector.collect(set(core.checkpoint.records))
        assert (node.instances(), [*core.checkpoint.records]) == ([], [])


async def test_a_prepared_claim_that_was_deleted_while_no_plugin_ran_is_released(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1278: pod and claim were deleted by force, and the kubelet forgot them.

    Theirs collects what was only begun, so the device is "already allocated to different claim" for ever.
    """
    async with node.plugin() as core:
        await core.preparer.prepare_claim(ref(CLAIM))
    node.cluster.remove(ref(CLAIM))
    other = node.cluster.add(claim("other", "gpu-0-1g-10gb-at-1"))
    async with node.plugin() as core:
        with pytest.raises(DeviceInUseError, match="has not been unprepared yet"):
            await core.preparer.prepare_claim(other)
        assert core.state.suspects.take() == {ref(CLAIM).uid}, "which is looked at at once"
        for at in (0.0, GRACE_S):
            core.clock[0] = at
            await core.garbage_collector.collect(set(core.checkpoint.records))
        await core.preparer.prepare_claim(other)
        assert node.instances() == ["1g.10gb at 1"]


async def test_a_claim_that_somebody_is_deleting_is_unprepared_and_given_back(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#725: claims stayed for hours, deleted, allocated and reserved.

    The finalizer is Kubernetes' own. What a driver has to do is to unprepare such a claim, and to write nothing to it
    that would keep it.
    """
    async with node.plugin() as core:
        await core.preparer.prepare_claim(ref(CLAIM))
        await write_status(core, lambda: node.cluster.claims[CLAIM.ref].status.devices != ())
        held = node.cluster.claims[CLAIM.metadata.namespace, CLAIM.metadata.name]
        finalizers = ("resource.kubernetes.io/delete-protection",)
        deleted = replace(held.metadata, deletion_timestamp="2026-01-01T00:00:00Z", finalizers=finalizers)
        node.cluster.add(replace(held, metadata=deleted))
        await core.preparer.unprepare_claim(ref(CLAIM))
        await write_status(core, lambda: node.cluster.claims[CLAIM.ref].status.devices == ())
        assert (node.instances(), [*core.checkpoint.records]) == ([], [])
        left = node.cluster.claims[CLAIM.metadata.namespace, CLAIM.metadata.name]
        assert (left.metadata.finalizers, left.status.devices) == (finalizers, ())


@pytest.mark.parametrize("device", ["gpu-0-1g-20gb-at-0", "gpu-0-3g-40gb-at-0"], ids=["the same", "a larger one"])
async def test_a_device_whose_pod_was_deleted_by_force_goes_to_the_next_claim_after_its_release_only(
    node: NvidiaNode, device: str
) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#817: two claims were prepared on one device.

    The scheduler takes a claim for ended when its pod is deleted by force, before the kubelet has stopped the pod.
    """
    next_claim = node.cluster.add(claim("next", device))
    async with node.plugin() as core:
        await core.preparer.prepare_claim(ref(CLAIM))
        with pytest.raises(DeviceInUseError, match="default/training"):
            await core.preparer.prepare_claim(next_claim)
        assert node.instances() == [MADE]
        await core.preparer.unprepare_claim(ref(CLAIM))
        await core.preparer.prepare_claim(next_claim)
        assert len(node.instances()) == 1


async def test_ten_claims_that_come_and_go_leave_nothing(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu, test_gpu_robustness.bats: claims in quick succession leak nothing."""
    async with node.plugin() as core:
        devices = len(core.state.devices.pools[0].slices)
        for number in range(10):
            held = node.cluster.add(claim(f"claim-{number}", "gpu-0-1g-20gb-at-0"))
            await core.preparer.prepare_claim(held)
            assert node.instances() == [MADE]
            await core.preparer.unprepare_claim(held)
            node.cluster.remove(held)
        assert (node.instances(), [*core.checkpoint.records], core.store.names()) == ([], [], [])
        await core.publisher.refresh()
        assert len(core.state.devices.pools[0].slices) == devices


async def test_what_another_version_of_the_plugin_has_prepared_is_released(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu, test_gpu_updowngrade.bats: claims of before an update end after it.

    The handle has what the first version of the backend wrote, and a field that a later one may add.
    """
    async with node.plugin() as core:
        record = await core.preparer.prepare_claim(ref(CLAIM))
        (device,) = record.devices
        first = (
            "kind",
            "card",
            "device",
            "minor",
            "uuid",
            "instance",
            "profile",
            "placement",
            "capabilities",
            "is_stand_in",
        )
        handle = {key: (device.handle or {})[key] for key in first} | {"addedLater": {"x": 1}}
        core.checkpoint.put(replace(record, devices=(replace(device, handle=handle),)))
    async with node.plugin() as core:
        await core.preparer.restore_files()
        assert core.store.names() == [f"k8s.gpu.kerf.dev-claim_{ref(CLAIM).uid}"]
        await core.preparer.unprepare_claim(ref(CLAIM))
        assert (node.instances(), [*core.checkpoint.records], core.store.names()) == ([], [], [])
        await core.preparer.prepare_claim(ref(CLAIM))
        assert node.instances() == [MADE]
