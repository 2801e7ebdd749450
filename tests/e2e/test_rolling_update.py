"""A new plugin takes over from the old one, while pods come and go (docs/rolling-update.md)."""

import anyio

from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.namespace import Namespace
from tools.realcluster.kerf import Hardware, Kerf

HARDWARE = Hardware(
    cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}],
    options={"delays": {"nvmlDeviceCreateGpuInstanceWithPlacement": 0.5}},
)
UPDATES = 3
UNSEEN = "no relationship found between node"
"""What the Node authorizer says to a kubelet that is quicker than it to see a pod: no plugin has been asked yet."""


async def test_no_prepare_fails_while_the_plugin_is_updated(namespace: Namespace, kerf: Kerf) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", "stays")
    before = await namespace.wait_running("stays")
    served = 0

    async def come_and_go() -> None:
        nonlocal served
        while True:
            await namespace.create_pods("small", f"p{served}")
            await namespace.wait_running(f"p{served}")
            await namespace.delete_pod(f"p{served}")
            served += 1

    async with anyio.create_task_group() as group:
        group.start_soon(come_and_go)
        for _ in range(UPDATES):
            seen = served
            await kerf.update_plugin(NODE)
            while served < seen + 2:  # noqa: ASYNC110  (the other task counts)
                await anyio.sleep(0.1)
        group.cancel_scope.cancel()

    events = await namespace.api.list("v1", "Event", namespace.name)
    failures = [one["message"] for one in events if one["reason"] == "FailedPrepareDynamicResources"]
    assert [message for message in failures if UNSEEN not in message] == []
    assert (await namespace.wait_running("stays")).starts == before.starts
    assert served >= 2 * UPDATES


async def test_a_new_plugin_that_dies_leaves_the_work_to_the_old_one(namespace: Namespace, kerf: Kerf) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    async with kerf.surged_plugin(NODE):
        await namespace.create_pods("small", "p")
        await namespace.wait_running("p")
    await namespace.create_pods("small", "q")
    await namespace.wait_running("q")
    assert len(namespace.node.gpu_partitions) == 2
