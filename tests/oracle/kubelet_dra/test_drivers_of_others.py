"""What a row of ``kerf sanity`` finds of a driver of others is seen with the kubelet's DRA manager, without the row.

docs/sanity.md has the same steps for a node of a cluster.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from kerf_dra import cdi
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.sanity.driver_process import DriverProcess
from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest
from tests.kubeletplugin.harness import short_directory
from tests.oracle.kubelet_dra.node import PATIENCE_S, RETRY_S, KubeletManager, Pod
from tests.oracle.sanity.test_peers import TEST_DRIVER, build_test_driver_command
from tests.sanity.node import NODE, one_driver
from tools.realcluster.cluster import load_factor

pytestmark = pytest.mark.oracle


async def succeed(manager: KubeletManager, op: str, pod: Pod) -> Sequence[str]:
    """Have the manager do something for a pod until that succeeds, as a kubelet does; return the pod's devices."""
    error = "the manager was not asked"
    with anyio.move_on_after(PATIENCE_S * load_factor()):
        while True:
            answer = await manager.ask(op=op, pod=pod.document())
            error = answer["error"]
            if not error:
                return answer["devices"] or ()
            await anyio.sleep(RETRY_S)
    raise AssertionError(f"{op} of {pod.claim} does not succeed: {error}")


@asynccontextmanager
async def running_kubelet(program: Path, root: Path, driver: DriverUnderTest) -> AsyncIterator[KubeletManager]:
    """The driver runs, and the kubelet's managers have found it by themselves, inside."""
    (root / "manager").mkdir()
    registry = driver.registration_socket.parent
    manager = KubeletManager([program, root / "kubeconfig", NODE, root / "manager", registry])
    process = process_of(driver)
    try:
        process.start()
        await manager.start([])
        await driver.wait_published()
        await driver.claims.create_class()
        yield manager
    finally:
        with anyio.CancelScope(shield=True):
            await manager.end(kill=True)
            await process.kill()


def process_of(driver: DriverUnderTest) -> DriverProcess:
    assert driver.process is not None, "its command is given"
    return driver.process


@pytest.mark.parametrize("is_killed", [False, True])
async def test_kubernetes_test_driver_leaves_the_file_of_a_claim_if_it_is_killed_before_the_unprepare(
    is_killed: bool, program: Path
) -> None:
    with short_directory() as root:
        async with (
            one_driver(root, TEST_DRIVER, build_test_driver_command(root)) as driver,
            Client(await load_access(root / "kubeconfig"), user_agent="kerf-oracle/1") as client,
            running_kubelet(program, root, driver) as manager,
            driver.claims.allocated() as [claim],
        ):
            kind = (await discover(client)).resource.resource_claims
            found = await client.get(kind, claim.name, claim.namespace)
            pod = Pod(claim, found.status.reserved_for[0].uid)
            await succeed(manager, "prepare", pod)
            devices = await succeed(manager, "devices", pod)
            if is_killed:
                await process_of(driver).kill()
                process_of(driver).start()
            await succeed(manager, "unprepare", pod)
            defined = cdi.Cache([root / "cdi"]).catalog.devices
            assert devices
            assert [name for name in devices if name in defined] == (list(devices) if is_killed else [])
