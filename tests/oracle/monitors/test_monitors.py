"""Monitors and bindings of others on the stand-in for NVML: each shows every card and MIG device with name and memory,
and monitors show how much of a card is used.

``nvitop`` and ``gpustat`` are installed from PyPI, each into an environment with the bindings that it asks for;
``nvml-wrapper``, the bindings of Rust, is built by cargo into a program that prints what it reads.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pynvml
import pytest

from kerf_dra.driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine
from tests.fakes.nvml import open_nvml
from tests.fakes.nvml_calls import create_gpu_instance, fill_gpu_instance

pytestmark = pytest.mark.oracle

MONITORS: Final[Mapping[str, str]] = {"nvitop": "1.7.2", "gpustat": "1.1.1"}
MIB: Final = 1 << 20
CARDS: Final = ("h100-80gb-sxm", "a100-40gb")
PARTITIONS: Final = ((19, 0, 1), (19, 1, 1), (9, 4, 4))
"""Profile id, start and size of the MIG devices of each card, which leave a part of it free."""
WHOLE: Final = 2
"""The number of the card that is not cut, which this process uses: monitors show only processes that there are."""
BUILD_TIMEOUT_S: Final = 900
"""Downloads included, on a slow machine."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> NvidiaMachine:
    """Two cards that are cut alike, and one that is not."""
    cards = (*(CardDescription(model=model) for model in CARDS), CardDescription(model=CARDS[0]))
    made = NvidiaMachine.create(tmp_path_factory.mktemp("machine"), MachineDescription(cards=cards))
    with open_nvml(made):
        for index in range(len(CARDS)):
            card = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceSetMigMode(card, 1)
            for profile, start, size in PARTITIONS:
                fill_gpu_instance(create_gpu_instance(card, profile, start, size))
    made.set_utilization(WHOLE, gpu_percent=37, memory_percent=12)
    made.start_process(WHOLE, os.getpid(), memory_bytes=4 << 30)
    made.set_process_use(os.getpid(), sm_percent=35, memory_percent=11)
    return made


def read_devices(machine: NvidiaMachine) -> list[tuple[str, str, int]]:
    """UUID, name and memory in bytes of each card, followed by its MIG devices, as NVIDIA's own bindings read them."""
    found: list[tuple[str, str, int]] = []

    def add(device: object) -> None:
        memory = pynvml.nvmlDeviceGetMemoryInfo(device).total
        found.append((pynvml.nvmlDeviceGetUUID(device), pynvml.nvmlDeviceGetName(device), memory))

    with open_nvml(machine):
        for index in range(pynvml.nvmlDeviceGetCount()):
            card = pynvml.nvmlDeviceGetHandleByIndex(index)
            add(card)
            for number in range(len(PARTITIONS) if index < len(CARDS) else 0):
                add(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, number))
    assert len(found) == 3 + len(CARDS) * len(PARTITIONS)
    return found


def run(machine: NvidiaMachine, *command: str) -> str:
    environment = {**os.environ, **machine.environment()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=MONITORS)
def monitor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of a monitor, installed from PyPI."""
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    install = [str(folder / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*install, f"{name}=={MONITORS[name]}"], check=True, timeout=BUILD_TIMEOUT_S)
    return folder / "bin" / name


def test_a_monitor_shows_each_card_with_its_name_and_memory_and_its_mig_devices(
    monitor: Path, machine: NvidiaMachine
) -> None:
    devices = read_devices(machine)
    if monitor.name == "gpustat":  # it knows cards only
        shown = json.loads(run(machine, str(monitor), "--json"))["gpus"]
        cards = [(uuid, name, memory // MIB) for uuid, name, memory in devices if uuid.startswith("GPU-")]
        assert [(each["uuid"], each["name"], each["memory.total"]) for each in shown] == cards
        return
    text = run(machine, str(monitor), "--once", "--no-unicode")
    shown = re.findall(r"^\|\s*\d+:\d+\s+(\S+) @ GI/CI: \d+/\d+ \|\s*0B / *([\d.]+)(GiB|MiB) \|", text, re.MULTILINE)
    expected = [(name.rpartition(" ")[2], memory / MIB) for uuid, name, memory in devices if uuid.startswith("MIG-")]
    assert [name for name, _, _ in shown] == [name for name, _ in expected]
    in_mib = [float(amount) * (1024 if unit == "GiB" else 1) for _, amount, unit in shown]
    assert in_mib == pytest.approx([memory for _, memory in expected], rel=1e-3)


def test_a_monitor_shows_how_much_of_a_card_is_used_and_by_which_process(monitor: Path, machine: NvidiaMachine) -> None:
    if monitor.name == "gpustat":
        card = json.loads(run(machine, str(monitor), "--json"))["gpus"][WHOLE]
        (process,) = card["processes"]
        assert (card["utilization.gpu"], card["memory.used"]) == (37, 4096)
        assert (process["pid"], process["gpu_memory_usage"]) == (os.getpid(), 4096)
        return
    text = run(machine, str(monitor), "--once", "--no-unicode")
    assert re.findall(r"4096MiB / .*\| +(\d+)% ", text) == ["37"], text
    (line,) = (one for one in text.splitlines() if f" {os.getpid()} " in one)
    assert "4096MiB" in line
    assert " 35 " in line


def test_the_bindings_of_rust_read_what_those_of_python_read(machine: NvidiaMachine, tmp_path: Path) -> None:
    cargo = shutil.which("cargo")
    assert cargo, "this judge is written in Rust, and there is no cargo on the PATH"
    project = tmp_path / "project"  # cargo writes into it
    shutil.copytree(Path(__file__).parent / "nvml_wrapper", project)
    environment = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target")}
    build = [cargo, "build", "--quiet", "--release"]
    subprocess.run(build, cwd=project, env=environment, check=True, timeout=BUILD_TIMEOUT_S)
    lines = run(machine, str(tmp_path / "target/release/kerf-nvml-judge")).splitlines()
    read = [(uuid, name, int(memory)) for uuid, memory, name in (line.split(" ", 2) for line in lines)]
    assert read == read_devices(machine)
