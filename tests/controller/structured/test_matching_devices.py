"""The devices of slices that match classes, and the classes that are reconciled after a change."""

import weakref
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.api.model.names import DriverName
from kerf_dra.driver.controller.device_types import DeviceType, device_type_of, device_types_of, known_device_types
from kerf_dra.driver.controller.structured.device_groups import DeviceGroupIndex, SliceChange
from kerf_dra.driver.controller.structured.event_handlers import ClassCaches, ClassEventHandlers
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.kube.assume_cache import AssumeCache
from kerf_dra.driver.kube.store import ObjectChange, Store
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shell
from tests.fakes.published_slices import fpgas, gpus, slices


def published(*given: ResourceSlice) -> DeviceGroupIndex:
    found = DeviceGroupIndex(BUILT_IN)
    for one in given:
        found.update(one.ref, one)
    return found


def totals(found: DeviceGroupIndex) -> int:
    return sum(group.total for group in found.groups())


def test_devices_of_one_type_are_one_group() -> None:
    groups = list(published(*slices("n1", gpus("h100-80gb-sxm", 2))).groups())
    by_profile = {group.kind.device_type.profile: group for group in groups}
    assert by_profile["1g.10gb"].total == 14
    assert by_profile["1g.10gb"].cards == {"GPU-h100-80gb-sxm-0@n1", "GPU-h100-80gb-sxm-1@n1"}
    assert by_profile["1g.10gb"].node == "n1"
    assert by_profile[""].kind.device_type.cut == "whole"


def test_a_device_that_does_not_name_its_node_is_on_that_of_its_slice() -> None:
    given = slices("n1", gpus("h100-80gb-sxm"))
    unnamed = [
        replace(
            one,
            spec=replace(
                one.spec,
                devices=tuple(
                    replace(device, attributes={key: each for key, each in device.attributes.items() if key != "node"})
                    for device in one.spec.devices
                ),
            ),
        )
        for one in given
    ]
    assert unnamed != given
    assert {group.node for group in published(*unnamed).groups()} == {"n1"}


def test_everything_published_by_a_known_card_is_of_a_known_type() -> None:
    assert published(*slices("n1", gpus("rtx-pro-6000"))).device_types() <= known_device_types()
    shells = published(*slices("n1", fpgas("edge-3"))).device_types()
    assert shells == device_types_of(fpga_geometry(shell("edge-3"))), "no shell is shipped: nodes say what theirs are"
    assert not shells & known_device_types()


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old, new = slices("n1", gpus("a30")), slices("n1", gpus("a30"), generation=2)
    newer = [replace(one, metadata=ObjectMeta(name=f"{one.metadata.name}-new")) for one in new]
    both = published(*old, *newer)
    assert totals(both) == totals(published(*new))
    for one in newer:
        both.update(one.ref, None)
    assert totals(both) == totals(published(*old))


def test_a_republished_order_is_no_difference() -> None:
    [counters, devices] = slices("n1", gpus("a30"))
    found = published(counters, devices)
    reordered = replace(devices, spec=replace(devices.spec, devices=devices.spec.devices[::-1]))
    assert found.update(reordered.ref, reordered) is SliceChange.NONE
    fewer = replace(devices, spec=replace(devices.spec, devices=devices.spec.devices[1:]))
    assert found.update(fewer.ref, fewer) is SliceChange.COUNTS
    assert found.update(fewer.ref, None) is SliceChange.COUNTS
    assert (totals(found), found.device_types()) == (0, frozenset())


def test_what_is_kept_of_slices_counts_as_the_slices_do() -> None:
    """The controller of 1,000 nodes with eight H100 was killed at its limit of 1 GiB: its caches held all devices."""
    given = [*slices("n1", gpus("h100-80gb-sxm", 2)), *slices("n2", gpus("a30", 2)), *slices("n3", fpgas("quad"))]
    kept = DeviceGroupIndex(BUILT_IN)
    for one in given:
        kept.update(one.ref, kept.project(one))
    counted = Counter[tuple[str, DeviceType]]()
    for group in kept.groups():
        counted[group.node, group.kind.device_type] += group.total
    families = {family.driver: family for family in BUILT_IN}
    assert counted == Counter(
        (one.spec.node_name, device_type_of(device, families[DriverName(one.spec.driver)]))
        for one in given
        for device in one.spec.devices
    )


def test_devices_of_one_kind_are_represented_by_one_device_on_all_nodes() -> None:
    found = published(*slices("n1", gpus("a30", 2)), *slices("n2", gpus("a30", 2)))
    groups = list(found.groups())
    assert {group.device.attributes["node"].string for group in groups} == {"n1", "n2"}, "a class sees its own node"
    assert {group.node: group.device.attributes["node"].string for group in groups} == {"n1": "n1", "n2": "n2"}
    assert len({group.kind for group in groups}) == len({group.kind.device_type for group in groups})
    assert len({id(group.kind.device) for group in groups}) == len({group.kind for group in groups})


def test_a_kind_of_device_that_no_slice_has_any_more_is_forgotten() -> None:
    found = published(*slices("n1", gpus("a30")))
    older = slices("n2", gpus("a30", driver_version="535.104.5"))
    for one in older:
        found.update(one.ref, one)
    gone = [weakref.ref(group.kind) for group in found.groups() if group.kind.driver_version == "535.104.5"]
    assert gone
    for one in older:
        found.update(one.ref, None)
    assert not any(kind() for kind in gone)


