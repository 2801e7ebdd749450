"""What pods and claims wait for that are being deleted."""

from typing import Any

import pytest

from kerf_dra.api.core.v1 import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Event,
    ResourceHealth,
    ResourceStatus,
)
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState, PluginPodState
from kerf_dra.driver.diagnostics.explain.report import Verdict, WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_claim, explain_pod
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, node, placed_pod, prepare_failure, replace
from tests.fakes.kubelet_texts import KILL_TEXTS

SOON = "2026-11-21T08:00:20Z"
LONG_AGO = "2026-11-21T07:50:00Z"
ENDED = ContainerStatus(name="main", state=ContainerState(terminated=ContainerStateTerminated(reason="Completed")))
RUNNING = ContainerStatus(name="main", state=ContainerState(running={}))


def ending(until: str, *statuses: ContainerStatus, finalizers: tuple[str, ...] = ()) -> ClusterState:
    """Return a cluster where the pod ``p``, with the device of its claim ``p``, ends at the time ``until``."""
    now = allocate_claims(gpu_cluster(), claim("p", "1g-10gb"))
    pod = placed_pod("p", "p", phase="Running", container_statuses=statuses)
    metadata = replace(pod.metadata, deletion_timestamp=until, finalizers=finalizers)
    return replace(now, pods=(replace(pod, metadata=metadata),))


def explain(now: ClusterState) -> WhyReport:
    return explain_pod(ClusterIndex(now), ObjectRef("default", "p"))


def not_ready(now: ClusterState) -> ClusterState:
    status = replace(node("node-1").status, conditions=(Condition(type="Ready", status="Unknown"),))
    return replace(now, nodes=(replace(node("node-1"), status=status),))


def kill_failure(message: str) -> Event:
    return replace(prepare_failure("p", ""), reason="FailedKillPod", message=message)


