"""Cards on the bus that a backend does not list: which driver has them, and what to do."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.backends.base import BusReader, UnlistedCard
from kerf_dra.driver.kubeletplugin.backends.dfl.sysfs import DFL_CARDS
from kerf_dra.driver.kubeletplugin.backends.intel.sysfs import INTEL_GPUS
from kerf_dra.driver.kubeletplugin.backends.kernel_files import UnreadableFilesError
from kerf_dra.driver.kubeletplugin.backends.nvidia.backend import NvidiaBackend
from kerf_dra.driver.kubeletplugin.backends.nvidia.config import NvidiaConfig
from kerf_dra.driver.kubeletplugin.backends.nvidia.system_files import NVIDIA_GPUS
from kerf_dra.driver.kubeletplugin.backends.pci_devices import (
    PciCardKind,
    list_unlisted_cards,
    normalize_pci_address,
)
from kerf_dra.driver.kubeletplugin.backends.xrt.sysfs import ALVEO_CARDS
from tests.fakes.pci import add_pci_device

H100, A2, ARC, ALVEO, PAC, N5010 = (
    (0x10DE, 0x2330),
    (0x10DE, 0x25B6),
    (0x8086, 0x56A0),
    (0x10EE, 0xD020),
    (0x8086, 0x09C4),
    (0x1C2C, 0x1000),
)
FIRST, SECOND = "0000:3b:00.0", "0000:5e:00.0"


def list_unlisted(
    root: Path, kind: PciCardKind, listed: Sequence[str] = (), problems: Sequence[str] = ()
) -> Sequence[UnlistedCard]:
    return list_unlisted_cards(root, kind, listed, problems)


@pytest.mark.parametrize(
    ("kind", "ids", "pci_class", "driver", "says", "step", "is_expected"),
    [
        (NVIDIA_GPUS, H100, 0x0302, "nouveau", "nouveau has it in place of NVIDIA's", "blacklist=nouveau", False),
        (NVIDIA_GPUS, H100, 0x0302, "vfio-pci", "vfio-pci has it, so it may be meant", "leave it as it is", True),
        (NVIDIA_GPUS, H100, 0x0302, "nvidia-vgpu-vfio", "may be meant for a virtual", "bind it to nvidia", True),
        (NVIDIA_GPUS, A2, 0x0300, "", "no driver has it", "modprobe nvidia", False),
        (NVIDIA_GPUS, H100, 0x0302, "nvidia", "yet the backend does not list it", "dmesg", False),
        (INTEL_GPUS, ARC, 0x0300, "pci-stub", "pci-stub has it, so it may be meant", "bind it to xe or i915", True),
        (INTEL_GPUS, ARC, 0x0380, "", "no driver has it", "modprobe xe, or i915", False),
        (DFL_CARDS, PAC, 0x1200, "intel-fpga-pci", "outside of the kernel", "modprobe dfl-pci", False),
        (DFL_CARDS, N5010, 0x1200, "", "no driver has it", "modprobe dfl-pci", False),
        (ALVEO_CARDS, ALVEO, 0x1200, "xclmgmt", "only its management function", "xbmgmt program --base", False),
        (ALVEO_CARDS, ALVEO, 0x1200, "xdma", "xdma has it in place of xocl", "modprobe xocl", False),
    ],
)
def test_a_card_that_is_not_listed_is_named_with_its_driver_and_what_to_do(
    kind: PciCardKind,
    ids: tuple[int, int],
    pci_class: int,
    driver: str,
    says: str,
    step: str,
    is_expected: bool,
    tmp_path: Path,
) -> None:
    for address in (FIRST, SECOND):
        add_pci_device(tmp_path, address, ids, pci_class, driver)
    (card,) = list_unlisted(tmp_path, kind, [SECOND])
    assert (card.pci_address, card.driver, card.is_expected) == (FIRST, driver, is_expected)
    assert says in card.problem
    assert step in card.next_step
    assert str(card).startswith(f"{FIRST} ({ids[0]:04x}:{ids[1]:04x}): ")


def test_what_is_no_card_of_the_backend_is_left_out(tmp_path: Path) -> None:
    """A GPU's sound function, an accelerator of Intel that is no FPGA, a NIC, and virtual functions."""
    add_pci_device(tmp_path, "0000:3b:00.0", H100, 0x0302, "nvidia")
    add_pci_device(tmp_path, "0000:3b:00.1", (0x10DE, 0x22BA), 0x0403)
    add_pci_device(tmp_path, "0000:3b:00.2", H100, 0x0302, "vfio-pci", physical_function="0000:3b:00.0")
    add_pci_device(tmp_path, "0000:00:0b.0", (0x8086, 0x7D1D), 0x1200, "intel_vpu")
    add_pci_device(tmp_path, "0000:5e:00.0", (0x10EE, 0x903F), 0x0200)
    for kind in (NVIDIA_GPUS, DFL_CARDS, INTEL_GPUS, ALVEO_CARDS):
        assert list_unlisted(tmp_path, kind, ["00000000:3B:00.0"]) == ()


