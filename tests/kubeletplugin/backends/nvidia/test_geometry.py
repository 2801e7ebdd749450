"""The model of a card, made of what NVML reports of it and of Kerf's table."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.families.gpu.catalog import gpu_model, gpu_models
from kerf_dra.driver.families.gpu.geometry import gpu_geometry
from kerf_dra.driver.families.gpu.model import Engines, GpuModel
from kerf_dra.driver.kubeletplugin.backends.nvidia.geometry import build_model, make_model_id
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


def test_of_models_with_one_pci_id_the_one_with_the_cards_profiles_is_taken() -> None:
    model = gpu_model("gb200-189gb")
    found, _ = build_model(card_of(model, product="NVIDIA Graphics Device"), profiles_of(model), MODELS)
    assert found.id == model.id


def test_a_card_that_differs_wins_and_the_differences_are_named() -> None:
    model = gpu_model("h100-80gb-sxm")
    first, second, *others = profiles_of(model)
    changed = replace(first, multiprocessors=first.multiprocessors + 2)
    built, differences = build_model(card_of(model), [changed, *others], MODELS)
    assert built.profiles[0].multiprocessors == first.multiprocessors + 2
    assert differences == (f"it has no {second.name}", f"{first.name} differs in multiprocessors")


def test_a_card_that_no_table_has_is_described_by_itself() -> None:
    model = gpu_model("h100-80gb-sxm")
    card = card_of(model, product="NVIDIA X1 Super", pci_device_id="ffff")
    built, differences = build_model(card, profiles_of(model), MODELS)
    assert not differences
    assert (built.id, built.memory_slices, built.compute_slices) == ("x1-super", 8, 7)
    assert "ofa" in built.exclusive_engines
    assert {one.name for one in built.profiles} == {one.name for one in model.profiles}


def test_a_card_without_mig_that_no_table_has_is_one_unit() -> None:
    card = card_of(gpu_model("h100-80gb-sxm"), product="NVIDIA L4", pci_device_id="27b8")
    built, _ = build_model(card, [], MODELS)
    assert (built.id, [spec.placement for spec in gpu_geometry(built).specs]) == ("l4", [None])


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


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        *(("NVIDIA L40S", "l40s"), ("Tesla T4", "tesla-t4"), ("NVIDIA", "nvidia"), ("", "nvidia")),
        ("NVIDIA " + 30 * "X1 ", "x1-" * 21 + "x"),  # 64 bytes, the most that an attribute takes
    ],
)
def test_the_id_of_an_unknown_model_is_its_products_name(product: str, expected: str) -> None:
    assert make_model_id(product) == expected
