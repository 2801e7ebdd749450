"""Containers get what CUDA needs, and no way to the partitions of others."""

from pathlib import Path

import pytest

from kerf_dra.cdi import ContainerEdits, Device, Kind, Spec, minimum_version, validate
from kerf_dra.driver.kubeletplugin.backends.nvidia.container_edits import (
    build_admin_edits,
    build_driver_edits,
    build_gpu_edits,
    build_mig_edits,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.device_nodes import DeviceFiles, GpuNodes
from kerf_dra.driver.kubeletplugin.backends.nvidia.driver_root import find_driver_files
from kerf_dra.driver.kubeletplugin.backends.nvidia.file_root import FileRoot
from tests.fakes.nvidia_driver import ADDRESS, KERNEL, LAYOUTS, VERSION, DriverLayout, write_nvidia_tree

HOOK = "/var/lib/kubelet/plugins/gpu.kerf.dev/nvidia-cdi-hook"
EVERY_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> DeviceFiles:
    root = FileRoot(path=write_nvidia_tree(tmp_path_factory.mktemp("host"), LAYOUTS["ubuntu"]).host, host_path="/")
    return DeviceFiles(root=root)


@pytest.fixture(scope="module")
def gpu(devices: DeviceFiles) -> GpuNodes:
    return devices.find_gpu_nodes(0, ADDRESS)


def driver_edits(host: Path, layout: DriverLayout) -> ContainerEdits:
    tree = write_nvidia_tree(host, layout)
    root, kernel = FileRoot(path=tree.driver, host_path=f"/{layout.root}"), FileRoot(path=host, host_path="/")
    files = find_driver_files(root, VERSION, machine="x86_64", kernel_release=KERNEL)
    return build_driver_edits(files, DeviceFiles(root=kernel).find_control_nodes(), HOOK)


def paths(edits: ContainerEdits) -> list[str]:
    return [node.path for node in edits.device_nodes]


def commands(edits: ContainerEdits) -> list[tuple[str, ...]]:
    return [hook.args[1:] for hook in edits.hooks]


@EVERY_LAYOUT
def test_the_edits_of_any_device_are_a_valid_spec_that_the_oldest_runtimes_read(
    tmp_path: Path, layout: DriverLayout, devices: DeviceFiles, gpu: GpuNodes
) -> None:
    driver = driver_edits(tmp_path, layout)
    mig = build_mig_edits(gpu, devices.find_instance_nodes(0, 1, 0), HOOK, is_graphics=False)
    members = {
        "gpu": build_gpu_edits(gpu, HOOK),
        "mig": mig,
        "monitor": build_admin_edits(gpu, devices.find_monitor_node(), HOOK),
    }
    spec = Spec(
        kind=Kind.parse("k8s.gpu.kerf.dev/claim"),
        devices=tuple(Device(name=name, container_edits=driver + edits) for name, edits in members.items()),
    )

    assert validate(spec) == ()
    assert str(minimum_version(spec)) == "0.3.0"


def test_programs_get_the_driver_read_only_and_a_socket_that_they_can_connect_to(tmp_path: Path) -> None:
    edits = driver_edits(tmp_path, LAYOUTS["gke"])
    options = {mount.container_path: mount.options for mount in edits.mounts}

    assert edits.env == ("NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR=/lib64")
    assert options[f"/lib64/libcuda.so.{VERSION}"] == ("ro", "nosuid", "nodev", "rbind", "rprivate")
    assert "ro" not in options["/run/nvidia-persistenced/socket"]
    assert paths(edits) == ["/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]


def test_hooks_make_links_before_the_linker_looks_for_libraries(tmp_path: Path) -> None:
    edits = driver_edits(tmp_path, LAYOUTS["ubuntu"])

    assert {(hook.hook_name, hook.path, hook.args[0]) for hook in edits.hooks} == {
        ("createContainer", HOOK, "nvidia-cdi-hook")
    }
    links, *others = commands(edits)
    folder = "/usr/lib/x86_64-linux-gnu"
    assert links[:3] == ("create-symlinks", "--link", f"../libnvidia-allocator.so.1::{folder}/gbm/nvidia-drm_gbm.so")
    assert others == [
        ("enable-cuda-compat", f"--host-driver-version={VERSION}"),
        ("update-ldcache", "--folder", folder, "--folder", f"{folder}/vdpau"),
        ("disable-device-node-modification",),
        ("update-application-profile",),
    ]


def test_a_whole_gpu_is_its_node_and_those_of_its_displays(gpu: GpuNodes) -> None:
    edits = build_gpu_edits(gpu, HOOK)

    assert paths(edits) == ["/dev/nvidia0", "/dev/dri/card0", "/dev/dri/renderD128"]
    assert commands(edits) == [
        (
            "create-symlinks",
            "--link",
            f"../card0::/dev/dri/by-path/pci-{ADDRESS}-card",
            "--link",
            f"../renderD128::/dev/dri/by-path/pci-{ADDRESS}-render",
        )
    ]


def test_a_mig_device_has_no_displays_unless_its_profile_renders(devices: DeviceFiles, gpu: GpuNodes) -> None:
    instance = devices.find_instance_nodes(0, 1, 0)
    caps = ["/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"]
    plain = build_mig_edits(gpu, instance, HOOK, is_graphics=False)
    rendering = build_mig_edits(gpu, instance, HOOK, is_graphics=True)

    assert (paths(plain), plain.hooks) == (["/dev/nvidia0", *caps], ())
    assert paths(rendering) == ["/dev/nvidia0", "/dev/dri/card0", "/dev/dri/renderD128", *caps]


def test_only_admin_access_sees_the_partitions_of_others_and_nobody_makes_or_removes_any(
    tmp_path: Path, devices: DeviceFiles, gpu: GpuNodes
) -> None:
    config, monitor = "/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"
    admin = build_admin_edits(gpu, devices.find_monitor_node(), HOOK)
    others = [
        driver_edits(tmp_path, LAYOUTS["ubuntu"]),
        build_gpu_edits(gpu, HOOK),
        build_mig_edits(gpu, devices.find_instance_nodes(0, 1, 0), HOOK, is_graphics=True),
    ]

    assert paths(admin) == ["/dev/nvidia0", "/dev/dri/card0", "/dev/dri/renderD128", monitor]
    for edits in others:
        assert not {config, monitor} & {*paths(edits)}
    for path in (path for edits in (admin, *others) for path in paths(edits)):
        assert path != config
        assert not any(word in path for word in ("nvidia-fs", "imex", "nvswitch", "nvlink"))


def test_a_card_on_a_node_without_mig_has_no_monitor_node(gpu: GpuNodes) -> None:
    assert build_admin_edits(gpu, None, HOOK) == build_gpu_edits(gpu, HOOK)


def test_no_container_may_make_device_nodes(tmp_path: Path, devices: DeviceFiles, gpu: GpuNodes) -> None:
    edits = driver_edits(tmp_path, LAYOUTS["rhel"]) + build_admin_edits(gpu, devices.find_monitor_node(), HOOK)

    assert {node.permissions for node in edits.device_nodes} == {"rw"}
