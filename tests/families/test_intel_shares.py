"""Fractions of Intel's GPUs, as kube-scheduler hands them out from what the plugin publishes."""

from collections.abc import Sequence
from typing import Final

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.claims import (
    CapacityRequirements,
    CelSelector,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.devices import ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import AllocatedState, Budget, Features, Fits, NodeView, PoolIndex, allocate
from kerf_dra.driver.families.gpu_intel import GPU_INTEL
from kerf_dra.driver.families.gpu_intel.catalog import describe_card, intel_gpus
from kerf_dra.driver.families.gpu_intel.geometry import intel_geometry
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.partitions.pool_compiler import SliceLayout, compile_pool
from kerf_dra.driver.partitions.publish_order import publish_order
from kerf_dra.driver.partitions.shared_devices import order_shared_partitions

DRIVER: Final = GPU_INTEL.driver
INTEGRATED: Final = describe_card(0x7D55, 0, 1)
"""Graphics in a processor, without memory of its own."""
UNKNOWN: Final = describe_card(0x0BD5, 0, 2)
"""A card of two tiles whose driver does not state its memory."""
MODELS: Final = {gpu.id: gpu for gpu in (*intel_gpus(), INTEGRATED)} | {"unknown": UNKNOWN}


def inventory(model: str, cards: int) -> PoolIndex:
    """A node with cards of a product, whose whole cards and tiles are published exclusively and in shares."""
    found = [
        Card(uuid=f"INTEL-{number}", index=number, geometry=intel_geometry(MODELS[model])) for number in range(cards)
    ]
    order = publish_order(found, ())
    shared = order_shared_partitions(found, order.partitions, frozenset([None, "1t"]), ())
    pool = compile_pool(
        "node-1/gpu-intel",
        "node-1",
        found,
        vocabulary=GPU_INTEL.vocabulary,
        layout=SliceLayout.SPLIT,
        order=order,
        shared=shared,
    ).pool
    published = ResourcePool(name="node-1/gpu-intel", generation=1, resource_slice_count=len(pool.slices))
    return PoolIndex.build(
        ResourceSlice(
            metadata=ObjectMeta(name=f"{number}-node-1"),
            spec=ResourceSliceSpec(
                driver=DRIVER,
                pool=published,
                node_name="node-1",
                devices=content.devices,
                shared_counters=content.shared_counters,
            ),
        )
        for number, content in enumerate(pool.slices)
    )


def give_out(
    pools: PoolIndex, selector: str, requests: Sequence[dict[str, str]], count: int = 1
) -> list[tuple[str, ...]]:
    """Allocate claims one after another until one gets nothing; returns each one's devices."""
    expression = f'device.driver == "{DRIVER}" && {selector}'
    chosen = DeviceClassSpec(selectors=(DeviceSelector(cel=CelSelector(expression=expression)),))
    classes = {"any": DeviceClass(metadata=ObjectMeta(name="any"), spec=chosen)}
    held: list[ResourceClaim] = []
    given: list[tuple[str, ...]] = []
    for number, wanted in enumerate(requests):
        capacity = CapacityRequirements(requests={name: Quantity(amount) for name, amount in wanted.items()})
        exactly = ExactDeviceRequest(device_class_name="any", capacity=capacity, count=count)
        claim = ResourceClaim(
            metadata=ObjectMeta(namespace="default", name=f"claim-{number}", uid=f"claim-{number}"),
            spec=ResourceClaimSpec(devices=DeviceClaim(requests=(DeviceRequest(name="gpu", exactly=exactly),))),
        )
        outcome = allocate(
            pools,
            [claim],
            NodeView("node-1", {}),
            classes,
            AllocatedState.from_claims(held),
            Features(),
            share_id=lambda number=number: f"share-{number}",  # type: ignore[misc]
            budget=Budget(),
        )
        if not isinstance(outcome, Fits):
            break
        held.append(replace(claim, status=ResourceClaimStatus(allocation=outcome.results[0])))
        given.append(tuple(result.device for result in outcome.results[0].devices.results))
    return given


SHARED: Final = f'device.attributes["{DRIVER}"].shared && device.attributes["{DRIVER}"].cut == "whole"'
EXCLUSIVE: Final = f'!device.attributes["{DRIVER}"].shared'


def test_as_many_pods_share_a_card_as_its_memory_has_room_for_and_the_next_one_waits() -> None:
    """RM-01: n-way sharing; n pods of one share each run on a card, and n + 1 are too many."""
    assert give_out(inventory("flex-170", 1), SHARED, [{"memory": "4Gi"}] * 5) == [("gpu-intel-0-shared",)] * 4


@pytest.mark.parametrize(
    ("memory", "millicores", "fit"),
    [("1Gi", "500", 2), ("7Gi", "100", 2), ("5Gi", "333", 3), ("1Gi", "0", 16), ("17Gi", "1", 0)],
)
def test_shares_fit_by_memory_and_by_millicores(memory: str, millicores: str, fit: int) -> None:
    """RM-02: two pods of 500 millicores fit on a card, a third waits; memory is never given out twice."""
    wanted = {"memory": memory, "millicores": millicores}
    assert len(give_out(inventory("flex-170", 1), SHARED, [wanted] * 17)) == fit


def test_what_is_free_on_two_cards_does_not_make_one() -> None:
    """GS-01: two cards that are 60 % free do not admit a request for all of one."""
    pools = inventory("flex-170", 2)
    small = [{"millicores": "400"}] * 2
    given = give_out(pools, SHARED, [*({**one, "memory": "9Gi"} for one in small), {"millicores": "1000"}])
    assert given == [("gpu-intel-0-shared",), ("gpu-intel-1-shared",)]


def test_several_cards_go_to_one_claim() -> None:
    """RM-03: a container with two cards; a second one for two of three cards waits."""
    given = give_out(inventory("max-1100", 3), EXCLUSIVE, [{}, {}], count=2)
    assert [len(set(devices)) for devices in given] == [2]


def test_tiles_of_a_card_are_used_up_before_another_card_is_opened() -> None:
    """RM-14: packed; the fifth tile is too many."""
    pools = inventory("max-1550", 2)
    tiles = f'{EXCLUSIVE} && device.attributes["{DRIVER}"].profile == "1t"'
    first, second, third, fourth = (device.split("-1t-")[0] for (device,) in give_out(pools, tiles, [{}] * 5))
    assert first == second != third == fourth


@pytest.mark.parametrize(
    ("requests", "given"),
    [
        ([{"millicores": "200"}] * 6, 5),
        ([{"millicores": "500"}, {"millicores": "501"}], 1),
        ([{}] * 11, 10),
        ([{"millicores": "1000"}, {"millicores": "1"}], 1),
        ([{"millicores": "0"}], 1),
        ([{"memory": "1Gi"}], 0),
    ],
    ids=str,
)
def test_a_card_without_memory_is_shared_by_millicores(requests: list[dict[str, str]], given: int) -> None:
    """A processor's graphics could not be shared: shares divided the memory, of which it has none. A share of nothing
    is rounded up to the least one.
    """
    assert len(give_out(inventory("0x7d55", 1), SHARED, requests)) == given


def test_the_second_card_is_shared_once_the_first_is_full() -> None:
    found = give_out(inventory("0x7d55", 2), SHARED, [{"millicores": "500"}] * 5)
    assert found == [("gpu-intel-0-shared",)] * 2 + [("gpu-intel-1-shared",)] * 2


def test_tiles_of_a_card_whose_memory_is_not_known_are_shared_by_their_part_of_its_millicores() -> None:
    tile = f'device.attributes["{DRIVER}"].shared && device.attributes["{DRIVER}"].profile == "1t"'
    found = give_out(inventory("unknown", 1), tile, [{"millicores": "250"}] * 5)
    assert [device for (device,) in found] == ["gpu-intel-0-1t-at-0-shared"] * 2 + ["gpu-intel-0-1t-at-1-shared"] * 2
