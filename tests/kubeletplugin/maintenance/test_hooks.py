"""Hooks are programs that only root may write; one that hangs, floods or leaves children costs nothing but its card."""

import os
import select
import stat
import time
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.maintenance.hooks import HookFolder, HookUnavailableError

LONGEST_S = 60.0
VARIABLES = {"KERF_CARD_UUID": "GPU-1", "KERF_CARD": "gpu-1"}


@pytest.fixture
def folder(tmp_path: Path) -> HookFolder:
    tmp_path.chmod(0o700)
    hooks = tmp_path / "hooks"
    hooks.mkdir(mode=0o755)
    return HookFolder(path=hooks, owner=os.getuid(), limit_s=240)


def add(folder: HookFolder, name: str, script: str, mode: int = 0o755) -> Path:
    path = folder.path / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(mode)
    return path


def short(folder: HookFolder) -> HookFolder:
    return HookFolder(path=folder.path, owner=folder.owner, limit_s=0.5)


def test_a_hook_learns_of_the_card_from_variables_alone(folder: HookFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "token")
    add(folder, "show", 'echo "$# $KERF_CARD_UUID $KERF_CARD secret=$SECRET $PWD"; echo to-errors >&2')
    result = folder.run("show", VARIABLES)
    assert (result.exit_code, result.last_lines) == (0, ("0 GPU-1 gpu-1 secret= /", "to-errors"))


def test_a_hook_that_fails_says_how(folder: HookFolder) -> None:
    add(folder, "fail", "echo no such card; exit 3")
    assert folder.run("fail", VARIABLES).describe() == "ended with exit code 3: no such card"


def test_a_hook_that_hangs_is_killed_with_its_children(folder: HookFolder, tmp_path: Path) -> None:
    add(folder, "hang", f"sleep 600 & echo $! > {tmp_path}/child; echo begun; wait")
    result = short(folder).run("hang", VARIABLES)
    assert (result.exit_code, result.last_lines) == (None, ("begun",))
    assert has_ended(int((tmp_path / "child").read_text()))


def test_children_that_a_hook_leaves_are_killed_at_its_end(folder: HookFolder, tmp_path: Path) -> None:
    add(folder, "leave", f"sleep 600 & echo $! > {tmp_path}/child; echo done")
    begun = time.monotonic()
    result = folder.run("leave", VARIABLES)
    assert (result.exit_code, result.last_lines) == (0, ("done",))
    assert time.monotonic() - begun < 200, "its output is open in the child: nobody waits for that"
    assert has_ended(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize("script", ["yes line", "yes line & exec true"])
def test_a_hook_that_floods_leaves_its_last_lines(folder: HookFolder, script: str) -> None:
    add(folder, "flood", script)
    result = short(folder).run("flood", VARIABLES)
    assert len(result.last_lines) <= 5
    assert len(result.describe()) < 400


def test_output_is_printable_text_of_few_lines(folder: HookFolder) -> None:
    add(folder, "odd", r"seq 1 100; printf '\033[31mred\377\000\n'")
    lines = folder.run("odd", VARIABLES).last_lines
    assert lines[:4] == ("97", "98", "99", "100")
    assert lines[4].isprintable()


def test_the_last_line_of_long_ones_is_not_lost_in_a_status(folder: HookFolder) -> None:
    long = "for each in a b c d; do printf '%500s\\n' $each | tr ' ' -; done"
    add(folder, "long", f"{long}; echo no such firmware; exit 1")
    said = folder.run("long", VARIABLES).describe()
    assert said.endswith("-… | no such firmware")
    assert len(said) < 900, "the message of a status has 1024 characters, and says more"


@pytest.mark.parametrize(
    "name", ["../fan", "a/b", "..", ".", "", "/bin/true", "a.sh", "-x", "A", "a\nb", "a" * 64, "fan\n"]
)
def test_no_path_is_a_hook(folder: HookFolder, name: str) -> None:
    add(folder, "fan", "true")
    with pytest.raises(HookUnavailableError, match="no name of a hook"):
        folder.find(name)


def test_a_hook_is_a_file_that_only_its_owner_may_write(folder: HookFolder, tmp_path: Path) -> None:
    add(folder, "fan", "true")
    assert folder.find("fan") == folder.path / "fan"
    for mode in (0o775, 0o757):
        add(folder, "open", "true", mode)
        with pytest.raises(HookUnavailableError, match="others than root may write hook"):
            folder.find("open")
    (folder.path / "link").symlink_to(folder.path / "fan")
    with pytest.raises(HookUnavailableError, match="symbolic link"):
        folder.find("link")
    add(folder, "text", "true", 0o644)
    (folder.path / "folder").mkdir(mode=0o755)
    for name in ("text", "folder"):
        with pytest.raises(HookUnavailableError, match="no executable file"):
            folder.find(name)
    with pytest.raises(HookUnavailableError, match=f"there is no hook {folder.path}/gone: put it there, with root as"):
        folder.find("gone")
    os.mkfifo(folder.path / "pipe", 0o755)
    with pytest.raises(HookUnavailableError, match="no executable file"):
        folder.run("pipe", VARIABLES)


def test_a_folder_that_others_may_write_has_no_hooks(folder: HookFolder, tmp_path: Path) -> None:
    add(folder, "fan", "true")
    folder.path.chmod(0o777)
    with pytest.raises(HookUnavailableError, match="others than root may write folder of hooks"):
        folder.find("fan")
    folder.path.chmod(0o755)
    tmp_path.chmod(0o777)
    with pytest.raises(HookUnavailableError, match="above the folder of hooks"):
        folder.find("fan")
    tmp_path.chmod(0o777 | stat.S_ISVTX)
    folder.find("fan")
    link = tmp_path / "link"
    link.symlink_to(folder.path)
    with pytest.raises(HookUnavailableError, match="symbolic link"):
        HookFolder(path=link, owner=folder.owner).find("fan")
    with pytest.raises(HookUnavailableError, match="no absolute path"):
        HookFolder(path=Path("hooks"), owner=folder.owner).find("fan")
    with pytest.raises(HookUnavailableError, match="others than root"):
        HookFolder(path=folder.path, owner=folder.owner + 1).find("fan")


def test_a_program_that_the_kernel_cannot_run_is_no_hook(folder: HookFolder) -> None:
    path = folder.path / "empty"
    path.write_bytes(b"\x7fELF but not quite")
    path.chmod(0o755)
    with pytest.raises(HookUnavailableError, match="cannot be run"):
        folder.run("empty", VARIABLES)


def has_ended(pid: int) -> bool:
    """Whether a process has ended, or does within a while: it was killed."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], LONGEST_S)[0])
    finally:
        os.close(descriptor)
