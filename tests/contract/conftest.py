"""The two clusters under test: control planes with two nodes on which nothing runs."""

import secrets
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import pytest
import yaml

from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from kerf_dra.driver.local.cluster import ClusterSettings, LocalCluster
from tests.contract.documents import namespace
from tests.e2e.wait import eventually
from tests.runtime.real_time import REAL_TIME
from tools.realcluster import requirements
from tools.realcluster.api import Api
from tools.realcluster.cluster import add_bare_node, running
from tools.realcluster.environment import chosen_version
from tools.realcluster.kerf import DEPLOY, manifests

CLUSTERS: Final = ["embedded", pytest.param("real", marks=pytest.mark.realcluster)]
NODES: Final = ("bare1", "bare2")
HISTORY: Final = 20
"""Changes that the embedded API server remembers where a test wants it to forget."""


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, object]]:
    """For a session, so that fixtures of a module may be asynchronous."""
    return REAL_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUnderTest:
    """One of the two, as its administrator sees it."""

    api: Api
    forget: Callable[[], Awaitable[None]]
    """Have it forget all but the last ``HISTORY`` changes of each kind."""
    bookmark_s: float
    """Within this time a silent watch gets a bookmark."""


@pytest.fixture(scope="module", params=CLUSTERS)
async def cluster_under_test(request: pytest.FixtureRequest) -> AsyncIterator[ClusterUnderTest]:
    """An API server with Kerf's own kinds; nobody schedules."""
    async with _real() if request.param == "real" else _embedded_server() as cluster_under_test:
        for document in manifests(DEPLOY / "crds"):
            await cluster_under_test.api.apply(document)
        await eventually("ResourceClasses are served", lambda: _serves_classes(cluster_under_test.api))
        yield cluster_under_test


@pytest.fixture(scope="module")
def server(cluster_under_test: ClusterUnderTest) -> Api:
    return cluster_under_test.api


@pytest.fixture(scope="module")
def forget(cluster_under_test: ClusterUnderTest) -> Callable[[], Awaitable[None]]:
    return cluster_under_test.forget


@pytest.fixture(scope="module")
def bookmark_s(cluster_under_test: ClusterUnderTest) -> float:
    return cluster_under_test.bookmark_s


@pytest.fixture(scope="module", params=CLUSTERS)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """A cluster with a scheduler, and two nodes."""
    if request.param == "real":
        async with _real() as cluster_under_test:
            yield cluster_under_test.api
    else:
        async with _embedded_cluster() as api:
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
async def _real() -> AsyncIterator[ClusterUnderTest]:
    requirements.ensure()
    async with (
        running(chosen_version(), nodes=(), bare_nodes=NODES) as cluster,
        Api(cluster.kubeconfig) as api,
    ):

        async def forget() -> None:
            """Restart the API server, whose history then begins anew."""
            await cluster.processes.kill("apiserver")
            cluster.start_part("apiserver")
            await cluster.wait_served()

        yield ClusterUnderTest(api=api, forget=forget, bookmark_s=75)


@asynccontextmanager
async def _embedded_server() -> AsyncIterator[ClusterUnderTest]:
    server = ApiServer(settings=ApiServerSettings(history=HISTORY, bookmark_interval_s=1))
    with tempfile.TemporaryDirectory() as root:
        async with anyio.create_task_group() as tasks:
            await tasks.start(server.serve)
            kubeconfig = Path(root) / "kubeconfig"
            kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
            async with Api(kubeconfig) as api:
                yield ClusterUnderTest(api=api, forget=anyio.lowlevel.checkpoint, bookmark_s=60)
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _embedded_cluster() -> AsyncIterator[Api]:
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


async def _serves_classes(api: Api) -> bool:
    return bool(await api.request("GET", "/apis/kerf.dev/v1alpha1/resourceclasses"))


@asynccontextmanager
async def _namespace(api: Api) -> AsyncIterator[str]:
    name = f"t{secrets.token_hex(3)}"
    await api.create(namespace(name))
    yield name
    await api.delete("v1", "Namespace", name)
