"""Every part may restart at any time: running pods keep their devices, nothing leaks, and slices come back."""

import anyio
import pytest

from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.hardware import BOTH_BACKENDS, ON_NVIDIA
from tests.e2e.namespace import Namespace, RunningPod
from tests.e2e.wait import eventually
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import Hardware, Kerf

# Cutting takes long enough to be interrupted.
HARDWARE = Hardware(
    cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}],
    options={"delays": {"nvmlDeviceCreateGpuInstanceWithPlacement": 1.0}},
)

API_AWAY_S = 30.0
# Nothing on the hardware says whose a partition is. Between two of these steps the plugin writes its journal, so that
# "after" one step and "before" the next are before and after that write.
CREATING = ("nvmlDeviceSetMigMode", "nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance")
DESTROYING = ("nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy")


async def small_pods(namespace: Namespace, *names: str) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", *names)


async def slice_uids(namespace: Namespace) -> set[str]:
    return {one["metadata"]["uid"] for one in await namespace.api.list(pods.RESOURCE, "ResourceSlice")}


async def restarted_kubelet(cluster: Cluster, namespace: Namespace) -> None:
    await cluster.processes.stop(f"{NODE}-kubelet")
    cluster.start_kubelet(NODE)
    await cluster.wait_node_ready(namespace.api, NODE)


@BOTH_BACKENDS
async def test_running_pods_do_not_notice_a_restart_of_the_plugin_and_slices_stay(
    namespace: Namespace, kerf: Kerf
) -> None:
    await small_pods(namespace, "p")
    before, uids = await namespace.wait_running("p"), await slice_uids(namespace)
    await kerf.restart_plugin(NODE)
    assert await slice_uids(namespace) == uids
    assert await namespace.node.claim_records() == 1
    assert (await namespace.wait_running("p")).starts == before.starts
    await namespace.create_pods("small", "q")
    await namespace.wait_running("q")
    assert len(namespace.node.gpu_partitions) == 2


async def test_running_pods_do_not_notice_a_restart_of_the_kubelet_and_slices_come_back(
    namespace: Namespace, cluster: Cluster
) -> None:
    await small_pods(namespace, "p")
    before, cut, uids = await namespace.wait_running("p"), namespace.node.gpu_partitions, await slice_uids(namespace)
    await restarted_kubelet(cluster, namespace)

    async def all_new() -> bool:
        now = await slice_uids(namespace)
        return len(now) == len(uids) and now.isdisjoint(uids)

    await eventually("the slices that the kubelet has deleted are back", all_new, but=lambda: slice_uids(namespace))
    assert (await namespace.wait_running("p")).starts == before.starts
    assert namespace.node.gpu_partitions == cut
    await namespace.create_pods("small", "q")
    await namespace.wait_running("q")


async def test_slices_are_those_of_the_node_that_is_there_after_it_was_deleted_and_registered_again(
    namespace: Namespace, cluster: Cluster
) -> None:
    """Those with the UID of the deleted Node were created and garbage-collected until the plugin was started again."""

    async def owners() -> set[str]:
        slices = await namespace.api.list(pods.RESOURCE, "ResourceSlice")
        return {owner["uid"] for one in slices for owner in one["metadata"].get("ownerReferences", ())}

    node = await namespace.api.get("v1", "Node", NODE)
    await cluster.processes.stop(f"{NODE}-kubelet")
    await namespace.api.delete("v1", "Node", NODE)

    async def are_gone() -> bool:
        return node["metadata"]["uid"] not in await owners()

    await eventually("the slices of the deleted Node are garbage-collected", are_gone, but=owners)
    cluster.start_kubelet(NODE)
    await cluster.wait_node_ready(namespace.api, NODE)
    new = (await namespace.api.get("v1", "Node", NODE))["metadata"]["uid"]

    async def is_owner() -> bool:
        return await owners() == {new}

    await eventually("the new Node owns the slices", is_owner, but=owners)
    await small_pods(namespace, "p")
    await namespace.wait_running("p")


async def test_running_pods_do_not_notice_a_restart_of_containerd(namespace: Namespace, cluster: Cluster) -> None:
    await small_pods(namespace, "p")
    before, cut = await namespace.wait_running("p"), namespace.node.gpu_partitions
    await cluster.processes.stop(f"{NODE}-containerd")
    await cluster.start_containerd(NODE)
    await cluster.wait_node_ready(namespace.api, NODE)
    await namespace.create_pods("small", "q")
    await namespace.wait_running("q")
    assert (await namespace.wait_running("p")).starts == before.starts
    assert set(cut) < set(namespace.node.gpu_partitions)


