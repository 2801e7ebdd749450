"""What a pod's status and events report of devices: containers that cannot get them, unhealthy ones, bound pods."""

from collections.abc import Callable
from typing import Any

import pytest

from kerf_dra.api.core.v1 import (
    Container,
    ContainerClaim,
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Event,
    PodSpec,
    ResourceHealth,
    ResourceRequirements,
    ResourceStatus,
)
from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import decode_dump, encode_dump, redact
from kerf_dra.driver.diagnostics.explain.report import Verdict, WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_claim, explain_pod
from kerf_dra.driver.diagnostics.explain.workload_pods import explain_waiting_pods
from tests.fakes.cluster_states import (
    allocate_claims,
    claim,
    gpu_cluster,
    placed_pod,
    pod,
    prepare_failure,
    replace,
)
from tests.fakes.kubelet_texts import DEVICE_TEXTS, OTHER_TEXTS

SANDBOX = Condition(type="PodReadyToStartContainers", status="True")
CDI, NODE, HOOK = (
    DEVICE_TEXTS[name][0] for name in ("containerd, a name that no file has", "runc, no device node", "crun, a hook")
)


def two_claims(*statuses: ContainerStatus, phase: str = "Pending", started: bool = True) -> ClusterState:
    """Return a cluster where the containers ``a`` and ``b`` of the pod ``p`` have the claims of these names."""
    now = allocate_claims(gpu_cluster(2), claim("a", "1g-10gb"), claim("b", "2g-20gb"), on="node-1")
    now = replace(
        now,
        claims=tuple(
            replace(each, status=replace(each.status, reserved_for=(replace(user, name="p", uid="uid-p"),)))
            for each in now.claims
            for user in each.status.reserved_for
        ),
    )
    conditions = (SANDBOX,) if started else ()
    made = placed_pod("p", "a", "b", phase=phase, conditions=conditions, container_statuses=statuses)
    containers = tuple(
        Container(name=name, resources=ResourceRequirements(claims=(ContainerClaim(name=name),))) for name in ("a", "b")
    )
    return replace(now, pods=(replace(made, spec=replace(made.spec, containers=containers)),))


def explain(now: ClusterState, name: str = "p") -> WhyReport:
    return explain_pod(ClusterIndex(now), ObjectRef("default", name))


def container(name: str, *, health: tuple[ResourceStatus, ...] = (), **states: Any) -> ContainerStatus:
    last = states.pop("last_state", ContainerState())
    return ContainerStatus(
        name=name, state=ContainerState(**states), last_state=last, allocated_resources_status=health
    )


def waits(reason: str, message: str = "") -> ContainerStateWaiting:
    return ContainerStateWaiting(reason=reason, message=message)


def ended(reason: str, message: str) -> ContainerStateTerminated:
    return ContainerStateTerminated(reason=reason, message=message)


def runtime_event(message: str, reason: str = "Failed") -> Event:
    return replace(prepare_failure("p", ""), reason=reason, message=f"Error: {message}")


RUNS = container("a", running={})
SOURCES: dict[str, Callable[[str], ClusterState]] = {
    "the state of a container": lambda text: two_claims(
        RUNS, container("b", waiting=waits("CreateContainerError", text))
    ),
    "the state before, while the container waits to be started again": lambda text: two_claims(
        RUNS,
        container(
            "b",
            waiting=waits("CrashLoopBackOff", "back-off 10s restarting failed container"),
            last_state=ContainerState(terminated=ended("StartError", text)),
        ),
        phase="Running",
    ),
    "a container that has ended before it ran": lambda text: two_claims(
        RUNS, container("b", terminated=ended("ContainerCannotRun", text)), phase="Running"
    ),
    "an event, while the status has no message": lambda text: replace(
        two_claims(RUNS, container("b", waiting=waits("CreateContainerError"))), events=(runtime_event(text),)
    ),
}


@pytest.mark.parametrize("text", [text for text, _ in DEVICE_TEXTS.values()], ids=DEVICE_TEXTS.keys())
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_a_container_that_cannot_get_its_devices_is_a_fault_of_its_claim(
    source: Callable[[str], ClusterState], text: str
) -> None:
    """A claim whose CDI file was gone was told to be in order, "not about devices"."""
    answer = explain(source(text))
    assert answer.verdict is Verdict.CANNOT_START
    cause = answer.causes[0]
    assert (cause.code, cause.is_fault) == ("device-injection-failed", True)
    assert cause.message.startswith("container b cannot get its devices (gpu.kerf.dev/node-1/gpu/")
    assert text in cause.message
    assert "of claim default/b)" in cause.message
    assert "kerf cdi explain" in cause.next_step
    assert "claim default/a" not in cause.objects
    assert not any("not about devices" in each.next_step for each in answer.causes)


