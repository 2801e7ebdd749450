"""One cluster with Kerf for each module of tests, one namespace for each test; logs are kept when a test fails.

A module may say which nodes with a kubelet it needs (``NODES``), which without (``BARE_NODES``), which files of
``deploy/manifests`` are not installed (``LEFT_OUT``), and whether plugins may read all claims (``EARLY_LOADING``).
"""

import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import pytest

from kerf_dra.driver.testing.nvml import NvidiaMachine
from tests.e2e.card_drains import KERF, Cards
from tests.e2e.hardware import StandInCards
from tests.e2e.log_capture import KEPT, keep_logs_on_failure, note_failure
from tests.e2e.namespace import Namespace
from tests.e2e.node import NodeView
from tests.e2e.wait import eventually
from tests.e2e.why_audit import WhyAudit, auditing
from tests.runtime.real_time import REAL_TIME
from tools.realcluster import requirements
from tools.realcluster.api import Api
from tools.realcluster.cluster import Cluster, load_factor, running
from tools.realcluster.environment import chosen_version
from tools.realcluster.kerf import DEFAULT_HARDWARE, SIMULATED, Kerf
from tools.realcluster.versions import KubernetesVersion

NODE: Final = "node1"
SETTLING_S: Final = 3.0
"""Longer than the plugin waits between two changes of its slices (``publish_min_interval_s``)."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}/"  # a text: comparing paths takes a second for all tests
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.realcluster)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let a test run with each backend that its marks ``gpu_backends`` and ``fpga_backends`` name, in one cluster."""
    if (fpgas := metafunc.definition.get_closest_marker("fpga_backends")) is not None:
        metafunc.parametrize("fpga_backend", fpgas.args, indirect=True, scope="module")
    if "gpu_backend" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("gpu_backends")
    names: tuple[str, ...] = (SIMULATED,) if mark is None else mark.args
    ids = [pytest.HIDDEN_PARAM if name == SIMULATED else name for name in names]
    metafunc.parametrize("gpu_backend", names, ids=ids, indirect=True, scope="module")


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, object]]:
    """The backend, for the session, so that fixtures of a module may be asynchronous."""
    return REAL_TIME


@pytest.fixture(scope="session")
def version() -> KubernetesVersion:
    requirements.ensure()
    return chosen_version()


