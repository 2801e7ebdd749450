"""Geometries that are rebuilt from published devices: what they say of free units is what the real ones say."""

from itertools import combinations

import pytest
from msgspec.structs import replace

from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shells
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.fragmentation import fragmentation
from kerf_dra.driver.partitions.geometry import Card, Placement
from kerf_dra.driver.partitions.pool_compiler import SliceLayout, compile_pool
from kerf_dra.driver.partitions.publish_order import publish_order
from kerf_dra.driver.partitions.published_geometry import rebuild_geometry
from kerf_dra.driver.partitions.shared_devices import order_shared_partitions
from tests.partitions.cards import fpga, gpu, vocabulary_of
from tests.partitions.counters import devices
from tests.partitions.layouts import divided, function, scattered
from tests.partitions.test_layouts import EVERY_WAY

SHARED = divided(2, functions=[function("vadd", Placement(0, 1), compute_units=2), function("x", scattered(0, 1))])


def rebuilt(card: Card) -> Card | None:
    shared = order_shared_partitions([card], publish_order([card], ()).partitions, frozenset(["vadd"]), ())
    compiled = compile_pool("n/x", "n", [card], vocabulary=vocabulary_of(card), layout=SliceLayout.SPLIT, shared=shared)
    geometry = rebuild_geometry(card.kind, {device.name: device for device in devices(compiled.pool)})
    return None if geometry is None else Card(uuid=card.uuid, index=card.index, geometry=geometry)


@pytest.mark.parametrize("shell", [*shells(), EVERY_WAY, divided(4, 2), SHARED], ids=lambda shell: shell.name)
def test_what_is_free_is_the_same_as_of_the_geometry_that_was_published(shell: Shell) -> None:
    card = fpga(shell)
    found = rebuilt(card)
    assert found is not None
    parts = [spec.of(card.uuid) for spec in card.geometry.specs]
    assert {device_name(found, spec.of(found.uuid)) for spec in found.geometry.specs} == {
        device_name(card, part) for part in parts
    }
    for taken in [(), *((one,) for one in parts), *combinations(parts, 2)]:
        assert fragmentation(found, taken) == fragmentation(card, taken), taken
    for spec in found.geometry.specs:
        real = next(one for one in card.geometry.specs if one.of(card.uuid) == spec.of(card.uuid))
        assert (spec.mask.bit_count(), dict(spec.capacity)) == (real.mask.bit_count(), dict(real.capacity))


def test_a_card_with_other_counters_than_units_is_not_rebuilt() -> None:
    assert rebuilt(gpu()) is None


def test_devices_that_do_not_follow_kerfs_names_are_no_geometry() -> None:
    card = fpga("quad")
    compiled = compile_pool("n/x", "n", [card], vocabulary=vocabulary_of(card), layout=SliceLayout.SPLIT)
    published = {device.name: device for device in devices(compiled.pool)}
    assert rebuild_geometry("fpga", {}) is None
    without = {name: device for name, device in published.items() if name != "fpga-0"}
    assert rebuild_geometry("fpga", without) is None, "the whole card says which counters there are"
    swapped = {**published, "fpga-0-slot-0": published["fpga-0-slot-1"], "fpga-0-slot-1": published["fpga-0-slot-0"]}
    found = rebuild_geometry("fpga", swapped)
    assert found is not None
    assert not [
        spec for spec in found.specs if spec.function is None and spec.placement in {Placement(0, 1), Placement(1, 1)}
    ]


def test_what_is_offered_in_shares_or_consumes_nothing_says_nothing_of_the_geometry() -> None:
    card = fpga("quad")
    compiled = compile_pool("n/x", "n", [card], vocabulary=vocabulary_of(card), layout=SliceLayout.SPLIT)
    published = {device.name: device for device in devices(compiled.pool)}
    whole = published["fpga-0"]
    others = {
        "fpga-0-shared": replace(whole, allow_multiple_allocations=True),
        "fpga-0-monitor": replace(whole, consumes_counters=()),
    }
    assert rebuild_geometry("fpga", {**published, **others}) == rebuild_geometry("fpga", published)
