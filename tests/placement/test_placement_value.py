"""The rank of an allocation, from published devices alone, is that of the publish order, which knows the cards."""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from random import Random

import pytest

from kerf_dra.api.model.allocations import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.allocation import AllocatedState, Features, NodeView, PoolIndex
from kerf_dra.driver.allocation.pools.node_devices import NodeDevices
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shells
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Card, Geometry, Partition
from kerf_dra.driver.partitions.publish_order import LoadState, rank_placement
from kerf_dra.driver.partitions.unit_map import get_unit_map
from kerf_dra.driver.placement.placement_value import NodeRank, PlacementValuer
from tests.allocation.builders import device, partitioned
from tests.fakes import published_slices as published

GEOMETRIES: Sequence[Geometry] = [
    *chain.from_iterable(family.geometries() for family in BUILT_IN),
    *(fpga_geometry(each) for each in shells()),
]
SHARED_GPU = frozenset({"1g.10gb"})


def node_devices(slices: Sequence[ResourceSlice], held: Collection[DeviceId] = ()) -> NodeDevices:
    node = next(each.spec.node_name for each in slices if each.spec.node_name)
    return NodeDevices.build(
        PoolIndex.build(slices), NodeView(node, {}), AllocatedState(exclusive=frozenset(held)), Features()
    )


def results(*ids: DeviceId, admin_access: bool | None = None) -> list[AllocationResult]:
    """One claim for each device."""
    return [
        AllocationResult(
            devices=DeviceAllocationResult(
                results=(
                    DeviceRequestAllocationResult(
                        request="r", driver=one.driver, pool=one.pool, device=one.device, admin_access=admin_access
                    ),
                )
            )
        )
        for one in ids
    ]


def two_cards(geometry: Geometry) -> list[Card]:
    return [Card(uuid=f"{index}", index=index, geometry=geometry, driver_version="1.0.0") for index in range(2)]


def states(cards: Sequence[Card], random: Random) -> Iterator[list[Partition]]:
    """What is in use on ``cards`` while partitions are taken at random until nothing fits."""
    taken: list[Partition] = []
    while True:
        yield list(taken)
        fitting = [
            spec.of(card.uuid)
            for card in cards
            for spec in card.geometry.specs
            if (unit_map := get_unit_map(card)).fits(
                spec, unit_map.free([each for each in taken if each.card_uuid == card.uuid])
            )
        ]
        if not fitting:
            return
        taken.append(random.choice(fitting))


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda each: f"{each.kind}-{each.model}")
def test_the_rank_of_each_device_is_that_of_its_placement(geometry: Geometry) -> None:
    cards = two_cards(geometry)
    slices = published.slices("n", cards)
    pool = slices[0].spec.pool.name
    driver = slices[0].spec.driver
    unit_map, values = get_unit_map(cards[0]), PlacementValuer()
    compared = 0
    for taken in states(cards, Random(7)):
        by_uuid = {card.uuid: card for card in cards}
        held = [DeviceId(driver, pool, device_name(by_uuid[each.card_uuid], each)) for each in taken]
        devices = node_devices(slices, held)
        for card in cards:
            free = unit_map.free([each for each in taken if each.card_uuid == card.uuid])
            for spec in geometry.specs:
                if unit_map.fits(spec, free):
                    id_ = DeviceId(driver, pool, device_name(card, spec.of(card.uuid)))
                    expected = rank_placement(unit_map, spec, free, LoadState())
                    assert values.rank(devices, results(id_)) == NodeRank(expected.loss, expected.free), (id_, held)
                    compared += 1
    assert compared >= 2 * len(geometry.specs)


