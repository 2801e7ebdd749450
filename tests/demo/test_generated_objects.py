"""The partitions of the demo follow from the geometry of the chosen card."""

from collections.abc import Sequence

import pytest

from kerf_dra.driver.demo import generated_objects
from kerf_dra.driver.demo.manifests import find_problems
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.families.gpu.catalog import gpu_model, gpu_models
from kerf_dra.driver.families.gpu.model import GpuModel, Profile
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shells


def can_coexist(profiles: Sequence[Profile]) -> bool:
    """Whether one placement can be chosen for each, all disjoint: by trying."""
    return can_place([[frozenset(place.units) for place in profile.placements] for profile in profiles], frozenset())


def can_place(places: Sequence[Sequence[frozenset[int]]], taken: frozenset[int]) -> bool:
    return not places or any(can_place(places[1:], taken | place) for place in places[0] if taken.isdisjoint(place))


@pytest.mark.parametrize(
    ("model", "count", "small", "large"),
    [
        ("h100-80gb-sxm", 7, "1g.10gb", ["4g.40gb", "3g.40gb"]),
        ("a100-40gb", 7, "1g.5gb", ["4g.20gb", "3g.20gb"]),
        ("a30-24gb", 4, "1g.6gb", ["2g.12gb", "2g.12gb"]),
        ("rtx-pro-6000-blackwell-96gb", 4, "1g.24gb", ["2g.48gb", "2g.48gb"]),
        ("rtx-pro-4500-blackwell-32gb", 2, "1g.16gb", ["2g.32gb"]),
    ],
)
def test_a_card_goes_from_many_small_to_few_large_partitions(
    model: str, count: int, small: str, large: list[str]
) -> None:
    plan = generated_objects.plan_resize(gpu_model(model))
    assert (plan.count, plan.small.name, [profile.name for profile in plan.large]) == (count, small, large)


@pytest.mark.parametrize("model", gpu_models(), ids=lambda model: model.id)
def test_every_model_can_be_cut_as_planned(model: GpuModel) -> None:
    plan = generated_objects.plan_resize(model)
    assert can_coexist([plan.small] * plan.count)
    assert not can_coexist([plan.small] * (plan.count + 1)) or plan.count == plan.small.max_instances
    assert can_coexist(plan.large)
    assert plan.small not in plan.large


@pytest.mark.parametrize("shell", shells(), ids=lambda shell: shell.name)
def test_a_function_of_one_slot_comes_before_one_of_several(shell: Shell) -> None:
    first, second = generated_objects.choose_functions(shell)
    assert first.placements[0].size == 1
    assert second.placements[0].size > 1


@pytest.mark.parametrize("model", gpu_models(), ids=lambda model: model.id)
def test_the_generated_objects_are_valid_manifests(model: GpuModel) -> None:
    plan = generated_objects.plan_resize(model)
    objects = generated_objects.gpu_objects([*([plan.small] * plan.count), *plan.large], "node-1", "GPU-0")
    names = [(body["kind"], body["metadata"]["name"]) for body in objects]
    assert len(set(names)) == len(names)
    assert [found for body in objects for found in find_problems(body)] == []
