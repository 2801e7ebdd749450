"""What the checkpoint keeps of a partition is the partition."""

import pytest

from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shells
from kerf_dra.driver.partitions.geometry import Card, Geometry
from kerf_dra.driver.partitions.records import from_card_part, to_card_part
from tests.partitions.test_layouts import EVERY_WAY

GEOMETRIES = [
    *(geometry for family in BUILT_IN for geometry in family.geometries()),
    *map(fpga_geometry, (*shells(), EVERY_WAY)),
]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda geometry: geometry.model)
def test_every_partition_comes_back(geometry: Geometry) -> None:
    card = Card(uuid="card-1", index=0, geometry=geometry)
    for spec in geometry.specs:
        partition = spec.of(card.uuid)
        part = to_card_part(partition)
        assert (part.start is None, part.size is None) == (partition.placement is None,) * 2
        assert from_card_part(part) == partition