def test_several_devices_of_one_claim_count_together() -> None:
    cards = published.gpus("h100-80gb-sxm", 2)
    slices = published.slices("n", cards)
    driver, pool = slices[0].spec.driver, slices[0].spec.pool.name
    devices, values = node_devices(slices), PlacementValuer()
    left, right, other = (
        DeviceId(driver, pool, name) for name in ("gpu-0-3g-40gb-at-0", "gpu-0-3g-40gb-at-4", "gpu-1-3g-40gb-at-0")
    )
    alone = values.rank(devices, results(left))
    both = values.rank(devices, results(left, right))
    apart = values.rank(devices, results(left, other))
    whole = values.rank(devices, results(DeviceId(driver, pool, "gpu-0")))
    assert both == NodeRank(whole.loss, 8)
    assert apart == NodeRank(2 * alone.loss, 16)


def test_a_share_of_a_device_in_use_and_admin_access_take_nothing() -> None:
    slices = published.slices("n", published.gpus("h100-80gb-sxm", 2), shareable=SHARED_GPU)
    driver, pool = slices[0].spec.driver, slices[0].spec.pool.name
    shared = next(
        DeviceId(driver, pool, each.name)
        for slice_ in slices
        for each in slice_.spec.devices
        if each.allow_multiple_allocations
    )
    values = PlacementValuer()
    fresh = node_devices(slices)
    in_use = NodeDevices.build(
        PoolIndex.build(slices), NodeView("n", {}), AllocatedState(consumed={shared: {}}), Features()
    )
    assert values.rank(fresh, results(shared)).loss > 0
    assert values.rank(in_use, results(shared)) == NodeRank(0, 0)
    assert values.rank(fresh, results(DeviceId(driver, pool, "gpu-0"), admin_access=True)) == NodeRank(0, 0)


def test_partitions_of_another_drivers_card_are_ranked_by_its_units() -> None:
    """As NVIDIA's DRA driver names them: numbered memory slices beside counters that are only amounts."""
    units = [f"memory-slice-{number}" for number in range(4)]
    halves = [
        device(f"half-{start}", uses={"card": {**dict.fromkeys(units[start : start + 2], 1), "multiprocessors": 50}})
        for start in (0, 2)
    ]
    quarters = [device(f"quarter-{at}", uses={"card": {units[at]: 1, "multiprocessors": 25}}) for at in range(4)]
    whole = device("whole", uses={"card": {**dict.fromkeys(units, 1), "multiprocessors": 100}})
    slices = partitioned(*halves, *quarters, whole, sets={"card": {**dict.fromkeys(units, 1), "multiprocessors": 100}})
    driver, pool = slices[0].spec.driver, slices[0].spec.pool.name
    values = PlacementValuer()

    def rank(name: str, *held: str) -> NodeRank:
        devices = node_devices(slices, [DeviceId(driver, pool, each) for each in held])
        return values.rank(devices, results(DeviceId(driver, pool, name)))

    assert rank("quarter-0") == NodeRank(4 + 2 + 1, 4)
    assert rank("quarter-1", "quarter-0") == NodeRank(1, 3)
    assert rank("quarter-2", "quarter-0") == NodeRank(2 + 1, 3)
    assert rank("whole") == NodeRank(4 + 2 * 2 + 4 * 1, 4)


def test_counters_that_are_only_amounts_are_ranked_by_the_devices_that_still_fit() -> None:
    large = [device(f"large-{number}", uses={"card": {"memory": 40}}) for number in range(2)]
    small = [device(f"small-{number}", uses={"card": {"memory": 10}}) for number in range(2)]
    slices = partitioned(*large, *small, device("alone"), sets={"card": {"memory": 80}})
    driver, pool = slices[0].spec.driver, slices[0].spec.pool.name
    values = PlacementValuer()

    def rank(name: str, *held: str) -> NodeRank:
        devices = node_devices(slices, [DeviceId(driver, pool, each) for each in held])
        return values.rank(devices, results(DeviceId(driver, pool, name)))

    assert rank("small-0") == NodeRank(0, 4)
    assert rank("small-0", "large-0") == NodeRank(2, 4)
    assert rank("alone") == NodeRank(0, 0)