CASES: dict[str, tuple[ClusterState, Verdict, str, str, str]] = {
    "within the grace period": (
        ending(SOON, RUNNING),
        Verdict.ENDING,
        "containers-stopping",
        "container main has until 2026-11-21T08:00:20Z to end; then the claims are unprepared",
        "wait for the grace period",
    ),
    "a container that does not end": (
        ending(LONG_AGO, RUNNING),
        Verdict.CANNOT_END,
        "containers-stopping",
        "container main has not ended, 10 min after the grace period",
        "look on node-1",
    ),
    "the driver releases the devices": (
        ending(SOON, ENDED),
        Verdict.ENDING,
        "unprepare-pending",
        "claim default/p is still prepared on node-1: the kubelet waits for",
        "the kubelet tries until it succeeds",
    ),
    "the driver does not release the devices": (
        ending(LONG_AGO, ENDED),
        Verdict.CANNOT_END,
        "unprepare-pending",
        "to release its devices, 10 min after the grace period",
        "read the log of the plugin",
    ),
    "the plugin was removed before the pod": (
        replace(ending(SOON, ENDED), slices=()),
        Verdict.CANNOT_END,
        "driver-absent",
        "its plugin does not run there, so no plugin answers the kubelet's unprepare",
        "start the plugin of",
    ),
    "the kubelet reports a failure": (
        replace(
            ending(SOON, ENDED),
            events=(kill_failure("NodeUnprepareResources failed for ResourceClaim p: the card is away"),),
        ),
        Verdict.CANNOT_END,
        "unprepare-failed",
        "the kubelet of node-1 cannot end the pod: NodeUnprepareResources failed for ResourceClaim p: the card is away",
        "read the log of the driver's plugin",
    ),
    "the kubelet does not reach the plugin": (
        replace(ending(SOON, ENDED), events=(kill_failure("dial unix dra.sock: connect: connection refused"),)),
        Verdict.CANNOT_END,
        "driver-absent",
        "cannot end the pod: dial unix dra.sock: connect: connection refused",
        "start the plugin of",
    ),
    "the node is gone": (
        replace(ending(SOON), nodes=()),
        Verdict.CANNOT_END,
        "node-missing",
        "node node-1 does not exist",
        "--force",
    ),
    "the kubelet is silent": (
        not_ready(ending(SOON)),
        Verdict.CANNOT_END,
        "node-not-ready",
        "node node-1 is not ready",
        "out-of-service",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_pod_that_ends_is_told_what_it_waits_for(case: tuple[ClusterState, Verdict, str, str, str]) -> None:
    now, verdict, code, message, step = case
    answer = explain(now)
    assert answer.verdict is verdict
    cause = answer.causes[0]
    assert cause.code == code
    assert message in cause.message
    assert step in cause.next_step


def test_a_finalizer_is_told_beside_what_the_kubelet_does() -> None:
    answer = explain(ending(SOON, ENDED, finalizers=("example.com/backup",)))
    assert [cause.code for cause in answer.causes] == ["finalizer", "unprepare-pending"]
    assert "metadata.finalizers: example.com/backup" in answer.causes[0].message


def test_a_claim_that_another_pod_keeps_does_not_hold_up_the_end() -> None:
    now = ending(LONG_AGO, ENDED)
    [held] = now.claims
    user = replace(held.status.reserved_for[0], name="q", uid="uid-q")
    answer = explain(replace(now, claims=(replace(held, status=replace(held.status, reserved_for=(user,))),)))
    assert [cause.code for cause in answer.causes] == ["containers-stopping"]


def deleted(now: ClusterState, **fields: Any) -> ResourceClaim:
    [held] = now.claims
    return replace(held, metadata=replace(held.metadata, deletion_timestamp=LONG_AGO, **fields))


def explain_deleted(**fields: Any) -> WhyReport:
    now = allocate_claims(gpu_cluster(), claim("p", "1g-10gb"))
    reserved = fields.pop("reserved", True)
    going = deleted(now, **fields)
    if not reserved:
        going = replace(going, status=replace(going.status, reserved_for=()))
    return explain_claim(ClusterIndex(replace(now, claims=(going,))), going.ref)


def test_a_claim_that_is_deleted_waits_for_the_pods_that_use_it() -> None:
    answer = explain_deleted(finalizers=("resource.kubernetes.io/delete-protection",))
    assert answer.verdict is Verdict.ENDING
    [cause] = answer.causes
    assert (cause.code, cause.message) == (
        "claim-in-use",
        "claim default/p is being deleted; pod default/p still uses it",
    )


def test_the_allocation_of_a_deleted_claim_is_cleared_by_the_controller_manager() -> None:
    [cause] = explain_deleted(finalizers=("resource.kubernetes.io/delete-protection",), reserved=False).causes
    assert (cause.code, cause.is_fault) == ("claim-deleting", False)
    assert "kube-controller-manager" in cause.next_step


def test_the_finalizer_of_another_controller_keeps_a_claim() -> None:
    answer = explain_deleted(finalizers=("example.com/audit",), reserved=False)
    assert answer.verdict is Verdict.CANNOT_END
    assert [cause.code for cause in answer.causes] == ["finalizer"]


@pytest.mark.parametrize(("message", "code"), KILL_TEXTS.values(), ids=KILL_TEXTS.keys())
def test_what_keeps_a_pod_from_ending_is_the_plugin_or_the_container_runtime(message: str, code: str) -> None:
    """An error of the container runtime was told as one of the driver's plugin."""
    answer = explain(replace(ending(SOON, ENDED), events=(kill_failure(message),)))
    assert answer.verdict is Verdict.CANNOT_END
    cause = answer.causes[0]
    assert cause.code == code
    assert message in cause.message
    assert ("container runtime" in cause.next_step) == (code == "containers-stopping")


def with_health(*healths: str) -> ContainerStatus:
    resources = tuple(ResourceHealth(resource_id=f"x{number}", health=each) for number, each in enumerate(healths))
    return replace(ENDED, allocated_resources_status=(ResourceStatus(name="claim:p", resources=resources),))


def plugins(*nodes: str, is_ready: bool = True) -> tuple[PluginPodState, ...]:
    return tuple(PluginPodState(node=name, is_ready=is_ready) for name in nodes)


SILENT: dict[str, tuple[ContainerStatus, tuple[PluginPodState, ...], str]] = {
    # the container, the pods of Kerf's plugins, why no plugin answers; empty: one does
    "nothing is known": (ENDED, (), ""),
    "the plugin's pod is ready": (ENDED, plugins("node-1", "node-2"), ""),
    "no plugin's pod is on the node": (ENDED, plugins("node-2"), "no pod of Kerf's kubelet plugin is ready on node-1"),
    "the plugin's pod is not ready": (
        ENDED,
        (*plugins("node-1", is_ready=False), *plugins("node-2")),
        "no pod of Kerf's kubelet plugin is ready on node-1",
    ),
    "an old and a new pod of an update": (ENDED, (*plugins("node-1", is_ready=False), *plugins("node-1")), ""),
    "the plugin reports health": (with_health("Healthy"), (), ""),
    "one device of two is unknown to the driver": (with_health("Healthy", "Unknown"), (), ""),
    "the plugin's stream has ended": (
        with_health("Unknown", "Unknown"),
        (),
        "the kubelet of node-1 has lost its connection to the plugin of gpu.kerf.dev",
    ),
}


@pytest.mark.parametrize(("status", "pods", "why"), SILENT.values(), ids=SILENT.keys())
def test_a_plugin_that_has_gone_is_told_before_its_slices_are_deleted(
    status: ContainerStatus, pods: tuple[PluginPodState, ...], why: str
) -> None:
    """For 30 s after the plugin had gone the answer was to wait for it."""
    answer = explain(replace(ending(SOON, status), plugin_pods=pods))
    assert answer.verdict is (Verdict.CANNOT_END if why else Verdict.ENDING)
    cause = answer.causes[0]
    assert cause.code == ("driver-absent" if why else "unprepare-pending")
    assert why in cause.message
