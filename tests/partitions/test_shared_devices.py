"""Partitions that claims share: what is published for them, in which order, and that the API server accepts it."""

import pytest
from msgspec.structs import replace

from api.model import device_attributes as v
from api.model.allocations import ResourceClaimStatus
from api.model.claims import (
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
from api.model.devices import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from api.model.metadata import ObjectMeta
from api.model.quantity import Quantity
from api.wire import to_builtins
from driver.allocation import AllocatedState, Budget, Features, Fits, NodeView, PoolIndex, allocate
from driver.families.gpu import GPU
from driver.families.gpu.catalog import gpu_models
from driver.families.gpu.model import GpuModel
from driver.local.apiserver.kinds.validation.slices import validate_request_policy
from driver.partitions.geometry import Partition
from driver.partitions.pool_compiler import CompiledPool, CompileError, SliceLayout, compile_pool
from driver.partitions.publish_order import publish_order
from driver.partitions.shared_devices import ShareableProfiles, order_shared_partitions
from tests.partitions.cards import fpga, gpu_partition, gpus
from tests.partitions.counters import devices

CARDS = list(gpus(2, "h100-80gb-sxm"))
ORDER = publish_order(CARDS, ())
FIRST = gpu_partition(CARDS[0], "3g.40gb", 0)
SECOND = gpu_partition(CARDS[1], "3g.40gb", 4)


def offered(*names: str | None, taken: tuple[Partition, ...] = ()) -> CompiledPool:
    shared = order_shared_partitions(CARDS, ORDER.partitions, frozenset(names), taken)
    return compile_pool(
        "node-1/gpu", "node-1", CARDS, vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT, order=ORDER, shared=shared
    )


def in_shares(pool: CompiledPool) -> list[Device]:
    return [device for device in devices(pool.pool) if device.allow_multiple_allocations]


def as_shared(partition: Partition) -> Partition:
    return Partition(
        kind=partition.kind,
        card_uuid=partition.card_uuid,
        profile=partition.profile,
        placement=partition.placement,
        shared=True,
    )


def test_a_partition_is_published_whole_and_in_shares_with_the_same_counters() -> None:
    pool = offered("3g.40gb")
    by_name = {device.name: device for device in devices(pool.pool)}
    shared = by_name["gpu-1-3g-40gb-at-4-shared"]
    whole = by_name["gpu-1-3g-40gb-at-4"]
    assert shared.consumes_counters == whole.consumes_counters
    assert pool.partitions[shared.name] == as_shared(SECOND)
    assert whole.allow_multiple_allocations is None
    assert whole.capacity[v.CAPACITY_MEMORY].request_policy is None
    differing = {name for name, value in shared.attributes.items() if value != whole.attributes[name]}
    assert differing == {v.ATTRIBUTE_SHARED}
    assert (shared.attributes[v.ATTRIBUTE_SHARED].value, whole.attributes[v.ATTRIBUTE_SHARED].value) == (True, False)


def test_only_what_a_class_offers_is_published_in_shares() -> None:
    assert in_shares(offered()) == []
    assert {device.name for device in in_shares(offered(None))} == {"gpu-0-shared", "gpu-1-shared"}
    both = {device.attributes[v.ATTRIBUTE_PROFILE].value for device in in_shares(offered("1g.10gb", "7g.80gb"))}
    assert both == {"1g.10gb", "7g.80gb"}


def test_what_is_in_use_comes_first_so_that_it_is_filled_and_stays_when_no_class_offers_it() -> None:
    names = [device.name for device in in_shares(offered("3g.40gb", taken=(as_shared(SECOND),)))]
    assert names[0] == "gpu-1-3g-40gb-at-4-shared"
    assert len(names) == 4
    kept = in_shares(offered(taken=(as_shared(SECOND), FIRST)))
    assert [device.name for device in kept] == ["gpu-1-3g-40gb-at-4-shared"]


def test_shared_devices_stand_in_slices_of_their_own_so_the_others_do_not_change_with_them() -> None:
    without, having = offered().pool, offered("3g.40gb").pool
    assert having.slices[: len(without.slices)] == without.slices
    (own,) = having.slices[len(without.slices) :]
    assert {device.allow_multiple_allocations for device in own.devices} == {True}


@pytest.mark.parametrize("model", [model for model in gpu_models() if model.memory_bytes], ids=lambda model: model.id)
def test_every_profile_of_every_model_can_be_shared_with_nothing_left_over(model: GpuModel) -> None:
    cards = list(gpus(1, model.id))
    shareable: ShareableProfiles = frozenset([None, *(profile.name for profile in model.profiles)])
    shared = order_shared_partitions(cards, publish_order(cards, ()).partitions, shareable, ())
    pool = compile_pool(
        "node-1/gpu", "node-1", cards, vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT, shared=shared
    )
    found = in_shares(pool)
    assert len(found) == len(shared) == len(devices(pool.pool)) / 2
    for device in found:
        for name, held in device.capacity.items():
            assert list(validate_request_policy(to_builtins(held.request_policy), held.value, name)) == []
        memory = device.capacity[v.CAPACITY_MEMORY]
        assert memory.request_policy is not None
        policy = to_builtins(memory.request_policy)
        is_left_over = bool(memory.value.nano % Quantity(policy["validRange"]["step"]).nano)
        assert not is_left_over or device.attributes[v.ATTRIBUTE_CUT].value == "whole"
        assert Quantity(policy["default"]) < memory.value


def test_fpgas_are_not_offered_in_shares() -> None:
    cards = [fpga("quad")]
    assert order_shared_partitions(cards, publish_order(cards, ()).partitions, frozenset([None]), ()) == ()


def test_a_gpu_without_memory_of_its_own_has_none_to_share() -> None:
    cards = gpus(1, "thor-igpu")
    assert order_shared_partitions(cards, publish_order(cards, ()).partitions, frozenset([None, "1g.0gb"]), ()) == ()


def test_before_kubernetes_1_35_nothing_can_be_published_in_shares() -> None:
    with pytest.raises(CompileError, match=r"counters in slices of their own \(Kubernetes 1\.35\)"):
        compile_pool(
            "n/gpu", "n", CARDS, vocabulary=GPU.vocabulary, layout=SliceLayout.COMBINED, shared=[as_shared(FIRST)]
        )


def test_shares_of_other_cards_are_refused() -> None:
    other = Partition(kind="gpu", card_uuid="GPU-9", shared=True)
    with pytest.raises(CompileError, match="made for other cards"):
        compile_pool("n/gpu", "n", CARDS, vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT, shared=[other])


def claim_of(memory: str | None, name: str) -> ResourceClaim:
    asked = CapacityRequirements(requests={"memory": Quantity(memory)}) if memory else None
    request = DeviceRequest(name="gpu", exactly=ExactDeviceRequest(device_class_name="any", capacity=asked))
    return ResourceClaim(
        metadata=ObjectMeta(namespace="default", name=name, uid=name),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=(request,))),
    )