def test_a_dump_keeps_what_a_runtime_says_of_devices() -> None:
    now = SOURCES["the state of a container"](CDI)
    again = decode_dump(encode_dump(redact(now)), "dump.json")
    assert explain(again).causes == explain(now).causes


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (CDI, "kerf cdi explain k8s.gpu.kerf.dev/gpu=claim-1 on node-1 says which CDI file should have it"),
        (NODE, "that the kernel module of the devices is loaded"),
        (HOOK, "which hook the runtime runs"),
    ],
)
def test_what_to_do_depends_on_what_the_runtime_cannot_give(text: str, step: str) -> None:
    assert step in explain(SOURCES["the state of a container"](text)).causes[0].next_step


def test_the_cdi_name_of_a_message_without_one_is_in_the_health_of_the_container() -> None:
    health = (ResourceStatus(name="claim:b", resources=(ResourceHealth(resource_id="k8s.x/gpu=b", health="Healthy"),)),)
    now = two_claims(RUNS, container("b", waiting=waits("CreateContainerError", NODE), health=health))
    assert "kerf cdi explain k8s.x/gpu=b there" in explain(now).causes[0].next_step


@pytest.mark.parametrize("text", OTHER_TEXTS)
def test_a_container_that_waits_for_something_else_is_not_blamed_on_devices(text: str) -> None:
    answer = explain(two_claims(RUNS, container("b", waiting=waits("CreateContainerError", text))))
    assert answer.verdict is Verdict.STARTING
    assert [cause.code for cause in answer.causes] == ["container-waiting"]
    assert text not in encode_dump(redact(two_claims(container("b", waiting=waits("x", text))))).decode()


def test_what_a_program_says_at_its_end_is_no_message_of_the_runtime() -> None:
    crashed = container(
        "b",
        waiting=waits("CrashLoopBackOff"),
        last_state=ContainerState(terminated=ended("Error", "cannot open /dev/nvidia0: no such file")),
    )
    assert [cause.code for cause in explain(two_claims(RUNS, crashed, phase="Running")).causes] == ["container-waiting"]


def test_an_earlier_failure_of_a_container_that_runs_does_not_count() -> None:
    late = container("b", running={}, last_state=ContainerState(terminated=ended("StartError", CDI)))
    now = replace(two_claims(RUNS, late, phase="Running"), events=(runtime_event(CDI),))
    answer = explain(now)
    assert (answer.verdict, answer.causes) == (Verdict.HAS_DEVICES, ())


@pytest.mark.parametrize("started", [False, True], ids=["before Kubernetes 1.29", "with a sandbox"])
def test_each_container_is_told_once_by_what_it_waits_for(started: bool) -> None:
    image, devices = waits("ImagePullBackOff"), waits("CreateContainerError", CDI)
    now = two_claims(container("a", waiting=image), container("b", waiting=devices), started=started)
    answer = explain(now)
    assert answer.verdict is Verdict.CANNOT_START
    assert [cause.code for cause in answer.causes] == ["device-injection-failed", "container-waiting"]
    assert "container a waits: ImagePullBackOff" in answer.causes[1].message


def test_a_sandbox_that_cannot_get_devices_is_a_fault_before_any_container_is_there() -> None:
    now = replace(two_claims(started=False), events=(runtime_event(CDI, "FailedCreatePodSandBox"),))
    answer = explain(now)
    assert answer.verdict is Verdict.CANNOT_START
    assert answer.causes[0].message.startswith("the pod's sandbox cannot get its devices")
    assert {"claim default/a", "claim default/b"} <= set(answer.causes[0].objects)


@pytest.mark.parametrize("reason", ["FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume"])
def test_what_else_the_kubelet_waits_for_is_said_in_place_of_no_fault(reason: str) -> None:
    now = replace(two_claims(started=False), events=(runtime_event("no network for the pod", reason),))
    answer = explain(now)
    assert answer.verdict is Verdict.CANNOT_START
    [cause] = answer.causes
    assert cause.code == "kubelet-error"
    assert "not about devices: Error: no network for the pod" in cause.message


