"""The backend ``intel``: which cards there are, and what containers see of a card, a tile or a share of one.

RM and GS name what Intel's resource manager and its scheduler extender did, which this family replaces.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kerf_dra.api.kerf.v1alpha1 import IntelGpuConfig
from kerf_dra.api.model.names import ClaimRef, DeviceId, ShareId
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.gpu_intel import GPU_INTEL
from kerf_dra.driver.kubeletplugin.backends.base import AllocatedDevice, CardAbsentError, Handle, HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.intel import IntelBackend, open_backend
from kerf_dra.driver.kubeletplugin.backends.intel.config import IntelConfig
from kerf_dra.driver.kubeletplugin.backends.intel.drm import UnknownMemoryError, read_memory
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.testing.journal import KillableJournal
from tests.fakes.intel import B580, GIB, INTEGRATED, MAX_1100, MAX_1550, FakeDrmCalls, IntelMachine

FIRST: Final = "0000:03:00.0"
SECOND: Final = "0000:43:00.0"
COMPOSITE: Final = IntelGpuConfig(api_version="kerf.dev/v1alpha1", hierarchy="Composite")


@pytest.fixture
def machine(tmp_path: Path) -> IntelMachine:
    return IntelMachine(tmp_path)


def backend(machine: IntelMachine, **memory: int | list[int]) -> IntelBackend:
    """A backend whose cards have regions of these sizes, in GiB."""
    calls = FakeDrmCalls(
        memory={
            name: [size * GIB for size in ([sizes] if isinstance(sizes, int) else sizes)]
            for name, sizes in memory.items()
        }
    )
    return IntelBackend(IntelConfig(system_root=str(machine.root)), calls=calls)


def two_cards(machine: IntelMachine) -> IntelBackend:
    """Two cards of two tiles. The kernel's numbers are in another order than the PCI addresses, as they may be."""
    machine.add_card(1, FIRST, MAX_1550, tiles=2, render=129)
    machine.add_card(0, SECOND, MAX_1550, tiles=2, render=128)
    return backend(machine, card0=[64, 64], card1=[64, 64])


def allocated(
    card: Card,
    tile: int | None = None,
    *,
    config: IntelGpuConfig | None = None,
    consumed: Mapping[str, str] | None = None,
    admin: bool = False,
) -> tuple[AllocatedDevice, IntelGpuConfig | None]:
    placement = None if tile is None else Placement(tile, 1)
    profile = None if tile is None else "1t"
    name = f"gpu-intel-{card.index}" + ("" if tile is None else f"-1t-at-{tile}")
    device = AllocatedDevice(
        claim=ClaimRef("default", "user", "uid"),
        share=ShareId(DeviceId("gpu-intel.kerf.dev", "node-1/gpu-intel", name), None if consumed is None else "share"),
        partition=Partition(
            kind="gpu-intel", card_uuid=card.uuid, profile=profile, placement=placement, shared=consumed is not None
        ),
        admin_access=admin,
        consumed_capacity={name: Quantity(amount) for name, amount in (consumed or {}).items()},
    )
    return device, config


def prepare(backend: IntelBackend, *wanted: tuple[AllocatedDevice, IntelGpuConfig | None]) -> list[Handle]:
    return [backend.prepare(device, config, KillableJournal(), None) for device, config in wanted]


def variables(edits: ContainerEdits) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in edits.env)


def attributes(card: Card) -> dict[str, Any]:
    return {name: value.value for name, value in (*card.geometry.attributes, *card.attributes.items())}


# Discovery


