"""Partitions that claims share: what is published for them, in which order, and that the API server accepts it."""

import pytest

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Device
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.families.gpu.model import GpuModel
from kerf_dra.driver.local.apiserver.kinds.validation.slices import validate_request_policy
from kerf_dra.driver.partitions.geometry import Partition, Placement
from kerf_dra.driver.partitions.pool_compiler import CompiledPool, CompileError, SliceLayout, compile_pool
from kerf_dra.driver.partitions.publish_order import publish_order
from kerf_dra.driver.partitions.shared_devices import ShareableProfiles, order_shared_partitions
from tests.partitions.cards import fpga, gpu_partition, gpus
from tests.partitions.counters import devices
from tests.partitions.layouts import divided, function
from tests.partitions.scheduler import allocate_each, ask

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


def test_the_scheduler_fills_a_partition_before_it_cuts_another_and_says_when_all_are_full() -> None:
    """As kube-scheduler does it: 3g.40gb has 40448Mi (H100), so shares of 12Gi go thrice into each."""
    where = 'device.attributes["kerf.dev"].shared == true'
    found = allocate_each(offered("3g.40gb").pool, [ask(f"claim-{n}", where, memory="12Gi") for n in range(13)])
    given = [(result.device, int(result.consumed_capacity["memory"]) >> 30) for result in found if result]
    assert [name for name, _ in given] == [name for name in dict.fromkeys(name for name, _ in given) for _ in range(3)]
    assert (found[12], len(given), {amount for _, amount in given}) == (None, 12, {12})


VADD = divided(
    2, functions=[function("vadd", Placement(0, 1), Placement(1, 1), compute_units=1), function("fft", Placement(0, 2))]
)


def offered_functions(*names: str) -> CompiledPool:
    cards = [fpga(VADD)]
    shared = order_shared_partitions(cards, publish_order(cards, ()).partitions, frozenset(names), ())
    return compile_pool(
        "node-1/fpga", "node-1", cards, vocabulary=FPGA.vocabulary, layout=SliceLayout.SPLIT, shared=shared
    )


def test_only_functions_with_compute_units_are_published_in_shares_and_only_where_a_class_offers_them() -> None:
    assert in_shares(offered_functions()) == []
    found = in_shares(offered_functions("vadd", "fft"))
    for name, held in (one for device in found for one in device.capacity.items()):
        assert list(validate_request_policy(to_builtins(held.request_policy), held.value, name)) == []
    names = [device.name for device in found]
    assert names == ["fpga-0-vadd-at-0-shared", "fpga-0-vadd-at-1-shared"]


def test_claims_share_the_compute_units_of_a_function_and_get_a_whole_one_unless_they_say_less() -> None:
    """FP-18: two claims of 50 % fit into a compute unit, a third of 10 % is pending."""
    where = 'device.attributes["kerf.dev"].function == "vadd" && device.attributes["kerf.dev"].shared'
    pool = offered_functions("vadd").pool

    def give(*percents: str) -> list[tuple[str, int] | None]:
        asked = [
            ask(f"claim-{number}", where, **({"computeUnitPercent": percent} if percent else {}))
            for number, percent in enumerate(percents)
        ]
        return [
            (result.device, int(result.consumed_capacity["computeUnitPercent"])) if result else None
            for result in allocate_each(pool, asked)
        ]

    first, second = "fpga-0-vadd-at-0-shared", "fpga-0-vadd-at-1-shared"
    assert give("50", "50", "100", "10") == [(first, 50), (first, 50), (second, 100), None]
    assert give("", "10", "0", "95") == [(first, 100), (second, 10), (second, 1), None], "at least 1, by default 100"


def test_a_function_in_shares_keeps_others_from_its_slots_as_an_exclusive_one_does() -> None:
    pool = offered_functions("vadd")
    shared = 'device.attributes["kerf.dev"].function == "vadd" && device.attributes["kerf.dev"].shared'
    whole = 'device.attributes["kerf.dev"].cut == "whole"'
    fft = 'device.attributes["kerf.dev"].function == "fft"'
    found = allocate_each(pool.pool, [ask("a", shared, computeUnitPercent="5"), ask("b", whole), ask("c", fft)])
    assert [result.device if result else None for result in found] == ["fpga-0-vadd-at-0-shared", None, None]
