"""What a load of a function is on every kind of FPGA card: what is refused before it, and what is counted of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from kerf_dra.api.errors import InvalidDocumentError, KerfError
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, FpgaConfig, GpuConfig
from kerf_dra.driver.families.fpga.descriptions import ImageReference
from kerf_dra.driver.kubeletplugin.backends.base import HardwareRefusedError, UnsuitableClaimError
from kerf_dra.driver.kubeletplugin.backends.fpga.slot_loader import LOADS, WARM_HITS, ReleaseAction, choose_release
from tests.fakes.dfl import NEEDS_COMPILER, build_gbs
from tests.fakes.dfl.machine import AES_ID
from tests.fakes.dfx.machine import BASE
from tests.fakes.xrt import build_xclbin
from tests.fakes.xrt.machine import AES_ID as XRT_AES_ID
from tests.kubeletplugin.backends.dfl.machine import DflNode
from tests.kubeletplugin.backends.fpga.node import FpgaNode
from tests.kubeletplugin.backends.simulated.fpga_node import SimulatedNode
from tests.kubeletplugin.backends.slots.machine import SlotsNode
from tests.kubeletplugin.backends.xrt.machine import XrtNode


class Kind(NamedTuple):
    """A kind of cards, all of which have the functions ``aes`` and ``fft``."""

    open_node: Callable[[Path], Any]
    restrict: Callable[[Any, list[str]], None]
    """Describes ``aes`` anew, for the claims of some namespaces alone."""
    read_changes: Callable[[Any], object]
    """What differs once the hardware was changed."""


KINDS: Final = {
    "dfl": Kind(
        DflNode,
        lambda node, names: node.hardware.describe_function("aes", AES_ID, [0, 1, 2, 3], namespaces=names),
        lambda node: node.hardware.calls(),
    ),
    "xrt": Kind(
        XrtNode,
        lambda node, names: node.hardware.describe_function("aes", XRT_AES_ID, namespaces=names),
        lambda node: node.hardware.calls(),
    ),
    "slots": Kind(
        SlotsNode,
        lambda node, names: node.hardware.describe_function("aes", range(3), namespaces=names),
        lambda node: node.hardware.calls(),
    ),
    "simulated": Kind(
        SimulatedNode,
        lambda node, names: node.machine.describe_function("aes", AES_ID, [0, 1, 2, 3], namespaces=names),
        lambda node: node.read_state(),
    ),
}


@pytest.fixture(params=[pytest.param(name, marks=NEEDS_COMPILER) for name in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def node(kind: Kind, tmp_path: Path) -> FpgaNode:
    node: FpgaNode = kind.open_node(tmp_path)
    return node


def ask(function: str) -> FpgaConfig:
    return FpgaConfig(api_version="kerf.dev/v1alpha1", function=function)


REFUSED: Final[tuple[tuple[int, str | None, DeviceConfigBase, type[KerfError], str], ...]] = (
    (0, None, ask("zstd"), HardwareRefusedError, r"^shell [a-z0-9]+ has no function 'zstd'; it has: aes, fft$"),
    (2, None, ask("fft"), HardwareRefusedError, r"^fft has no image for slot 2 of \S+; it has for 0 and 1$"),
    (0, "aes", ask("fft"), UnsuitableClaimError, "stands for aes, but the claim's FpgaConfig asks for fft"),
    (0, None, GpuConfig(api_version="kerf.dev/v1alpha1"), UnsuitableClaimError, "gives it a GpuConfig"),
)
"""Slot, function of the device, configuration, error."""


@pytest.mark.parametrize(("slot", "function", "config", "error", "message"), REFUSED)
def test_what_can_never_be_loaded_is_refused_before_the_card_is_changed(
    slot: int,
    function: str | None,
    config: DeviceConfigBase,
    error: type[KerfError],
    message: str,
    kind: Kind,
    node: FpgaNode,
) -> None:
    if slot >= node.card.units:
        pytest.skip("the card has one slot")
    record = node.allocate(node.part(slot, function=function))
    record.config = config
    before = kind.read_changes(node)
    with pytest.raises(error, match=message):
        node.plugin.prepare(record)
    assert kind.read_changes(node) == before
    assert "loading" not in record.journal.notes


def test_a_function_is_prepared_for_the_namespaces_that_its_image_names_alone(kind: Kind, node: FpgaNode) -> None:
    """FP-06: simulated cards loaded it for every namespace, so that what was tried on them was refused on real ones."""
    kind.restrict(node, ["video", "lab"])
    node.plugin.restart()
    before = kind.read_changes(node)
    record = node.allocate(node.part(0, function="aes"))
    with pytest.raises(InvalidDocumentError, match="namespace default may not use aes: its FpgaImage names other"):
        node.plugin.prepare(record)
    assert kind.read_changes(node) == before
    assert "loading" not in record.journal.notes
    record.device = replace(record.device, claim=record.device.claim._replace(namespace="lab"))
    node.plugin.prepare(record)
    assert set(node.backend.discover()[0].loaded.values()) == {"aes"}


def test_a_load_is_counted_once_and_a_function_that_is_there_as_a_warm_hit(node: FpgaNode) -> None:
    """FP-08."""
    first, warm = count_while(lambda: node.prepare(node.part(0, function="aes"), release="Keep"))
    assert (first, warm) == (1, 0)
    node.plugin.release(node.plugin.records[0])
    assert set(node.backend.discover()[0].loaded.values()) == {"aes"}
    assert count_while(lambda: node.prepare(node.part(0, function="aes"))) == (0, 1)
    node.plugin.release(node.plugin.records[0])
    assert not node.backend.discover()[0].loaded, "without Keep it goes"


REPLACED: Final[dict[str, Callable[[Any], object]]] = {
    "dfl": lambda node: node.hardware.add_image("aes.gbs", AES_ID, build_gbs(AES_ID, interface=AES_ID)),
    "xrt": lambda node: node.hardware.add_image("aes.xclbin", XRT_AES_ID, build_xclbin(XRT_AES_ID, interface=AES_ID)),
    "slots": lambda node: (node.hardware.firmware / BASE / "aes-0/aes-0_slot0/partial.dtbo").write_text("another\n"),
}
"""What puts another file in the place of the image of ``aes``; simulated cards have no files."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=NEEDS_COMPILER) for name in REPLACED])
def test_a_function_that_is_still_warm_is_not_given_to_a_claim_once_its_image_is_another_file(
    name: str, tmp_path: Path
) -> None:
    """FP-05, FP-06: a load reads the file again, a warm hit does not, and no test noticed when it was not checked."""
    node = KINDS[name].open_node(tmp_path)
    node.plugin.release(node.prepare(node.part(0, function="aes"), release="Keep"))
    assert set(node.backend.discover()[0].loaded.values()) == {"aes"}
    REPLACED[name](node)
    before = KINDS[name].read_changes(node)
    record = node.allocate(node.part(0, function="aes"))
    with pytest.raises(HardwareRefusedError, match=r"is another file than|has other files"):
        node.backend.prepare(record.device, record.config, record.journal, None)
    assert KINDS[name].read_changes(node) == before
    assert not record.journal.notes


