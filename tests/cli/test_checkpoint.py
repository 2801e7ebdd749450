"""``kerf checkpoint``: what a node's plugin has recorded, shown and copied."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from kerf_dra.api.model.prepared import ClaimState
from kerf_dra.driver.cli import main
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from kerf_dra.driver.runtime.boot import BOOT_ID
from tests.kubeletplugin.records import device, record

GPU_FOLDER = "gpu.kerf.dev"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["checkpoint", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """State folders, of which that for GPUs has three claims: one is as its plugin left it in an earlier boot."""
    boot_id = BOOT_ID.read_text().strip()
    folder = tmp_path / "state" / GPU_FOLDER
    folder.mkdir(parents=True)
    two = (device("gpu-0-3g-40gb-at-4"), device("gpu-1-1g-10gb-at-0", share="a1"))
    with open_checkpoint(folder, boot_id=boot_id) as checkpoint:
        checkpoint.put(record("training", *two, boot_id=boot_id))
        checkpoint.put(record("half", device("gpu-2"), state=ClaimState.STARTED, boot_id=boot_id))
        checkpoint.put(record("old", device("gpu-3"), boot_id="an earlier boot"))
        journal = checkpoint.journal(record("half").claim.uid, device("gpu-2").share, boot_id)
        journal.write(before=[], instance=3)
    return tmp_path / "state"


def test_claims_devices_and_notes_are_shown_within_80_columns(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    code, out, err = run(capsys, "show", f"--state-dir={state}")
    assert (code, err) == (0, "")
    title, number, outdated, header, *rows = out.splitlines()
    assert title == f"gpu.kerf.dev, {state / GPU_FOLDER}"
    assert (number, outdated[:21]) == ("3 claims", "1 of an earlier boot:")
    assert header.split() == ["CLAIM", "STATE", "DEVICE", "NOTES"]
    assert [row.split() for row in rows] == [
        ["default/training", "Prepared", "gpu-0-3g-40gb-at-4", "-"],
        ["gpu-1-1g-10gb-at-0#a1", "-"],
        ["default/half", "Started", "gpu-2", "before,", "instance"],
        ["default/old", "Prepared", "gpu-3", "-"],
    ]
    assert max(map(len, [outdated, *rows])) <= 80


def test_devices_of_extended_resources_are_named_by_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    boot_id = BOOT_ID.read_text().strip()
    (tmp_path / GPU_FOLDER).mkdir()
    with open_checkpoint(tmp_path / GPU_FOLDER, boot_id=boot_id) as checkpoint:
        made = record("x", device("gpu-2"), boot_id=boot_id)
        checkpoint.put(replace(made, resource="kerf.dev/small"))
    _, number, _, row = run(capsys, "show", f"--state-dir={tmp_path}")[1].splitlines()
    assert number == "0 claims, 1 device of extended resources"
    assert row.split() == ["kerf.dev/small", "Prepared", "gpu-2", "-"]


@pytest.mark.parametrize(("output", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_documents_have_everything(
    capsys: pytest.CaptureFixture[str], state: Path, output: str, load: Callable[[str], Any]
) -> None:
    code, out, _ = run(capsys, "show", f"--state-dir={state}", f"--output={output}")
    (checkpoint,) = load(out)["checkpoints"]
    assert (code, checkpoint["driver"]) == (0, "gpu.kerf.dev")
    assert [claim["name"] for claim in checkpoint["claims"]] == ["training", "half", "old"]
    ((notes,),) = checkpoint["notes"].values()
    assert notes["notes"] == {"before": [], "instance": 3}


def test_a_copy_is_one_database_that_others_can_open(
    capsys: pytest.CaptureFixture[str], state: Path, tmp_path: Path
) -> None:
    code, out, _ = run(capsys, "export", str(tmp_path / "copies"), f"--state-dir={state}")
    copy = tmp_path / "copies" / GPU_FOLDER
    assert (code, out) == (0, f"gpu.kerf.dev: {copy}\n")
    connection = sqlite3.connect(copy / "checkpoint.db")
    assert connection.execute("SELECT count(*) FROM claims").fetchone() == (3,)
    connection.close()
    assert run(capsys, "show", f"--state-dir={tmp_path / 'copies'}")[0] == 0


def test_a_copy_is_written_to_a_folder_relative_to_this_one(
    capsys: pytest.CaptureFixture[str], state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "export", "copies", f"--state-dir={state}")[0] == 0
    assert (tmp_path / "copies" / GPU_FOLDER / "checkpoint.db").is_file()


def test_a_folder_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    code, _, err = run(capsys, "export", "/proc/copies", f"--state-dir={state}")
    assert (code, err) == (1, "kerf: /proc/copies: No such file or directory\n")


def test_a_copy_is_never_written_over_another(capsys: pytest.CaptureFixture[str], state: Path, tmp_path: Path) -> None:
    there = tmp_path / "copies" / GPU_FOLDER
    there.mkdir(parents=True)
    code, _, err = run(capsys, "export", str(tmp_path / "copies"), f"--state-dir={state}")
    assert (code, err) == (1, f"kerf: {there} is there already: name another folder\n")
    assert [path.name for path in there.parent.iterdir()] == [GPU_FOLDER]


def test_a_damaged_checkpoint_does_not_hide_the_others(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    (state / "fpga.kerf.dev").mkdir()
    (state / "fpga.kerf.dev" / "checkpoint.digest").write_bytes(b"")
    code, out, err = run(capsys, "show", f"--state-dir={state}")
    assert (code, len(out.splitlines())) == (1, 8)
    assert err.startswith(f"kerf: {state}/fpga.kerf.dev/checkpoint.db: there is none; ")


def test_without_any_checkpoint_the_places_that_were_looked_at_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = run(capsys, "show", f"--state-dir={tmp_path}")
    assert (code, out) == (1, "")
    assert f"there is no checkpoint in {tmp_path}/gpu.kerf.dev, {tmp_path}/fpga.kerf.dev" in err
