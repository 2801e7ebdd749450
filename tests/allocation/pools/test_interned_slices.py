"""Slices in interned form: restored as they were published, with equal content stored once."""

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.devices import (
    Attribute,
    Device,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kerf_dra.api.model.metadata import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta
from kerf_dra.driver.allocation.pools.interned_slices import InternedSlices
from kerf_dra.driver.allocation.semantics.allocated_state import PoolId
from tests.fakes.published_slices import fpgas, gpus, slices

SELECTOR = NodeSelector(
    node_selector_terms=(
        NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="zone", operator="In", values=("a",)),)),
    )
)


def reversed_order(published: list[ResourceSlice]) -> list[ResourceSlice]:
    return [replace(one, spec=replace(one.spec, devices=one.spec.devices[::-1])) for one in published]


def foreign(name: str, **spec: object) -> ResourceSlice:
    """A slice of another driver, with what Kerf's have not."""
    devices = (
        Device(
            name="nic-0",
            attributes={
                "speed": Attribute(int_value=100),
                "peers": Attribute(strings=("a", "b")),
                "broken": Attribute(),
                "name": Attribute.of(name),
            },
            taints=(DeviceTaint(key="broken", effect="NoSchedule"),),
        ),
    )
    pool = ResourcePool(name="nics", generation=3, resource_slice_count=1)
    content = ResourceSliceSpec(driver="nic.example.com", pool=pool, devices=devices)
    return ResourceSlice(metadata=ObjectMeta(name=name, labels={"a": "b"}), spec=replace(content, **spec))


GIVEN = [
    *slices("n1", gpus("h100-80gb-sxm", 2)),
    *slices("n2", gpus("h100-80gb-sxm", 2)),
    *reversed_order(slices("n3", gpus("h100-80gb-sxm", 2))),
    *slices("n1", fpgas("quad")),
    foreign("all", all_nodes=True),
    foreign("selected", node_selector=SELECTOR),
    foreign("types", all_nodes=True, partition_type_attribute="nic.example.com/type"),
    foreign("empty", node_name="n9", devices=()),
]


def test_slices_are_restored_as_they_were_published() -> None:
    found = InternedSlices.of(GIVEN)
    assert list(found) == GIVEN
    assert (len(found), found[0], found[-1], found[2:4]) == (len(GIVEN), GIVEN[0], GIVEN[-1], tuple(GIVEN[2:4]))


def test_they_are_equal_to_any_sequence_of_the_same_slices() -> None:
    found = InternedSlices.of(GIVEN)
    assert found == tuple(GIVEN)
    assert tuple(GIVEN) == found
    assert found == InternedSlices.of(GIVEN)
    assert found != tuple(GIVEN[1:])
    assert found != (*GIVEN[:-1], foreign("other", node_name="n9", devices=()))
    assert found != 5


def test_equal_content_is_stored_once_whatever_the_node_and_devices_in_any_order() -> None:
    found = InternedSlices.of(GIVEN).compact
    of_node = {node: [one for one in found if one.published.node_name == node] for node in ("n1", "n2", "n3")}
    equal = [one.published.interned for one in of_node["n1"] if one.pool.name == "n1/gpu"]
    assert [one.published.interned for one in of_node["n2"]] == equal
    assert not {one.published.interned for one in of_node["n3"]} & {one for one in equal if one.spec.devices}
    devices = {id(device) for one in equal for device in one.spec.devices}
    assert {id(device) for one in of_node["n3"] for device in one.published.interned.spec.devices} == devices


def test_each_content_is_read_once() -> None:
    found = InternedSlices.of([*slices("n1", gpus("a30")), *slices("n2", gpus("a30"))])
    assert [len(spec.devices) for spec in found.contents] == [len(one.spec.devices) for one in found[:2]]


def test_a_pool_is_restored_by_itself() -> None:
    newer = slices("n1", gpus("a30"), generation=2)
    given = [*GIVEN, *(replace(one, metadata=ObjectMeta(name=f"{one.metadata.name}-2")) for one in newer)]
    found = InternedSlices.of(given)
    pool = PoolId("gpu.kerf.dev", "n1/gpu")
    of_pool = [one for one in given if PoolId.of(one) == pool]
    assert list(found.of_pool(pool)) == of_pool
    assert list(found.newest_of_pool(pool)) == [one for one in of_pool if one.spec.pool.generation == 2]
    assert found.by_pool.keys() == {PoolId.of(one) for one in given}
    assert found.of_pool(PoolId("gpu.kerf.dev", "gone")) == found.newest_of_pool(PoolId("x", "n1/gpu")) == ()


def test_metadata_is_changed_without_restoring() -> None:
    found = InternedSlices.of(GIVEN).map_metadata(lambda metadata: ObjectMeta(name=f"{metadata.name}!"))
    assert [one.metadata for one in found] == [ObjectMeta(name=f"{one.metadata.name}!") for one in GIVEN]
    assert [one.spec for one in found] == [one.spec for one in GIVEN]


@pytest.mark.parametrize("given", [GIVEN, []])
def test_what_is_interned_is_not_interned_again(given: list[ResourceSlice]) -> None:
    found = InternedSlices.of(given)
    assert InternedSlices.of(found) is found
