"""The registry of families, and what a family may not be."""

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from api.model.names import DriverName
from driver.families.base import InvalidFamilyError
from driver.families.gpu import GPU
from driver.families.registry import BUILT_IN, GROUP, FamilyUnavailableError, load_families

NPU = replace(GPU, name="npu", driver=DriverName("npu.acme.example"))


def point(value: str) -> EntryPoint:
    return EntryPoint(name="acme", value=value, group=GROUP)


def test_a_third_partys_family_stands_beside_kerfs_own() -> None:
    families = load_families(installed=[point(f"{__name__}:NPU")])
    assert list(families) == [*(family.name for family in BUILT_IN), "npu"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("driver.families.gpu:GPU", "family 'gpu' .* is installed twice: Kerf has 'gpu'"),
        ("driver.families.nowhere:GPU", "cannot be imported"),
        ("driver.families.gpu:NOTHING", "cannot be imported"),
        ("driver.families.gpu:DriverName", "no Family"),
    ],
)
def test_an_entry_point_that_is_no_further_family_is_named(value: str, message: str) -> None:
    with pytest.raises(FamilyUnavailableError, match=message):
        load_families(installed=[point(value)])


def test_a_driver_name_needs_a_domain() -> None:
    with pytest.raises(InvalidFamilyError, match="family 'npu': driver name 'npu' must be a domain name"):
        replace(NPU, driver=DriverName("npu"))


def test_a_vocabulary_leaves_room_for_later_attributes() -> None:
    with pytest.raises(InvalidFamilyError, match="25 attributes and capacities; at most 24 are possible"):
        replace(NPU, capacities={**NPU.capacities, "tensorCores": "Tensor cores."})


def test_kerfs_own_families_leave_eight_properties_free() -> None:
    assert all(len(family.attributes) + len(family.capacities) <= 24 for family in BUILT_IN)
