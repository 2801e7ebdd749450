"""A real Kubernetes where Kerf's controller allocates, for all tests of this folder but those with more kubelets.

1.30, unless ``KERF_E2E_CLASSIC`` names another release of ``tools/realcluster/versions.py``: there is 1.31.
"""

import os
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest
import yaml

from tests.e2e.classic.dialects import Dialect, convert_examples, dialect_of
from tests.e2e.classic.namespace import ClassicNamespace
from tests.e2e.log_capture import keep_logs_on_failure
from tests.e2e.node import NodeView
from tests.e2e.why_audit import WhyAudit
from tools.realcluster import requirements
from tools.realcluster.api import Api
from tools.realcluster.cluster import Cluster, running
from tools.realcluster.environment import chosen_classic_version
from tools.realcluster.kerf import DEFAULT_HARDWARE, DEPLOY, Kerf, manifests
from tools.realcluster.versions import KubernetesVersion

NODE = "node1"
EXAMPLES = DEPLOY / "examples" / "classic"
LOGS = f"classic-{os.environ.get('PYTEST_XDIST_WORKER', 'all')}"
"""The name of what is kept of the one cluster of this process."""


@pytest.fixture(scope="session")
def version() -> KubernetesVersion:
    requirements.ensure()
    return chosen_classic_version()


@pytest.fixture(scope="session")
def dialect(version: KubernetesVersion) -> Dialect:
    return dialect_of(version.resource_version)


@pytest.fixture(scope="package")
async def cluster(version: KubernetesVersion, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    bare_nodes = [f"bare{number}" for number in range(1, 4)]
    async with running(version, nodes=(NODE,), bare_nodes=bare_nodes) as cluster:
        with keep_logs_on_failure(cluster, request.session, LOGS):
            yield cluster


async def install(cluster: Cluster, api: Api) -> Kerf:
    """Install Kerf with only the permissions of ``deploy/manifests`` and ``deploy/classic``; nothing of it runs yet."""
    kerf = Kerf(cluster, api)
    await kerf.install()
    for document in manifests(DEPLOY / "classic"):
        await api.apply(document)
    return kerf


@pytest.fixture(scope="package")
async def kerf(cluster: Cluster, dialect: Dialect) -> AsyncIterator[Kerf]:
    """Kerf, running on one node, and the classes of the examples."""
    async with Api(cluster.kubeconfig) as api:  # the fixture `api` ends with each module
        kerf = await install(cluster, api)
        examples = yaml.safe_load_all((EXAMPLES / "classes.yaml").read_text())
        for document in convert_examples(examples, dialect):
            await api.apply(document)
        await kerf.start_controller()
        kerf.describe_hardware(NODE, DEFAULT_HARDWARE)
        await kerf.start_plugin(NODE)
        yield kerf


@pytest.fixture
async def namespace(
    api: Api, cluster: Cluster, kerf: Kerf, dialect: Dialect, why_audit: WhyAudit
) -> AsyncIterator[ClassicNamespace]:
    """A new namespace; at its end no claim, partition or CDI file may be left."""
    namespace = ClassicNamespace(api, f"t{secrets.token_hex(3)}", NodeView(cluster, kerf, NODE), dialect, why_audit)
    await namespace.open()
    yield namespace
    await why_audit.audit(at_once=True)
    namespace.node.hardware.repair()
    await namespace.close()


@pytest.fixture(autouse=True)
def _why_is_known(why_audit: WhyAudit) -> Iterator[None]:
    yield
    flaws = why_audit.take_flaws()
    assert not flaws, "\n".join(flaws)


@pytest.fixture(autouse=True)
def _all_parts_run(cluster: Cluster) -> Iterator[None]:
    yield
    ended = [name for name in cluster.processes.names if not cluster.processes.is_running(name)]
    assert not ended, "\n".join(f"{name} has ended:\n{cluster.processes.tail(name)}" for name in ended)
