"""The documents in the folder of a shared device."""

from pathlib import Path

import pytest

from kerf_dra.driver.mps.documents import DaemonRequest, UnwritableDocumentError, remove_document, write_document


def test_what_a_killed_writer_left_of_a_document_goes_with_it(tmp_path: Path) -> None:
    """A prepare was killed while it wrote, and its claim ended: the half of the document stayed for good."""
    path = tmp_path / "request.json"
    request = DaemonRequest(id="1", boot_id="b", device="GPU-0", active_thread_percentage=100, pinned_memory_mib=None)
    for is_written in (False, True):
        if is_written:
            write_document(path, request)
        path.with_name(".request.json").write_text("{half a docu")
        remove_document(path)
        assert [*tmp_path.iterdir()] == []


def test_a_document_that_cannot_be_written_or_removed_is_named_with_what_to_do(tmp_path: Path) -> None:
    """The error of a prepare was "No space left on device", without a path."""
    (tmp_path / "GPU-0").touch()
    path = tmp_path / "GPU-0/request.json"
    request = DaemonRequest(id="1", boot_id="b", device="GPU-0", active_thread_percentage=100, pinned_memory_mib=None)
    advice = "see to it that its disk has space and can be written"
    with pytest.raises(UnwritableDocumentError, match=f"{path} cannot be written: File exists; {advice}"):
        write_document(path, request)
    with pytest.raises(UnwritableDocumentError, match=f"{path} cannot be removed: Not a directory; {advice}"):
        remove_document(path)
