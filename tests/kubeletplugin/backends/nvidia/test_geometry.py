"""The model of a card, made of what NVML reports of it and of Kerf's table."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.families.gpu.catalog import gpu_model, gpu_models
from kerf_dra.driver.families.gpu.geometry import gpu_geometry
from kerf_dra.driver.families.gpu.model import Engines, GpuModel
from kerf_dra.driver.kubeletplugin.backends.nvidia.geometry import (
    UNKNOWN_MODEL,
    build_model,
    describe_unknown_model,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.readings import CardReading, ProfileReading
from kerf_dra.driver.partitions.geometry import Placement

MODELS = gpu_models()
UNKNOWN_ID = 100
"""Profiles whose id the table lacks have one on the card."""


def card_of(model: GpuModel, *, product: str = "", pci_device_id: str = "") -> CardReading:
    return CardReading(
        uuid="GPU-1",
        product=product or model.product,
        minor=0,
        pci_address="0000:01:00.0",
        pci_device_id=pci_device_id or next(iter(model.pci_device_ids), "ffff"),
        memory_bytes=model.memory_bytes,
        architecture=model.architecture,
        cuda_compute_capability=model.cuda_compute_capability,
        driver_version="580.95.05",
        cuda_driver_version="13.0",
    )


def profiles_of(model: GpuModel) -> list[ProfileReading]:
    return [
        ProfileReading(
            enum=one.gi_profile_enum,
            id=UNKNOWN_ID + one.gi_profile_enum if one.gi_profile_id is None else one.gi_profile_id,
            name=one.name,
            compute_slices=one.compute_slices,
            memory_bytes=one.memory_bytes,
            multiprocessors=one.multiprocessors,
            engines=one.engines,
            max_instances=one.max_instances,
            placements=one.placements,
        )
        for one in model.profiles
    ]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.id)
def test_a_card_as_the_table_has_it_is_that_model_and_differs_in_nothing(model: GpuModel) -> None:
    built, differences = build_model(card_of(model), profiles_of(model), MODELS)
    assert not differences
    assert built.id == model.id
    assert gpu_geometry(built).specs == gpu_geometry(model).specs
    assert all(profile.gi_profile_id is not None for profile in built.profiles)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.id)
def test_profiles_whose_names_the_card_does_not_say_have_those_of_the_table(model: GpuModel) -> None:
    nameless = [replace(profile, name="") for profile in profiles_of(model)]
    built, differences = build_model(card_of(model), nameless, MODELS)
    assert not differences
    assert {one.gi_profile_enum: one.name for one in built.profiles} == {
        one.gi_profile_enum: one.name for one in model.profiles
    }


def test_of_models_with_one_pci_id_the_one_with_the_cards_profiles_is_taken() -> None:
    model = gpu_model("gb200-189gb")
    found, _ = build_model(card_of(model, product="NVIDIA Graphics Device"), profiles_of(model), MODELS)
    assert found.id == model.id


@pytest.mark.parametrize(
    ("product", "pci_device_id", "memory", "expected"),
    [
        ("NVIDIA GB300", "31c2", 284208, "gb300-278gb"),
        ("NVIDIA GB300 WS", "31c3", 257000, UNKNOWN_MODEL),
        ("NVIDIA GB300", "31c2", 257000, UNKNOWN_MODEL),
        ("NVIDIA GB300 288GB", "2941", 288 * 1024, UNKNOWN_MODEL),
        ("NVIDIA GB300", "2941", 189471, UNKNOWN_MODEL),
        ("NVIDIA GB300", "2941", 284208, UNKNOWN_MODEL),
        ("NVIDIA H200", "232c", 143771, UNKNOWN_MODEL),
        ("NVIDIA GB200", "2941", 189471, "gb200-186gb"),
        ("NVIDIA GB200", "2941", 192526, "gb200-189gb"),
        ("NVIDIA B300 SXM6 AC", "3182", 275040, "b300-269gb"),
        ("NVIDIA A100-SXM-64GB", "20b3", 65536, UNKNOWN_MODEL),
        ("NVIDIA A100-SXM4-80GB", "20b2", 81251, "a100-80gb"),
        ("NVIDIA A30", "20b7", 24258, "a30-24gb"),
        ("NVIDIA H100", "2339", 65247, "h100-64gb-sxm"),
        ("NVIDIA H100", "2339", 95830, UNKNOWN_MODEL),
        ("NVIDIA H20-3e", "232c", 143771, "h20-141gb"),
        ("NVIDIA GH200 120GB", "2342", 97871, "gh200-96gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "2bb1", 97887, "rtx-pro-6000-blackwell-96gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "2bb4", 97887, "rtx-pro-6000-blackwell-96gb"),
        ("NVIDIA RTX PRO 5000 Blackwell", "2bb3", 48935, "rtx-pro-5000-blackwell-48gb"),
        ("NVIDIA RTX PRO 5000 72GB Blackwell", "2bb3", 73400, UNKNOWN_MODEL),
        ("NVIDIA RTX PRO 4500 Blackwell", "2c31", 32623, "rtx-pro-4500-blackwell-32gb"),
        ("NVIDIA Graphics Device", "2330", 81559, "h100-80gb-sxm"),
        ("NVIDIA H100 80GB HBM3", "fffe", 81559, "h100-80gb-sxm"),
        ("NVIDIA H100 80GB HBM3", "2330", 0, "h100-80gb-sxm"),
        ("", "ffff", 81559, UNKNOWN_MODEL),
    ],
)
def test_a_card_is_the_model_that_its_name_its_pci_id_and_its_memory_fit(
    product: str, pci_device_id: str, memory: int, expected: str
) -> None:
    card = replace(card_of(gpu_model("h100-80gb-sxm"), pci_device_id=pci_device_id), product=product)
    built, _ = build_model(replace(card, memory_bytes=memory * 2**20), [], MODELS)
    assert built.id == expected


@pytest.mark.parametrize("other", [model for model in MODELS if model.memory_bytes], ids=lambda model: model.id)
def test_no_card_is_taken_for_a_model_because_it_is_cut_like_that_one(other: GpuModel) -> None:
    """A GB300 was once published as model gb200-186gb."""
    card = card_of(other, product="NVIDIA X1 Super", pci_device_id="ffff")
    built, _ = build_model(card, profiles_of(other), MODELS)
    assert (built.id, built.product) == (UNKNOWN_MODEL, "NVIDIA X1 Super")


def test_the_warning_of_an_unknown_model_says_what_to_report() -> None:
    card = card_of(gpu_model("h100-80gb-sxm"), product="NVIDIA X1 Super", pci_device_id="fffe")
    for readings, listings in ((profiles_of(gpu_model("h100-80gb-sxm")), True), ([], False)):
        line = describe_unknown_model(card, build_model(card, readings, MODELS)[0])
        assert all(part in line for part in ("'NVIDIA X1 Super'", "fffe", "81559 MiB", "productName"))
        assert ("nvidia-smi mig -lgip" in line) is listings


def test_a_card_that_differs_wins_and_the_differences_are_named() -> None:
    model = gpu_model("h100-80gb-sxm")
    first, second, *others = profiles_of(model)
    changed = replace(first, multiprocessors=first.multiprocessors + 2)
    built, differences = build_model(card_of(model), [changed, *others], MODELS)
    assert built.profiles[0].multiprocessors == first.multiprocessors + 2
    assert differences == (f"it has no {second.name}", f"{first.name} differs in multiprocessors")


H100 = gpu_model("h100-80gb-sxm")


def renamed(names: dict[str, str]) -> list[ProfileReading]:
    return [replace(one, name=names.get(one.name, one.name)) for one in profiles_of(H100)]


@pytest.mark.parametrize(
    ("names", "problems"),
    [
        ({"1g.10gb": "x y"}, ["profile 19 is called 'x y', which is taken for 1g.10gb"]),
        ({"1g.10gb": "1G.10GB"}, ["profile 19 is called '1G.10GB', which is taken for 1g.10gb"]),
        ({"1g.10gb": "1" * 33}, [f"profile 19 is called '{'1' * 33}', which is taken for 1g.10gb"]),
        ({"1g.10gb": "1g.20gb"}, ["profile 19 is called '1g.20gb', which is taken for 1g.10gb"]),
        (dict.fromkeys(["1g.10gb", "1g.20gb", "7g.80gb"], ""), []),
    ],
)
def test_a_name_that_no_device_can_have_or_that_several_profiles_have_gives_way_to_the_tables(
    names: dict[str, str], problems: list[str]
) -> None:
    """A name with a space, or two profiles of one name, kept all cards of the node from being published."""
    built, differences = build_model(card_of(H100), renamed(names), MODELS)
    assert {one.name: one.placements for one in built.profiles} == {one.name: one.placements for one in H100.profiles}
    assert [*differences] == problems


@pytest.mark.parametrize(
    ("names", "left", "problems"),
    [
        ({"1g.10gb": "x y"}, {"1g.10gb"}, ["profile 19 is left out, because it is called 'x y'"]),
        (
            {"1g.10gb": "1g.20gb"},
            {"1g.10gb", "1g.20gb"},
            [f"profile {id_} is left out, because it is called '1g.20gb'" for id_ in (19, 15)],
        ),
        (
            {"1g.10gb": "", "1g.10gb+me": ""},
            {"1g.10gb+me"},
            ["profile 20 is left out, because it is called '1g.10gb'"],
        ),
    ],
)
def test_a_profile_of_an_unknown_card_that_has_no_name_of_its_own_is_left_out(
    names: dict[str, str], left: set[str], problems: list[str]
) -> None:
    card = card_of(H100, product="NVIDIA X1", pci_device_id="ffff")
    built, differences = build_model(card, renamed(names), MODELS)
    assert {one.name for one in H100.profiles} - {one.name for one in built.profiles} == left
    assert sorted(differences) == sorted(problems)


def test_a_card_that_no_table_has_is_described_by_itself() -> None:
    model = gpu_model("h100-80gb-sxm")
    card = card_of(model, product="NVIDIA X1 Super", pci_device_id="ffff")
    built, differences = build_model(card, profiles_of(model), MODELS)
    assert not differences
    assert (built.id, built.memory_slices, built.compute_slices) == (UNKNOWN_MODEL, 8, 7)
    assert built.product == "NVIDIA X1 Super"
    assert "ofa" in built.exclusive_engines
    assert {one.name for one in built.profiles} == {one.name for one in model.profiles}


def test_a_card_without_mig_that_no_table_has_is_one_unit() -> None:
    card = card_of(gpu_model("h100-80gb-sxm"), product="NVIDIA L4", pci_device_id="27b8")
    built, _ = build_model(card, [], MODELS)
    assert (built.id, [spec.placement for spec in gpu_geometry(built).specs]) == (UNKNOWN_MODEL, [None])


@given(
    st.lists(
        st.builds(
            lambda enum, size, starts, slices, engines: ProfileReading(
                enum=enum,
                id=enum + 20,
                name=f"{slices}g.{size}gb-{enum}",
                compute_slices=slices,
                memory_bytes=size << 30,
                multiprocessors=slices * 8,
                engines=Engines(copy=engines, ofa=engines),
                max_instances=len(starts),
                placements=tuple(Placement(start, size) for start in sorted(starts)),
            ),
            st.integers(0, 17),
            st.integers(1, 12),
            st.sets(st.integers(0, 11), min_size=1, max_size=8),
            st.integers(1, 7),
            st.integers(0, 3),
        ),
        max_size=8,
        unique_by=lambda reading: reading.enum,
    )
)
def test_whatever_an_unknown_card_reports_gives_a_geometry(readings: list[ProfileReading]) -> None:
    card = card_of(gpu_model("h100-80gb-sxm"), product="NVIDIA X1", pci_device_id="ffff")
    built, _ = build_model(card, readings, MODELS)
    specs = gpu_geometry(built).specs
    assert len(specs) == 1 + sum(len(one.placements) for one in readings)
