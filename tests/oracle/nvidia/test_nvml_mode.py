"""The edits of whole GPUs and MIG devices, as the toolkit makes them from NVML of a stand-in machine, and ours."""

import platform
import shutil
from collections.abc import Mapping
from pathlib import Path

import pynvml
import pytest

from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.kubeletplugin.backends.nvidia.container_edits import (
    build_driver_edits,
    build_gpu_edits,
    build_mig_edits,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.device_nodes import DeviceFiles
from kerf_dra.driver.kubeletplugin.backends.nvidia.driver_root import find_driver_files
from kerf_dra.driver.kubeletplugin.backends.nvidia.file_root import FileRoot
from kerf_dra.driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine
from kerf_dra.driver.testing.nvml.library import SONAME
from tests.fakes.nvidia_driver import VERSION, NvidiaTree, make_device_nodes, write_nvidia_tree
from tests.fakes.nvml import open_nvml
from tests.oracle.nvidia.generated_spec import HOOK, Comparable, Generator, comparable
from tests.oracle.nvidia.test_nvidia_oracle import COMPARED

pytestmark = pytest.mark.oracle

H100 = "h100-80gb-sxm"
ADDRESSES = ("0000:01:00.0", "0000:81:00.0")
"""The PCI addresses of the stand-in's first two cards."""


@pytest.fixture(params=[*COMPARED])
def tree(request: pytest.FixtureRequest, tmp_path: Path, libraries: Path) -> NvidiaTree:
    """A driver whose kernel files and NVML are those of a stand-in machine with a card in MIG mode and a whole one."""
    machine = NvidiaMachine.create(
        tmp_path / "machine",
        MachineDescription(cards=(CardDescription(model=H100, is_mig_on=True), CardDescription(model=H100))),
    )
    with open_nvml(machine):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        profile = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(card, 1, version=2)
        instance = pynvml.nvmlDeviceCreateGpuInstance(card, profile.id)
        compute = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, 1, 0)
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, compute.id)
    tree = write_nvidia_tree(tmp_path / "host", COMPARED[request.param])
    for name in ("proc", "sys"):
        shutil.rmtree(tree.host / name)
        shutil.copytree(machine.folder / name, tree.host / name, symlinks=True)
    shutil.copy(machine.library_folder / SONAME, tree.libraries / f"libnvidia-ml.so.{VERSION}")
    for library in libraries.glob("libcuda*"):
        shutil.copy(library, tree.libraries / f"libcuda.so.{VERSION}")
    make_device_nodes(tree.host, n_cards=len(ADDRESSES), capabilities=range(3, 150))
    for card_number, address in enumerate(ADDRESSES):
        _add_drm(tree.host, address, card_number)
    return tree


def _add_drm(host: Path, address: str, card: int) -> None:
    device = (host / "sys/bus/pci/devices" / address).resolve()
    for name, minor, kind in ((f"card{card}", card, "card"), (f"renderD{128 + card}", 128 + card, "render")):
        (device / "drm" / name).mkdir(parents=True)
        (device / "drm" / name / "dev").write_text(f"226:{minor}\n")
        (host / "dev/dri/by-path" / f"pci-{address}-{kind}").symlink_to(f"../{name}")


@pytest.fixture
def theirs(tree: NvidiaTree, tmp_path: Path, generator: Generator) -> Mapping[str, Comparable]:
    """The toolkit's edits, by device; those of every container have no name."""
    spec = generator.generate(tree, "nvml", NvidiaMachine(tmp_path / "machine").choice())
    return {"": comparable(spec.container_edits), **{one.name: comparable(one.container_edits) for one in spec.devices}}


def device_files(tree: NvidiaTree) -> DeviceFiles:
    return DeviceFiles(root=FileRoot(path=tree.host))


def test_every_container_gets_the_same(tree: NvidiaTree, theirs: Mapping[str, Comparable]) -> None:
    root = FileRoot(path=tree.driver)
    files = find_driver_files(root, VERSION, machine=platform.machine(), kernel_release=platform.release())
    ours = comparable(build_driver_edits(files, device_files(tree).find_control_nodes(), HOOK))

    assert (ours.env, ours.mounts, ours.hooks, ours.nodes) == (
        theirs[""].env,
        theirs[""].mounts,
        theirs[""].hooks,
        theirs[""].nodes,
    )
    # The toolkit looks for sonames in the ELF headers of libraries, which most of the tree's do not have.
    assert theirs[""].links.items() <= ours.links.items()


def test_a_whole_gpu_gets_the_same(tree: NvidiaTree, theirs: Mapping[str, Comparable]) -> None:
    ours = comparable(build_gpu_edits(device_files(tree).find_gpu_nodes(1, ADDRESSES[1]), HOOK))

    assert ours.nodes == theirs["1"].nodes
    # The toolkit writes the path of the link on the host, with the root of its device nodes.
    assert ours.links == {path.removeprefix(str(tree.host)): target for path, target in theirs["1"].links.items()}
    assert theirs["1"].hooks.keys() == {"apply-cuda-memory-limits"}


def test_a_mig_device_gets_the_same(tree: NvidiaTree, theirs: Mapping[str, Comparable]) -> None:
    devices = device_files(tree)
    gpu = devices.find_gpu_nodes(0, ADDRESSES[0])
    [instance] = (tree.host / "proc/driver/nvidia/capabilities/gpu0/mig").glob("gi*")
    nodes = devices.find_instance_nodes(0, int(instance.name.removeprefix("gi")), 0)

    ours = comparable(build_mig_edits(gpu, nodes, HOOK, is_graphics=False))

    assert ours == theirs["0:0"]
    assert ours != comparable(ContainerEdits())