def unhealthy(name: str, message: str = "", resource: str = "") -> tuple[ResourceStatus, ...]:
    healths = (
        ResourceHealth(resource_id=f"k8s.gpu.kerf.dev/gpu={name}", health="Unhealthy", message=message),
        ResourceHealth(resource_id=f"k8s.gpu.kerf.dev/gpu={name}-2", health="Healthy"),
    )
    return (ResourceStatus(name=resource or f"claim:{name}/r0", resources=healths),)


def test_a_device_that_the_kubelet_reports_as_unhealthy_is_a_fault_of_a_running_pod() -> None:
    """A partition that another program had removed was all well by ``kerf why``, with exit code 0."""
    said = "gpu-0-1g-10gb-at-0 is gone; delete the pod"
    now = two_claims(RUNS, container("b", running={}, health=unhealthy("b", said)), phase="Running")
    answer = explain(redact(now))
    assert answer.verdict is Verdict.DEVICES_FAILED
    [cause] = answer.causes
    assert cause.code == "device-unhealthy"
    assert cause.message == f"the kubelet reports k8s.gpu.kerf.dev/gpu=b of claim default/b as unhealthy: {said}"
    assert cause.next_step.startswith("kubectl delete pod p -n default")
    assert cause.objects == ("pod default/p", "claim default/b")


def test_a_device_of_two_containers_is_reported_once_and_that_of_an_extended_resource_by_its_name() -> None:
    health = unhealthy("x", "", "example.com/gpu")
    now = two_claims(container("a", running={}, health=health), container("b", running={}, health=health))
    [cause] = explain(now).causes
    assert "of example.com/gpu as unhealthy; its driver does not say why" in cause.message


def test_a_claim_and_the_list_of_pods_that_wait_have_unhealthy_devices_too() -> None:
    now = two_claims(RUNS, container("b", running={}, health=unhealthy("b")), phase="Running")
    cluster = ClusterIndex(now)
    assert explain_claim(cluster, ObjectRef("default", "b")).verdict is Verdict.DEVICES_FAILED
    [report] = explain_waiting_pods(cluster, "default").pods
    assert [cause.code for cause in report.causes] == ["device-unhealthy"]


@pytest.mark.parametrize("health", ["Healthy", "Unknown"])
def test_other_health_is_no_fault(health: str) -> None:
    status = (ResourceStatus(name="claim:b", resources=(ResourceHealth(resource_id="x", health=health),)),)
    now = two_claims(RUNS, container("b", running={}, health=status), phase="Running")
    assert explain(now).verdict is Verdict.HAS_DEVICES
    assert explain_waiting_pods(ClusterIndex(now), "default").pods == ()


def bound(*names: str) -> ClusterState:
    """Return a cluster where the pod ``p`` is on node-1 with the claims ``a``, allocated, and ``b``, which is not."""
    now = two_claims(started=False)
    first, second = now.claims
    return replace(now, claims=(first, replace(second, status=ResourceClaimStatus())))


def test_a_pod_that_is_bound_while_its_claim_is_not_allocated_is_told_that_no_scheduler_comes() -> None:
    """It was told to wait for the scheduler, which never looks at a pod with spec.nodeName."""
    answer = explain(bound())
    assert answer.verdict is Verdict.BLOCKED
    [cause] = answer.causes
    assert (cause.code, cause.is_fault) == ("bound-without-allocation", True)
    assert "the pod is bound to node node-1, and claim default/b is not allocated" in cause.message
    assert "without spec.nodeName" in cause.next_step
    assert "kubernetes.io/hostname: node-1" in cause.next_step
    assert cause.objects == ("pod default/p", "claim default/b")


def test_a_claim_that_only_a_bound_pod_names_is_explained_by_it() -> None:
    answer = explain_claim(ClusterIndex(bound()), ObjectRef("default", "b"))
    assert [cause.code for cause in answer.causes] == ["bound-without-allocation"]


def test_a_claim_that_a_bound_and_a_waiting_pod_name_is_explained_by_the_one_that_a_scheduler_sees() -> None:
    now = bound()
    answer = explain_claim(ClusterIndex(replace(now, pods=(*now.pods, pod("q", "b")))), ObjectRef("default", "b"))
    assert answer.verdict is Verdict.FITS


def test_the_embedded_kubelets_pods_have_neither_state_nor_health() -> None:
    now = two_claims(started=False)
    [made] = now.pods
    plain = replace(made, spec=PodSpec(resource_claims=made.spec.resource_claims, node_name="node-1"))
    assert [cause.code for cause in explain(replace(now, pods=(plain,))).causes] == ["preparing"]
