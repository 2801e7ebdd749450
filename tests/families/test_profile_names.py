"""One MIG profile may have another name in another release of the driver."""

import re
from itertools import combinations

import pytest

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.families.gpu.model import GpuModel
from kerf_dra.driver.families.profile_names import _is_rounding_of, describe_other_names, find_profile_names

GB300 = "gb300-278gb"


@pytest.mark.parametrize(
    ("profile", "published", "models", "names"),
    [
        ("1g.35gb", (), (), ("1g.35gb", "1g.31gb")),
        ("1g.31gb", (), (), ("1g.31gb", "1g.35gb")),
        ("7g.278gb", (), (GB300,), ("7g.278gb", "7g.251gb")),
        ("1g.35gb", (), ("h200-141gb",), ("1g.35gb",)),
        ("1g.70gb", ((GB300, "1g.63gb"), (GB300, "1g.31gb")), (), ("1g.70gb", "1g.63gb")),
        ("1g.63gb", ((GB300, "1g.63gb"),), (), ("1g.63gb", "1g.70gb")),
        ("1g.35gb+me", ((GB300, "1g.31gb+me"), (GB300, "1g.31gb")), (), ("1g.35gb+me", "1g.31gb+me")),
        ("1g.10gb", (("h100-80gb-sxm", "1g.9gb"), ("unknown", "1g.11gb")), (), ("1g.10gb", "1g.9gb")),
        ("1g.10gb", (("h100-80gb-sxm", "1g.9gb"),), ("a100-80gb",), ("1g.10gb",)),
        ("1g.11gb", (), (), ("1g.11gb",)),
    ],
    ids=[
        "the table's name",
        "the other release's name",
        "of a chosen model",
        "of a model whose profile of this name is another one",
        "a word that the table does not have, published by a node",
        "such a word in a class",
        "with a suffix",
        "of cards of the model only",
        "of a model that was not chosen",
        "close to a profile, and no name that is known or published",
    ],
)
def test_a_profile_has_the_names_of_the_table_and_of_cards_of_its_model(
    profile: str, published: tuple[tuple[str, str], ...], models: tuple[str, ...], names: tuple[str, ...]
) -> None:
    assert find_profile_names(GPU, profile, published, models) == names


@pytest.mark.parametrize("model", gpu_models(), ids=lambda model: str(model.id))
def test_no_two_profiles_of_a_model_are_taken_for_one(model: GpuModel) -> None:
    names = [(each.name, *each.other_names) for each in model.profiles]
    for one, other in combinations(names, 2):
        assert not [(a, b) for a in one for b in other if _is_rounding_of(a, b)]
    for name, *others in names:
        assert all(_is_rounding_of(name, each) for each in others)


def test_no_other_name_is_the_name_of_a_profile_of_another_model() -> None:
    """A class that names only a profile must not get a part of another size from another model."""
    own = {profile.name for model in gpu_models() for profile in model.profiles}
    others = [name for names in describe_other_names(GPU).values() for name in names]
    assert others
    assert not own & {*others}
    assert all(re.fullmatch(r"[0-9]g\.[0-9]+gb", name) for name in others)
