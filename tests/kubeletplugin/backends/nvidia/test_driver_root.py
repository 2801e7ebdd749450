"""The driver's files are found wherever they are installed, and nothing else is."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.cdi import ContainerEdits, Device, Kind, Spec, validate
from kerf_dra.driver.kubeletplugin.backends.nvidia.container_edits import build_driver_edits
from kerf_dra.driver.kubeletplugin.backends.nvidia.driver_root import (
    DriverFiles,
    DriverFilesMissingError,
    SymbolicLink,
    find_driver_files,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.file_root import FileRoot
from tests.fakes.nvidia_driver import (
    BINARIES,
    KERNEL,
    LAYOUTS,
    LIBRARIES,
    SHARED,
    VERSION,
    DriverLayout,
    NvidiaTree,
    write_nvidia_tree,
)

EVERY_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
OLDER = "570.86.15"


def find(tree: NvidiaTree, version: str = VERSION) -> DriverFiles:
    """Find the driver in ``tree``, which the runtime sees at ``/``."""
    root = FileRoot(path=tree.driver, host_path=f"/{tree.layout.root}")
    return find_driver_files(
        root, version, machine="x86_64", kernel_release=KERNEL, firmware_path=_kernels_firmware_path(tree.layout)
    )


def _kernels_firmware_path(layout: DriverLayout) -> str:
    """Return what GKE writes into the kernel's parameter: a path of the host."""
    return f"/{layout.root}/{layout.firmware}\n" if layout == LAYOUTS["gke"] else "\n"


def mounts(files: DriverFiles) -> dict[str, str]:
    return {file.container_path: file.host_path for file in (*files.libraries, *files.files, *files.sockets)}


@EVERY_LAYOUT
def test_every_file_of_the_driver_is_found_below_its_root(tmp_path: Path, layout: DriverLayout) -> None:
    tree = write_nvidia_tree(tmp_path, layout)
    found = mounts(find(tree))

    expected = {
        *(f"/{layout.libraries}/{name}.{VERSION}" for name in LIBRARIES),
        f"/{layout.libraries}/vdpau/libvdpau_nvidia.so.{VERSION}",
        f"/{layout.libraries}/libnvidia-egl-gbm.so.1.1.2",
        "/usr/lib/xorg/modules/drivers/nvidia_drv.so",
        *(f"/{layout.binaries}/{name}" for name in BINARIES),
        *(
            f"/{layout.firmware.removeprefix('usr/')}/nvidia/{VERSION}/{name}"
            for name in ("gsp_ga10x.bin", "gsp_tu10x.bin")
        ),
        "/run/nvidia-persistenced/socket",
        "/etc/OpenCL/vendors/nvidia.icd",
        "/etc/vulkan/icd.d/nvidia_icd.json",
    }
    if layout.shared == "usr/share":  # GKE has Vulkan's only, directly below its root
        expected |= {f"/usr/share/{name}" for name in SHARED}
    assert {*found} == expected
    for host_path in found.values():
        file = tmp_path / host_path.lstrip("/")
        assert file.is_relative_to(tree.driver)
        assert file.is_file()
        assert not file.is_symlink()


@EVERY_LAYOUT
def test_programs_find_libraries_by_the_names_of_their_links(tmp_path: Path, layout: DriverLayout) -> None:
    files = find(write_nvidia_tree(tmp_path, layout))
    folder = f"/{layout.libraries}"
    links = {link.path: link.target for link in files.links}

    assert files.library_folders == (folder,)
    assert {f"{folder}/{name}.1": f"{name}.{VERSION}" for name in LIBRARIES}.items() <= links.items()
    assert links[f"{folder}/libcuda.so"] == "libcuda.so.1"
    assert links[f"{folder}/libGLX_indirect.so.0"] == f"libGLX_nvidia.so.{VERSION}"
    assert links[f"{folder}/gbm/nvidia-drm_gbm.so"] == "../libnvidia-allocator.so.1"


def test_the_plugin_may_see_the_root_at_another_path_than_the_runtime(tmp_path: Path) -> None:
    tree = write_nvidia_tree(tmp_path, LAYOUTS["driver container"])
    inside = tmp_path / "driver-root"
    tree.driver.rename(inside)
    root = FileRoot(path=inside, host_path="/run/nvidia/driver")

    files = find_driver_files(root, VERSION, machine="x86_64", kernel_release=KERNEL)

    library = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}"
    assert mounts(files)[library] == f"/run/nvidia/driver{library}"
    assert str(inside) not in str(files)


