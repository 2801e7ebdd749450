"""Moments in which a pod is stuck by what only its status, events or the Node say: ``kerf why`` has their codes.

The other moments of the table in docs/diagnostics.md need a machine that fails in ways that a test does not bring about
here (a full disk, a container runtime that hangs): ``tests/diagnostics/test_stuck_moments.py`` has all of them.
"""

from kerf_dra.driver.partitions.geometry import Placement
from tests.e2e import pods
from tests.e2e.device_health import health
from tests.e2e.namespace import Namespace
from tests.e2e.test_diagnostics import cause_of
from tests.e2e.wait import eventually
from tools.realcluster.api import Document
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import Hardware, Kerf

EARLY_LOADING = True
"""The permission to list claims: without it devices are tainted, not withdrawn."""
HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
_RESTARTED_S = 5
"""Seconds after which a container ends, so that the runtime has to make another one."""


def pod_that_restarts(name: str, template: str) -> Document:
    """Return a pod whose container ends by itself again and again."""
    pod = pods.pod(name, {"gpu": pods.by_template(template)})
    command = pods.REPORT_COMMAND.replace("sleep 1000000 & wait", f"sleep {_RESTARTED_S}")
    assert command != pods.REPORT_COMMAND
    pod["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", command]
    return pod


async def test_a_pod_that_names_its_node_is_bound_without_its_claim(cluster: Cluster, namespace: Namespace) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", "p", nodeName=namespace.node.name)
    cause = await cause_of(cluster, namespace, "p", "bound-without-allocation", "blocked")
    assert "without spec.nodeName" in cause["next_step"]


async def test_a_container_whose_cdi_file_is_gone_is_a_fault_of_its_claim(
    cluster: Cluster, kerf: Kerf, namespace: Namespace
) -> None:
    """Without its plugin nothing writes the file again."""
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.apply(pod_that_restarts("p", "small"))
    await namespace.wait_running("p")
    await kerf.crash_plugin(namespace.node.name)
    try:
        namespace.node.remove_cdi_files()
        cause = await cause_of(cluster, namespace, "p", "device-injection-failed", "cannot-start")
        assert "unresolvable CDI devices" in cause["message"]
        assert "kerf cdi explain " in cause["next_step"]
    finally:
        await kerf.start_plugin(namespace.node.name)


async def test_a_partition_that_another_program_has_replaced_is_a_fault_of_a_running_pod(
    cluster: Cluster, namespace: Namespace
) -> None:
    """It cannot be made again, and the pod, whose claim tolerates that, is not evicted."""
    half = await namespace.resource_class("half", device="gpu", profile="3g.40gb")
    tolerated = {"key": "gpu.kerf.dev/unusable", "operator": "Exists", "effect": "NoExecute"}
    await namespace.template("half", pods.exactly("gpu", half, tolerations=[tolerated]))
    await namespace.create_pods("half", "p")
    await namespace.wait_running("p")
    [(card, _, start)] = namespace.node.gpu_partitions
    namespace.node.hardware.destroy(card, Placement(start=start, size=4))

    async def is_unhealthy() -> bool:
        return any(state == "Unhealthy" for state, _ in await health(namespace, "p"))

    with namespace.node.cut_by_hand(card, "1g.10gb", start=start, size=1):
        await eventually("the kubelet reports the device as unhealthy", is_unhealthy)
        cause = await cause_of(cluster, namespace, "p", "device-unhealthy", "devices-failed")
        assert "kubectl delete pod p" in cause["next_step"]


async def test_a_card_that_is_withdrawn_is_named_to_the_pod_that_finds_no_device(
    cluster: Cluster, namespace: Namespace
) -> None:
    whole = await namespace.resource_class("whole", device="gpu", cut="Whole")
    await namespace.template("whole", pods.exactly("gpu", whole))

    async def is_withdrawn() -> bool:
        return "gpu-0" not in await namespace.published_devices()

    with namespace.node.cut_by_hand("gpu-0", "3g.40gb", start=0, size=4):
        await eventually("the card is withdrawn", is_withdrawn)
        await namespace.create_pods("whole", "p")
        cause = await cause_of(cluster, namespace, "p", "hardware-held", "does-not-fit")
        assert "in use outside of Kerf" in cause["message"]
    await namespace.wait_running("p")


async def test_a_plugin_that_is_away_is_named_from_the_first_failed_unprepare_on(
    cluster: Cluster, kerf: Kerf, namespace: Namespace
) -> None:
    """Its slices stay for 30 s, in which the answer was to wait."""
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", "p")
    await namespace.wait_running("p")
    await kerf.crash_plugin(namespace.node.name)
    try:
        await namespace.api.delete("v1", "Pod", "p", namespace.name)
        cause = await cause_of(cluster, namespace, "p", "driver-absent", "cannot-end")
        assert "start the plugin of" in cause["next_step"]
    finally:
        await kerf.start_plugin(namespace.node.name)
