"""A file of Kerf's own is the one of before or the new one, whole, whatever fails and whatever lies beside it."""

import os
import stat
from pathlib import Path

import pytest

from kerf_dra.driver.runtime.documents.output_file import replace_durably


def test_a_file_is_replaced_with_its_mode_and_its_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "state" / "records"
    for content in (b"one", b"two"):
        replace_durably(path, content, path.with_name(".records"), mode=0o600)
        assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["records"]


@pytest.mark.parametrize("left", ["a file", "a link"])
def test_what_lies_in_the_way_is_removed_and_not_written_through(left: str, tmp_path: Path) -> None:
    path, temporary, other = tmp_path / "records", tmp_path / ".records", tmp_path / "other"
    other.write_bytes(b"of another program")
    if left == "a link":
        temporary.symlink_to(other)
    else:
        temporary.write_bytes(b"half")
    replace_durably(path, b"whole", temporary, mode=0o600)
    assert (path.read_bytes(), other.read_bytes()) == (b"whole", b"of another program")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_leaves_the_earlier_file_and_nothing_beside_it(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records"
    replace_durably(path, b"earlier", tmp_path / ".records", mode=0o600)

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os if call == "fsync" else Path, call, fail)
    with pytest.raises(OSError, match="full"):
        replace_durably(path, b"later", tmp_path / ".records", mode=0o600)
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("records", b"earlier")]
