"""Paths and links below a root are what a process after chroot(2) finds."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.kubeletplugin.backends.nvidia.file_root import FileRoot

NAMES = ("a", "b", "c")


@pytest.fixture
def root(tmp_path: Path) -> FileRoot:
    (tmp_path / "root/usr/lib64").mkdir(parents=True)
    (tmp_path / "root/usr/lib64/libcuda.so.1").write_text("the driver's")
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64/libcuda.so.1").write_text("the host's")
    return FileRoot(path=tmp_path / "root", host_path="/run/nvidia/driver")


@pytest.mark.parametrize(
    "target",
    [
        "usr/lib64",
        "/usr/lib64",
        "./usr//lib64/",
        "../usr/lib64",
        "../../../../../usr/lib64",
        "/usr/../../usr/lib64",
        "usr/lib64/../lib64",
    ],
)
def test_a_link_leads_where_it_leads_below_the_root(root: FileRoot, target: str) -> None:
    (root.path / "lib64").symlink_to(target)

    assert root.resolve("/lib64/libcuda.so.1") == "/usr/lib64/libcuda.so.1"
    assert root.read_text("/lib64/libcuda.so.1") == "the driver's"


def test_links_in_a_circle_lead_nowhere(root: FileRoot) -> None:
    (root.path / "a").symlink_to("b")
    (root.path / "b").symlink_to("/a")
    (root.path / "c").symlink_to("c/c")

    assert [root.resolve(path) for path in ("/a", "/b", "/c", "/a/x")] == [None] * 4


def test_what_is_not_there_is_nowhere(root: FileRoot) -> None:
    (root.path / "dangling").symlink_to("/nowhere")

    assert root.resolve("/usr/lib") is None
    assert root.resolve("/dangling") is None
    assert root.resolve("/usr/lib64/libcuda.so.1/x") is None
    assert root.find("/nowhere") == []
    assert root.find("/usr/lib64/libcuda.so.1") == []
    assert root.read_text("/dangling") is None


def test_the_runtime_sees_a_path_below_its_own_root(root: FileRoot) -> None:
    assert root.on_host("/usr/lib64/libcuda.so.1") == "/run/nvidia/driver/usr/lib64/libcuda.so.1"
    assert FileRoot(path=Path("/")).on_host("/usr") == "/usr"
    assert FileRoot(path=Path("/driver-root"), host_path="/").on_host("/usr") == "/usr"


@pytest.mark.parametrize("name", ["a,b", "a::b", "a b", "a\nb", "a\udce4"])
def test_a_file_that_no_hook_could_be_given_is_no_file(root: FileRoot, name: str) -> None:
    (root.path / "usr/lib64" / name).write_text("")
    (root.path / "usr/lib64/link").symlink_to(name)
    (root.path / "usr/lib64" / f"{name}.link").symlink_to("libcuda.so.1")

    assert root.resolve_file(f"/usr/lib64/{name}") is None
    assert root.resolve_file("/usr/lib64/link") is None
    assert [*root.find_links("/usr/lib64")] == []


def test_a_folder_is_no_file_and_a_program_is_what_somebody_may_execute(root: FileRoot) -> None:
    program = root.path / "usr/nvidia-smi"
    program.write_text("")

    assert root.resolve_file("/usr/lib64") is None
    assert root.resolve_file("/usr/nvidia-smi") == "/usr/nvidia-smi"
    assert root.resolve_file("/usr/nvidia-smi", is_executable=True) is None
    program.chmod(0o755)
    assert root.resolve_file("/usr/nvidia-smi", is_executable=True) == "/usr/nvidia-smi"


@given(
    links=st.lists(
        st.tuples(st.sampled_from(NAMES), st.lists(st.sampled_from((*NAMES, "..", ".", "f")), min_size=1, max_size=4)),
        max_size=6,
    ),
    asked=st.lists(st.sampled_from((*NAMES, "..", "f")), min_size=1, max_size=4),
)
def test_links_that_stay_below_the_root_lead_where_the_kernel_leads(
    tmp_path_factory: pytest.TempPathFactory, links: list[tuple[str, list[str]]], asked: list[str]
) -> None:
    # Ten folders deep no link of these gets above the root, so that the host's view is the root's.
    top = tmp_path_factory.mktemp("root")
    deep = "/".join("d" * 10)
    folder = top / deep
    folder.mkdir(parents=True)
    (folder / "f").write_text("")
    for name, target in links:
        place = folder / name
        if not place.is_symlink():
            place.symlink_to("/".join(target))
    try:
        expected = os.path.realpath(folder / "/".join(asked), strict=True)
    except OSError:
        expected = None

    found = FileRoot(path=top).resolve(f"/{deep}/{'/'.join(asked)}")

    if expected is None or not expected.startswith(str(top)):
        # The kernel refuses f/.., which is harmless here, and ends after 40 links as we do.
        assert found is None or "f" in [*asked, *(part for _, target in links for part in target)]
    else:
        assert found is not None
        assert str(top) + found.rstrip("/") == expected