def test_cards_of_both_drivers_are_found_with_the_memory_that_their_drivers_state(machine: IntelMachine) -> None:
    machine.add_card(0, FIRST, B580, numa_node=1)
    machine.add_card(1, SECOND, MAX_1100, driver="i915", render=129)
    one, other = backend(machine, card0=12, card1=48).discover()
    assert (one.geometry.model, one.geometry.whole.amount("memory"), one.units) == ("arc-b580", Quantity("12Gi"), 1)
    assert attributes(one) == {
        "productName": "Intel Arc B580",
        "series": "Arc B-Series",
        "kernelDriver": "xe",
        "virtualFunction": False,
    }
    assert (one.pci_bus_id, one.pcie_root, one.numa_node, one.driver_version) == (
        FIRST,
        "pci0000:00",
        1,
        "6.12.48-amd64",
    )
    assert (other.geometry.model, other.geometry.whole.amount("memory")) == ("max-1100", Quantity("48Gi"))
    assert attributes(other)["kernelDriver"] == "i915"


def test_a_card_of_two_tiles_has_each_tile_with_half_of_memory_and_millicores(machine: IntelMachine) -> None:
    card, _ = two_cards(machine).discover()
    *tiles, whole = card.geometry.specs
    assert [(tile.profile, tile.placement) for tile in tiles] == [("1t", Placement(0, 1)), ("1t", Placement(1, 1))]
    for spec, part in ((tiles[0], 1), (whole, 2)):
        assert spec.amount("memory") == Quantity.of_bytes(64 * GIB * part)
        assert spec.amount("millicores") == Quantity(500 * part)
        assert spec.amount("tiles") == Quantity(part)


def test_engines_for_media_that_i915_shows_are_no_tiles(machine: IntelMachine) -> None:
    """Of graphics in a processor i915 shows gt0 and gt1; the second is no tile (Linux, intel_gt_types.h, GT_MEDIA)."""
    machine.add_card(
        0, FIRST, INTEGRATED, driver="i915", files={"drm/card0/gt/gt0/id": "0", "drm/card0/gt/gt1/id": "1"}
    )
    (card,) = backend(machine, card0=[]).discover()
    assert (card.units, card.geometry.model, card.geometry.whole.amount("memory")) == (1, "0x7d67", Quantity(0))


def test_what_is_no_card_of_intel_with_a_driver_of_its_own_is_left_out(machine: IntelMachine) -> None:
    machine.add_card(0, "0000:01:00.0", 0x20B5, driver="nvidia", vendor=0x10DE)
    machine.add_card(1, "0000:02:00.0", B580, driver="vfio-pci")
    machine.add_card(2, FIRST, B580, render=130)
    assert [card.pci_bus_id for card in backend(machine, card2=12).discover()] == [FIRST]


def test_virtual_functions_are_cards_and_what_gave_them_its_memory_is_none(machine: IntelMachine) -> None:
    machine.add_card(0, FIRST, B580, files={"sriov_numvfs": "1\n"})
    machine.add_card(1, "0000:03:00.1", B580, render=129, physical_function=FIRST)
    machine.add_card(2, SECOND, B580, render=130, files={"sriov_numvfs": "0\n"})
    found = {
        card.pci_bus_id: attributes(card)["virtualFunction"] for card in backend(machine, card1=6, card2=12).discover()
    }
    assert found == {"0000:03:00.1": True, SECOND: False}


def test_the_names_of_devices_stay_when_a_driver_gives_its_cards_other_numbers(machine: IntelMachine) -> None:
    machine.add_card(0, FIRST, B580)
    machine.add_card(1, SECOND, B580, render=129)
    known = backend(machine, card0=12, card1=12)
    before = {card.pci_bus_id: card.index for card in known.discover()}
    drm = machine.root / "sys/class/drm"
    targets = {name: (drm / name).readlink() for name in ("card0", "card1")}
    for name, target in zip(("card1", "card0"), targets.values(), strict=True):
        (drm / name).unlink()
        (drm / name).symlink_to(target)
    assert {card.pci_bus_id: card.index for card in known.discover()} == before == {FIRST: 0, SECOND: 1}


# Memory


