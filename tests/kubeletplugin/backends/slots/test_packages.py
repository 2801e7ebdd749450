"""The directories of dfx-mgr: base designs, packages, and the digest of their files."""

import subprocess
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.backends.slots import packages
from kerf_dra.driver.kubeletplugin.backends.slots.packages import (
    Accelerator,
    InvalidPackageError,
    compute_digest,
    find_base_folders,
    list_slot_folders,
    parse_accelerator,
    parse_shell,
    read_base,
    read_version,
    split_slot_folder,
)


def test_the_digest_is_what_sha256sum_says_of_the_files(tmp_path: Path) -> None:
    for name in ("b.dtbo", "accel.json", "Z.bit.bin"):
        (tmp_path / name).write_text(name * 3)
    (tmp_path / "aes").mkdir()
    (tmp_path / ".hidden").write_text("x")
    script = "LC_ALL=C; sha256sum -- * 2>/dev/null | sha256sum"
    said = subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert compute_digest(tmp_path) == said.split()[0]


@pytest.mark.parametrize("change", ["content", "name", "more"])
def test_any_change_of_the_files_is_another_version_and_another_digest(change: str, tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    file.write_text("1")
    before = compute_digest(tmp_path), read_version(tmp_path)
    if change == "content":
        file.write_text("2!")
    elif change == "name":
        file.rename(tmp_path / "b.bin")
    else:
        (tmp_path / "c.bin").touch()
    after = compute_digest(tmp_path), read_version(tmp_path)
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_folder_with_what_is_no_file_or_with_too_much_has_no_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").symlink_to("/etc/passwd")
    with pytest.raises(InvalidPackageError, match="'a' is no file"):
        compute_digest(tmp_path)
    (tmp_path / "a").unlink()
    (tmp_path / "a b").touch()
    with pytest.raises(InvalidPackageError, match="'a b' has other signs"):
        compute_digest(tmp_path)
    (tmp_path / "a b").rename(tmp_path / "ab")
    monkeypatch.setattr(packages, "_MAX_FILES", 0)
    with pytest.raises(InvalidPackageError, match="more than 0 files"):
        compute_digest(tmp_path)
    monkeypatch.undo()
    (tmp_path / "ab").write_text("12345")
    monkeypatch.setattr(packages, "_MAX_BYTES", 4)
    with pytest.raises(InvalidPackageError, match="has 5 bytes"):
        compute_digest(tmp_path)


def test_base_designs_are_found_some_levels_deep_and_never_in_one_another(tmp_path: Path) -> None:
    for path in ("k26", "a/b/c/d/deep", "a/b/c/d/e/deeper", "k26/aes/aes_slot0"):
        folder = tmp_path / path
        folder.mkdir(parents=True)
        (folder / "shell.json").write_text('{"shell_type": "PL_DFX", "num_pl_slots": 2, "uid": "0x11"}')
    found = [str(folder.relative_to(tmp_path)) for folder in find_base_folders(tmp_path)]
    assert found == ["a/b/c/d/deep", "k26"]
    base = read_base(tmp_path, tmp_path / "a/b/c/d/deep")
    assert base is not None
    assert (base.name, base.path, base.slots, base.uid) == ("deep", "a/b/c/d/deep", 2, 17)


@pytest.mark.parametrize("slots", [0, 17])
def test_a_base_design_has_one_to_sixteen_slots(slots: int, tmp_path: Path) -> None:
    folder = tmp_path / "k26"
    folder.mkdir()
    (folder / "shell.json").write_text(f'{{"shell_type": "PL_DFX", "num_pl_slots": {slots}}}')
    with pytest.raises(InvalidPackageError, match=f"num_pl_slots is {slots}"):
        read_base(tmp_path, folder)


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("k26/aes/aes_slot1", ("k26", "aes", 1)),
        ("kr260/k26/aes_slot1/aes_slot1_slot12", ("kr260/k26", "aes_slot1", 12)),
        ("k26/aes/fft_slot1", None),
        ("aes/aes_slot1", None),
        ("k26/aes/aes_slot", None),
        ("", None),
    ],
)
def test_the_path_of_a_package_for_a_slot_says_what_it_is(path: str, parts: tuple[str, str, int] | None) -> None:
    assert split_slot_folder(path) == parts


def test_only_folders_of_the_package_itself_are_its_slots(tmp_path: Path) -> None:
    package = tmp_path / "aes"
    for name in ("aes_slot2", "aes_slot0", "fft_slot1", "aes_slotx", "other"):
        (package / name).mkdir(parents=True)
    (package / "aes_slot3").touch()
    assert list_slot_folders(package) == [0, 2]


def test_what_is_read_of_the_daemons_documents_is_what_it_reads() -> None:
    shell = b'{"shell_type": "PL_DFX", "num_pl_slots": 3, "num_aie_slots": 1, "uid": "2a", "clock_reg_base": ""}'
    assert parse_shell(shell) == ("PL_DFX", 3, 42, False)
    accelerator = b"""{"accel_type": "XRT_PL_DFX", "pid": 17, "sharedMemoryConfig": {"sizeInKB": ""},
        "accel_devices": [{"dev_name": "20100000000.AES128", "reg_base": "", "reg_size": ""}]}"""
    assert parse_accelerator(accelerator) == Accelerator(
        kind="XRT_PL_DFX", parent=0x17, devices=("20100000000.AES128",)
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b'{"accel_devices": 3}',
        b'{"accel_devices": [{"dev_name": "../x"}]}',
        b'{"accel_devices": [{"dev_name": ""}]}',
        b'{"pid": "x"}',
        b"\xff",
        b"[" * 100_000,
        b'{"accel_devices": [' + b'{"dev_name": "a"},' * 40 + b"{}]}",
    ],
)
def test_an_accel_json_that_is_wrong_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidPackageError, match=r"accel\.json"):
        parse_accelerator(data)
