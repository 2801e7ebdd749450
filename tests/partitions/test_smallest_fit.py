"""The smallest legal partition for a minimum, against exhaustive search."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.partitions.catalog import gpu_model, gpu_models, shell, shells
from driver.partitions.geometry import GpuModel, Placement, Shell
from driver.partitions.publish_order import publish_order
from driver.partitions.smallest_fit import Amounts, Shortfall, largest, shortfalls, smallest_profile, smallest_run
from tests.partitions.cards import gpu

GIB = 2**30


@pytest.mark.parametrize(
    ("memory_gib", "compute_slices", "profile"),
    [
        (0, 0, "1g.10gb"),
        (9, 0, "1g.10gb"),
        (10, 0, "1g.20gb"),
        (18, 1, "1g.20gb"),
        (18, 2, "2g.20gb"),
        (0, 2, "2g.20gb"),
        (20, 0, "3g.40gb"),
        (39, 4, "4g.40gb"),
        (0, 5, "7g.80gb"),
        (79, 7, "7g.80gb"),
        (80, 0, None),
        (0, 8, None),
    ],
)
def test_the_smallest_profile_of_an_h100(memory_gib: int, compute_slices: int, profile: str | None) -> None:
    found = smallest_profile(
        gpu_model("h100-80gb-sxm"), Amounts(memory_bytes=memory_gib * GIB, compute_slices=compute_slices)
    )
    assert (found.name if found else None) == profile


@pytest.mark.parametrize("model", gpu_models(), ids=lambda model: model.id)
def test_no_profile_that_fits_covers_less_of_the_card_or_as_much_with_fewer_compute_slices(model: GpuModel) -> None:
    memories = {step for profile in model.profiles for step in (profile.memory_bytes, profile.memory_bytes + 1)}
    for memory, compute in itertools.product({0, *memories}, range(model.compute_slices + 2)):
        fitting = [p for p in model.profiles if p.memory_bytes >= memory and p.compute_slices >= compute]
        found = smallest_profile(model, Amounts(memory_bytes=memory, compute_slices=compute))
        assert (found is None) == (not fitting)
        if found is not None:
            assert found in fitting
            best = min((p.placements[0].size, p.compute_slices) for p in fitting)
            assert (found.placements[0].size, found.compute_slices) == best


@given(
    model=st.sampled_from(gpu_models()),
    share=st.fractions(min_value=0, max_value=1),
    compute_slices=st.integers(0, 7),
)
def test_first_fit_in_publish_order_gives_the_smallest_profile(
    model: GpuModel, share: float, compute_slices: int
) -> None:
    """The order is made so that the scheduler, which knows no sizes, picks what sizing says."""
    minimum = Amounts(memory_bytes=int(model.memory_bytes * share), compute_slices=compute_slices)
    profiles = [model.profile(partition.profile or "") for partition in publish_order([gpu(model)], ()).partitions]
    first = next(
        (
            profile
            for profile in profiles
            if profile
            and profile.memory_bytes >= minimum.memory_bytes
            and profile.compute_slices >= minimum.compute_slices
        ),
        None,
    )
    assert first == smallest_profile(model, minimum)


@pytest.mark.parametrize(
    ("minimum", "run"),
    [
        (Amounts(slots=1), Placement(1, 1)),
        (Amounts(slots=2), Placement(1, 2)),
        (Amounts(lut=40_001), Placement(1, 2)),
        (Amounts(lut=100_000), Placement(1, 3)),
        (Amounts(lut=130_000), Placement(0, 1)),
        (Amounts(dsp=1000), Placement(0, 2)),
        (Amounts(slots=4, lut=270_000), Placement(0, 4)),
        (Amounts(slots=5), None),
    ],
)
def test_the_smallest_run_of_unequal_slots(minimum: Amounts, run: Placement | None) -> None:
    assert smallest_run(shell("big-little"), minimum) == run


@given(known=st.sampled_from(shells()), slots=st.integers(0, 5), lut=st.integers(0, 300_000), dsp=st.integers(0, 1600))
def test_no_run_that_fits_has_fewer_look_up_tables(known: Shell, slots: int, lut: int, dsp: int) -> None:
    count = len(known.slots)
    runs = [Placement(start, size) for start in range(count) for size in range(1, count - start + 1)]
    fitting = [run for run in runs if run.size >= slots and known.logic(run).lut >= lut and known.logic(run).dsp >= dsp]
    found = smallest_run(known, Amounts(slots=slots, lut=lut, dsp=dsp))
    assert (found is None) == (not fitting)
    if found is not None:
        assert found in fitting
        assert known.logic(found).lut == min(known.logic(run).lut for run in fitting)


def test_the_largest_partition_explains_why_nothing_fits() -> None:
    model = gpu_model("a30-24gb")
    assert shortfalls(largest(model), Amounts(memory_bytes=40 * GIB, compute_slices=2)) == (
        Shortfall(name="memory_bytes", wanted=40 * GIB, largest=24_000 * 2**20),
    )


@given(
    model=st.sampled_from(gpu_models()),
    memory_gib=st.integers(0, 300),
    compute_slices=st.integers(0, 9),
)
def test_there_is_a_shortfall_exactly_when_nothing_fits(model: GpuModel, memory_gib: int, compute_slices: int) -> None:
    minimum = Amounts(memory_bytes=memory_gib * GIB, compute_slices=compute_slices)
    assert bool(shortfalls(largest(model), minimum)) == (smallest_profile(model, minimum) is None)
