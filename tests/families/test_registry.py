"""The registry of families, and what a family may not be."""

from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from kerf_dra.api.model.names import DriverName
from kerf_dra.driver.diagnostics.preflight.node import SIMULATED
from kerf_dra.driver.families.base import Family, InvalidFamilyError
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.model_names import UnknownModelError
from kerf_dra.driver.families.registry import (
    BACKENDS_GROUP,
    BUILT_IN,
    BUILT_IN_BY_NAME,
    GROUP,
    FamilyUnavailableError,
    add_backends,
    list_backends,
    load_families,
)
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shells
from kerf_dra.driver.partitions.device_attributes import check_vocabulary
from kerf_dra.driver.partitions.geometry import Card

NPU = replace(GPU, name="npu", driver=DriverName("npu.acme.example"))


def points(value: str, name: str = "acme", group: str = GROUP) -> EntryPoints:
    return EntryPoints((EntryPoint(name=name, value=value, group=group),))


def test_a_third_partys_family_stands_beside_kerfs_own() -> None:
    families = load_families(installed=points(f"{__name__}:NPU"))
    assert list(families) == [*(family.name for family in BUILT_IN), "npu"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("kerf_dra.driver.families.gpu:GPU", "family 'gpu' .* is installed twice: Kerf has 'gpu'"),
        ("kerf_dra.driver.families.nowhere:GPU", "cannot be imported"),
        ("kerf_dra.driver.families.gpu:NOTHING", "cannot be imported"),
        ("kerf_dra.driver.families.gpu.family:DriverName", "no Family"),
    ],
)
def test_an_entry_point_that_is_no_further_family_is_named(value: str, message: str) -> None:
    with pytest.raises(FamilyUnavailableError, match=message):
        load_families(installed=points(value))


def test_an_entry_point_adds_a_backend_to_a_family_and_leaves_the_others() -> None:
    families = add_backends(BUILT_IN_BY_NAME, installed=points("acme.kerf:open_it", "fpga.acme-2.1", BACKENDS_GROUP))
    assert families["fpga"] == replace(FPGA, backends={**FPGA.backends, "acme-2.1": "acme.kerf:open_it"})
    assert families["gpu"] is GPU
    assert "acme-2.1" not in FPGA.backends


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fgpa.acme", "'acme' .* of the entry point 'fgpa.acme': there is no family 'fgpa'; .* did you mean 'fpga'?"),
        ("acme", "'' .* of the entry point 'acme': there is no family 'acme'"),
        ("gpu", "backend '' .* of the entry point 'gpu' has no name: write FAMILY.BACKEND"),
        ("gpu.nvidia", r"'nvidia' .* is installed twice: family 'gpu' has kerf_dra\..*nvidia:open_backend"),
    ],
)
def test_an_entry_point_that_adds_no_backend_to_a_family_is_named(name: str, message: str) -> None:
    with pytest.raises(FamilyUnavailableError, match=message):
        add_backends(BUILT_IN_BY_NAME, installed=points("acme.kerf:open_it", name, BACKENDS_GROUP))


def test_kerfs_families_name_backends_for_hardware_only() -> None:
    """What imitates hardware is installed beside them: an image may be without it."""
    assert {name for family in BUILT_IN for name in family.backends}.isdisjoint(SIMULATED)
    families = add_backends(BUILT_IN_BY_NAME)
    assert {name for family in families.values() for name in list_backends(family)} >= SIMULATED


def test_a_driver_name_needs_a_domain() -> None:
    with pytest.raises(InvalidFamilyError, match="family 'npu': driver name 'npu' must be a domain name"):
        replace(NPU, driver=DriverName("npu"))


@pytest.mark.parametrize("name", ["hbm-bytes", "größe", "", "in", "npu.example.com/true", "a" * 33, 'x"] == 1 || ["'])
def test_words_that_no_expression_can_select_are_refused(name: str) -> None:
    """Classes, claims and policies write them into CEL, long before a slice with them would be refused."""
    with pytest.raises(InvalidFamilyError, match="is not a name in CEL: an identifier of at most 32 characters"):
        replace(NPU, capacities={name: "A capacity."})


def test_a_vocabulary_leaves_room_for_later_attributes() -> None:
    with pytest.raises(InvalidFamilyError, match="29 attributes and capacities; at most 28 are possible"):
        replace(NPU, capacities={f"c{number}": "A capacity." for number in range(29 - len(NPU.attributes))})


def test_an_attribute_that_is_retired_is_not_in_the_vocabulary() -> None:
    with pytest.raises(InvalidFamilyError, match="decoders, profile cannot be both retired and in the vocabulary"):
        replace(NPU, retired=frozenset({"decoders", "profile", "brand"}))


def test_kerfs_own_families_leave_five_properties_free() -> None:
    assert all(len(family.attributes) + len(family.capacities) <= 28 for family in BUILT_IN)


@pytest.mark.parametrize("name", ["2", "npu-2", "npu-2-x"])
def test_no_part_of_a_familys_name_is_a_number_because_device_names_end_the_cards_name_with_one(name: str) -> None:
    with pytest.raises(InvalidFamilyError, match="a part of the name is a number"):
        replace(NPU, name=name)


@pytest.mark.parametrize("family", [one for one in BUILT_IN if one is not FPGA], ids=lambda family: family.name)
def test_a_familys_cards_can_be_described_in_its_vocabulary(family: Family) -> None:
    geometries = list(family.geometries())
    assert bool(geometries) is not family.is_network_attached  # what is discovered has no models
    for index, geometry in enumerate(geometries):
        assert geometry.kind == family.name
        check_vocabulary(Card(uuid=f"card-{index}", index=index, geometry=geometry), family.vocabulary)


@pytest.mark.parametrize("shell", shells(), ids=lambda shell: shell.name)
def test_fpga_cards_can_be_described_in_their_vocabulary(shell: Shell) -> None:
    check_vocabulary(Card(uuid="card", index=0, geometry=fpga_geometry(shell)), FPGA.vocabulary)


def test_a_geometry_is_built_once_for_all_cards_of_a_model() -> None:
    again = zip(GPU.geometries(), GPU.geometries(), strict=True)
    assert all(one is other for one, other in again)


def test_a_family_resolves_the_names_of_its_models() -> None:
    assert GPU.resolve_model("H100-80GB") == "h100-80gb-sxm"
    with pytest.raises(UnknownModelError, match="there is no GPU model 'h1000'"):
        GPU.resolve_model("h1000")


def test_no_fpga_shell_is_built_in() -> None:
    """What shells and functions there are, descriptions say, and what nodes publish: examples are no product's."""
    assert (list(FPGA.geometries()), FPGA.resolve_model("quad")) == ([], "quad")


def test_a_family_without_shipped_models_takes_every_name_as_it_is() -> None:
    bare = Family(name="npu", driver=NPU.driver, attributes=NPU.attributes, capacities=NPU.capacities)
    assert (list(bare.geometries()), bare.resolve_model("Duo")) == ([], "Duo")
