"""A cluster into which Kerf is installed as a user does it: its image as pods, its chart by Helm."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.installation.release import Release, bare_cluster, import_kerf_image
from tests.runtime.real_time import REAL_TIME
from tools.helm.chart import Helm
from tools.realcluster.api import Api
from tools.realcluster.cluster import Cluster
from tools.realcluster.environment import chosen_version


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}/"  # a text: comparing paths takes a second for all tests
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.realcluster)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, object]]:
    return REAL_TIME


@pytest.fixture(scope="session")
def helm() -> Helm:
    return Helm.built()


@pytest.fixture(scope="module")
async def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A cluster that has Kerf's image."""
    async with bare_cluster(chosen_version(), request, request.module.__name__) as cluster:
        await import_kerf_image(cluster, tmp_path_factory.mktemp("image"))
        yield cluster


@pytest.fixture(scope="module")
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    """The API server as an administrator."""
    async with Api(cluster.kubeconfig) as api:
        yield api


@pytest.fixture(scope="module")
def release(helm: Helm, cluster: Cluster, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Release:
    return Release(helm, cluster, api, tmp_path_factory.mktemp("values"))
