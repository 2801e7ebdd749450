"""The two clusters that are asked: control planes with two nodes on which nothing runs."""

import secrets
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest
import yaml

from driver.local.apiserver import ApiServer, ApiServerSettings
from driver.local.cluster import ClusterSettings, LocalCluster
from tests.contract.documents import namespace
from tests.realcluster import requirements
from tests.realcluster.api import Api
from tests.realcluster.choosing import chosen_instance, chosen_version
from tests.realcluster.cluster import add_bare_node, running

CLUSTERS: Final = ["embedded", pytest.param("real", marks=pytest.mark.realcluster)]
NODES: Final = ("bare1", "bare2")
HISTORY: Final = 20
"""Changes that the embedded API server remembers where a test wants it to forget."""


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """For a session, so that fixtures of a module may be asynchronous."""
    return "asyncio"


@pytest.fixture(scope="module", params=CLUSTERS)
async def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    """An API server as its administrator sees it: objects only, nobody schedules."""
    if request.param == "real":
        async with _real() as api:
            yield api
        return
    server = ApiServer(settings=ApiServerSettings(history=HISTORY))
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        kubeconfig = tmp_path_factory.mktemp("embedded") / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
        async with Api(kubeconfig) as api:
            yield api
        tasks.cancel_scope.cancel()


@pytest.fixture(scope="module", params=CLUSTERS)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """A cluster with a scheduler, and two nodes."""
    async with _real() if request.param == "real" else _embedded() as api:
        yield api


@pytest.fixture
async def space(server: Api) -> AsyncIterator[str]:
    """A namespace of the test's own on the API server."""
    async with _namespace(server) as name:
        yield name


@pytest.fixture
async def busy_space(cluster: Api) -> AsyncIterator[str]:
    """A namespace of the test's own on the cluster."""
    async with _namespace(cluster) as name:
        yield name


@asynccontextmanager
async def _real() -> AsyncIterator[Api]:
    requirements.ensure()
    async with (
        running(chosen_version(), nodes=(), bare_nodes=NODES, instance=chosen_instance()) as cluster,
        Api(cluster.kubeconfig) as api,
    ):
        yield api


@asynccontextmanager
async def _embedded() -> AsyncIterator[Api]:
    with tempfile.TemporaryDirectory() as root:
        cluster = LocalCluster(
            ClusterSettings(root=Path(root), nodes=()),
            share_id=lambda: str(uuid.uuid4()),
            boot_id=lambda: str(uuid.uuid4()),
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(cluster.run)
            async with Api(cluster.kubeconfig) as api:
                for name in NODES:
                    await add_bare_node(api, name)
                yield api
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _namespace(api: Api) -> AsyncIterator[str]:
    name = f"t{secrets.token_hex(3)}"
    await api.create(namespace(name))
    yield name
    await api.delete("v1", "Namespace", name)