def test_the_driver_of_a_machine_with_an_arm_processor_is_found(tmp_path: Path) -> None:
    libraries = "usr/lib/aarch64-linux-gnu"
    tree = write_nvidia_tree(tmp_path, DriverLayout(root="", libraries=libraries))
    named_by_machine = tree.driver / "usr/share/vulkan/icd.d/nvidia_icd.aarch64.json"
    named_by_machine.parent.mkdir(parents=True)
    named_by_machine.write_text("{}")

    files = find_driver_files(FileRoot(path=tree.driver, host_path="/"), VERSION, machine="aarch64", kernel_release="6")

    assert files.library_folders == (f"/{libraries}",)
    assert {f"/{libraries}/{name}.{VERSION}" for name in LIBRARIES} <= mounts(files).keys()
    assert "/etc/vulkan/icd.d/nvidia_icd.aarch64.json" in mounts(files)


def test_files_of_another_version_beside_the_loaded_one_are_left_out(tmp_path: Path) -> None:
    layout = LAYOUTS["ubuntu"]
    write_nvidia_tree(tmp_path / "older", layout, version=OLDER)
    tree = write_nvidia_tree(tmp_path / "host", layout)
    for file in (tmp_path / "older" / layout.libraries).glob(f"*.{OLDER}"):
        shutil.copy(file, tree.libraries)

    assert not any(OLDER in path for path in mounts(find(tree)))
    assert any(OLDER in path for path in mounts(find(tree, OLDER)))


@pytest.mark.parametrize(
    ("version", "names", "message"),
    [
        (
            "580.95.05",
            ("libcuda.so.580.95.05",),
            (
                "there is no libcuda.so.580.95.05 below the driver root /run/nvidia/driver, in none of /usr/lib64,"
                " /usr/lib/x86_64-linux-gnu and the other library folders: is the driver installed, and is this its"
                " root (/run/nvidia/driver with a driver container, /home/kubernetes/bin/nvidia in GKE)?"
            ),
        ),
        (
            "575.57.08",
            (),
            (
                "there is no libcuda.so.575.57.08 below the driver root /run/nvidia/driver, only 580.95.05: the loaded"
                " kernel module and the driver's files are of different versions; reboot the node or restart its driver"
                " container"
            ),
        ),
        ("", (), "'' is not a version of NVIDIA's driver: is its kernel module loaded?"),
        ("*", (), "'*' is not a version of NVIDIA's driver: is its kernel module loaded?"),
    ],
    ids=["not installed", "another version", "no version", "a pattern"],
)
def test_a_driver_that_is_not_there_is_an_error_that_says_what_to_do(
    tmp_path: Path, version: str, names: tuple[str, ...], message: str
) -> None:
    tree = write_nvidia_tree(tmp_path, LAYOUTS["driver container"])
    tree.remove(*names)

    with pytest.raises(DriverFilesMissingError) as caught:
        find(tree, version)
    assert str(caught.value) == message


def test_an_empty_root_is_a_driver_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DriverFilesMissingError, match=r"no libcuda\.so\.580\.95\.05 below the driver root /nowhere"):
        find_driver_files(
            FileRoot(path=tmp_path / "nowhere", host_path="/nowhere"), VERSION, machine="x86_64", kernel_release=KERNEL
        )


@pytest.mark.parametrize("target", ["/secret", "../../../../../../secret", "/../../secret"])
def test_a_link_out_of_the_root_gives_no_container_a_file_of_the_host(tmp_path: Path, target: str) -> None:
    tree = write_nvidia_tree(tmp_path, LAYOUTS["driver container"])
    (tmp_path / "secret").write_text("the host's")
    (tree.libraries / f"libevil.so.{VERSION}").symlink_to(target)
    (tree.libraries / "libevil.so.1").symlink_to(target)
    shutil.rmtree(tree.driver / "run/nvidia-persistenced")
    (tree.driver / "run/nvidia-persistenced").symlink_to("../../../..")

    files = find(tree)

    assert not any("secret" in path or "evil" in path for path in mounts(files).values())
    assert all(path.startswith("/run/nvidia/driver/") for path in mounts(files).values())
    assert not any("evil" in link.path for link in files.links)


