"""Which class may have which name of an extended resource for the kubelet's device plugin interface."""

from typing import Any

import pytest

from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.controller.structured.event_handlers import ClassEventHandlers
from kerf_dra.driver.controller.structured.resource_names import collect_resource_names
from kerf_dra.driver.runtime.metrics import REGISTRY
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


def test_the_oldest_class_has_the_name_and_one_without_a_time_is_older_than_all() -> None:
    held = [
        ResourceClassObject(metadata=ObjectMeta(name=name, creation_timestamp=created), spec=offering())
        for name, created in (("a", "2026-11-02T00:00:00Z"), ("b", None), ("c", "2026-11-01T00:00:00Z"))
    ]
    for classes in (held, held[::-1]):
        assert collect_resource_names(classes, ()).of_device_plugins == {
            NAME: (("", "b"), ("2026-11-01T00:00:00Z", "c"), ("2026-11-02T00:00:00Z", "a"))
        }


async def test_each_pass_over_a_class_is_measured() -> None:
    def count() -> float:
        return REGISTRY.get_sample_value("kerf_controller_pass_seconds_count") or 0

    before = count()
    cluster = Cluster()
    for name in ("first", "second"):
        cluster.put_class(name, offering(f"example.com/{name}"))
        await cluster.reconciler.reconcile(name)
    await cluster.reconciler.reconcile("missing")
    assert count() == before + 2


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
