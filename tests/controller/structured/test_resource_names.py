"""Which class may have which name of an extended resource for the kubelet's device plugin interface."""

from typing import Any

import pytest

from kerf_dra.driver.controller.structured.event_handlers import ClassEventHandlers
from tests.controller.structured.cluster import Cluster

NAME = "example.com/gpu-small"


def offering(resource: str = NAME, **fields: Any) -> dict[str, Any]:
    return {"device": "gpu", "profile": "1g.10gb", "devicePlugin": {"resource": resource, "perNode": 2}, **fields}


def verdict(cluster: Cluster, name: str) -> tuple[str, str]:
    condition = cluster.condition(name, "DevicePlugin")
    return condition.status, condition.reason


async def test_a_class_whose_name_nobody_else_has_is_told_that_nodes_may_offer_it() -> None:
    cluster = Cluster()
    cluster.put_class("small", offering())
    await cluster.settle("small")
    assert verdict(cluster, "small") == ("True", "NameFree")
    assert "keeps 2 placements for example.com/gpu-small" in cluster.condition("small", "DevicePlugin").message


async def test_a_class_without_a_device_plugin_has_no_such_condition() -> None:
    cluster = Cluster()
    cluster.put_class("small", {"device": "gpu", "profile": "1g.10gb"})
    await cluster.settle("small")
    assert "DevicePlugin" not in {condition.type for condition in cluster.status("small").conditions}


async def test_the_extended_resource_of_a_device_class_is_refused_and_its_end_frees_the_name() -> None:
    cluster = Cluster()
    cluster.put_device_class("theirs", spec={"extendedResourceName": NAME})
    cluster.put_class("small", offering())
    await cluster.settle("small")
    assert verdict(cluster, "small") == ("False", "NameTaken")
    assert 'the DeviceClass "theirs"' in cluster.condition("small", "DevicePlugin").message
    cluster.delete("DeviceClass", "theirs")
    await cluster.settle("small")
    assert verdict(cluster, "small") == ("True", "NameFree")


async def test_a_device_class_that_takes_the_name_later_ends_the_offer() -> None:
    cluster = Cluster()
    cluster.put_class("small", offering())
    await cluster.settle("small")
    cluster.put_device_class("theirs", spec={"extendedResourceName": NAME})
    await cluster.settle("small")
    assert verdict(cluster, "small") == ("False", "NameTaken")
    assert ("small", "Warning", "NameTaken") in {event[:3] for event in cluster.events}


async def test_of_two_classes_with_one_name_one_has_it_on_all_nodes() -> None:
    cluster = Cluster()
    for name in ("second", "first"):
        cluster.put_class(name, offering())
    for name in ("second", "first"):
        await cluster.settle(name)
    assert (verdict(cluster, "first"), verdict(cluster, "second")) == (("True", "NameFree"), ("False", "NameTaken"))
    assert 'the older ResourceClass "first"' in cluster.condition("second", "DevicePlugin").message


@pytest.mark.parametrize("change", ["DeviceClass", "ResourceClass"])
async def test_a_change_of_who_has_a_name_queues_the_classes_that_want_it(change: str) -> None:
    cluster = Cluster()
    cluster.put_class("small", offering())
    queued: list[str] = []

    class Queue:
        def add(self, key: str, *, after_s: float = 0.0) -> None:
            queued.append(key)

    handlers = ClassEventHandlers(Queue(), cluster.caches, recount_s=1, settle_s=1)
    if change == "DeviceClass":
        handlers.on_device_class(cluster.device_class_change("theirs", {"extendedResourceName": NAME}))
    else:
        handlers.on_resource_class(cluster.resource_class_change("theirs", offering()))
    assert set(queued) == {"small", "theirs"}
