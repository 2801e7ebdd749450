"""Device nodes have the kernel's numbers; management nodes are not among them."""

import shutil
from pathlib import Path

import pytest

from kerf_dra.cdi import DeviceNode
from kerf_dra.driver.kubeletplugin.backends.nvidia.device_nodes import DeviceFiles, DeviceNodesMissingError
from kerf_dra.driver.kubeletplugin.backends.nvidia.driver_root import SymbolicLink
from kerf_dra.driver.kubeletplugin.backends.nvidia.file_root import FileRoot
from tests.fakes.nvidia_driver import ADDRESS, FIRST_INSTANCE_MINOR, LAYOUTS, write_nvidia_tree


def node(path: str, major: int, minor: int) -> DeviceNode:
    return DeviceNode(path=path, type="c", major=major, minor=minor, permissions="rw")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return write_nvidia_tree(tmp_path, LAYOUTS["ubuntu"], n_cards=2).host


def device_files(host: Path) -> DeviceFiles:
    return DeviceFiles(root=FileRoot(path=host, host_path="/"))


def test_control_nodes_have_the_kernels_numbers(host: Path) -> None:
    assert device_files(host).find_control_nodes() == (
        node("/dev/nvidiactl", 195, 255),
        node("/dev/nvidia-modeset", 195, 254),
        node("/dev/nvidia-uvm", 511, 0),
        node("/dev/nvidia-uvm-tools", 511, 1),
    )


def test_drivers_before_release_550_have_another_name_in_proc(host: Path) -> None:
    devices = host / "proc/devices"
    devices.write_text(devices.read_text().replace("195 nvidia\n", "195 nvidia-frontend\n"))

    assert device_files(host).find_gpu_nodes(1, ADDRESS).card == node("/dev/nvidia1", 195, 1)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (
            "nvidia-uvm",
            (
                "/dev/nvidia-uvm cannot be made, because /proc/devices has no nvidia-uvm: load the kernel module"
                " (modprobe nvidia-uvm)"
            ),
        ),
        (
            "nvidia",
            (
                "/dev/nvidiactl cannot be made, because /proc/devices has no nvidia: load the kernel module"
                " (modprobe nvidia)"
            ),
        ),
    ],
)
def test_a_module_that_is_not_loaded_is_an_error_that_says_which(host: Path, missing: str, message: str) -> None:
    devices = host / "proc/devices"
    lines = [line for line in devices.read_text().splitlines(keepends=True) if line.split()[-1:] != [missing]]
    devices.write_text("".join(lines))

    with pytest.raises(DeviceNodesMissingError) as caught:
        device_files(host).find_control_nodes()
    assert str(caught.value) == message


def test_what_the_host_has_in_dev_does_not_matter(host: Path) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1380: on a fresh node nobody has made device nodes yet."""
    expected = device_files(host).find_gpu_nodes(0, ADDRESS)
    (host / "dev").mkdir()
    (host / "dev/nvidia0").write_text("of a driver that was loaded before")

    assert device_files(host).find_gpu_nodes(0, ADDRESS) == expected


def test_the_nodes_of_an_instance_are_those_of_its_capabilities(host: Path) -> None:
    first = FIRST_INSTANCE_MINOR + 9

    assert device_files(host).find_instance_nodes(1, 1, 0) == (
        node(f"/dev/nvidia-caps/nvidia-cap{first}", 236, first),
        node(f"/dev/nvidia-caps/nvidia-cap{first + 1}", 236, first + 1),
    )


def test_the_list_of_minors_has_the_capabilities_of_instances_whose_files_are_not_there(host: Path) -> None:
    expected = device_files(host).find_instance_nodes(0, 1, 0)
    shutil.rmtree(host / "proc/driver/nvidia/capabilities/gpu0")

    assert device_files(host).find_instance_nodes(0, 1, 0) == expected


def test_an_instance_that_is_not_there_is_an_error_that_names_its_file(host: Path) -> None:
    with pytest.raises(DeviceNodesMissingError) as caught:
        device_files(host).find_instance_nodes(0, 7, 0)
    assert str(caught.value) == (
        "/proc/driver/nvidia/capabilities/gpu0/mig/gi7/access names no device node: is MIG mode on, and does the"
        " instance exist?"
    )


def test_the_nodes_of_displays_and_renderers_are_those_of_the_cards_pci_address(host: Path) -> None:
    gpu = device_files(host).find_gpu_nodes(0, ADDRESS)

    assert gpu.drm == (node("/dev/dri/card0", 226, 0), node("/dev/dri/renderD128", 226, 128))
    assert gpu.links == (
        SymbolicLink(path=f"/dev/dri/by-path/pci-{ADDRESS}-card", target="../card0"),
        SymbolicLink(path=f"/dev/dri/by-path/pci-{ADDRESS}-render", target="../renderD128"),
    )


def test_a_card_without_the_module_for_displays_has_no_such_nodes(host: Path) -> None:
    shutil.rmtree(host / "sys/devices/pci0000:3a" / ADDRESS / "drm")

    gpu = device_files(host).find_gpu_nodes(0, ADDRESS)

    assert (gpu.drm, gpu.links) == ((), ())


def test_what_is_no_drm_node_in_a_cards_folder_is_left_out(host: Path) -> None:
    drm = host / "sys/devices/pci0000:3a" / ADDRESS / "drm"
    (drm / "version").write_text("drm 1.1.0\n")
    (drm / "card0-DP-1").mkdir()
    (drm / "renderD128/dev").write_text("not two numbers\n")

    assert device_files(host).find_gpu_nodes(0, ADDRESS).drm == (node("/dev/dri/card0", 226, 0),)


def test_the_monitor_node_is_there_where_a_card_is_capable_of_mig(host: Path) -> None:
    assert device_files(host).find_monitor_node() == node("/dev/nvidia-caps/nvidia-cap2", 236, 2)
    shutil.rmtree(host / "proc/driver")
    assert device_files(host).find_monitor_node() is None
