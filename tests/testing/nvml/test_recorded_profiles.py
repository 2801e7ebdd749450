"""Kerf's table of models, which the stand-in reports, has the figures that NVIDIA's documents and listings have."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from kerf_dra.driver.families.base import WHOLE
from kerf_dra.driver.families.gpu.catalog import gpu_figures, gpu_models
from kerf_dra.driver.families.gpu.model import GpuModel, Profile


class Recorded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What sources say of a model."""

    sources: tuple[str, ...]
    placements: str
    total_memory_mib: int | None
    products: tuple[str, ...]
    pci_device_ids: tuple[str, ...]
    slices: tuple[int, int | None]
    profiles: dict[str, tuple[Any, ...]]


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    about: tuple[str, ...]
    columns: tuple[str, ...]
    models: dict[str, Recorded]


NAME: Final = "recorded_profiles.json"
RECORD: Final = msgspec.json.decode(Path(__file__).with_name(NAME).read_bytes(), type=Record)
MIB: Final = 2**20
ESTIMATES: Final[Mapping[str, tuple[str, ...]]] = {
    "memory_mib": ("memory",),
    "multiprocessors": ("multiprocessors",),
    "copy_engines": ("engines", "copy engines"),
    "decoders": ("engines", "decoders"),
    "encoders": ("engines", "encoders"),
    "jpeg_engines": ("engines", "JPEG engines"),
    "ofa_engines": ("engines",),
}
"""How the table names the estimate of a figure, by the column."""


FIGURES: Final = 1585
"""How many figures sources tell: none is lost by mistake. A new model adds its own."""


def find_record(model: GpuModel) -> Recorded:
    """Return what sources say of a model."""
    assert model.id in RECORD.models, f"write what sources say of {model.id} into tests/testing/nvml/{NAME}"
    return RECORD.models[model.id]


def figures_of(profile: Profile) -> dict[str, object]:
    """Return the figures of a profile of the table by their columns of the record."""
    engines = profile.engines
    return {
        "gi_profile_id": profile.gi_profile_id,
        "gi_profile_enum": profile.gi_profile_enum,
        "compute_slices": profile.compute_slices,
        "memory_slices": profile.placements[0].size,
        "memory_mib": profile.memory_bytes / MIB,
        "max_instances": profile.max_instances,
        "multiprocessors": profile.multiprocessors,
        "copy_engines": engines.copy,
        "decoders": engines.decoders,
        "encoders": engines.encoders,
        "jpeg_engines": engines.jpeg,
        "ofa_engines": engines.ofa,
        "placements": [[place.start, place.size] for place in profile.placements],
    }


def told(model: GpuModel) -> Iterator[tuple[str, str, object]]:
    """Yield the profile, the column and the value of each figure that a source tells."""
    for name, values in find_record(model).profiles.items():
        for column, value in zip(RECORD.columns, values, strict=True):
            if value is not None:
                yield name, column, value


def test_every_model_of_the_table_is_recorded_with_its_sources() -> None:
    assert [*RECORD.models] == [model.id for model in gpu_models()]
    assert all(recorded.sources for recorded in RECORD.models.values())
    assert sum(1 for model in gpu_models() for _ in told(model)) == FIGURES


@pytest.mark.parametrize("model", gpu_models(), ids=lambda model: str(model.id))
def test_a_models_figures_are_those_that_its_sources_tell(model: GpuModel) -> None:
    recorded = find_record(model)
    assert model.pci_device_ids == recorded.pci_device_ids
    assert (model.product, *model.other_products) == recorded.products
    assert recorded.total_memory_mib in (None, model.memory_bytes // MIB)
    compute_slices, memory_slices = recorded.slices
    assert model.compute_slices == compute_slices
    assert memory_slices in (None, model.memory_slices)
    assert {profile.name for profile in model.profiles} == {*recorded.profiles}
    known = {profile.name: figures_of(profile) for profile in model.profiles}
    assert {(name, column): known[name][column] for name, column, _ in told(model)} == {
        (name, column): value for name, column, value in told(model)
    }


@pytest.mark.parametrize("model", gpu_models(), ids=lambda model: str(model.id))
def test_no_figure_that_a_source_tells_is_said_to_be_estimated(model: GpuModel) -> None:
    estimated = {(one.part, one.figure) for one in gpu_figures()[model.id].estimated}
    assert ((WHOLE, "memory") in estimated) is (find_record(model).total_memory_mib is None)
    assert not estimated & {(name, words) for name, column, _ in told(model) for words in ESTIMATES.get(column, ())}
