"""Every part may go away at any time: running pods keep their devices, nothing leaks, slices come back."""

import shutil

import anyio
import pytest

from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.namespace import Space
from tests.e2e.wait import eventually
from tests.realcluster.cluster import Cluster
from tests.realcluster.kerf import Hardware, Kerf

# Cutting takes long enough to be interrupted.
HARDWARE = Hardware(
    cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}],
    options={"delays": {"nvmlDeviceCreateGpuInstanceWithPlacement": 1.0}},
)

API_AWAY_S = 30.0


async def small_pods(space: Space, *names: str) -> None:
    small = await space.resource_class("small", device="gpu", profile="1g.10gb")
    await space.template("small", pods.exactly("gpu", small))
    await space.pods_of("small", *names)


async def slice_uids(space: Space) -> set[str]:
    return {one["metadata"]["uid"] for one in await space.api.list(pods.RESOURCE, "ResourceSlice")}


async def restarted_kubelet(cluster: Cluster, space: Space) -> None:
    await cluster.processes.stop(f"{NODE}-kubelet")
    cluster.start_kubelet(NODE)
    await cluster.wait_node_ready(space.api, NODE)


async def test_running_pods_do_not_notice_a_restart_of_the_plugin_and_slices_stay(space: Space, kerf: Kerf) -> None:
    await small_pods(space, "p")
    before, uids = await space.running("p"), await slice_uids(space)
    await kerf.restart_plugin(NODE)
    assert await slice_uids(space) == uids
    assert await space.node.claim_records() == 1
    assert (await space.running("p")).starts == before.starts
    await space.pods_of("small", "q")
    await space.running("q")
    assert len(space.node.cut) == 2


async def test_running_pods_do_not_notice_a_restart_of_the_kubelet_and_slices_come_back(
    space: Space, cluster: Cluster
) -> None:
    await small_pods(space, "p")
    before, cut, uids = await space.running("p"), space.node.cut, await slice_uids(space)
    await restarted_kubelet(cluster, space)

    async def all_new() -> bool:
        now = await slice_uids(space)
        return len(now) == len(uids) and now.isdisjoint(uids)

    await eventually("the slices that the kubelet has deleted are back", all_new, but=lambda: slice_uids(space))
    assert (await space.running("p")).starts == before.starts
    assert space.node.cut == cut
    await space.pods_of("small", "q")
    await space.running("q")


async def test_running_pods_do_not_notice_a_restart_of_containerd(space: Space, cluster: Cluster) -> None:
    await small_pods(space, "p")
    before, cut = await space.running("p"), space.node.cut
    await cluster.processes.stop(f"{NODE}-containerd")
    await cluster.start_containerd(NODE)
    await cluster.wait_node_ready(space.api, NODE)
    await space.pods_of("small", "q")
    await space.running("q")
    assert (await space.running("p")).starts == before.starts
    assert set(cut) < set(space.node.cut)


@pytest.mark.parametrize("step", ["nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_plugin_killed_while_it_cuts_leaves_one_partition_for_the_pod(
    space: Space, kerf: Kerf, step: str, when: str
) -> None:
    space.node.break_step(step, effect="crash", when=when)
    await small_pods(space, "p")

    async def has_died() -> bool:
        return not space.node.plugin_is_running

    await eventually("the plugin is killed", has_died)
    await kerf.crash_plugin(NODE)
    space.node.repair()
    await kerf.start_plugin(NODE)
    told = (await space.running("p")).main
    assert len(told.kerf_devices) == 1
    assert len(space.node.cut) == 1


async def test_a_plugin_killed_while_the_pod_goes_still_takes_its_partition_back(space: Space, kerf: Kerf) -> None:
    await small_pods(space, "p")
    await space.running("p")
    space.node.break_step("nvmlComputeInstanceDestroy", effect="crash", when="after")
    await space.api.delete("v1", "Pod", "p", space.name)

    async def has_died() -> bool:
        return not space.node.plugin_is_running

    await eventually("the plugin is killed", has_died)
    await kerf.crash_plugin(NODE)
    space.node.repair()
    assert len(space.node.cut) == 1
    await kerf.start_plugin(NODE)
    await space.gone("v1", "Pod", "p")
    await space.nothing_left()


async def test_an_api_server_that_is_away_during_prepare_only_delays_the_pod(space: Space, cluster: Cluster) -> None:
    await small_pods(space, "running")
    before = await space.running("running")
    await space.pods_of("small", "p")
    await eventually("the second claim is being prepared", lambda: _has_records(space, 2), within_s=30)
    await cluster.processes.kill("apiserver")  # an orderly end would wait until the claim is prepared
    assert len(space.node.cut) == 1
    await anyio.sleep(API_AWAY_S)
    cluster.start_part("apiserver")
    await cluster.wait_served()
    await space.running("p", within_s=120)
    assert (await space.running("running")).starts == before.starts
    assert len(space.node.cut) == 2


async def test_after_a_reboot_pods_get_partitions_that_are_cut_again(
    space: Space, cluster: Cluster, kerf: Kerf
) -> None:
    await small_pods(space, "p")
    before = await space.running("p")
    await kerf.crash_plugin(NODE)
    await cluster.power_off(NODE)
    shutil.rmtree(kerf.hardware_state(NODE))  # partitions do not survive
    for file in cluster.node_places(NODE).cdi.iterdir():
        file.unlink()  # nor does /var/run

    await cluster.boot_node(NODE)
    await kerf.start_plugin(NODE)
    await cluster.wait_node_ready(space.api, NODE)

    async def has_new_containers() -> bool:
        return (await space.running("p")).starts != before.starts

    await eventually("the pod's containers run again", has_new_containers, within_s=120, but=lambda: space.why("p"))
    after = await space.running("p")
    assert list(after.main.kerf_devices) == list(before.main.kerf_devices)
    assert len(space.node.cut) == 1
    assert len(space.node.cdi_files) == 1


async def _has_records(space: Space, count: int) -> bool:
    return await space.node.claim_records() == count
