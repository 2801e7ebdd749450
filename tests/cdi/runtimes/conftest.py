"""Runtimes to start containers with: podman, and containerd by its own client, both with runc."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tests.cdi.runtimes.container import ContainerSetup, with_spec_directory
from tools.realcluster import requirements
from tools.realcluster.builds import build
from tools.realcluster.environment import chosen_version

Runtime: TypeAlias = Callable[[ContainerSetup, Sequence[str]], Sequence[str]]
"""Gives the command that runs a container with some devices; what the container is to run goes behind it."""

_START_S: Final = 30.0
_STOP_S: Final = 15.0
_SPECS: Final = Path("/run/cdi")
"""What ``/var/run/cdi`` is, wherever ``/var/run`` is a link to ``/run``."""
_CONTAINERD: Final = """version = 3
root = "{0}/root"
state = "{0}/state"
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"]
[grpc]
address = "{0}/sock"
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}/"  # a text: comparing paths takes a second for all tests
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.realcluster)


@pytest.fixture
def container_setup(tmp_path: Path) -> Iterator[ContainerSetup]:
    requirements.ensure()
    had_specs = _SPECS.exists()
    yield ContainerSetup(tmp_path / "workshop")
    if not had_specs and _SPECS.exists():
        _SPECS.rmdir()


@pytest.fixture
def podman() -> Iterator[Runtime]:
    # Not in tmp_path: podman wants fewer than 50 characters.
    with tempfile.TemporaryDirectory(prefix="podman-") as folder:
        yield _podman(folder)


def _podman(folder: str) -> Runtime:
    own = ["--root", f"{folder}/root", "--runroot", f"{folder}/run", "--storage-driver", "vfs"]
    # Raising limits needs CAP_SYS_RESOURCE, which not every root has.
    limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]

    def command(container_setup: ContainerSetup, devices: Sequence[str]) -> Sequence[str]:
        globals_ = ["podman", *own, "--cgroup-manager", "cgroupfs", "--runtime", str(container_setup.runc)]
        requests = [f"--device={device}" for device in devices]
        run = [*globals_, "run", "--rm", "--network=none", *limits, *requests, "--rootfs", str(container_setup.root_fs)]
        return with_spec_directory(container_setup.specs, run)

    return command


@pytest.fixture(scope="module")
def containerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    requirements.ensure()
    programs = build(chosen_version()).containerd
    folder = tmp_path_factory.mktemp("containerd")
    configuration = folder / "config.toml"
    configuration.write_text(_CONTAINERD.format(folder))
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [programs / "containerd", "--config", configuration], env=environment, stdout=log, stderr=log
        )
    _wait_for(folder / "sock", process)

    def command(container_setup: ContainerSetup, devices: Sequence[str]) -> Sequence[str]:
        client = [str(programs / "ctr"), "--address", str(folder / "sock"), "run", "--rm", "--rootfs"]
        requests = [f"--device={device}" for device in devices]
        run = [
            *client,
            "--runc-binary",
            str(container_setup.runc),
            *requests,
            str(container_setup.root_fs),
            container_setup.name,
        ]
        return with_spec_directory(container_setup.specs, run)

    yield command
    process.terminate()
    process.wait(_STOP_S)


def _wait_for(socket: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while not socket.exists():
        assert process.poll() is None, "containerd has ended"
        assert time.monotonic() < deadline, "containerd does not start"
        time.sleep(0.05)
