"""What the kernel's files say of processes that come and go."""

from pathlib import Path

from kerf_dra.driver.kubeletplugin.backends.kernel_files import find_openers


def test_openers_are_found_beside_processes_that_end_or_are_another_users(tmp_path: Path) -> None:
    for pid in (11, 13, 14):
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
    (tmp_path / "12").mkdir()  # it has ended since the folder was listed
    (tmp_path / "13/fd/0").write_text("")  # a descriptor that was closed since: it can no longer be read
    (tmp_path / "11/fd/3").symlink_to("/dev/nvidia0")
    (tmp_path / "13/fd/4").symlink_to("/dev/nvidia0")
    (tmp_path / "13/fd/5").symlink_to("/dev/nvidia1")
    (tmp_path / "14/fd/3").symlink_to("/dev/null")
    assert find_openers(tmp_path, {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"}) == {
        "/dev/nvidia0": [11, 13],
        "/dev/nvidia1": [13],
    }
