"""In a container of runc with our edits, and with the hooks of the real nvidia-cdi-hook, a program finds CUDA."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.nvidia.cdi_hook import install_cdi_hook
from kerf_dra.driver.kubeletplugin.backends.nvidia.container_edits import (
    build_driver_edits,
    build_gpu_edits,
    build_mig_edits,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.device_nodes import DeviceFiles
from kerf_dra.driver.kubeletplugin.backends.nvidia.driver_root import find_driver_files
from kerf_dra.driver.kubeletplugin.backends.nvidia.file_root import FileRoot
from kerf_dra.driver.testing.plugin import PluginStandIn
from tests.fakes.nvidia_driver import ADDRESS, LAYOUTS, VERSION, NvidiaTree, write_nvidia_tree
from tests.kubeletplugin.backends.nvidia.machine import NvidiaMachineUnderTest
from tests.oracle.judge import build
from tests.oracle.nvidia.conftest import TOOLKIT
from tests.oracle.nvidia.container import RuncContainer
from tools.image.layers import CDI_HOOK_MODULE

pytestmark = pytest.mark.oracle

PROBE = Path(__file__).with_name("probe.c")


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hook")
    folder.joinpath("host").mkdir()
    source = build(CDI_HOOK_MODULE, folder / "nvidia-cdi-hook", package=f"{TOOLKIT}/nvidia-cdi-hook")
    return install_cdi_hook(source, folder / "host")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program ``probe`` and a library ``libcuda.so.1``."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "cuda.c").write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    for arguments in (
        ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "cuda.c", "-o", "libcuda.so.1"],
        [str(PROBE), "-o", "probe", "-ldl"],
    ):
        subprocess.run(["cc", *arguments], cwd=folder, check=True, timeout=60)
    return folder


@pytest.fixture(params=[*LAYOUTS.values()], ids=[*LAYOUTS])
def tree(request: pytest.FixtureRequest, tmp_path: Path, compiled: Path) -> NvidiaTree:
    tree = write_nvidia_tree(tmp_path / "host", request.param)
    shutil.copy(compiled / "libcuda.so.1", tree.libraries / f"libcuda.so.{VERSION}")
    return tree


@pytest.fixture
def container(tmp_path: Path, compiled: Path) -> RuncContainer:
    return RuncContainer.create(tmp_path / "bundle", compiled / "probe")


def devices_of(tree: NvidiaTree, hook: Path) -> tuple[ContainerEdits, ContainerEdits]:
    """The edits of a whole GPU, and of a MIG device."""
    files = find_driver_files(
        FileRoot(path=tree.driver), VERSION, machine=platform.machine(), kernel_release=platform.release()
    )
    devices = DeviceFiles(root=FileRoot(path=tree.host))
    gpu = devices.find_gpu_nodes(0, ADDRESS)
    driver = build_driver_edits(files, devices.find_control_nodes(), str(hook))
    mig = build_mig_edits(gpu, devices.find_instance_nodes(0, 1, 0), str(hook), is_graphics=False)
    return driver + build_gpu_edits(gpu, str(hook)), driver + mig


def test_a_program_loads_cuda_by_its_usual_names(tree: NvidiaTree, container: RuncContainer, hook: Path) -> None:
    gpu, _ = devices_of(tree, hook)

    assert container.run(ContainerEdits(), ["/bin/probe", "libcuda.so.1"]).startswith(
        "libcuda.so.1: libcuda.so.1: cannot open shared object file"
    )
    assert container.run(gpu, ["/bin/probe", "libcuda.so.1", "libcuda.so"]) == (
        "libcuda.so.1: cuInit\nlibcuda.so: cuInit\n"
    )


def test_a_partition_that_the_backend_has_made_comes_with_cuda(
    tmp_path: Path, compiled: Path, container: RuncContainer, hook: Path
) -> None:
    machine = NvidiaMachineUnderTest(tmp_path / "stand-in")
    machine.cdi_hook, machine.host_driver_root = str(hook), ""
    shutil.copy(compiled / "libcuda.so.1", machine.hardware.driver_root / f"usr/lib64/libcuda.so.{VERSION}")
    plugin = PluginStandIn(machine, GPU)
    card = plugin.cards[0]
    partition = next(spec for spec in card.geometry.specs if spec.profile == "3g.40gb").of(card.uuid)
    edits = plugin.backend.edits(plugin.prepare(plugin.allocate(partition, "user")))

    # The nodes of a stand-in are /dev/null, which can be opened.
    script = "/bin/probe libcuda.so.1 && : < /dev/nvidia0 && echo $NVIDIA_VISIBLE_DEVICES"
    assert container.run(edits, ["/bin/sh", "-c", script]) == "libcuda.so.1: cuInit\nvoid\n"


def test_a_container_with_two_devices_runs_the_hooks_of_both(
    tree: NvidiaTree, container: RuncContainer, hook: Path
) -> None:
    gpu, mig = devices_of(tree, hook)

    assert container.run(gpu + mig, ["/bin/probe", "libcuda.so.1"]) == "libcuda.so.1: cuInit\n"


def test_the_nodes_are_there_with_their_numbers_though_the_host_has_none(
    tree: NvidiaTree, container: RuncContainer, hook: Path
) -> None:
    gpu, mig = devices_of(tree, hook)
    paths = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12"]
    link = f"/dev/dri/by-path/pci-{ADDRESS}-render"

    seen = container.run(gpu + mig, ["/bin/busybox", "stat", "-c", "%n %t:%T", *paths])
    led = container.run(gpu + mig, ["/bin/busybox", "readlink", "-f", link])

    assert seen.splitlines() == [
        "/dev/nvidiactl c3:ff",
        "/dev/nvidia-uvm 1ff:0",
        "/dev/nvidia0 c3:0",
        "/dev/nvidia-caps/nvidia-cap12 ec:c",
    ]
    assert led == "/dev/dri/renderD128\n"


def test_no_program_can_change_the_driver(tree: NvidiaTree, container: RuncContainer, hook: Path) -> None:
    gpu, _ = devices_of(tree, hook)
    library = next(mount.container_path for mount in gpu.mounts if "libcuda.so." in mount.container_path)

    said = container.run(gpu, ["/bin/sh", "-c", f"(echo x > {library}) 2>&1; true"])

    assert "Read-only file system" in said