async def wait_dead(namespace: Namespace, kerf: Kerf) -> None:
    """Wait until the hardware has killed the plugin."""

    async def has_died() -> bool:
        return not namespace.node.plugin_is_running

    await eventually("the plugin is killed", has_died)
    await kerf.crash_plugin(NODE)
    namespace.node.hardware.repair()


async def cut_while_killed(namespace: Namespace, kerf: Kerf, step: str, when: str) -> None:
    """Run a pod, for which the plugin is killed while it cuts and started again."""
    namespace.node.hardware.switch_mig_off("gpu-0")
    namespace.node.hardware.break_step(step, effect="crash", when=when)
    await small_pods(namespace, "p")
    await wait_dead(namespace, kerf)
    await kerf.start_plugin(NODE)
    told = (await namespace.wait_running("p")).main
    assert len(told.kerf_devices) == 1
    assert len(namespace.node.gpu_partitions) == 1


async def take_back_while_killed(namespace: Namespace, kerf: Kerf, step: str, when: str) -> None:
    """Run and delete a pod, at whose end the plugin is killed and started again."""
    await small_pods(namespace, "p")
    await namespace.wait_running("p")
    namespace.node.hardware.break_step(step, effect="crash", when=when)
    await namespace.api.delete("v1", "Pod", "p", namespace.name)
    await wait_dead(namespace, kerf)
    assert len(namespace.node.gpu_partitions) == (0 if (step, when) == (DESTROYING[-1], "after") else 1)
    await kerf.start_plugin(NODE)
    await namespace.wait_gone("v1", "Pod", "p")
    await namespace.wait_clean()


@pytest.mark.parametrize("step", CREATING)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_plugin_killed_while_it_cuts_leaves_one_partition_for_the_pod(
    namespace: Namespace, kerf: Kerf, step: str, when: str
) -> None:
    await cut_while_killed(namespace, kerf, step, when)


@pytest.mark.parametrize("step", DESTROYING)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_plugin_killed_while_the_pod_goes_still_takes_its_partition_back(
    namespace: Namespace, kerf: Kerf, step: str, when: str
) -> None:
    await take_back_while_killed(namespace, kerf, step, when)


@ON_NVIDIA
@pytest.mark.parametrize(("step", "when"), [(CREATING[1], "after"), (CREATING[2], "halfway")])
async def test_a_plugin_killed_in_a_call_of_nvml_leaves_one_partition_for_the_pod(
    namespace: Namespace, kerf: Kerf, step: str, when: str
) -> None:
    await cut_while_killed(namespace, kerf, step, when)


@ON_NVIDIA
async def test_a_plugin_killed_in_a_call_of_nvml_that_destroys_still_takes_the_partition_back(
    namespace: Namespace, kerf: Kerf
) -> None:
    await take_back_while_killed(namespace, kerf, DESTROYING[-1], "halfway")


async def test_an_api_server_that_is_away_during_prepare_only_delays_the_pod(
    namespace: Namespace, cluster: Cluster
) -> None:
    await small_pods(namespace, "running")
    before = await namespace.wait_running("running")
    with namespace.node.held_hardware():
        await namespace.create_pods("small", "p")
        await eventually("the second claim is being prepared", lambda: _has_records(namespace, 2))
        await cluster.processes.kill("apiserver")  # an orderly end would wait until the claim is prepared
        assert len(namespace.node.gpu_partitions) == 1
    await anyio.sleep(API_AWAY_S)
    cluster.start_part("apiserver")
    await cluster.wait_served()
    await namespace.wait_running("p", within_s=120)
    assert (await namespace.wait_running("running")).starts == before.starts
    assert len(namespace.node.gpu_partitions) == 2


@BOTH_BACKENDS
async def test_after_a_reboot_pods_get_partitions_that_are_cut_again(
    namespace: Namespace, cluster: Cluster, kerf: Kerf
) -> None:
    await small_pods(namespace, "p")
    before = await namespace.wait_running("p")
    await kerf.crash_plugin(NODE)
    await cluster.power_off(NODE)
    namespace.node.boot_hardware()

    await cluster.boot_node(NODE)
    await kerf.start_plugin(NODE)
    await cluster.wait_node_ready(namespace.api, NODE)

    async def runs_again() -> RunningPod | None:
        running = await namespace.find_running("p")
        return running if running is not None and running.starts != before.starts else None

    after = await eventually(
        "the pod's containers run again", runs_again, within_s=120, but=lambda: namespace.describe_pod("p")
    )
    assert list(after.main.kerf_devices) == list(before.main.kerf_devices)
    assert len(namespace.node.gpu_partitions) == 1
    assert len(namespace.node.cdi_files) == 1


async def _has_records(namespace: Namespace, count: int) -> bool:
    return await namespace.node.claim_records() == count