def count_while(act: Callable[[], object]) -> tuple[float, float]:
    """The loads and the warm hits that are counted meanwhile."""
    before = [counter._value.get() for counter in (LOADS, WARM_HITS)]
    act()
    loads, hits = (counter._value.get() for counter in (LOADS, WARM_HITS))
    return loads - before[0], hits - before[1]


BLANK: Final = ImageReference(file="blank", sha256="", interface_uuid="", afu_id="blank", load_s=0)


@pytest.mark.parametrize(
    ("reported", "own", "blank", "is_kept", "action"),
    [
        (["aes"], "aes", BLANK, False, "Blank"),
        (["aes"], "aes", BLANK, True, "Keep"),
        (["aes"], "aes", None, True, "Keep"),
        (["blank"], "aes", BLANK, True, "Blank"),
        ([], "aes", BLANK, True, "Blank"),
        (["fft"], "aes", BLANK, True, "Leave"),
        (["blank"], "aes", None, False, "Leave"),
        (["aes", "fft"], "aes", BLANK, False, "Leave"),
        (["fft"], "", BLANK, False, "Leave"),
        (["blank"], "", BLANK, False, "Blank"),
        (["fft"], None, None, False, "Blank"),
        (["fft"], None, BLANK, True, "Blank"),
    ],
)
def test_what_a_slot_reports_at_the_release_decides_what_becomes_of_it(
    reported: list[str], own: str | None, blank: ImageReference | None, is_kept: bool, action: ReleaseAction
) -> None:
    assert choose_release(reported, own, blank, is_kept=is_kept) == action
