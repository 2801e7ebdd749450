"""``kerf demo`` on stand-ins of Alveo cards: Kerf's own processes, with the stand-in's libxrt."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.demo.test_dfl_cards import PODS
from tests.fakes.xrt import NEEDS_COMPILER, XrtMachine
from tests.fakes.xrt.machine import AES_ID, BLANK_ID


@NEEDS_COMPILER
@pytest.mark.long
def test_a_pod_gets_its_function_and_the_card_is_blank_after_it(tmp_path: Path) -> None:
    """FP-03, FP-08, FP-13, FP-15, through the scheduler, the plugin's process and the container's OCI spec."""
    machine = XrtMachine.create(tmp_path / "machine")
    machine.describe()
    fields = {
        "descriptionFolder": machine.descriptions,
        "imageFolder": machine.images,
        "xrtFolder": machine.xrt,
        "systemRoot": machine.folder,
    }
    (tmp_path / "xrt.yaml").write_text("".join(f"{field}: {folder}\n" for field, folder in fields.items()))
    (tmp_path / "pods.yaml").write_text(PODS.replace("models: [lab]", "models: [u250]"))
    command = [sys.executable, "-m", "kerf_dra.driver.cli", "demo", f"--backend=xrt={tmp_path}/xrt.yaml", "--nodes=1"]
    done = subprocess.run(
        [*command, f"--filename={tmp_path}/pods.yaml", "--output=json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f'"KERF_AFU_ID_FPGA_0_AES_AT_0": "{AES_ID}"' in done.stdout
    assert "/dev/dri/renderD128" in done.stdout
    assert "xclmgmt" not in done.stdout
    assert [call.split()[0] for call in machine.calls()] == ["load", "load"]
    assert {machine.read_loaded(card) for card in (0, 1)} == {BLANK_ID}
