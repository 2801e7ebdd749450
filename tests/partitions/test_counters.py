"""Counters admit a set of devices if and only if the geometry does: exhaustively for every model and shell."""

import dataclasses
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_model, gpu_models
from kerf_dra.driver.families.gpu.model import GpuModel
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shells
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import NOTHING, Card, Partition
from kerf_dra.driver.partitions.pool_compiler import CompiledPool, SliceLayout, compile_pool
from kerf_dra.driver.partitions.publish_order import publish_order
from kerf_dra.driver.partitions.shared_devices import order_shared_partitions
from kerf_dra.driver.partitions.slice_limits import MAX_CONSUMED, MAX_COUNTERS
from tests.partitions.cards import fpga, gpu, gpu_partition, slots, vocabulary_of, whole
from tests.partitions.counters import Counters, devices, most_of
from tests.partitions.oracle import may_coexist

QUOTA = ("memory", "multiprocessors")
CARDS: list[Card] = [*(gpu(model) for model in gpu_models()), *(fpga(shell) for shell in shells())]


def compiled_of(card: Card) -> CompiledPool:
    return compile_pool(f"n/{card.kind}", "n", [card], vocabulary=vocabulary_of(card), layout=SliceLayout.SPLIT)


def name_of(card: Card) -> str:
    return card.geometry.model


@pytest.mark.parametrize("card", CARDS, ids=name_of)
def test_counters_admit_exactly_the_sets_that_the_geometry_allows(card: Card) -> None:
    """Every subset of placements: both verdicts stay no when devices are added, so it suffices to extend the yeses."""
    compiled = compiled_of(card)
    counters, names = Counters(compiled), sorted(compiled.partitions)

    def extend(taken: list[str], rest: Sequence[str]) -> None:
        for number, name in enumerate(rest):
            together = [*taken, name]
            admitted = counters.admit(together)
            assert admitted == may_coexist(card, [compiled.partitions[one] for one in together]), together
            if admitted:
                extend(together, rest[number + 1 :])

    extend([], names)


@pytest.mark.parametrize("card", CARDS, ids=name_of)
def test_every_partition_takes_a_counter_of_its_card_whole(card: Card) -> None:
    """So a cluster autoscaler counts a card as fully used with one partition (docs/cluster-autoscaler.md)."""
    counters = Counters(compiled_of(card))
    assert len({counter_set for counter_set, _ in counters.have}) == 1
    for name, taken in counters.takes.items():
        assert any(count == counters.have[counter] for counter, count in taken.items()), name


@given(data=st.data())
def test_counters_of_a_node_admit_what_the_geometry_of_each_card_allows(data: st.DataObject) -> None:
    models = data.draw(st.lists(st.sampled_from(gpu_models()), min_size=2, max_size=4))
    cards = [gpu(model, index) for index, model in enumerate(models)]
    compiled = compile_pool("n/gpu", "n", cards, vocabulary=GPU.vocabulary, layout=SliceLayout.COMBINED)
    names = data.draw(st.lists(st.sampled_from(sorted(compiled.partitions)), unique=True, max_size=10))
    taken = [compiled.partitions[name] for name in names]
    allowed = all(may_coexist(card, [p for p in taken if p.card_uuid == card.uuid]) for card in cards)
    assert Counters(compiled).admit(names) == allowed


@pytest.mark.parametrize("model", gpu_models(), ids=lambda model: model.id)
def test_placements_and_counters_allow_as_many_of_a_profile_as_nvidia_states(model: GpuModel) -> None:
    compiled = compiled_of(gpu(model))
    counters = Counters(compiled)
    allowed = {
        profile.name: most_of(counters, [n for n, p in compiled.partitions.items() if p.profile == profile.name])
        for profile in model.profiles
    }
    assert allowed == {profile.name: profile.max_instances for profile in model.profiles}


def test_cards_do_not_compete_with_each_other() -> None:
    cards = [gpu(index=0), gpu(index=1)]
    compiled = compile_pool("n/gpu", "n", cards, vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT)
    assert Counters(compiled).admit([device_name(card, whole(card)) for card in cards])


def test_a_claim_for_a_two_slot_function_takes_slots_0_and_1_and_leaves_slot_2_free() -> None:
    card = fpga("quad")
    counters = Counters(compiled_of(card))
    fft = device_name(card, slots(card, 0, 2, "fft-large"))
    together = {slot: counters.admit([fft, device_name(card, slots(card, slot, 1))]) for slot in range(4)}
    assert together == {0: False, 1: False, 2: True, 3: True}


def test_half_a_card_excludes_its_quarters_and_the_whole_but_not_the_other_half() -> None:
    card = gpu("rtx-pro-6000-blackwell-96gb")
    counters = Counters(compiled_of(card))
    half = device_name(card, gpu_partition(card, "2g.48gb", 0))
    others = {
        "its quarter": gpu_partition(card, "1g.24gb", 3),
        "the whole": whole(card),
        "the full profile": gpu_partition(card, "4g.96gb", 0),
        "the other half": gpu_partition(card, "2g.48gb", 6),
        "a quarter of the other half": gpu_partition(card, "1g.24gb", 9),
    }
    admitted = {what for what, other in others.items() if counters.admit([half, device_name(card, other)])}
    assert admitted == {"the other half", "a quarter of the other half"}