def test_of_a_slice_the_identity_the_owners_and_the_node_are_kept_and_no_devices() -> None:
    [_, one] = slices("n1", gpus("a30"))
    owner = OwnerReference(api_version="v1", kind="Node", name="n1", uid="uid-n1")
    metadata = ObjectMeta(
        name="n1-gpu",
        uid="uid-1",
        resource_version="7",
        labels={"a": "b"},
        deletion_timestamp="2026-11-27T04:00:00Z",
        owner_references=(owner,),
    )
    kept = DeviceGroupIndex(BUILT_IN).project(replace(one, metadata=metadata))
    assert kept.metadata == replace(metadata, labels={})
    assert (kept.spec.driver, kept.spec.node_name, kept.spec.pool) == ("gpu.kerf.dev", "n1", one.spec.pool)
    assert (kept.spec.devices, kept.spec.shared_counters) == ((), ())


def test_slices_of_other_drivers_count_nowhere() -> None:
    found = published(*slices("n1", gpus("a30"), driver="gpu.example.com"))
    assert (totals(found), found.device_types()) == (0, frozenset())


def test_pools_of_one_name_are_each_drivers_own() -> None:
    """The pool of a node may have its name: the generation of one driver's says nothing of another's."""
    gpu = _in_pool("n1", slices("n1", gpus("a30"), generation=7))
    fpga = _in_pool("n1", slices("n1", fpgas("quad")))
    assert totals(published(*gpu, *fpga)) == totals(published(*gpu)) + totals(published(*fpga))


def _in_pool(name: str, given: list[ResourceSlice]) -> list[ResourceSlice]:
    return [replace(one, spec=replace(one.spec, pool=replace(one.spec.pool, name=name))) for one in given]


class Queue:
    """A queue that records the keys that are added."""

    def __init__(self) -> None:
        self.added: dict[str, float] = {}

    def add(self, key: str, *, after_s: float = 0.0) -> None:
        self.added[key] = after_s


def resource_class(name: str, spec: dict[str, Any]) -> ResourceClassObject:
    return ResourceClassObject(metadata=ObjectMeta(name=name), spec=spec)


CLASSES = [
    resource_class("everywhere", {"device": "gpu"}),
    resource_class("racked", {"device": "gpu", "nodes": {"matchLabels": {"rack": "r1"}}}),
    resource_class("broken", {"nodes": "not even an object"}),
]


def event_handlers(queue: Queue) -> ClassEventHandlers:
    classes: Store[ResourceClassObject] = Store()
    for each in CLASSES:
        classes.put(each)
    caches = ClassCaches(
        resource_classes=AssumeCache(classes),
        device_classes=AssumeCache(Store()),
        nodes=Store(),
        published=DeviceGroupIndex(BUILT_IN),
    )
    return ClassEventHandlers(queue, caches, recount_s=5, settle_s=1)


def node(labels: dict[str, str] | None, version: str = "1") -> Node | None:
    if labels is None:
        return None
    return Node(metadata=ObjectMeta(name="n1", labels=labels, resource_version=version))


@pytest.mark.parametrize(
    ("old", "new", "added"),
    [
        (None, {}, {"racked": 1, "broken": 1}),
        ({}, None, {"racked": 1, "broken": 1}),
        ({"rack": "r1"}, {"rack": "r2"}, {"racked": 1, "broken": 1}),
        ({"rack": "r1"}, {"rack": "r1"}, {}),
    ],
    ids=["came", "went", "relabelled", "heartbeat"],
)
def test_a_node_concerns_classes_that_choose_nodes(
    old: dict[str, str] | None, new: dict[str, str] | None, added: dict[str, float]
) -> None:
    queue = Queue()
    change = ObjectChange(Node(metadata=ObjectMeta(name="n1")).ref, node(old, "1"), node(new, "2"))
    event_handlers(queue).on_node(change)
    assert queue.added == added


def test_a_slice_concerns_every_class_sooner_where_its_devices_are_of_a_new_kind() -> None:
    """A class that was made while the first nodes came up was said to match nothing for five seconds."""
    queue = Queue()
    watched = event_handlers(queue)

    def added_by(old: ResourceSlice | None, new: ResourceSlice | None) -> dict[str, float]:
        queue.added.clear()
        watched.on_slice(ObjectChange((old or new or first).ref, old, new))
        return queue.added

    [_, first] = slices("n1", gpus("a30"))
    [_, alike] = slices("n2", gpus("a30"))
    [*_, function] = slices("n1", fpgas("edge-3"))
    [*_, shared] = slices("n1", gpus("a30"), shareable=frozenset({"1g.6gb"}))
    assert any(device.allow_multiple_allocations for device in shared.spec.devices)
    assert added_by(None, first) == {"everywhere": 1, "racked": 1, "broken": 1}
    assert added_by(first, first) == {}
    assert added_by(None, alike) == {"everywhere": 5, "racked": 5, "broken": 5}
    assert added_by(None, function) == {"everywhere": 1, "racked": 1, "broken": 1}
    assert added_by(first, shared) == {"everywhere": 1, "racked": 1, "broken": 1}
    assert added_by(function, None) == {"everywhere": 5, "racked": 5, "broken": 5}
    assert added_by(None, function) == {"everywhere": 1, "racked": 1, "broken": 1}


def test_a_class_and_its_device_class_concern_the_class_at_once() -> None:
    queue = Queue()
    watched = event_handlers(queue)
    watched.on_resource_class(ObjectChange(CLASSES[0].ref, None, CLASSES[0]))
    other = DeviceClass(metadata=ObjectMeta(name="other"))
    watched.on_device_class(ObjectChange(other.ref, other, None))
    assert queue.added == {"everywhere": 0.0, "other": 0.0}