@pytest.fixture(scope="module")
async def cluster(version: KubernetesVersion, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    nodes = getattr(request.module, "NODES", (NODE,))
    bare_nodes = getattr(request.module, "BARE_NODES", ())
    async with running(version, nodes=nodes, bare_nodes=bare_nodes) as cluster:
        with keep_logs_on_failure(cluster, request.session, request.module.__name__):
            yield cluster


@pytest.fixture(scope="module")
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    """The API server as an administrator."""
    async with Api(cluster.kubeconfig) as api:
        yield api


@pytest.fixture(scope="module")
async def why_audit(cluster: Cluster, api: Api, request: pytest.FixtureRequest) -> AsyncIterator[WhyAudit]:
    """What ``kerf why`` says about the pods that wait or end during the module's tests."""
    async with auditing(cluster, api, KEPT / f"{request.module.__name__}-why.json") as audit:
        yield audit


@pytest.fixture(scope="module")
def gpu_backend(request: pytest.FixtureRequest) -> str:
    """The name of the backend for GPUs."""
    return str(request.param)


@pytest.fixture(scope="module")
def fpga_backend(request: pytest.FixtureRequest) -> str:
    """The name of the backend for FPGAs."""
    return str(getattr(request, "param", SIMULATED))


@pytest.fixture(scope="module")
async def installation(cluster: Cluster, api: Api, request: pytest.FixtureRequest) -> Kerf:
    """Kerf, installed, of which the controller runs."""
    kerf = Kerf(cluster, api)
    left_out, early_loading = getattr(request.module, "LEFT_OUT", ()), getattr(request.module, "EARLY_LOADING", False)
    await kerf.install(left_out, early_loading=early_loading)
    await kerf.start_controller()
    return kerf


@pytest.fixture(scope="module")
async def kerf(
    cluster: Cluster, installation: Kerf, gpu_backend: str, fpga_backend: str, request: pytest.FixtureRequest
) -> AsyncIterator[Kerf]:
    """Kerf, running with the cards of the module's ``HARDWARE`` and with its ``PLUGIN_ARGUMENTS``."""
    described = getattr(request.module, "HARDWARE", DEFAULT_HARDWARE)
    hardware = replace(described, gpu_backend=gpu_backend, fpga_backend=fpga_backend)
    for name in cluster.nodes:
        installation.describe_hardware(name, hardware)
        await installation.start_plugin(name, getattr(request.module, "PLUGIN_ARGUMENTS", ()))
    yield installation
    for name in cluster.nodes:
        await installation.stop_plugin(name)


@pytest.fixture(scope="module")
def nodes(cluster: Cluster, kerf: Kerf) -> Mapping[str, NodeView]:
    """The nodes with a kubelet, by name."""
    return {name: NodeView(cluster, kerf, name) for name in cluster.nodes}


@pytest.fixture(scope="module")
def node(nodes: Mapping[str, NodeView]) -> NodeView:
    """The first node."""
    return next(iter(nodes.values()))


@pytest.fixture(scope="module")
async def idle_order(api: Api, nodes: Mapping[str, NodeView]) -> Sequence[str]:
    """The order in which devices are published while none is allocated.

    The order may change once: a plugin notices with its first slices that the API server drops fields. A pool is there
    once all its slices are.
    """
    namespace = Namespace(api, "", nodes)
    order: Sequence[str] = ()
    while order != (now := await eventually("devices are published", namespace.complete_devices)):
        order = now
        await anyio.sleep(SETTLING_S * load_factor())
    return order


@pytest.fixture
async def namespace(
    api: Api,
    nodes: Mapping[str, NodeView],
    idle_order: Sequence[str],
    why_audit: WhyAudit,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Namespace]:
    """A new namespace on idle nodes, of which nothing may be left at the end."""
    namespace = Namespace(api, f"t{secrets.token_hex(3)}", nodes, why_audit)
    await namespace.wait_published(idle_order)
    await namespace.open()
    yield namespace
    with note_failure(request.session):
        await why_audit.audit(at_once=True)
        for node in nodes.values():
            node.hardware.repair()
        await namespace.close()


@pytest.fixture(autouse=True)
def _why_is_known(why_audit: WhyAudit, request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails the test during which ``kerf why`` has not said why a pod waits or ends, and what to do."""
    yield
    flaws = why_audit.take_flaws()
    with note_failure(request.session):
        assert not flaws, "\n".join(flaws)


@pytest.fixture(autouse=True)
def _all_parts_run(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails the test during which a part of the cluster has ended by itself."""
    cluster: Cluster = request.getfixturevalue("cluster")
    yield
    ended = [name for name in cluster.processes.names if not cluster.processes.is_running(name)]
    assert not ended, "\n".join(f"{name} has ended:\n{cluster.processes.tail(name)}" for name in ended)


@pytest.fixture
def machine(namespace: Namespace) -> NvidiaMachine:
    """The stand-in machine of the first node, of a test on NVIDIA's backend."""
    hardware = namespace.node.hardware
    assert isinstance(hardware, StandInCards)
    return hardware.machine


@pytest.fixture(scope="module")
async def reclaimer(kerf: Kerf, request: pytest.FixtureRequest) -> AsyncIterator[Kerf]:
    """Kerf with the reclaimer, in the module's ``RECLAIM_MODE``."""
    await kerf.start_reclaimer(getattr(request.module, "RECLAIM_MODE", "Report"))
    yield kerf
    await kerf.stop_reclaimer()


@pytest.fixture
async def cards(api: Api, namespace: Namespace, reclaimer: Kerf) -> AsyncIterator[Cards]:
    """The cards, of which none is in maintenance afterwards, and none is held by a Deployment."""
    assert reclaimer is not None
    yield Cards(api, namespace)
    for one in await api.list("apps/v1", "Deployment", namespace.name):
        await api.delete("apps/v1", "Deployment", one["metadata"]["name"], namespace.name)
    for one in await api.list(KERF, "CardMaintenance"):
        await api.delete(KERF, "CardMaintenance", one["metadata"]["name"])
