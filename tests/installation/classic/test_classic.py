"""What ``tests/e2e/classic`` does with Kerf as processes, with Kerf as pods, on a release where drivers allocate."""

from tests.e2e.classic.namespace import ClassicNamespace
from tests.e2e.classic.test_lifecycle import (
    ONE,
    test_a_claim_is_deallocated_after_its_last_pod_and_allocated_again_for_the_next,
    test_a_pod_may_have_a_gpu_and_an_fpga_function,
    test_a_pod_with_a_template_gets_a_partition_of_the_size_it_asks_for,
    test_two_pods_share_a_claim_and_the_device_stays_with_the_last,
)
from tests.e2e.wait import eventually
from tests.installation.kerf_pods import KerfPods

__all__ = [
    "test_a_claim_is_deallocated_after_its_last_pod_and_allocated_again_for_the_next",
    "test_a_pod_may_have_a_gpu_and_an_fpga_function",
    "test_a_pod_with_a_template_gets_a_partition_of_the_size_it_asks_for",
    "test_two_pods_share_a_claim_and_the_device_stays_with_the_last",
]


async def test_running_pods_do_not_notice_that_the_plugin_is_updated(
    namespace: ClassicNamespace, kerf: KerfPods
) -> None:
    for name in ("one", "two"):
        await namespace.claim(name, "gpu-small")
    await namespace.pod("first", {"gpu": ONE})
    await namespace.wait_running("first")
    cut = namespace.node.gpu_partitions
    await kerf.update_plugin(namespace.node.name)
    assert namespace.node.gpu_partitions == cut
    await namespace.pod("second", {"gpu": {"resourceClaimName": "two"}})
    await namespace.wait_running("second")
    assert len(namespace.node.gpu_partitions) == 2


async def test_a_plugin_killed_while_it_cuts_leaves_one_partition_for_the_pod(
    namespace: ClassicNamespace, kerf: KerfPods
) -> None:
    await namespace.claim("one", "gpu-small")
    with namespace.node.held_hardware():
        await namespace.pod("pod", {"gpu": ONE})

        async def is_being_prepared() -> bool:
            return await namespace.node.claim_records() == 1

        await eventually("the claim is being prepared", is_being_prepared)
        await kerf.crash_plugin(namespace.node.name)
    await kerf.start_plugin(namespace.node.name)
    await namespace.wait_running("pod")
    assert len(namespace.node.gpu_partitions) == 1
