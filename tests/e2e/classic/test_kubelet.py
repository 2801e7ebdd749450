"""A real kubelet of the classic era, and Kerf's plugin (upstream: ``test/e2e_node/dra_test.go``, release-1.30)."""

import signal

from tests.e2e.classic.scene import Scene
from tests.e2e.wait import eventually
from tests.realcluster.cluster import Cluster
from tests.realcluster.kerf import Kerf

ONE = {"resourceClaimName": "one"}
CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
DESTROY = "nvmlGpuInstanceDestroy"


def kubelet_of(scene: Scene) -> str:
    return f"{scene.node.name}-kubelet"


async def test_a_prepare_that_fails_is_tried_again_until_it_works(scene: Scene) -> None:
    # K-5
    scene.node.break_step(CREATE, reason="In use by another client", times=2)
    await scene.claim("one", "gpu-small")
    await scene.pod("pod", {"gpu": ONE})
    await scene.says("pod", "In use by another client")
    assert list((await scene.tells("pod")).kerf_devices) == list(await scene.devices())


async def test_an_unprepare_that_fails_is_tried_again_until_it_works(scene: Scene) -> None:
    # K-10
    await scene.claim("one", "gpu-small")
    await scene.pod("pod", {"gpu": ONE})
    await scene.runs("pod")
    scene.node.break_step(DESTROY, reason="In use by another client", times=1)
    await scene.delete_pod("pod")
    await scene.nothing_left()


async def test_a_pod_runs_only_once_its_claim_is_reserved_for_it(scene: Scene, cluster: Cluster) -> None:
    """It names its node, so the scheduler never sees it, and who else would reserve stands still."""
    # K-1
    await scene.claim("one", "gpu-shared")
    await scene.pod("first", {"gpu": ONE})
    await scene.runs("first")
    cluster.processes.signal("controller-manager", signal.SIGSTOP)
    try:
        await scene.pod("second", {"gpu": ONE}, nodeName=scene.node.name)
        await scene.says("second", "not allowed to use")
    finally:
        cluster.processes.signal("controller-manager", signal.SIGCONT)
    await scene.runs("second")


async def test_pods_of_a_kubelet_that_was_away_run_and_go_when_it_is_back(scene: Scene, cluster: Cluster) -> None:
    """It registers the plugin anew; running pods do not notice.

    A pod that is deleted by force meanwhile is another matter: kubelet 1.30 forgets that it has to unprepare, and the
    plugin takes back what is gone by itself (``driver.kubeletplugin.claims.garbage_collection``).
    """
    # K-9, K-11
    for name in ("stays", "goes", "comes"):
        await scene.claim(name, "gpu-small")
    for name in ("stays", "goes"):
        await scene.pod(name, {"gpu": {"resourceClaimName": name}})
        await scene.runs(name)
    before = (await scene.runs("stays"))["status"]["containerStatuses"]
    await cluster.processes.stop(kubelet_of(scene))
    await scene.pod("comes", {"gpu": {"resourceClaimName": "comes"}})
    await scene.api.delete("v1", "Pod", "goes", scene.namespace, grace_s=1)
    cluster.start_kubelet(scene.node.name)
    await cluster.wait_node_ready(scene.api, scene.node.name)
    await scene.runs("comes")
    await scene.gone("Pod", "goes")
    await scene.released("goes")
    assert (await scene.runs("stays"))["status"]["containerStatuses"] == before
    assert len(scene.node.cut) == 2


async def test_a_plugin_that_is_killed_while_it_prepares_ends_what_it_began(scene: Scene, kerf: Kerf) -> None:
    scene.node.break_step(CREATE, effect="crash", when="after")
    await scene.claim("one", "gpu-small")
    await scene.pod("pod", {"gpu": ONE})

    async def has_died() -> bool:
        return not scene.node.plugin_is_running

    await eventually("the plugin has died", has_died)
    scene.node.repair()
    await kerf.crash_plugin(scene.node.name)  # only forgets the process
    await kerf.start_plugin(scene.node.name)
    await scene.runs("pod")
    assert len(scene.node.cut) == 1
