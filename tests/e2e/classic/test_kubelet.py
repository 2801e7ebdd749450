"""A real kubelet of the classic era, and Kerf's plugin (upstream: ``test/e2e_node/dra_test.go``, release-1.30)."""

import signal

from tests.e2e.classic.namespace import ClassicNamespace
from tests.e2e.namespace import FORGOTTEN_S
from tests.e2e.wait import eventually
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import Kerf

ONE = {"resourceClaimName": "one"}
CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
DESTROY = "nvmlGpuInstanceDestroy"


def kubelet_of(namespace: ClassicNamespace) -> str:
    return f"{namespace.node.name}-kubelet"


async def test_a_prepare_that_fails_is_tried_again_until_it_works(namespace: ClassicNamespace) -> None:
    # K-5
    namespace.node.hardware.break_step(CREATE, reason="In use by another client", times=2)
    await namespace.claim("one", "gpu-small")
    await namespace.pod("pod", {"gpu": ONE})
    await namespace.wait_event("pod", "In use by another client")
    assert list((await namespace.read_report("pod")).kerf_devices) == list(await namespace.devices())


async def test_an_unprepare_that_fails_is_tried_again_until_it_works(namespace: ClassicNamespace) -> None:
    # K-10
    await namespace.claim("one", "gpu-small")
    await namespace.pod("pod", {"gpu": ONE})
    await namespace.wait_running("pod")
    namespace.node.hardware.break_step(DESTROY, reason="In use by another client", times=1)
    await namespace.delete_pod("pod")
    await namespace.wait_clean()


async def test_a_pod_runs_only_once_its_claim_is_reserved_for_it(namespace: ClassicNamespace, cluster: Cluster) -> None:
    """It names its node, so the scheduler never sees it, and who else would reserve stands still."""
    # K-1
    await namespace.claim("one", "gpu-shared")
    await namespace.pod("first", {"gpu": ONE})
    await namespace.wait_running("first")
    cluster.processes.signal("controller-manager", signal.SIGSTOP)
    try:
        await namespace.pod("second", {"gpu": ONE}, nodeName=namespace.node.name)
        await namespace.wait_event("second", "not allowed to use")
    finally:
        cluster.processes.signal("controller-manager", signal.SIGCONT)
    await namespace.wait_running("second")


async def test_pods_of_a_kubelet_that_was_away_run_and_go_when_it_is_back(
    namespace: ClassicNamespace, cluster: Cluster
) -> None:
    """It registers the plugin anew; running pods do not notice.

    A pod that is deleted by force meanwhile is another matter: kubelet 1.30 forgets that it has to unprepare, and the
    plugin takes back what is gone by itself (``kerf_dra.driver.kubeletplugin.claims.garbage_collection``).
    """
    # K-9, K-11
    for name in ("stays", "goes", "comes"):
        await namespace.claim(name, "gpu-small")
    for name in ("stays", "goes"):
        await namespace.pod(name, {"gpu": {"resourceClaimName": name}})
        await namespace.wait_running(name)
    before = (await namespace.wait_running("stays"))["status"]["containerStatuses"]
    await cluster.processes.stop(kubelet_of(namespace))
    await namespace.pod("comes", {"gpu": {"resourceClaimName": "comes"}})
    await namespace.api.delete("v1", "Pod", "goes", namespace.name, grace_s=1)
    cluster.start_kubelet(namespace.node.name)
    await cluster.wait_node_ready(namespace.api, namespace.node.name)
    await namespace.wait_running("comes")
    await namespace.wait_gone("Pod", "goes")
    await namespace.wait_released("goes")
    assert (await namespace.wait_running("stays"))["status"]["containerStatuses"] == before

    async def are_two() -> bool:
        return len(namespace.node.gpu_partitions) == 2

    await eventually("the partition of the pod that went is gone", are_two, within_s=FORGOTTEN_S)


async def test_a_plugin_that_is_killed_while_it_prepares_ends_what_it_began(
    namespace: ClassicNamespace, kerf: Kerf
) -> None:
    namespace.node.hardware.break_step(CREATE, effect="crash", when="after")
    await namespace.claim("one", "gpu-small")
    await namespace.pod("pod", {"gpu": ONE})

    async def has_died() -> bool:
        return not namespace.node.plugin_is_running

    await eventually("the plugin has died", has_died)
    namespace.node.hardware.repair()
    await kerf.crash_plugin(namespace.node.name)  # only forgets the process
    await kerf.start_plugin(namespace.node.name)
    await namespace.wait_running("pod")
    assert len(namespace.node.gpu_partitions) == 1