def test_the_scheduler_fills_a_partition_before_it_cuts_another_and_says_when_all_are_full() -> None:
    """As kube-scheduler does it: 3g.40gb has 40448Mi (H100), so shares of 12Gi go thrice into each."""
    pool = offered("3g.40gb").pool
    published = ResourcePool(name="node-1/gpu", generation=1, resource_slice_count=len(pool.slices))
    inventory = PoolIndex.build(
        ResourceSlice(
            metadata=ObjectMeta(name=f"{index}-node-1"),
            spec=ResourceSliceSpec(
                driver="kerf.dev",
                pool=published,
                node_name="node-1",
                devices=content.devices,
                shared_counters=content.shared_counters,
            ),
        )
        for index, content in enumerate(pool.slices)
    )
    expression = 'device.driver == "kerf.dev" && device.attributes["kerf.dev"].shared == true'
    selector = DeviceSelector(cel=CelSelector(expression=expression))
    classes = {"any": DeviceClass(metadata=ObjectMeta(name="any"), spec=DeviceClassSpec(selectors=(selector,)))}
    held: list[ResourceClaim] = []
    given: list[tuple[str, int]] = []
    for number in range(13):
        claim = claim_of("12Gi", f"claim-{number}")
        outcome = allocate(
            inventory,
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
        (result,) = outcome.results[0].devices.results
        given.append((result.device, int(result.consumed_capacity["memory"]) >> 30))
    assert [name for name, _ in given] == [name for name in dict.fromkeys(name for name, _ in given) for _ in range(3)]
    assert (len(given), {amount for _, amount in given}) == (12, {12})
