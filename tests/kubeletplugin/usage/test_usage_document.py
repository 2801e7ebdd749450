"""What outlives the process is in one file, which is there as a whole or as it was before."""

from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.usage.energy_account import CardAccount
from kerf_dra.driver.kubeletplugin.usage.idleness import IdleState
from kerf_dra.driver.kubeletplugin.usage.usage_document import FILE_NAME, UsageDocument, read_usage, write_usage

ACCOUNT = CardAccount(
    counter_mj=10, boot_id="b", at=5.0, total_mj=9, unattributed_mj=2, ended_mj=3, claims={"uid/d/p/gpu-0": 4}
)
DOCUMENT = UsageDocument(
    boot_id="b",
    cards={"GPU-0": ACCOUNT, "GPU-1": CardAccount(counter_mj=1, boot_id="b", at=6.0)},
    idleness={"uid/d/p/gpu-0": IdleState(sampled_at=5.0, quiet_since=1.0, is_idle=True)},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


def test_what_was_written_is_read(path: Path) -> None:
    assert read_usage(path) == UsageDocument()
    for document in (DOCUMENT, UsageDocument(boot_id="other")):
        write_usage(path, document)
        assert read_usage(path) == document


def test_an_interrupted_write_leaves_the_document_of_before(path: Path) -> None:
    write_usage(path, DOCUMENT)
    path.with_suffix(".new").write_bytes(b'{"version": "v1", "bo')
    assert read_usage(path) == DOCUMENT
    assert [one.name for one in path.parent.iterdir()] == [FILE_NAME]  # later nothing may change, and be written
    write_usage(path, UsageDocument(boot_id="later"))
    assert read_usage(path) == UsageDocument(boot_id="later")
    assert [one.name for one in path.parent.iterdir()] == [FILE_NAME]


def test_a_link_in_the_place_of_either_file_is_replaced_and_not_followed(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    for link in (path, path.with_suffix(".new")):
        link.symlink_to(other)
    write_usage(path, DOCUMENT)
    assert other.read_text() == "kept"
    assert not path.is_symlink()
    assert read_usage(path) == DOCUMENT


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"{", b"[]", b'{"version": "v2"}', b'{"cards": {"GPU-0": {"counter_mj": "x"}}}'],
)
def test_what_is_no_such_document_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"JSON|utf-8|Expected|Invalid|truncated"):
        read_usage(path)


def test_a_file_without_end_is_not_read(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(5 * 2**20)
    with pytest.raises(OSError, match="more than"):
        read_usage(path)


def test_what_cannot_be_removed_beside_the_file_costs_no_history(path: Path) -> None:
    """A folder there had the energy of all claims begin at 0 again."""
    write_usage(path, DOCUMENT)
    path.with_suffix(".new").mkdir()
    assert read_usage(path) == DOCUMENT
    with pytest.raises(OSError, match=r"usage\.new"):
        write_usage(path, UsageDocument())
    assert read_usage(path) == DOCUMENT


def test_a_folder_in_the_place_of_the_file_is_an_error_that_says_so(path: Path) -> None:
    path.mkdir()
    with pytest.raises(OSError, match="is not a regular file"):
        read_usage(path)
    with pytest.raises(OSError, match="directory"):
        write_usage(path, DOCUMENT)
