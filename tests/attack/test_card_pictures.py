"""Names that tenants, drivers and nodes choose, in pictures of cards: text, and nothing else."""

from typing import Final
from xml.etree import ElementTree as ET

import msgspec
import pytest

from kerf_dra.api.model.devices import (
    Attribute,
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import DeviceId
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.partitions.card_pictures.claim_colors import ColorDepth
from kerf_dra.driver.partitions.card_pictures.picture_builder import build_card_pictures
from kerf_dra.driver.partitions.card_pictures.svg_picture import draw_svg
from kerf_dra.driver.partitions.card_pictures.text_picture import draw_pictures
from tests.attack.kinds import cases

ELEMENTS: Final = {"svg", "title", "desc", "style", "defs", "pattern", "path", "rect", "g", "text"}
ATTRIBUTES: Final = {
    *("class", "viewBox", "width", "height", "role", "id", "patternUnits", "d"),
    *("x", "y", "rx", "fill", "text-anchor"),
}


class Name(msgspec.Struct, frozen=True):
    """What is at the end of every name."""

    name: str


def published(name: str) -> tuple[ResourceSlice, dict[DeviceId, list[str]]]:
    """A card with a part that is held and one that is free, both tainted, all of whose names end in ``name``."""
    units = {f"{name}-{number}": Counter(value=Quantity(1)) for number in range(2)}
    taints = (DeviceTaint(key=f"drain{name}", effect="NoSchedule"),)
    devices = tuple(
        Device(
            name=f"part{number}{name}",
            attributes={"model": Attribute.of(f"model{name}"), "profile": Attribute.of(f"profile{name}")},
            consumes_counters=(DeviceCounterConsumption(counter_set=f"card{name}", counters={unit: amount}),),
            taints=taints,
        )
        for number, (unit, amount) in enumerate(units.items())
    )
    totals = {**units, f"memory{name}": Counter(value=Quantity("8Gi"))}
    spec = ResourceSliceSpec(
        driver=f"driver{name}",
        pool=ResourcePool(name=f"pool{name}", generation=1, resource_slice_count=2),
        node_name=f"node{name}",
        devices=devices,
        shared_counters=(CounterSet(name=f"card{name}", counters=totals),),
    )
    held = {
        DeviceId(spec.driver, spec.pool.name, devices[0].name): [f"claim{name}"],
        DeviceId(spec.driver, spec.pool.name, f"gone{name}"): [f"other{name}"],
    }
    return ResourceSlice(metadata=ObjectMeta(name="s"), spec=spec), held


@pytest.mark.parametrize("case", cases("test_card_pictures.py::test_a_name_in_a_picture_is_text_alone", Name))
def test_a_name_in_a_picture_is_text_alone(case: Name) -> None:
    slice_, held = published(case.name)
    [picture] = build_card_pictures([slice_], held)
    svg = draw_svg([picture], f"title{case.name}", labels={f"claim{case.name}": f"label{case.name}"})
    root = ET.fromstring(svg)
    assert {each.tag.rpartition("}")[2] for each in root.iter()} <= ELEMENTS
    assert {key for each in root.iter() for key in each.attrib} <= ATTRIBUTES
    assert "label" in " ".join(root.itertext())
    assert svg.replace("\n", "").isprintable()
    for width in (40, 80):
        plain = draw_pictures([picture], width)
        assert all(line.isprintable() for line in plain)
        assert "claim" in " ".join(plain)
    painted = "\n".join(draw_pictures([picture], 80, depth=ColorDepth.BASIC))
    assert painted.replace("\x1b[", "").replace("\n", "").isprintable()
