"""Cards of equal units: every profile at every multiple of its size, and the whole card."""

import pytest

from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.partitions.geometry import InvalidGeometryError, Placement
from kerf_dra.driver.partitions.uniform_geometry import build_uniform_geometry


def test_a_profile_can_be_placed_at_every_multiple_of_its_size() -> None:
    geometry = build_uniform_geometry(
        "npu", "six", unit="core", units=6, profiles={"4c": 4, "2c": 2}, capacity={"cores": Quantity(1)}
    )
    assert [(spec.profile, spec.placement) for spec in geometry.specs] == [
        ("2c", Placement(0, 2)),
        ("2c", Placement(2, 2)),
        ("2c", Placement(4, 2)),
        ("4c", Placement(0, 4)),
        (None, None),
    ]


def test_a_partition_has_the_capacity_of_its_units() -> None:
    capacity = {"cores": Quantity(1), "memory": Quantity("8Gi")}
    geometry = build_uniform_geometry("npu", "four", unit="core", units=4, profiles={"2c": 2}, capacity=capacity)
    two, _, whole = geometry.specs
    assert {name: str(amount) for name, amount in two.capacity} == {"cores": "2", "memory": "16Gi"}
    assert {name: str(amount) for name, amount in whole.capacity} == {"cores": "4", "memory": "32Gi"}


def test_a_profile_larger_than_the_card_is_refused() -> None:
    with pytest.raises(InvalidGeometryError):
        build_uniform_geometry("npu", "four", unit="core", units=4, profiles={"8c": 8}, capacity={})