def test_a_driver_that_may_not_be_asked_leaves_the_file_of_intels_own_i915(
    machine: IntelMachine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.add_card(0, FIRST, MAX_1550, driver="i915", files={"drm/card0/lmem_total_bytes": f"{64 * GIB}\n"})
    machine.add_card(1, SECOND, B580, render=129)
    one, other = backend(machine).discover()
    assert one.geometry.whole.amount("memory") == Quantity("128Gi"), "the file counts one tile"
    assert other.geometry.whole.amount("memory") == Quantity(0)
    assert f"card {SECOND} has no memory to ask for by size" in caplog.text
    assert FIRST not in caplog.text


def test_a_card_is_asked_for_its_memory_once(machine: IntelMachine) -> None:
    machine.add_card(0, FIRST, B580)
    calls = FakeDrmCalls(memory={"card0": [12 * GIB]})
    known = IntelBackend(IntelConfig(system_root=str(machine.root)), calls=calls)
    assert [len(known.discover()) for _ in range(3)] == [1, 1, 1]
    assert calls.asked == ["card0", "card0"], "for the answer's size, and for the answer"


@pytest.mark.parametrize("driver", ["xe", "i915"])
@pytest.mark.parametrize(("announced", "said"), [(3, "announces 3 regions in"), (2**32 - 1, "announces 4294967295")])
def test_an_answer_that_contradicts_itself_is_no_figure(driver: str, announced: int, said: str) -> None:
    calls = FakeDrmCalls(memory={"card0": [12 * GIB]}, announced=announced)
    with pytest.raises(UnknownMemoryError, match=said):
        read_memory(calls, Path("/dev/dri/card0"), driver)


# Containers


def test_a_container_sees_the_nodes_of_its_card_alone_and_where_programs_look_for_them(machine: IntelMachine) -> None:
    """RM-03: the device nodes of the cards that were named, and no others."""
    known = two_cards(machine)
    first, _ = known.discover()
    (handle,) = prepare(known, allocated(first))
    edits = known.edits(handle)
    assert [node.path for node in edits.device_nodes] == [
        "/dev/dri/card1",
        f"/dev/dri/by-path/pci-{FIRST}-card",
        "/dev/dri/renderD129",
        f"/dev/dri/by-path/pci-{FIRST}-render",
    ]
    assert variables(edits) == {"KERF_DEVICE_GPU_INTEL_1": FIRST}


def test_on_a_node_the_nodes_are_those_of_the_host(tmp_path: Path) -> None:
    handle = {"kind": "intel", "card": "INTEL-1", "device": "gpu-intel-0", "pci_address": FIRST, "number": 0}
    edits = open_backend(None).edits({**handle, "render": None, "tiles": 1})
    assert [(node.path, node.host_path) for node in edits.device_nodes] == [
        ("/dev/dri/card0", "/dev/dri/card0"),
        (f"/dev/dri/by-path/pci-{FIRST}-card", "/dev/dri/card0"),
    ]


@pytest.mark.parametrize(
    ("wanted", "config", "mask"),
    [
        pytest.param([(0, 1)], None, "1", id="one-tile"),
        pytest.param([(1, 0), (1, 1)], None, "0,1", id="RM-05 both tiles of the second card alone"),
        pytest.param([(0, 0), (1, 0), (1, 1)], None, "0,2,3", id="RM-05 tiles of two cards"),
        pytest.param([(0, 0), (1, 0), (1, 1)], COMPOSITE, "0.0,1.0,1.1", id="RM-05 composite"),
        pytest.param([(0, None), (1, 1)], None, "0,1,3", id="a whole card and a tile"),
        pytest.param([(1, 1), (0, 0)], COMPOSITE, "0.0,1.1", id="in any order"),
    ],
)
def test_a_mask_has_the_tiles_of_all_devices_of_a_request(
    wanted: list[tuple[int, int | None]], config: IntelGpuConfig | None, mask: str, machine: IntelMachine
) -> None:
    known = two_cards(machine)
    cards = known.discover()
    handles = prepare(known, *(allocated(cards[card], tile, config=config) for card, tile in wanted))
    assert variables(known.request_edits(handles)) == {
        "ZE_AFFINITY_MASK": mask,
        "ZE_FLAT_DEVICE_HIERARCHY": "FLAT" if config is None else "COMPOSITE",
    }


@pytest.mark.parametrize("tiles", [None, 1], ids=["RM-06 whole cards", "RM-06 cards of one tile"])
def test_there_is_no_mask_where_programs_may_use_all_that_they_see(tiles: int | None, machine: IntelMachine) -> None:
    machine.add_card(0, FIRST, B580 if tiles else MAX_1550, tiles=tiles or 2)
    known = backend(machine, card0=12)
    handles = prepare(known, allocated(known.discover()[0]))
    assert known.request_edits(handles) == ContainerEdits()


def test_a_monitor_sees_all_of_a_card_of_which_claims_have_tiles(machine: IntelMachine) -> None:
    """RM-13: a monitoring pod sees all cards, and what others may have stays the same."""
    known = two_cards(machine)
    handles = prepare(known, *(allocated(card, admin=True) for card in known.discover()))
    assert known.request_edits(handles) == ContainerEdits()
    nodes = {node.path for handle in handles for node in known.edits(handle).device_nodes}
    assert nodes >= {"/dev/dri/card0", "/dev/dri/card1"}


def test_a_share_says_how_much_of_the_card_it_has(machine: IntelMachine) -> None:
    """RM-02: sizes are kept by programs alone, which find them in their environment."""
    known = two_cards(machine)
    first, _ = known.discover()
    consumed = {"gpu-intel.kerf.dev/memory": "16Gi", "millicores": "250"}
    handle, unlimited = prepare(
        known,
        allocated(first, 1, consumed=consumed),
        allocated(first, 1, consumed={"memory": "1Gi", "millicores": "0"}),
    )
    name = "GPU_INTEL_1_1T_AT_1"
    assert variables(known.edits(handle)) == {
        f"KERF_DEVICE_{name}": f"{FIRST} tile 1",
        f"KERF_MEMORY_LIMIT_{name}": str(16 * GIB),
        f"KERF_MILLICORES_{name}": "250",
    }
    assert f"KERF_MILLICORES_{name}" not in variables(known.edits(unlimited))


def test_a_share_of_graphics_without_memory_says_how_many_millicores_it_has(machine: IntelMachine) -> None:
    for number, address in enumerate((FIRST, SECOND)):
        machine.add_card(number, address, INTEGRATED, driver="i915", render=128 + number)
    known = backend(machine, card0=[])
    first, second = known.discover()
    assert {first.geometry.shareable, second.geometry.shareable} == {"millicores"}, "one states none, one nothing"
    (handle,) = prepare(known, allocated(first, None, consumed={"millicores": "200"}))
    found = variables(known.edits(handle))
    assert [value for name, value in found.items() if name.startswith("KERF_MILLICORES")] == ["200"]
    assert not any(name.startswith("KERF_MEMORY_LIMIT") for name in found)


# Faults


def test_a_tile_that_a_card_does_not_have_is_refused(machine: IntelMachine) -> None:
    machine.add_card(0, FIRST, B580)
    known = backend(machine, card0=12)
    with pytest.raises(HardwareRefusedError, match=f"card {FIRST} has 1 tiles, and none 3"):
        prepare(known, allocated(known.discover()[0], 3))


def test_nothing_is_said_of_a_card_that_is_away(machine: IntelMachine) -> None:
    machine.add_card(0, FIRST, B580)
    known = backend(machine, card0=12)
    (card,) = known.discover()
    (handle,) = prepare(known, allocated(card))
    machine.take_away(0)
    assert known.discover() == []
    for call in (lambda: known.survey(card.uuid), lambda: known.unprepare(handle)):
        with pytest.raises(CardAbsentError, match=card.uuid):
            call()
    machine.bring_back(0)
    known.unprepare(handle)


def test_every_attribute_and_capacity_is_of_the_familys_vocabulary(machine: IntelMachine) -> None:
    for card in two_cards(machine).discover():
        assert {*attributes(card)} <= {*GPU_INTEL.attributes}
        assert {name for spec in card.geometry.specs for name, _ in spec.capacity} <= {*GPU_INTEL.capacities}
