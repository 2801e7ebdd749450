"""Records of acts are as they were before a step or after it, and what cannot be read is never taken for nothing."""

from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.maintenance.work_file import (
    WorkFile,
    WorkFileError,
    WorkJournal,
    WorkRecord,
    read_records,
)

FIRST, SECOND = ("uid-1", 1), ("uid-2", 7)


def record(key: tuple[str, int] = FIRST, **fields: object) -> WorkRecord:
    uid, generation = key
    known = {"card_uuid": f"GPU-{uid}", "backend": "fake", "act": "Reset", "stage": "Planned", **fields}
    return WorkRecord(uid=uid, generation=generation, **known)  # type: ignore[arg-type]


def test_the_next_process_reads_what_was_written(tmp_path: Path) -> None:
    file = WorkFile(tmp_path / "state" / "maintenances.json")
    assert (file.records, file.problem) == ({}, "")
    file.put(record())
    file.put(record(SECOND, stage="Begun", started_at="2026-11-27T10:00:00Z", notes={"mode": "on"}))
    file.put(record(stage="Done"))
    assert WorkFile(tmp_path / "state" / "maintenances.json").records == {
        FIRST: record(stage="Done"),
        SECOND: record(SECOND, stage="Begun", started_at="2026-11-27T10:00:00Z", notes={"mode": "on"}),
    }
    assert (tmp_path / "state" / "maintenances.json").stat().st_mode & 0o777 == 0o600


def test_records_of_maintenances_that_are_gone_go(tmp_path: Path) -> None:
    file = WorkFile(tmp_path / "file")
    for each in (FIRST, SECOND):
        file.put(record(each))
    file.keep_only({"uid-2"})
    assert file.records.keys() == WorkFile(tmp_path / "file").records.keys() == {SECOND}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"records": [{"uid": "a"}]}', b"\xff", b" " * (2**20 + 1)])
def test_a_file_that_cannot_be_read_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    file = WorkFile(path)
    assert file.problem.startswith(f"{path} cannot be read")
    with pytest.raises(WorkFileError, match="cannot be read"):
        file.put(record())
    assert path.read_bytes() == content


def test_a_write_that_a_killed_process_has_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".file.tmp").write_text("half")
    file = WorkFile(tmp_path / "file")
    assert [*tmp_path.iterdir()] == []
    file.put(record())
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_who_only_reads_the_records_leaves_the_write_of_a_running_plugin_alone(tmp_path: Path) -> None:
    WorkFile(tmp_path / "file").put(record())
    (tmp_path / ".file.tmp").write_text("half")
    assert read_records(tmp_path / "file") == (record(),)
    assert (tmp_path / ".file.tmp").read_text() == "half"


def test_a_write_that_fails_leaves_the_earlier_record(tmp_path: Path) -> None:
    file = WorkFile(tmp_path / "file")
    file.put(record())
    (tmp_path / ".file.tmp").mkdir()
    with pytest.raises(WorkFileError, match="cannot be written"):
        file.put(record(stage="Begun"))
    assert file.records == WorkFile(tmp_path / "file").records == {FIRST: record()}


def test_notes_on_the_act_and_on_the_test_partition_are_kept_apart(tmp_path: Path) -> None:
    file = WorkFile(tmp_path / "file")
    for each in (FIRST, SECOND):
        file.put(record(each))
    act, test = (WorkJournal(file, FIRST, is_test=is_test) for is_test in (False, True))
    act.write(mode="on")
    act.write(other=1)
    test.write(before=["gi-1"])
    assert WorkFile(tmp_path / "file").records == {
        FIRST: record(notes={"mode": "on", "other": 1}, test_notes={"before": ["gi-1"]}),
        SECOND: record(SECOND),
    }
    test.clear()
    assert (act.notes, test.notes) == ({"mode": "on", "other": 1}, {})
