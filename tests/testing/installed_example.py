"""The example backend, installed as a vendor's package is: found by its entry point."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
EXAMPLE: Final = ROOT / "docs/examples/npu"


def install(site: Path, example: Path = EXAMPLE) -> Mapping[str, str]:
    """Install the example, or another package, below ``site``; returns the environment of a Python that finds it."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(site / "dist")]
    subprocess.run(build, cwd=example, check=True, capture_output=True)
    [wheel] = (site / "dist").iterdir()
    unpack = [sys.executable, "-m", "zipfile", "-e", str(wheel), str(site)]  # a pure wheel is installed by unpacking
    subprocess.run(unpack, check=True, capture_output=True)
    return {**os.environ, "PYTHONPATH": f"{site}:{ROOT}", "PYTEST_ADDOPTS": ""}


def run_module(environment: Mapping[str, str], folder: Path, *arguments: str) -> str:
    """Run ``python -m ARGUMENTS`` in ``folder``; returns what it prints."""
    command = [sys.executable, "-m", *arguments]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