def test_an_instance_with_all_media_engines_leaves_room_only_for_instances_without_any() -> None:
    card = gpu("rtx-pro-6000-blackwell-96gb")
    counters = Counters(compiled_of(card))
    everything = device_name(card, gpu_partition(card, "1g.24gb+me.all", 0))
    beside = {
        profile: counters.admit([everything, device_name(card, gpu_partition(card, profile, 3))])
        for profile in ("1g.24gb-me", "1g.24gb", "1g.24gb+me", "1g.24gb+gfx")
    }
    assert beside == {"1g.24gb-me": True, "1g.24gb": False, "1g.24gb+me": False, "1g.24gb+gfx": False}


def test_the_seven_slice_family_never_has_more_than_seven_compute_slices() -> None:
    """No counter says so: the placements imply it."""
    model = gpu_model("h100-80gb-sxm")
    card = gpu(model)
    compiled = compiled_of(card)
    counters = Counters(compiled)
    compute = {p.name: p.compute_slices for p in model.profiles}
    slices = {name: compute[p.profile] for name, p in compiled.partitions.items() if p.profile}

    def most(taken: list[str], rest: list[str]) -> int:
        extended = [
            most([*taken, name], rest[number + 1 :])
            for number, name in enumerate(rest)
            if counters.admit([*taken, name])
        ]
        return max(extended, default=sum(slices[name] for name in taken))

    assert most([], [name for name in sorted(slices) if "-me-" not in name]) == 7


# Quota counters: what a quota system sums over devices. They are never what keeps a partition from being allocated.


def fullest_by_search(card: Card, counters: Sequence[str]) -> list[int]:
    """The most of each counter that partitions consume which NVIDIA's rules let coexist, by exhaustive search."""
    quotas = {spec.of(card.uuid): dict(spec.quota) for spec in card.geometry.specs}
    specs = {one: [int(quota.get(counter, NOTHING)) for counter in counters] for one, quota in quotas.items()}
    best = [0 for _ in counters]

    def extend(taken: list[Partition], rest: Sequence[Partition]) -> None:
        best[:] = [max(most, sum(used)) for most, *used in zip(best, *(specs[one] for one in taken), strict=True)]
        for number, partition in enumerate(rest):
            together = [*taken, partition]
            if may_coexist(card, together):
                extend(together, rest[number + 1 :])

    extend([], list(specs))
    return best


@pytest.mark.parametrize("model", gpu_models(), ids=lambda model: model.id)
def test_a_cards_quota_is_the_larger_of_the_card_and_its_fullest_legal_layout(model: GpuModel) -> None:
    card = gpu(model)
    have = Counters(compiled_of(card)).have
    of_card = {"memory": model.memory_bytes, "multiprocessors": model.multiprocessors}
    for counter, fullest in zip(of_card, fullest_by_search(card, [*of_card]), strict=True):
        assert have.get(("gpu-0", counter), 0) == max(of_card[counter], fullest)


def test_partitions_may_have_more_memory_together_than_the_card_states() -> None:
    """Four 36 GB of a GH200, where a driver states the memory of its largest profile as the card's."""
    model = dataclasses.replace(gpu_model("gh200-144gb"), memory_bytes=149_786_984_448)
    assert Counters(compiled_of(gpu(model))).have["gpu-0", "memory"] == 151_397_597_184


@pytest.mark.parametrize("model", gpu_models(), ids=lambda model: model.id)
def test_every_device_of_a_gpu_consumes_its_memory_and_multiprocessors(model: GpuModel) -> None:
    """Whole cards and shares, too; nothing where the table has no figure."""
    cards: list[Card] = [gpu(model)]
    order = publish_order(cards, ()).partitions
    profiles = frozenset([None, *(profile.name for profile in model.profiles)])
    shared = order_shared_partitions(cards, order, profiles, ())
    compiled = compile_pool("n/gpu", "n", cards, vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT, shared=shared)
    for device in devices(compiled.pool):
        (taken,) = device.consumes_counters
        consumed = {name: int(taken.counters[name].value) for name in QUOTA if name in taken.counters}
        assert consumed == {name: int(device.capacity[name].value) for name in QUOTA if device.capacity[name].value}


@pytest.mark.parametrize("card", CARDS, ids=name_of)
def test_before_1_35_the_counters_of_a_card_stay_within_the_limits_of_one_slice(card: Card) -> None:
    pool = compile_pool("n/x", "n", [card], vocabulary=vocabulary_of(card), layout=SliceLayout.COMBINED).pool
    (content,) = pool.slices
    assert sum(len(counters.counters) for counters in content.shared_counters) <= MAX_COUNTERS
    consumed = sum(len(taken.counters) for device in content.devices for taken in device.consumes_counters)
    assert consumed <= MAX_CONSUMED
