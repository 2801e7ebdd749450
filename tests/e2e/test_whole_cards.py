"""Whole cards, the only devices on releases without shared counters (before 1.33)."""

from typing import Final

import anyio

from tests.e2e import pods
from tests.e2e.conftest import NODE, SETTLING_S
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Api
from tools.realcluster.cluster import Cluster, load_factor
from tools.realcluster.kerf import Hardware, Kerf

PUBLISHED_S: Final = 30.0
"""A plugin that starts publishes within a second."""
HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm", "count": 2}], options={})


async def whole(namespace: Namespace) -> str:
    return await namespace.resource_class("whole", device="gpu", cut="Whole")


async def test_pods_get_whole_cards_until_there_is_none(namespace: Namespace) -> None:
    await namespace.template("whole", pods.exactly("gpu", await whole(namespace)))
    await namespace.create_pods("whole", "p0", "p1")
    seen = [(await namespace.wait_running(name)).main.kerf_devices for name in ("p0", "p1")]
    assert sorted(name for devices in seen for name in devices) == ["gpu-0", "gpu-1"]
    await namespace.create_pods("whole", "p2")
    await namespace.wait_event("p2", "FailedScheduling")
    await namespace.delete_pod("p0")
    await namespace.wait_running("p2")


async def test_pods_and_containers_share_a_claim(namespace: Namespace) -> None:
    await namespace.claim("shared", pods.exactly("gpu", await whole(namespace)))
    for name in ("one", "two"):
        await namespace.apply(pods.pod(name, {"gpu": pods.by_name("shared")}, containers=("a", "b")))
    told = [told for name in ("one", "two") for told in (await namespace.wait_running(name)).containers.values()]
    assert len({tuple(one.kerf_devices.items()) for one in told}) == 1
    await namespace.delete_pod("one")
    assert len(namespace.node.cdi_files) == 1
    await namespace.delete_pod("two")
    await namespace.wait_clean()


async def test_two_cards_in_one_claim(namespace: Namespace) -> None:
    await namespace.template("two", pods.exactly("gpus", await whole(namespace), count=2))
    await namespace.create_pods("two", "p")
    told = (await namespace.wait_running("p")).main
    assert sorted(told.kerf_devices) == ["gpu-0", "gpu-1"]
    assert {"/dev/nvidia0", "/dev/nvidia1"} < told.card_nodes


async def test_pods_keep_their_card_when_plugin_and_kubelet_start_again(
    namespace: Namespace, cluster: Cluster, kerf: Kerf
) -> None:
    await namespace.template("whole", pods.exactly("gpu", await whole(namespace)))
    await namespace.create_pods("whole", "p")
    before = await namespace.wait_running("p")
    await kerf.crash_plugin(NODE)
    await kerf.start_plugin(NODE)
    await cluster.processes.stop(f"{NODE}-kubelet")
    cluster.start_kubelet(NODE)
    await cluster.wait_node_ready(namespace.api, NODE)
    await eventually("devices are published again", namespace.published_devices)
    await namespace.create_pods("whole", "q")
    await namespace.wait_running("q")
    assert (await namespace.wait_running("p")).starts == before.starts


async def test_a_plugin_publishes_from_its_first_slice_on_what_it_stands_for(
    api: Api, kerf: Kerf, namespace: Namespace
) -> None:
    """Where the API server drops counters, partitions are not even tried."""
    await kerf.stop_plugin(NODE)
    for held in await api.list(pods.RESOURCE, "ResourceSlice"):
        await api.delete(pods.RESOURCE, "ResourceSlice", held["metadata"]["name"])
    async with api.watch(pods.RESOURCE, "ResourceSlice", resourceVersion="") as events:
        await kerf.start_plugin(NODE)
        first: list[str] = []
        with anyio.fail_after(PUBLISHED_S * load_factor()):
            while not first:
                event = await anext(events)
                if event["type"] == "ADDED":
                    first = [device["name"] for device in event["object"]["spec"].get("devices", ())]
    await eventually("devices are published", namespace.published_devices)
    await anyio.sleep(SETTLING_S)
    assert first == (await namespace.published_devices())[: len(first)]
