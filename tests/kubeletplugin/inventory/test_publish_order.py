"""The published order follows the devices in use, and nothing is published without need."""

from dataclasses import replace

from tests.fakes.claims import claim, result
from tests.kubeletplugin.harness import Machine, machine
from tests.kubeletplugin.wait import until


def first_of(node: Machine, prefix: str) -> str:
    contents = node.cluster.published[-1][0].slices
    return next(device.name for content in contents for device in content.devices if prefix in device.name)


async def until_published(node: Machine, times: int) -> None:
    await until(lambda: len(node.cluster.published) >= times)


async def test_devices_are_published_at_the_start_and_again_when_the_best_order_changes() -> None:
    with machine() as node:
        async with node.plugin():
            await until_published(node, 1)
            assert first_of(node, "1g") == "gpu-0-1g-1gb-at-0"
            await node.kubelet.prepare(node.cluster.add(claim("training", "gpu-1-1g-1gb-at-0")))
            await until_published(node, 2)
            assert first_of(node, "1g") == "gpu-1-1g-1gb-at-1", "beside what is taken"


async def test_admin_access_takes_nothing() -> None:
    with machine() as node:
        async with node.plugin():
            await until_published(node, 1)
            await node.kubelet.prepare(node.cluster.add(claim("monitor", result("gpu-1", admin=True))))
            await node.kubelet.prepare(node.cluster.add(claim("training", "gpu-1-1g-1gb-at-0")))
            await until_published(node, 2)
            assert first_of(node, "1g") == "gpu-1-1g-1gb-at-1", "still beside what is taken, not on another card"


async def test_when_the_api_server_drops_counters_only_whole_cards_are_published() -> None:
    with machine() as node:
        async with node.plugin():
            await until_published(node, 1)
            node.cluster.target = replace(node.cluster.target, keeps_counters=False)
            node.cluster.on_target_change()
            await until_published(node, 2)
        names = [device.name for content in node.cluster.published[-1][0].slices for device in content.devices]
        assert names == ["gpu-0", "gpu-1"]
