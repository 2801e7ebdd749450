"""Nodes that publish equal content in different orders: what is stored once, and what answers depend on.

A node's order of devices follows from what is allocated on it, so in a large cluster each node may have its own. With
3,000 such nodes of eight H100, ``kerf why`` took 643 MB, twice as much as with equal orders.
"""

import gc
import tracemalloc
from collections.abc import Sequence
from random import Random
from typing import Final
from weakref import ref

import msgspec
import pytest

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Attribute, Device, ResourceSlice
from kerf_dra.api.model.names import DeviceId
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.allocation import AllocatedState, NodeView, PoolIndex
from kerf_dra.driver.allocation.pools.gather import PoolView
from kerf_dra.driver.allocation.pools.interned_slices import InternedSlices
from tests.allocation.builders import ALL_FEATURES, DRIVER, claim, decide, device, partitioned, request, slice_
from tests.fakes.published_slices import gpus, slices
from tests.kube.shuffled_slices import shuffle_slices

NODE_KIB: Final = 24
"""The memory of the interned slices of a node with eight H100; decoded they take 900 KiB."""
RECENT: Final = 256
"""The most views that stay in memory while nothing uses them."""


def orders_of(node: str, cards: int, seeds: Sequence[int]) -> list[bytes]:
    """The slices of a node in the order of each of ``seeds``, as JSON."""
    documents = [document_of(each) for each in slices(node, gpus("h100-80gb-sxm", cards))]
    return [each for seed in seeds for each in shuffle_slices(documents, Random(seed))]


def document_of(slice_: ResourceSlice) -> JsonObject:
    return msgspec.json.decode(msgspec.json.encode(KINDS.resource_slices.encode(slice_)), type=JsonObject)


def ids_of(content: Sequence[object]) -> set[int]:
    return {id(each) for each in content}


def reverse_members(slice_: ResourceSlice) -> ResourceSlice:
    """The slice with the members of all its JSON objects in reverse order, and all lists as they are."""

    def reverse(value: object) -> object:
        if isinstance(value, dict):
            return {name: reverse(each) for name, each in reversed(value.items())}
        return [reverse(each) for each in value] if isinstance(value, list) else value

    return KINDS.resource_slices.decode(msgspec.json.encode(reverse(document_of(slice_))))


def test_an_order_of_attributes_capacities_and_counters_makes_no_other_content() -> None:
    published = slices("n1", gpus("h100-80gb-sxm", 2))
    found = InternedSlices.of([*published, *map(reverse_members, published)]).compact
    half = len(published)
    assert [each.published for each in found[half:]] == [each.published for each in found[:half]]


def test_devices_and_counter_sets_are_stored_once_in_whatever_order_and_slice_they_are() -> None:
    one, another = ([*map(KINDS.resource_slices.decode, orders_of("n1", 2, [seed]))] for seed in (1, 2))
    assert one != another
    for published in (one, another):
        assert list(InternedSlices.of(published)) == published
    specs = [each.published.interned.spec for each in InternedSlices.of([*one, *another]).compact]
    of_one, of_another = specs[: len(one)], specs[len(one) :]
    for name in ("devices", "shared_counters"):
        content = [element for spec in of_one for element in getattr(spec, name)]
        assert ids_of(content) == ids_of([element for spec in of_another for element in getattr(spec, name)])
        assert len(ids_of(content)) == len(content) > 1


def test_a_node_with_an_order_of_its_own_takes_some_kilobytes() -> None:
    few, many = (memory_of(orders_of("n1", 8, range(count))) for count in (1, 11))
    assert 0 < (many - few) / 10 / 1024 <= NODE_KIB


def memory_of(published: Sequence[bytes]) -> int:
    """The memory of interned slices, in bytes."""
    tracemalloc.start()
    try:
        found = InternedSlices.of(map(KINDS.resource_slices.decode, published))
        gc.collect()
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(found) == len(published)
    return used


@pytest.mark.parametrize("strings", [2, 255, 256, 257, 300])
def test_a_slice_with_many_strings_is_restored_as_it_was_published(strings: int) -> None:
    """The numbers of 256 strings are kept in a byte each, which more strings have no room in."""
    devices = tuple(
        Device(name=f"d{number}", attributes={"a": Attribute.of(f"{number}"), "b": Attribute.of("0")})
        for number in range(strings)
    )
    published = [slice_(*devices), slice_(*devices[::-1], name="reversed")]
    assert list(InternedSlices.of(published)) == published


def test_the_counter_that_a_message_names_does_not_depend_on_the_order_of_counters() -> None:
    whole = {"gpu-0": {"mem": 4, "cores": 4}}
    pool = partitioned(device("a", uses=whole), device("b", uses=whole), sets={"gpu-0": {"mem": 7, "cores": 7}})
    taken = AllocatedState(exclusive=frozenset({DeviceId(DRIVER, "pool", "a")}))
    outcomes = [decide(each, claim(request("r")), allocated=taken) for each in (pool, [*map(reverse_members, pool)])]
    assert outcomes[0] == outcomes[1]
    assert "cores of gpu-0" in str(outcomes[0])


def nodes_with_orders(count: int) -> tuple[PoolIndex, list[NodeView]]:
    """Nodes with six equal devices each, in an order of its own."""
    nodes = [NodeView(name=f"n{number}", labels={}) for number in range(count)]
    names = "abcdef"
    published = (
        slice_(
            *(device(each) for each in Random(number).sample(names, len(names))),
            name=node.name,
            pool=node.name,
            node_name=node.name,
        )
        for number, node in enumerate(nodes)
    )
    return PoolIndex.build(published), nodes


def view(index: PoolIndex, node: NodeView) -> PoolView:
    [found] = index.views(node, ALL_FEATURES)
    return found


def test_templates_are_forgotten_after_as_many_views_of_other_orders_as_are_kept() -> None:
    index, nodes = nodes_with_orders(2 * RECENT)
    templates = [ref(view(index, node).template) for node in nodes]
    alive = [template() is not None for template in templates]
    assert len({*map(id, filter(None, (template() for template in templates)))}) <= RECENT
    assert all(alive[RECENT:])
    assert not all(alive[:RECENT])


def test_a_view_in_use_is_the_only_one_of_its_pool_even_after_many_others() -> None:
    index, nodes = nodes_with_orders(2 * RECENT)
    first = view(index, nodes[0])
    for node in nodes[1:]:
        view(index, node)
    assert view(index, nodes[0]) is first
