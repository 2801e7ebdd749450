"""A new administrator's path: the commands of README.md, and nothing else, on an empty real cluster."""

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio.to_thread
import pytest

from tests.installation.release import NODE, Release, bare_cluster, write_kerf_image
from tools.realcluster.api import Api
from tools.realcluster.builds import build, build_helm
from tools.realcluster.cluster import Cluster, load_factor
from tools.realcluster.environment import chosen_version
from tools.realcluster.image import write_image
from tools.supply_chain.lock import ROOT

LIMIT_S: Final = 300.0
"""Five minutes without the image's build, on an idle machine."""
STANDARD: Final = {"/var/lib/kubelet": "kubelet", "/run/cdi": "cdi", "/var/lib/kerf": "kerf"}
"""Where a usual node has what the nodes of these clusters have in a folder of their own."""
POD_IMAGE: Final = "docker.io/library/busybox:1.37"
"""What a runtime makes of the image's name in deploy/examples; there is no registry here."""
IMAGE_BUILD: Final = "make image ARGS=--with-simulated"


def commands() -> Iterator[str]:
    """Yield the commands of README's section on clusters, without comments."""
    section = (ROOT / "README.md").read_text().partition("## On a cluster\n")[2]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    for line in block[1].replace("\\\n", " ").splitlines():
        yield re.split(r"\s+# ", line)[0].replace("NODE", NODE)


def as_loaded(command: str) -> str:
    """Return a command with its time limit, which is for an idle machine, as long as the load demands."""
    return re.sub(r"--timeout=(\d+)m\b", lambda found: f"--timeout={int(found[1]) * 60 * load_factor():.0f}s", command)


@pytest.fixture(scope="module")
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """A cluster without Kerf's image, whose node has its folders where nodes usually have them."""
    async with bare_cluster(chosen_version(), request, request.module.__name__) as cluster:
        root = cluster.node_paths(NODE).root
        made = [path for path in map(Path, STANDARD) if not path.exists()]
        for path, folder in STANDARD.items():
            Path(path).mkdir(parents=True, exist_ok=True)
            (root / folder).mkdir(exist_ok=True)
            cluster.machine(NODE).run(["mount", "--bind", str(root / folder), path])
        yield cluster
        for empty in made:
            with suppress(OSError):  # somebody else has begun to use it
                empty.rmdir()


@dataclass(frozen=True, slots=True)
class Shell:
    """A terminal in a folder like a checkout's, with the programs that README.md names on the PATH."""

    folder: Path
    environment: Mapping[str, str]

    def run(self, command: str) -> str:
        """Run a line. Raises AssertionError with its output when it fails."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout


@pytest.fixture(scope="module")
def shell(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder = tmp_path_factory.mktemp("checkout")
    programs, machine = build(cluster.version), cluster.processes.pid(f"{NODE}-machine")
    enter = f"nsenter --target={machine} --mount --pid --wd={folder} --"
    containerd = f"{programs.containerd / 'ctr'} --address={cluster.node_paths(NODE).containerd_socket}"
    wrappers = {"helm": build_helm(), "kubectl": f"{programs.kube} kubectl", "ctr": f"{enter} {containerd}"}
    (folder / "bin").mkdir()
    for name, program in wrappers.items():
        file = folder / "bin" / name
        file.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        file.chmod(0o755)
    for name in ("deploy", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "dist").mkdir()
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    return Shell(folder, {**os.environ, **own})


async def test_the_commands_of_the_readme_lead_from_an_empty_cluster_to_a_pod_with_a_partition(
    cluster: Cluster, api: Api, release: Release, shell: Shell
) -> None:
    steps = [*commands()]
    assert steps[0] == IMAGE_BUILD
    await anyio.to_thread.run_sync(write_kerf_image, shell.folder / "dist" / "kerf-image.tar")
    busybox = shell.folder / "busybox.tar"
    write_image(POD_IMAGE, busybox)
    await anyio.to_thread.run_sync(cluster.import_image, NODE, busybox)

    began = anyio.current_time()
    with anyio.fail_after(LIMIT_S * load_factor()):
        for step in steps[1:]:
            said = await anyio.to_thread.run_sync(shell.run, as_loaded(step), abandon_on_cancel=True)
            print(f"{anyio.current_time() - began:5.1f} s  {step}\n{said}")
    pod = await api.get("v1", "Pod", "gpu-by-size", "default")
    assert "KERF_DEVICE_GPU_0_1G_20GB" in release.log(pod)

    # kubectl finds Kerf on the PATH, and completes what follows.
    assert "kubectl-kerf" in shell.run("kubectl plugin list 2>&1")
    assert "pod default/gpu-by-size" in shell.run("kubectl kerf why pod/gpu-by-size --namespace default")
    # A slow answer has a line of progress on stderr.
    assert shell.run("kubectl kerf why pods --all-namespaces --output name 2>/dev/null") == ""
    assert shell.run("kubectl kerf version").startswith("kerf 0.1.0 ")
    assert "pod/gpu-by-size" in shell.run("kubectl __complete kerf why pod/gpu")
