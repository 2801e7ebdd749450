"""A cluster into which Kerf is installed as a user does it: its image as pods, its chart by Helm."""

import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import pytest
import yaml

from tests.e2e.log_capture import keep_logs_on_failure
from tests.image import description
from tests.image.archive import write_archive
from tests.image.layers import build_layers
from tests.oracle.helm.chart import CHART, NAMESPACE, Helm
from tests.realcluster import requirements
from tests.realcluster.api import Api
from tests.realcluster.cluster import Cluster, running
from tests.realcluster.environment import chosen_version
from tests.realcluster.pod_access import pod_access
from tests.runtime.real_time import REAL_TIME

NODE: Final = "node1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}/"  # a text: comparing paths takes a second for all tests
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.realcluster)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, object]]:
    return REAL_TIME


@pytest.fixture(scope="module")
async def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A cluster that has Kerf's image."""
    requirements.ensure()
    layers = build_layers(with_cdi_hook=True)
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    write_archive(description.NAME, archive, layers, description.configuration())
    async with running(chosen_version(), nodes=(NODE,)) as cluster, pod_access(cluster):
        with keep_logs_on_failure(cluster, request.session, request.module.__name__):
            await anyio.to_thread.run_sync(cluster.import_image, NODE, archive)
            archive.unlink()
            yield cluster


@pytest.fixture(scope="module")
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    """The API server as an administrator."""
    async with Api(cluster.kubeconfig) as api:
        yield api


@dataclass(frozen=True, slots=True)
class Installer:
    """Helm as an administrator of the cluster."""

    helm: Helm
    cluster: Cluster
    folder: Path

    async def run(self, command: str, values: Mapping[str, Any] | None = None) -> str:
        """Run ``helm COMMAND kerf``, with the chart where there are values. Raises RefusedError."""
        given: Sequence[str] = ()
        if values is not None:
            paths = self.cluster.node_paths(NODE)
            own = {"kubeletRoot": str(paths.kubelet), "cdiFolder": str(paths.cdi), "stateFolder": str(paths.root)}
            file = self.folder / "values.yaml"
            file.write_text(yaml.safe_dump({**own, **values}))
            given = [str(CHART), f"--values={file}"]
        access = [f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={NAMESPACE}"]
        return await anyio.to_thread.run_sync(partial(self.helm.run, command, "kerf", *given, *access))

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl. Raises CalledProcessError."""
        command = self.cluster.kubectl(*arguments)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def installer(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Installer:
    folder = tmp_path_factory.mktemp("helm")
    return Installer(Helm.built(folder), cluster, folder)
