"""Simulated cards that are described with several layouts: which one is loaded when, and what containers get."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kerf_dra.api.kerf.v1alpha1 import FpgaConfig
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.kubeletplugin.backends.base import AllocatedDevice, HardwareBusyError, HardwareConflictError
from kerf_dra.driver.kubeletplugin.backends.simulated.config import FpgaCards, SimulatedConfig, read_config
from kerf_dra.driver.kubeletplugin.backends.simulated.fpga import FpgaState, load_layout
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareFault, HardwareFaults, HardwareStep
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from tests.fakes.dfl.machine import build_document
from tests.kubeletplugin.backends.simulated.machine import Crashed, Machine
from tests.partitions.layouts import scattered

FIRST, HALVES, FLAT = (f"00000000-0000-4000-8000-00000000000{number}" for number in range(3))
SHA: Final = "a0" * 32


def image(number: int, function: str, interface: str, *slots: list[int], **changes: Any) -> Mapping[str, Any]:
    file = {"file": "x.gbs", "sha256": SHA, **({"slots": [*slots]} if slots else {})}
    return build_document(
        "FpgaImage",
        f"{function}-{number}",
        function=function,
        interfaceUUID=interface,
        afuID=f"00000000-0000-4000-9000-00000000000{number}",
        loadSeconds=0.5,
        files=[file],
        **changes,
    )


DOCUMENTS: Final = (
    build_document(
        "FpgaShell",
        "split",
        interfaceUUID=FIRST,
        loadSeconds=3,
        slots=[{"lut": 100}] * 4,
        layouts=[
            {"name": "halves", "interfaceUUID": HALVES, "loadSeconds": 2, "slots": [{"lut": 200}] * 2},
            {"name": "flat", "interfaceUUID": FLAT, "loadSeconds": 5, "resources": {"lut": 450}},
        ],
    ),
    image(1, "aes", FIRST, [0], [1], [2], [3]),
    image(2, "fft", FIRST, [0, 2], [0, 1]),
    image(3, "aes", HALVES, [0], [1]),
    image(4, "vadd", FLAT, computeUnits=2),
)


class LayoutMachine(Machine):
    """A node with one card that can be quarters, halves or undivided."""

    def __init__(self, folder: Path) -> None:
        descriptions = folder / "descriptions"
        descriptions.mkdir()
        for number, document in enumerate(DOCUMENTS):
            (descriptions / f"{number}.yaml").write_text(json.dumps(document))
        config = {"state": "state", "descriptionFolder": "descriptions", "cards": [{"kind": "fpga", "shell": "split"}]}
        (folder / "cards.yaml").write_text(json.dumps(config))
        super().__init__(folder / "state", config=read_config(folder / "cards.yaml"))

    @property
    def now(self) -> Card:
        """The card as it is discovered now."""
        [card] = self.open().discover()
        return card

    def part(self, function: str | None, *slots: int, layout: str = "", claim: str = "claim-1") -> AllocatedDevice:
        place = scattered(*slots, layout=layout) if slots else None
        partition = Partition(kind="fpga", card_uuid=self.now.uuid, placement=place, function=function)
        assert partition in [spec.of(self.now.uuid) for spec in self.now.geometry.specs]
        return self.device(partition, claim)


@pytest.fixture
def machine(tmp_path: Path) -> LayoutMachine:
    return LayoutMachine(tmp_path)


def test_a_layout_is_loaded_for_the_first_claim_of_it_and_stays(machine: LayoutMachine) -> None:
    """FP-10: quarters, then halves, then quarters again."""
    quarter = machine.part("aes", 3)
    first = machine.prepare(quarter)
    assert (machine.now.layout, machine.now.loaded) == ("", {Placement(3, 1): "aes"})
    machine.release(quarter, first)
    machine.clock.slept_s.clear()
    halves = [machine.part("aes", slot, layout="halves", claim=f"claim-{slot}") for slot in (0, 1)]
    handles = [machine.prepare(half) for half in halves]
    assert machine.clock.slept_s.count(2.0) == 1, "the second half finds its layout loaded"
    assert machine.now.layout == "halves"
    assert machine.now.loaded == {half.partition.placement: "aes" for half in halves}
    for half, handle in zip(halves, handles, strict=True):
        machine.release(half, handle)
    assert (machine.now.layout, machine.now.loaded) == ("halves", {})
    machine.prepare(machine.part("fft", 0, 2, claim="claim-9"))
    assert (machine.now.layout, machine.now.loaded) == ("", {scattered(0, 2): "fft"})
    assert 3.0 in machine.clock.slept_s


def test_a_function_that_was_kept_is_lost_with_its_layout(machine: LayoutMachine) -> None:
    keep = FpgaConfig(api_version="kerf.dev/v1alpha1", release="Keep")
    device = machine.part("aes", 1)
    machine.release(device, machine.prepare(device, keep))
    assert machine.now.loaded == {Placement(1, 1): "aes"}
    machine.prepare(machine.part(None, 0, layout="halves", claim="bare"))
    assert (machine.now.layout, machine.now.loaded) == ("halves", {})


def test_a_release_that_is_repeated_later_leaves_another_layout_alone(machine: LayoutMachine) -> None:
    device = machine.part("aes", 0)
    handle = machine.prepare(device)
    machine.release(device, handle)
    machine.prepare(machine.part("aes", 0, layout="halves", claim="next"))
    machine.open().unprepare(handle)
    assert machine.now.loaded == {scattered(0, layout="halves"): "aes"}


def test_no_layout_is_loaded_while_a_process_uses_the_card(machine: LayoutMachine) -> None:
    machine.open().use_slots(Placement(3, 1))
    with pytest.raises(HardwareConflictError, match="in use outside of Kerf: slots-3 at 3"):
        machine.prepare(machine.part("aes", 0, layout="halves"))
    assert machine.now.layout == ""
    state = FpgaState(shell="split", in_use=(Placement(3, 1),))
    with pytest.raises(HardwareConflictError, match="fpga-load-layout: a process outside of Kerf uses slots 3"):
        load_layout(state, "halves")


def test_the_slots_of_a_function_need_not_be_neighbours(machine: LayoutMachine) -> None:
    between = machine.part("aes", 1, claim="between")
    machine.prepare(between)
    handle = machine.prepare(machine.part("fft", 0, 2))
    assert machine.now.loaded == {Placement(1, 1): "aes", scattered(0, 2): "fft"}
    edits = machine.open().edits(handle)
    assert [node.path for node in edits.device_nodes] == ["/dev/dfl-port.0", "/dev/dfl-port.2"]
    assert edits.env == ("KERF_DEVICE_FPGA_0_FFT_AT_0_AND_2=fft",)


def test_a_config_may_name_the_function_for_bare_slots_that_are_no_neighbours(machine: LayoutMachine) -> None:
    machine.prepare(machine.part(None, 0, 2), FpgaConfig(api_version="kerf.dev/v1alpha1", function="fft"))
    assert machine.now.loaded == {scattered(0, 2): "fft"}


@pytest.mark.parametrize(("function", "layout"), [("vadd", "flat"), ("fft", ""), ("aes", "halves")])
def test_a_whole_card_gets_the_layout_that_has_the_function(machine: LayoutMachine, function: str, layout: str) -> None:
    """The one that it has, if that has the function."""
    bare = machine.part(None, 0, layout="halves", claim="before")
    machine.release(bare, machine.prepare(bare))
    machine.prepare(machine.part(None), FpgaConfig(api_version="kerf.dev/v1alpha1", function=function))
    assert (machine.now.layout, [*machine.now.loaded.values()]) == (layout, [function])


def test_a_function_of_the_whole_card_is_shared_by_compute_units(machine: LayoutMachine) -> None:
    """FP-18: both shares get the function, which stays until the last one ends; each says what it has."""
    whole = machine.part("vadd", 0, layout="flat")
    shares = [
        replace(
            whole,
            claim=whole.claim._replace(name=name, uid=name),
            share=whole.share._replace(share=name),
            partition=replace(whole.partition, shared=True),
            consumed_capacity={"computeUnitPercent": Quantity(50)},
        )
        for name in ("one", "two")
    ]
    handles = [machine.prepare(share) for share in shares]
    assert machine.clock.slept_s.count(5.0) == 1
    assert machine.clock.slept_s.count(0.5) == 1, "the second share finds the function loaded"
    for handle in handles:
        env = machine.open().edits(handle).env
        assert [entry.partition("=")[::2] for entry in env] == [
            ("KERF_DEVICE_FPGA_0_VADD_AT_0_OF_FLAT", "vadd"),
            ("KERF_COMPUTE_UNIT_PERCENT_FPGA_0_VADD_AT_0_OF_FLAT", "50"),
        ]
    machine.release(shares[0], handles[0])
    machine.release(shares[1], handles[1])
    assert machine.now.loaded == {}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_while_a_layout_is_loaded_leaves_a_card_that_can_be_prepared(machine: LayoutMachine, when: Any) -> None:
    """FP-12."""
    backend = machine.open()
    backend.inject(HardwareFaults(faults=(HardwareFault(step=HardwareStep.LOAD_LAYOUT, effect="crash", when=when),)))
    device = machine.part("aes", 1, layout="halves")
    with pytest.raises(Crashed):
        machine.prepare(device, backend=backend)
    handle = machine.prepare(device)
    assert machine.now.loaded == {device.partition.placement: "aes"}
    machine.release(device, handle)
    assert machine.now.loaded == {}


def test_a_layout_that_cannot_be_loaded_leaves_the_card_as_it_was(machine: LayoutMachine) -> None:
    backend = machine.open()
    backend.inject(HardwareFaults(faults=(HardwareFault(step=HardwareStep.LOAD_LAYOUT),)))
    device = machine.part("aes", 1, layout="halves")
    with pytest.raises(HardwareBusyError):
        machine.prepare(device, backend=backend)
    machine.release(device)
    assert (machine.now.layout, machine.now.loaded) == ("", {})


def test_the_layouts_of_a_card_are_described_and_not_built_in(tmp_path: Path) -> None:
    machine = LayoutMachine(tmp_path)
    assert [layout.name for layout in machine.now.geometry.layouts] == ["", "halves", "flat"]
    assert isinstance(machine.config, SimulatedConfig)
    assert machine.config.cards == (FpgaCards(shell="split"),)


def test_what_a_container_gets_for_one_device_never_replaces_what_it_gets_for_another(tmp_path: Path) -> None:
    """Also of devices in two claims, and on cards with as many slots as there can be: none is lost silently."""
    descriptions = tmp_path / "descriptions"
    descriptions.mkdir()
    large = build_document("FpgaShell", "large", interfaceUUID=FIRST, slots=[{"lut": 1}] * 16)
    (descriptions / "shell.yaml").write_text(json.dumps(large))
    aes = image(1, "aes", FIRST, *([slot] for slot in range(16)))
    (descriptions / "image.yaml").write_text(json.dumps(aes))
    config = {
        "state": "s",
        "descriptionFolder": "descriptions",
        "cards": [{"kind": "fpga", "shell": "large", "count": 2}],
    }
    (tmp_path / "cards.yaml").write_text(json.dumps(config))
    machine = Machine(tmp_path / "s", config=read_config(tmp_path / "cards.yaml"))
    variables: list[str] = []
    nodes: list[str] = []
    for card in machine.cards.values():
        for slot in range(16):
            part = Partition(kind="fpga", card_uuid=card.uuid, placement=Placement(slot, 1), function="aes")
            edits = machine.open().edits(machine.prepare(machine.device(part, f"claim-{card.index}-{slot}")))
            variables += [entry.partition("=")[0] for entry in edits.env]
            nodes += [node.path for node in edits.device_nodes]
    assert len({*variables}) == len(variables) == 32
    assert len({*nodes}) == len(nodes) == 32
