"""Builds nvidia-ctk of nvidia-container-toolkit and libraries with sonames. Needs cgo, and root for device nodes."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.oracle.judge import build
from tests.oracle.nvidia.generated_spec import Generator
from tools.image.layers import CDI_HOOK_MODULE

TOOLKIT = "github.com/NVIDIA/nvidia-container-toolkit/cmd"


@pytest.fixture(scope="session")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    assert os.geteuid() == 0, "this oracle makes device nodes and mounts in a namespace of its own: run it as root"
    binary = build(CDI_HOOK_MODULE, tmp_path_factory.mktemp("oracle") / "nvidia-ctk", package=f"{TOOLKIT}/nvidia-ctk")
    return Generator(binary)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of which each file is a shared library whose soname is its name. NVML is not among them: the toolkit
    would call it.
    """
    folder = tmp_path_factory.mktemp("libraries")
    compiler = shutil.which("cc")
    assert compiler, "libraries with sonames are made by a C compiler, which cgo needs, too"
    for name in ("libcuda.so.1", "libnvidia-nvvm.so.1", "libnvidia-opticalflow.so.1", "libvdpau_nvidia.so.1"):
        command = [compiler, "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-x", "c", "/dev/null", "-o", name]
        subprocess.run(command, cwd=folder, check=True, timeout=60)
    return folder
