"""The fuzzer runs, and finds what there is to find."""

from pathlib import Path

import pytest

import tests.fuzz.__main__
import tests.fuzz.cdi
from tests.fuzz.__main__ import FuzzFindingError, main


def test_a_short_run_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cdi", "--executions", "300", "--engine", "generated"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("no finding")


@pytest.mark.parametrize(
    ("kind", "executions"),
    [("dfx_messages", 1000), ("dfx_packages", 1000), ("fpga", 1000), ("gbs", 1000), ("dfl_sysfs", 100)],
)
def test_no_reader_of_fpgas_files_and_answers_falls_over_in_a_sample(
    kind: str, executions: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([kind, "--executions", f"{executions}", "--engine", "generated"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("no finding")


def test_what_takes_more_and_more_memory_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter((10.0, 200.0))
    monkeypatch.setattr(tests.fuzz.__main__, "_read_peak_mib", lambda: next(sizes))
    with pytest.raises(FuzzFindingError, match="190 MiB more memory"):
        main(["gbs", "--executions", "1", "--engine", "generated"])


def test_an_input_that_raises_is_found_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def falls_over(data: bytes) -> None:
        assert len(data) < 200

    monkeypatch.setattr(tests.fuzz.cdi, "target", lambda folder: falls_over)
    with pytest.raises(FuzzFindingError, match=r"seed \d+: b'"):
        main(["cdi", "--engine", "generated"])


def test_a_file_that_hides_another_is_a_finding(tmp_path: Path) -> None:
    target = tests.fuzz.cdi.Target(tmp_path)
    target(b"kind: [")
    (tmp_path / "kept.json").unlink()
    with pytest.raises(AssertionError):
        target(b"kind: [")
