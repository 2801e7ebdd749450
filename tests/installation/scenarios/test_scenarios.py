"""What ``tests/e2e`` does with Kerf as processes, with Kerf as pods: some scenarios of each subject on one cluster."""

from tests.e2e import pods
from tests.e2e.namespace import Namespace
from tests.e2e.test_node_choice import (
    test_an_extended_resource_in_limits_needs_no_claim,
    test_an_fpga_function_is_taken_as_long_as_there_is_one_then_a_gpu_partition,
    test_two_requests_are_met_on_one_card,
    test_two_workloads_prefer_different_cards_and_take_what_there_is,
)
from tests.e2e.test_one_card import (
    test_a_claim_of_two_pods_keeps_its_partition_until_the_last_one_goes,
    test_a_partition_is_cut_for_a_pod_seen_by_its_container_and_gone_with_it,
)
from tests.e2e.test_restarts import (
    test_running_pods_do_not_notice_a_restart_of_containerd,
    test_running_pods_do_not_notice_a_restart_of_the_kubelet_and_slices_come_back,
    test_running_pods_do_not_notice_a_restart_of_the_plugin_and_slices_stay,
)
from tests.e2e.test_rolling_update import test_no_prepare_fails_while_the_plugin_is_updated
from tests.e2e.test_sharing import (
    test_a_shared_partition_goes_with_its_last_share,
    test_two_claims_share_a_partition_and_each_container_reads_its_own_limit,
)
from tests.e2e.wait import eventually
from tests.installation.kerf_pods import KerfPods
from tests.installation.release import NODE
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(
    cards=[
        {"kind": "gpu", "model": "h100-80gb-sxm", "count": 2, "sharing": ["Mps"]},
        {"kind": "fpga", "shell": "quad"},
    ],
    options={"delays": {"nvmlDeviceCreateGpuInstanceWithPlacement": 0.5}},
)

__all__ = [
    "test_a_claim_of_two_pods_keeps_its_partition_until_the_last_one_goes",
    "test_a_partition_is_cut_for_a_pod_seen_by_its_container_and_gone_with_it",
    "test_a_shared_partition_goes_with_its_last_share",
    "test_an_extended_resource_in_limits_needs_no_claim",
    "test_an_fpga_function_is_taken_as_long_as_there_is_one_then_a_gpu_partition",
    "test_no_prepare_fails_while_the_plugin_is_updated",
    "test_running_pods_do_not_notice_a_restart_of_containerd",
    "test_running_pods_do_not_notice_a_restart_of_the_kubelet_and_slices_come_back",
    "test_running_pods_do_not_notice_a_restart_of_the_plugin_and_slices_stay",
    "test_two_claims_share_a_partition_and_each_container_reads_its_own_limit",
    "test_two_requests_are_met_on_one_card",
    "test_two_workloads_prefer_different_cards_and_take_what_there_is",
]


async def test_a_plugin_killed_while_it_cuts_leaves_one_partition_for_the_pod(
    namespace: Namespace, kerf: KerfPods
) -> None:
    """Killed from outside of its pod: the first process of a container cannot kill itself."""
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    with namespace.node.held_hardware():
        await namespace.create_pods("small", "p")

        async def is_being_prepared() -> bool:
            return await namespace.node.claim_records() == 1

        await eventually("the claim is being prepared", is_being_prepared)
        await kerf.crash_plugin(NODE)
    await kerf.start_plugin(NODE)
    told = (await namespace.wait_running("p")).main
    assert len(told.kerf_devices) == 1
    assert len(namespace.node.gpu_partitions) == 1