def test_an_alveo_card_is_one_card_whichever_of_its_functions_is_listed(tmp_path: Path) -> None:
    """The first is listed by its user function; that of the second has no driver."""
    for address, driver in {"0000:3b:00.1": "xocl", "0000:5e:00.1": ""}.items():
        add_pci_device(tmp_path, f"{address[:-1]}0", ALVEO, 0x1200, "xclmgmt")
        add_pci_device(tmp_path, address, (0x10EE, 0x5021), 0x1200, driver)
    (card,) = list_unlisted(tmp_path, ALVEO_CARDS, ["0000:3b:00.1"])
    assert (card.pci_address, card.problem) == ("0000:5e:00.1", "no driver has it")


def test_a_physical_function_whose_virtual_functions_have_its_memory_is_no_alarm(tmp_path: Path) -> None:
    add_pci_device(tmp_path, FIRST, ARC, 0x0380, "xe", virtual_functions=7)
    (card,) = list_unlisted(tmp_path, INTEL_GPUS)
    assert card.is_expected
    assert "its 7 virtual functions have what it has" in card.problem


def test_what_the_backend_said_of_a_card_is_why_it_is_not_listed(tmp_path: Path) -> None:
    for address in (FIRST, SECOND):
        add_pci_device(tmp_path, address, PAC, 0x1200, "dfl-pci")
    said = f"card {SECOND} has the interface 99, of which there is no shell"
    first, second = list_unlisted(tmp_path, DFL_CARDS, (), [said])
    assert "yet the backend does not list it" in first.problem
    assert second.problem == said


def test_a_device_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    add_pci_device(tmp_path, FIRST, H100, 0x0302)
    (add_pci_device(tmp_path, SECOND, H100, 0x0302) / "class").write_text("?\n")
    assert [card.pci_address for card in list_unlisted(tmp_path, NVIDIA_GPUS)] == [FIRST]


def test_a_bus_that_is_not_there_is_no_bus_without_cards(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    with pytest.raises(UnreadableFilesError, match="is sysfs mounted"):
        list_unlisted(tmp_path, NVIDIA_GPUS)


def test_the_backend_lists_them_also_when_it_cannot_be_opened(tmp_path: Path) -> None:
    add_pci_device(tmp_path, FIRST, H100, 0x0302, "nouveau")
    backend = NvidiaBackend(NvidiaConfig(system_root=str(tmp_path), driver_root=str(tmp_path)))
    assert isinstance(backend, BusReader)
    assert [card.driver for card in backend.list_unlisted(())] == ["nouveau"]


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("3b:00.1", "0000:3b:00.1"),
        ("10000:01:1f.7", "10000:01:1f.7"),
        ("0000:3b:20.0", ""),
        ("0000:3b:00.8", ""),
        ("0000:3b:00", ""),
        ("0", ""),
        ("GPU-3b", ""),
        ("0000:3b:00.0\n", ""),
    ],
)
def test_a_pci_address_has_one_form(text: str, normal: str) -> None:
    assert normalize_pci_address(text) == normal