def test_a_driver_without_what_only_some_programs_need_is_complete(tmp_path: Path) -> None:
    tree = write_nvidia_tree(tmp_path, LAYOUTS["rhel"])
    for folder in ("usr/share", "etc", "run", "usr/lib/xorg", "usr/lib/firmware", "usr/bin"):
        shutil.rmtree(tree.driver / folder)

    files = find(tree)

    assert files.files == files.sockets == ()
    assert len(files.libraries) == len(LIBRARIES) + 2


def test_a_link_to_a_library_in_another_folder_is_absolute(tmp_path: Path) -> None:
    tree = write_nvidia_tree(tmp_path, LAYOUTS["ubuntu"])
    current = tree.libraries / "nvidia/current"
    current.mkdir(parents=True)
    (tree.libraries / f"libcuda.so.{VERSION}").rename(current / f"libcuda.so.{VERSION}")
    (tree.libraries / "libcuda.so.1").unlink()
    (tree.libraries / "libcuda.so.1").symlink_to(f"/etc/alternatives/{VERSION}")
    (tree.driver / "etc/alternatives").mkdir()
    (tree.driver / "etc/alternatives" / VERSION).symlink_to(
        f"/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.{VERSION}"
    )

    files = find(tree)

    where = "/usr/lib/x86_64-linux-gnu"
    assert f"{where}/nvidia/current" in files.library_folders
    assert (
        SymbolicLink(path=f"{where}/libcuda.so.1", target=f"{where}/nvidia/current/libcuda.so.{VERSION}") in files.links
    )


CHANGED = st.sampled_from(
    [
        "usr/lib64",
        "usr/lib64/libcuda.so.1",
        "usr/lib64/libcuda.so",
        f"usr/lib64/libcuda.so.{VERSION}",
        f"usr/lib64/libnvidia-ml.so.{VERSION}",
        f"usr/lib64/lib,odd::name.so.{VERSION}",
        f"usr/lib64/lib\udcff.so.{VERSION}",
        "usr/bin",
        "usr/bin/nvidia-smi",
        "usr/share",
        "run/nvidia-persistenced",
        "run/nvidia-persistenced/socket",
        f"usr/lib/firmware/nvidia/{VERSION}",
        "etc/vulkan/icd.d",
        "lib64",
    ]
)
TARGETS = st.sampled_from(
    [
        "/",
        ".",
        "..",
        "/usr/lib64",
        "libcuda.so.1",
        "libcuda.so",
        "/etc",
        "../../../../outside",
        "/outside",
        "usr/bin",
        "x,y",
    ]
)


@given(changes=st.lists(st.tuples(CHANGED, st.one_of(TARGETS, st.sampled_from(["", "FOLDER", "FILE"]))), max_size=5))
def test_whatever_the_tree_looks_like_edits_are_valid_and_name_nothing_outside_of_the_root(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str]]
) -> None:
    host = tmp_path_factory.mktemp("host").resolve()
    tree = write_nvidia_tree(host / "root", LAYOUTS["rhel"])
    (host / "outside").write_text("the host's")
    for path, change in changes:
        _change(tree.host / path, change)
    root = FileRoot(path=tree.host, host_path="/driver")

    try:
        files = find_driver_files(root, VERSION, machine="x86_64", kernel_release=KERNEL)
    except DriverFilesMissingError:
        return

    for host_path in mounts(files).values():
        file = tree.host / host_path.removeprefix("/driver/")
        assert file.resolve() == file, "a part of the path is a link, which the host would follow"
        assert file.is_relative_to(tree.host)
        assert file.is_file()
    assert validate(_spec(build_driver_edits(files, (), "/var/lib/kerf/nvidia-cdi-hook"))) == ()
    for link in files.links:
        assert not {",", ":"} & {*link.path, *link.target}


def _spec(edits: ContainerEdits) -> Spec:
    return Spec(kind=Kind.parse("k8s.gpu.kerf.dev/claim"), devices=(Device(name="claim-gpu-0", container_edits=edits),))


def _change(path: Path, change: str) -> None:
    """Remove what is at ``path``, and put a link, a folder, a file or nothing in its place; never through a link."""
    if path.parent.resolve() != path.parent or not path.parent.is_dir():
        return
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    if change == "FOLDER":
        path.mkdir()
    elif change == "FILE":
        path.write_text("")
    elif change:
        path.symlink_to(change)
