"""The hook's program is on the host, whole, before any container that needs it."""

import stat
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.backends.nvidia import NvidiaBackend
from kerf_dra.driver.kubeletplugin.backends.nvidia.cdi_hook import CdiHookMissingError, find_cdi_hook, install_cdi_hook
from kerf_dra.driver.kubeletplugin.backends.nvidia.config import NvidiaConfig
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.machine import NvidiaMachineUnderTest


@pytest.fixture
def source(tmp_path: Path) -> Path:
    program = tmp_path / "image/nvidia-cdi-hook"
    program.parent.mkdir()
    program.write_bytes(b"\x7fELF the hook")
    return program


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    there = tmp_path / "plugins"
    there.mkdir()
    return there


def test_the_copy_is_a_program_for_everybody_and_the_only_file(source: Path, folder: Path) -> None:
    copy = install_cdi_hook(source, folder)

    assert copy == folder / "nvidia-cdi-hook"
    assert copy.read_bytes() == source.read_bytes()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o755
    assert [*folder.iterdir()] == [copy]


def test_a_program_that_the_host_has_stays_where_it_is(source: Path) -> None:
    assert install_cdi_hook(source, None) == source
    assert [*source.parent.iterdir()] == [source]


def test_a_copy_that_is_there_already_is_left_as_it_is(source: Path, folder: Path) -> None:
    before = install_cdi_hook(source, folder).stat()

    after = install_cdi_hook(source, folder).stat()

    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_another_version_replaces_the_copy_and_who_runs_the_old_one_keeps_it(source: Path, folder: Path) -> None:
    copy = install_cdi_hook(source, folder)
    with copy.open("rb") as running:
        source.write_bytes(b"\x7fELF a newer hook")
        install_cdi_hook(source, folder)

        assert running.read() == b"\x7fELF the hook"
    assert copy.read_bytes() == b"\x7fELF a newer hook"


@pytest.mark.parametrize("found", ["not executable", "a link", "a part"])
def test_a_copy_that_cannot_be_right_is_made_anew(source: Path, folder: Path, found: str) -> None:
    copy = folder / "nvidia-cdi-hook"
    if found == "a link":
        copy.symlink_to(source)
    else:
        copy.write_bytes(source.read_bytes()[: None if found == "not executable" else 4])

    install_cdi_hook(source, folder)

    assert not copy.is_symlink()
    assert copy.read_bytes() == source.read_bytes()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o755


def test_a_hook_that_is_missing_is_an_error_that_says_where_it_should_be(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(CdiHookMissingError) as caught:
        install_cdi_hook(tmp_path / "nvidia-cdi-hook", folder)
    assert str(caught.value) == (
        f"there is no nvidia-cdi-hook at {tmp_path}/nvidia-cdi-hook (No such file or directory): install"
        " nvidia-container-toolkit v1.20 or later, or name another place of the program in the field cdiHook of the"
        " backend's configuration"
    )
    assert [*folder.iterdir()] == []


def test_a_hook_that_is_empty_is_no_hook(source: Path, folder: Path) -> None:
    source.write_bytes(b"")

    with pytest.raises(CdiHookMissingError, match="is empty: is the image damaged"):
        install_cdi_hook(source, folder)


def test_a_folder_that_cannot_be_written_keeps_its_copy(source: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        install_cdi_hook(source, tmp_path / "nowhere")


@NEEDS_COMPILER
def test_a_backend_that_only_looks_leaves_the_copy_of_the_plugin(source: Path, folder: Path, tmp_path: Path) -> None:
    copy = install_cdi_hook(source, folder)
    older = tmp_path / "older"
    older.write_bytes(b"\x7fELF an older hook")
    machine = NvidiaMachineUnderTest(tmp_path / "machine")
    machine.choose()
    config = NvidiaConfig(
        driver_root=str(machine.hardware.driver_root),
        system_root=str(machine.hardware.folder),
        cdi_hook=str(older),
        cdi_hook_folder=str(folder),
    )
    looking = NvidiaBackend(config)
    looking.look_only()
    looking.open()
    assert {looking.survey(card.uuid).no_whole for card in looking.discover()} == {""}
    looking.close()
    assert copy.read_bytes() == source.read_bytes()


def test_who_only_looks_finds_the_copy_and_changes_nothing(source: Path, folder: Path) -> None:
    """`kerf devices` replaced the copy, which containers run, by another version that its machine had."""
    assert find_cdi_hook(source, folder) == folder / "nvidia-cdi-hook"
    assert [*folder.iterdir()] == []
    copy = install_cdi_hook(source, folder)
    source.write_bytes(b"\x7fELF an older hook")
    assert find_cdi_hook(source, folder) == copy
    assert copy.read_bytes() == b"\x7fELF the hook"
    source.unlink()
    assert find_cdi_hook(source, folder) == copy
    copy.unlink()
    with pytest.raises(CdiHookMissingError):
        find_cdi_hook(source, folder)
