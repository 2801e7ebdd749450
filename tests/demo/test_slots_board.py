"""``kerf demo`` on a stand-in for a board that dfx-mgrd loads: Kerf's own processes over the daemon's socket."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.demo.test_dfl_cards import PODS
from tests.fakes.dfx.machine import BASE, HALVES
from tests.kubeletplugin.backends.slots.machine import SlotsMachineUnderTest


@pytest.mark.long
def test_a_pod_gets_its_function_and_the_slot_is_blank_after_it(tmp_path: Path) -> None:
    """FP-02, FP-13, FP-15, through the scheduler, the plugin's process and the container's OCI spec."""
    machine = SlotsMachineUnderTest(tmp_path / "machine")
    (tmp_path / "slots.yaml").write_bytes(msgspec.json.encode(machine.document))
    (tmp_path / "pods.yaml").write_text(PODS.replace("lab", "kr260"))
    done = run_demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "KERF_UIO_FPGA_0_AES_AT_" in done.stdout
    assert "/dev/uio4" in done.stdout
    assert "dfx-mgrd" not in done.stdout
    [load, unload, *blank] = machine.hardware.calls()
    assert load.startswith("load aes-")
    assert unload == f"un{load}"
    assert [call.split()[0] for call in blank] == ["load", "unload"]
    assert machine.daemon.read_state()["slots"] == {}


@pytest.mark.long
def test_a_pod_gets_a_function_of_another_layout_than_the_board_has(tmp_path: Path) -> None:
    """FP-10, FP-12, through the scheduler, the plugin's process and the container's OCI spec."""
    machine = SlotsMachineUnderTest(tmp_path / "machine", has_layouts=True)
    machine.daemon.load("fft-0")
    (tmp_path / "slots.yaml").write_bytes(msgspec.json.encode(machine.document))
    (tmp_path / "pods.yaml").write_text(PODS.replace("lab", "kr260").replace("function: aes", "function: sobel"))
    done = run_demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "KERF_UIO_FPGA_0_SOBEL_AT_" in done.stdout
    slot = machine.hardware.calls()[3].rpartition(" ")[2]
    assert machine.hardware.calls() == [
        "load fft-0 0",
        "unload fft-0 0",
        f"remove {BASE}",
        *(f"{call} {name}-half-{slot} {slot}" for name in ("sobel", "blank") for call in ("load", "unload")),
    ]
    assert machine.daemon.overlays() == [HALVES.rpartition("/")[2]]


def run_demo(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run ``kerf demo`` with the files of ``folder``."""
    command = [sys.executable, "-m", "kerf_dra.driver.cli", "demo", f"--backend=slots={folder}/slots.yaml", "--nodes=1"]
    return subprocess.run(
        [*command, f"--filename={folder}/pods.yaml", "--output=json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
