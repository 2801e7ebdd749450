"""The stand-in for the control daemon of NVIDIA's Multi-Process Service keeps what it is told."""

import os
import subprocess
from pathlib import Path

from kerf_dra.driver.testing.nvml import NvidiaMachine
from tests.fakes.nvml import NEEDS_COMPILER
from tests.testing.nvml.conftest import MakeMachine

pytestmark = NEEDS_COMPILER


def run(machine: NvidiaMachine, pipes: Path, *arguments: str, commands: str = "") -> "subprocess.CompletedProcess[str]":
    program = machine.driver_root / "usr/bin/nvidia-cuda-mps-control"
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
    return subprocess.run(
        [program, *arguments], input=commands, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def test_a_daemon_answers_from_its_start_to_its_end(make_machine: MakeMachine, tmp_path: Path) -> None:
    machine, pipes = make_machine(), tmp_path / "pipes"
    assert "Cannot find MPS control daemon process" in run(machine, pipes, commands="get_server_list\n").stderr
    assert run(machine, pipes, "-d").returncode == 0
    try:
        again = run(machine, pipes, "-d")
        assert (again.returncode, again.stderr) == (1, "An instance of this daemon is already running\n")
        told = (
            "set_default_active_thread_percentage 25\nset_default_device_pinned_mem_limit 0 2G\nstart_server -uid 7\n"
        )
        assert run(machine, pipes, commands=told).stdout == "25.0\n"
        asked = "get_default_active_thread_percentage\nget_default_device_pinned_mem_limit 0\nget_server_list\n"
        assert run(machine, pipes, commands=asked).stdout == "25.0\n2G\n1007\n"
        refused = run(machine, pipes, commands="set_default_active_thread_percentage 101\nfly\n").stdout
        assert refused.count("Unknown or malformed command") == 2
    finally:
        run(machine, pipes, commands="quit\n")
    assert not any(pipes.iterdir())
    assert run(machine, pipes, commands="quit\n").returncode == 1
