"""What the Go library answers, and that we answer the same: see ``tests/conformance/cdi.py``."""

from pathlib import Path

import pytest

from tests.conformance import __main__ as conformance
from tests.conformance.cdi import Record, agrees, records

VERDICTS = Path(__file__).parents[1] / "data" / "cdi" / "go-verdicts.jsonl"
RECORDS = list(records(VERDICTS))


@pytest.mark.parametrize("record", RECORDS, ids=[record["id"] for record in RECORDS])
def test_we_answer_as_the_go_library_does(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    assert agrees(record), capsys.readouterr().out


def test_the_runner_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert conformance.main(["cdi", str(VERDICTS)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{len(RECORDS)} passed, 0 failed"


def test_the_runner_fails_on_any_disagreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(
        '{"about": "x"}\n'
        '{"id": "1", "op": "transient", "arg": ["a", "b", "c"], "go_v1.1.0": {"ok": true, "name": "a-b_c"}}\n'
        '{"id": "2", "op": "transient", "arg": ["a", "b", "c"], "go_v1.1.0": {"ok": true, "name": "other"}}\n'
        '{"id": "3", "op": "qname", "arg": ["aa/bb=c"], "go_v1.1.0": {"ok": false, "error": "unqualified"}}\n'
        '{"id": "4", "op": "qname", "arg": ["aa"], "go_v1.1.0": {"ok": false, "error": "device-name"}}\n'
    )
    assert conformance.main(["cdi", str(wrong)]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == "1 passed, 3 failed"
    assert {line.partition(":")[0] for line in lines} == {"2", "3", "4"}


def test_an_empty_file_is_no_success(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert conformance.main(["cdi", str(empty)]) == 1
