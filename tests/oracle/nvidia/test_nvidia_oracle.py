"""Trees of drivers, described by nvidia-container-toolkit and by us.

In the mode ``management`` the toolkit describes the driver's files without those for graphics, and every device node.
"""

import os
import platform
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.kubeletplugin.backends.nvidia.container_edits import build_driver_edits
from kerf_dra.driver.kubeletplugin.backends.nvidia.device_nodes import DeviceFiles
from kerf_dra.driver.kubeletplugin.backends.nvidia.driver_root import find_driver_files
from kerf_dra.driver.kubeletplugin.backends.nvidia.file_root import FileRoot
from tests.fakes.nvidia_driver import (
    ADDRESS,
    BINARIES,
    FIRST_INSTANCE_MINOR,
    LAYOUTS,
    LIBRARIES,
    VERSION,
    NvidiaTree,
    make_device_nodes,
    write_nvidia_tree,
)
from tests.oracle.nvidia.generated_spec import HOOK, Comparable, Generator, comparable

pytestmark = pytest.mark.oracle

# Few when pytest alone runs them; ``python -m tests.oracle nvidia --cases N`` sets the number.
CASES = settings(
    max_examples=int(os.environ.get("KERF_ORACLE_CASES", "20")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
# The toolkit follows absolute links out of the driver's root; we keep below it.
COMPARED = {
    name: replace(layout, links=tuple(link for link in layout.links if not link[1].startswith("/")))
    for name, layout in LAYOUTS.items()
}
GRAPHICS_LINKS = ("nvidia-drm_gbm.so", "libnvidia-vulkan-producer.so", "libglxserver_nvidia.so")
GRAPHICS_FOLDERS = ("/usr/share/", "/etc/", "/usr/lib/xorg/")
UNMANAGED_HOOKS = {"disable-device-node-modification", "update-application-profile"}
"""Hooks that containers with devices get, and those that manage devices do not."""
CAPABILITIES = (FIRST_INSTANCE_MINOR, FIRST_INSTANCE_MINOR + 1)


def write_tree(host: Path, layout_name: str, libraries: Path) -> NvidiaTree:
    """Write a tree whose libraries have sonames, with every device node."""
    tree = write_nvidia_tree(host, COMPARED[layout_name])
    for library in libraries.iterdir():
        stem = library.name.removesuffix(".1")
        folder = tree.libraries / "vdpau" if "vdpau" in stem else tree.libraries
        shutil.copy(library, folder / f"{stem}.{VERSION}")
    make_device_nodes(host, capabilities=CAPABILITIES)
    return tree


def our_edits(tree: NvidiaTree) -> ContainerEdits:
    root = FileRoot(path=tree.driver)
    files = find_driver_files(root, VERSION, machine=platform.machine(), kernel_release=platform.release())
    return build_driver_edits(files, DeviceFiles(root=FileRoot(path=tree.host)).find_control_nodes(), HOOK)


def assert_alike(ours: Comparable, theirs: Comparable, tree: NvidiaTree) -> None:
    """Assert that the driver's files are the same, and that we have no more than those for graphics beside them."""
    beside = {path for path in ours.mounts if path.startswith(GRAPHICS_FOLDERS) or "/libnvidia-egl-" in path}
    beside |= {path for path in ours.mounts if path.endswith("/nvidia-xconfig")}
    assert {path: mount for path, mount in ours.mounts.items() if path not in beside} == theirs.mounts
    assert ours.env == theirs.env
    links = {path: target for path, target in ours.links.items() if not path.endswith(GRAPHICS_LINKS)}
    assert theirs.links.items() <= links.items()
    # We copy each link that the driver has; the toolkit those that a library's soname says.
    for path, target in links.items() - theirs.links.items():
        assert str((tree.driver / path.lstrip("/")).readlink()) == target
    assert ours.hooks.keys() - theirs.hooks.keys() == UNMANAGED_HOOKS
    assert {name: ours.hooks[name] for name in theirs.hooks} == theirs.hooks


@pytest.mark.parametrize("layout_name", COMPARED)
def test_a_driver_that_is_complete_is_described_alike(
    tmp_path: Path, generator: Generator, libraries: Path, layout_name: str
) -> None:
    tree = write_tree(tmp_path, layout_name, libraries)

    spec = generator.generate(tree, "management")

    assert_alike(comparable(our_edits(tree)), comparable(spec.container_edits), tree)


@CASES
@given(
    layout_name=st.sampled_from(sorted(COMPARED)),
    removed=st.sets(
        st.sampled_from(
            [
                *(f"{name}.{VERSION}" for name in LIBRARIES if name != "libcuda.so"),
                *(f"{name}.1" for name in LIBRARIES),
                *BINARIES,
                "libcuda.so",
                "socket",
                "gsp_ga10x.bin",
                "gsp_tu10x.bin",
                f"libvdpau_nvidia.so.{VERSION}",
            ]
        )
    ),
)
def test_a_driver_that_is_not_complete_is_described_alike(
    tmp_path_factory: pytest.TempPathFactory, generator: Generator, libraries: Path, layout_name: str, removed: set[str]
) -> None:
    tree = write_tree(tmp_path_factory.mktemp("host"), layout_name, libraries)
    tree.remove(*removed)

    spec = generator.generate(tree, "management")

    assert_alike(comparable(our_edits(tree)), comparable(spec.container_edits), tree)


def test_an_absolute_link_is_a_link_of_the_drivers_root_to_us_only(
    tmp_path: Path, generator: Generator, libraries: Path
) -> None:
    tree = write_tree(tmp_path, "driver container", libraries)
    firmware = f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"
    (tree.driver / "lib").symlink_to("/usr/lib")  # of the driver container, which is not the host's

    theirs = comparable(generator.generate(tree, "management").container_edits)
    ours = comparable(our_edits(tree))

    assert firmware not in theirs.mounts
    assert ours.mounts[firmware][0] == f"{tree.driver}/usr{firmware}"


def test_device_nodes_have_the_same_numbers(tmp_path: Path, generator: Generator, libraries: Path) -> None:
    tree = write_tree(tmp_path, "ubuntu", libraries)
    devices = DeviceFiles(root=FileRoot(path=tree.host))
    monitor = devices.find_monitor_node()
    assert monitor is not None
    nodes = (
        *devices.find_control_nodes(),
        devices.find_gpu_nodes(0, ADDRESS).card,
        *devices.find_instance_nodes(0, 1, 0),
        monitor,
    )

    theirs = comparable(generator.generate(tree, "management").devices[0].container_edits).nodes

    # The one node that they give out and we never do creates and removes partitions.
    assert {**comparable(ContainerEdits(device_nodes=nodes)).nodes, "/dev/nvidia-caps/nvidia-cap1": (236, 1)} == theirs
