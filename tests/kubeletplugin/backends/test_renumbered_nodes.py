"""Numbers that the kernel gives device nodes are no identity: backends find a device's nodes by something else."""

from pathlib import Path

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import NumberedBackend
from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.testing.nvml import CardDescription
from kerf_dra.driver.testing.plugin import PluginStandIn
from tests.fakes.dfl import NEEDS_COMPILER
from tests.fakes.intel import IntelMachine
from tests.kubeletplugin.backends.dfl.machine import DflNode
from tests.kubeletplugin.backends.fpga.node import FpgaNode
from tests.kubeletplugin.backends.intel.test_backend import FIRST, SECOND, allocated, prepare, two_cards
from tests.kubeletplugin.backends.nvidia.machine import NvidiaMachineUnderTest
from tests.kubeletplugin.backends.slots.machine import SlotsNode
from tests.kubeletplugin.backends.xrt.machine import XrtNode


def paths(node: FpgaNode, record_handle: dict[str, object] | None) -> list[str]:
    assert record_handle is not None
    assert isinstance(node.backend, NumberedBackend)
    return [one.path for one in node.backend.edits(node.backend.renumber(record_handle)).device_nodes]


def test_two_intel_cards_whose_numbers_are_swapped_are_found_by_their_pci_addresses(tmp_path: Path) -> None:
    machine = IntelMachine(tmp_path)
    known = two_cards(machine)
    cards = {card.pci_bus_id: card for card in known.discover()}
    first, second = prepare(known, allocated(cards[FIRST]), allocated(cards[SECOND]))
    machine.swap_numbers(FIRST, SECOND)
    assert (known.renumber(first)["number"], known.renumber(first)["render"]) == (0, 128)
    assert (known.renumber(second)["number"], known.renumber(second)["render"]) == (1, 129)
    machine.swap_numbers(FIRST, SECOND)
    assert (known.renumber(first), known.renumber(second)) == (first, second)


@NEEDS_COMPILER
def test_a_card_of_nvidia_is_found_by_its_uuid(tmp_path: Path) -> None:
    cards = (CardDescription(model="a100-40gb", minor_after_reset=5), CardDescription(model="a100-40gb"))
    plugin = PluginStandIn(NvidiaMachineUnderTest(tmp_path, *cards), GPU)
    backend = plugin.backend
    assert isinstance(backend, NumberedBackend)
    handles = [
        plugin.prepare(plugin.allocate(Partition(kind="gpu", card_uuid=card.uuid), name))
        for card, name in zip(plugin.cards, ("first", "second"), strict=True)
    ]
    plugin.machine.hardware.reset_card(0)  # type: ignore[attr-defined]
    found = [{node.path for node in backend.edits(backend.renumber(handle)).device_nodes} for handle in handles]
    assert ["/dev/nvidia5" in nodes for nodes in found] == [True, False]
    assert ["/dev/nvidia0" in nodes for nodes in found] == [False, False]
    assert backend.renumber(handles[1]) == handles[1]
    plugin.close()


@NEEDS_COMPILER
def test_a_port_of_a_dfl_card_is_found_by_its_slot(tmp_path: Path) -> None:
    node = DflNode(tmp_path)
    record, other = node.prepare(node.part(1, function="aes")), node.prepare(node.part(2))
    assert node.paths(record) == ["/dev/dfl-port.1"]
    folder = node.hardware.port_folder(1)
    folder.rename(folder.with_name("dfl-port.11"))
    assert paths(node, record.handle) == ["/dev/dfl-port.11"]
    assert paths(node, other.handle) == node.paths(other)


@NEEDS_COMPILER
def test_the_render_node_of_an_alveo_card_is_found_by_its_pci_address(tmp_path: Path) -> None:
    node = XrtNode(tmp_path)
    record = node.prepare(node.whole(), function="aes")
    [before] = node.paths(record)
    [folder] = node.hardware.card_folder(0).glob("drm/renderD*")
    folder.rename(folder.with_name("renderD199"))
    assert before == f"/dev/dri/{folder.name}"
    assert paths(node, record.handle) == ["/dev/dri/renderD199"]


def test_a_function_of_a_board_is_found_by_the_names_of_its_devices(tmp_path: Path) -> None:
    node = SlotsNode(tmp_path)
    record = node.prepare(node.part(1, function="aes"))
    before = node.paths(record)
    moved = Path(before[0]).name
    [folder] = node.hardware.folder.glob(f"sys/bus/platform/devices/*/uio/{moved}")
    folder.rename(folder.with_name("uio77"))
    assert paths(node, record.handle) == ["/dev/uio77", *before[1:]]
