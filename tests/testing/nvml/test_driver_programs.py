"""The stand-ins for programs of NVIDIA's driver run, wherever Kerf and its interpreter are."""

import subprocess
import sys
from pathlib import Path

import pytest

from kerf_dra.driver.testing.nvml.driver_tree import write_program


def run(folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    write_program("nvidia-smi", folder)
    return subprocess.run(
        [folder / "nvidia-smi"], env=environment or None, capture_output=True, text=True, timeout=240, check=False
    )


def test_a_program_is_run_by_the_interpreter_that_wrote_it(tmp_path: Path) -> None:
    done = run(tmp_path, PATH="/nowhere")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("usage: nvidia-smi")


@pytest.mark.parametrize("folder", ["with a space", "long" * 50], ids=["space", "long"])
def test_a_program_runs_though_linux_cannot_start_the_interpreter_by_its_path(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter = tmp_path / folder / "python3"
    interpreter.parent.mkdir()
    interpreter.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    assert run(tmp_path).stdout.startswith("usage: nvidia-smi")
