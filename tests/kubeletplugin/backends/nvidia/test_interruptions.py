"""Work on NVIDIA cards that fails or is interrupted halfway leaves nothing behind, whoever comes next.

What is left is asked of the cards, by another user of the library.
"""

from pathlib import Path

import pynvml
import pytest

from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError
from tests.fakes.claims import claim, ref
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.node import NvidiaNode

pytestmark = NEEDS_COMPILER

CLAIM = claim("training", "gpu-0-1g-20gb-at-0")
MADE = "1g.20gb at 0"
HALF = "1g.20gb at 0 without compute instance"


@pytest.fixture
def node(tmp_path: Path) -> NvidiaNode:
    made = NvidiaNode(tmp_path)
    made.cluster.add(CLAIM)
    return made


def break_halfway(node: NvidiaNode) -> None:
    """Let compute instances not be made, and GPU instances not be removed."""
    node.machine.add_fault("nvmlGpuInstanceCreateComputeInstance", error=pynvml.NVML_ERROR_UNKNOWN, times=None)
    node.machine.add_fault("nvmlGpuInstanceDestroy", error=pynvml.NVML_ERROR_IN_USE, times=None)


async def prepare_halfway(node: NvidiaNode) -> None:
    """Leave a GPU instance without a compute instance, and its record."""
    break_halfway(node)
    async with node.plugin() as core:
        with pytest.raises(DevicesFailedError, match="nvmlGpuInstanceCreateComputeInstance"):
            await core.preparer.prepare_claim(ref(CLAIM))
        assert [*core.checkpoint.records] == [ref(CLAIM).uid]
    assert node.instances() == [HALF]
    node.machine.clear_faults()


async def test_a_gpu_instance_that_lacks_its_compute_instance_is_completed_by_the_next_try(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1452: the claim's next prepare finds what the failed one has left.

    Their roll-back looks for MIG devices, of which such a GPU instance is none, and the pod cannot start any more.
    """
    await prepare_halfway(node)
    async with node.plugin() as core:
        await core.preparer.prepare_claim(ref(CLAIM))
        assert node.instances() == [MADE]
        await core.preparer.unprepare_claim(ref(CLAIM))
        assert (node.instances(), [*core.checkpoint.records]) == ([], [])


async def test_a_gpu_instance_that_lacks_its_compute_instance_goes_with_its_claim(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1452: the slices are free again without a reboot."""
    await prepare_halfway(node)
    node.cluster.remove(ref(CLAIM))
    async with node.plugin() as core:
        await core.garbage_collector.collect(set(core.checkpoint.records))
        assert (node.instances(), [*core.checkpoint.records]) == ([], [])


@pytest.mark.parametrize("is_wanted_again", [False, True])
async def test_a_release_that_has_removed_only_the_compute_instance_is_taken_up(
    node: NvidiaNode, is_wanted_again: bool
) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1452: the second case of its comments, also when a prepare comes first."""
    async with node.plugin() as core:
        await core.preparer.prepare_claim(ref(CLAIM))
        node.machine.add_fault("nvmlGpuInstanceDestroy", error=pynvml.NVML_ERROR_IN_USE, times=None)
        with pytest.raises(DevicesFailedError, match=r"GPU instance 3 of card .* is in use"):
            await core.preparer.unprepare_claim(ref(CLAIM))
        assert node.instances() == [HALF]
        node.machine.clear_faults()
        if is_wanted_again:
            await core.preparer.prepare_claim(ref(CLAIM))
            assert node.instances() == [MADE]
        await core.preparer.unprepare_claim(ref(CLAIM))
        assert (node.instances(), [*core.checkpoint.records]) == ([], [])


async def test_a_claim_whose_prepare_has_failed_for_good_leaves_no_record(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#840: unprepare forgets what prepare has only begun.

    Theirs answers success and keeps the entry, so that the checkpoint grows for ever.
    """
    await prepare_halfway(node)
    async with node.plugin() as core:
        await core.preparer.unprepare_claim(ref(CLAIM))
    async with node.plugin() as core:
        assert (node.instances(), [*core.checkpoint.records]) == ([], [])
