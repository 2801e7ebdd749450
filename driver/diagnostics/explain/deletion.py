"""What a pod or claim that is being deleted waits for.

A pod ends in this order: its containers are stopped within the grace period, the kubelet has the driver unprepare its
claims, then the pod goes, and the controller manager removes the reservation and the allocation of its claims.
``metadata.deletionTimestamp`` is the end of the grace period.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef, list_names
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.explain.device_faults import absent_step, why_absent, why_silent
from kerf_dra.driver.diagnostics.explain.events.kubelet_messages import is_plugin_away, is_runtime_failure
from kerf_dra.driver.diagnostics.explain.next_steps import merge_causes
from kerf_dra.driver.diagnostics.explain.pod_start import check_node_of_pod
from kerf_dra.driver.diagnostics.explain.pod_status import HeldClaim, events_about, running_containers
from kerf_dra.driver.diagnostics.explain.report import Cause, CauseCode, Verdict
from kerf_dra.driver.diagnostics.times import format_seconds, seconds_between

_KILL_FAILED: Final = "FailedKillPod"
"""The reason of the kubelet's event about a pod that cannot be ended."""
_PATIENCE_S: Final = 30.0
"""Seconds after the grace period in which an orderly end may still be under way: kubelets retry within it."""
_DELETE_PROTECTION: Final = "resource.kubernetes.io/delete-protection"
"""The finalizer of allocated claims (KEP-4381), which goes with the allocation."""


def check_pod_deletion(cluster: ClusterIndex, pod: Pod, claims: Sequence[HeldClaim]) -> tuple[Cause, ...]:
    """Return what ``pod``, which is being deleted, waits for; never empty."""
    late_s = seconds_between(pod.metadata.deletion_timestamp, cluster.state.gathered_at)
    is_late = late_s is not None and late_s > _PATIENCE_S
    causes = [*_check_kubelet(cluster, pod, claims, is_late, late_s or 0.0)] if pod.spec.node_name else []
    causes += _check_finalizers(pod.metadata, f"pod {pod.ref}")
    if not causes:
        causes.append(_stopping(pod, late_s or 0.0, is_late))
    return merge_causes(causes)


def verdict_of_deletion(causes: Sequence[Cause]) -> tuple[Verdict, str]:
    """Return the verdict on something that is being deleted, with its sentence."""
    if any(cause.is_fault for cause in causes):
        return Verdict.CANNOT_END, "it is being deleted and cannot end"
    return Verdict.ENDING, "it is being deleted"


def _check_kubelet(
    cluster: ClusterIndex, pod: Pod, claims: Sequence[HeldClaim], is_late: bool, late_s: float
) -> Iterator[Cause]:
    unreachable = tuple(check_node_of_pod(cluster, pod))
    if unreachable:
        yield from unreachable
        return
    running = running_containers(pod)
    failures = events_about(cluster, pod, _KILL_FAILED)
    if failures:
        said, drivers = (
            failures[0].message,
            list_names(list(dict.fromkeys(d for claim in claims for d in claim.drivers))),
        )
        if is_runtime_failure(said):
            yield _not_killed(pod, said)
            return
        is_away = is_plugin_away(said)
        yield Cause(
            code=CauseCode.DRIVER_ABSENT if is_away else CauseCode.UNPREPARE_FAILED,
            message=f"the kubelet of {pod.spec.node_name} cannot end the pod: {said}",
            next_step=absent_step(drivers, pod.spec.node_name)
            if is_away
            else f"read the log of the driver's plugin on {pod.spec.node_name}; the kubelet tries again by itself",
            objects=(f"pod {pod.ref}", *(f"claim {claim.ref}" for claim in claims)),
        )
    elif running:
        yield _stopping(pod, late_s, is_late, running)
        return
    for claim in claims:
        if not claim.is_reserved_for(pod):
            continue
        absent = {
            driver: why_absent(cluster, driver, pod.spec.node_name, [claim]) or why_silent(cluster, driver, pod)
            for driver in claim.drivers
        }
        away = next((driver for driver, why in absent.items() if why), None)
        objects = f"pod {pod.ref}", f"claim {claim.ref}"
        if away is not None:
            yield Cause(
                code=CauseCode.DRIVER_ABSENT,
                message=f"claim {claim.ref} is still prepared: {absent[away]}, so no plugin answers the kubelet's "
                "unprepare",
                next_step=absent_step(away, pod.spec.node_name),
                objects=objects,
            )
        elif not failures:
            drivers = list_names(claim.drivers)
            yield Cause(
                code=CauseCode.UNPREPARE_PENDING,
                message=f"claim {claim.ref} is still prepared on {pod.spec.node_name}: the kubelet waits for {drivers} "
                f"to release its devices{_late(late_s, is_late)}",
                next_step=f"read the log of the plugin of {drivers} on {pod.spec.node_name}: each try is in it"
                if is_late
                else "wait: the kubelet tries until it succeeds",
                objects=objects,
                is_fault=is_late,
            )


def _not_killed(pod: Pod, said: str) -> Cause:
    """Return that the container runtime cannot end the containers, by the kubelet's event: no plugin is asked yet."""
    return Cause(
        code=CauseCode.CONTAINERS_STOPPING,
        message=f"the container runtime of {pod.spec.node_name} cannot end the containers: {said}",
        next_step=f"read the log of the container runtime on {pod.spec.node_name}, and restart it if it does not "
        "answer (containerd, CRI-O): the kubelet tries again by itself, and unprepares the claims then",
        objects=(f"pod {pod.ref}",),
    )


def _stopping(pod: Pod, late_s: float, is_late: bool, running: Sequence[str] = ()) -> Cause:
    what = f"container {list_names(running)} has" if running else "its containers have"
    until = pod.metadata.deletion_timestamp or "the end of the grace period"
    return Cause(
        code=CauseCode.CONTAINERS_STOPPING,
        message=f"{what} not ended{_late(late_s, is_late)}: a process hangs, or the kubelet cannot end it"
        if is_late
        else f"{what} until {until} to end; then the claims are unprepared",
        next_step=f"look on {pod.spec.node_name or 'its node'} for what keeps the process (a device that does not "
        "answer, for example), and read the kubelet's log"
        if is_late
        else "wait for the grace period",
        objects=(f"pod {pod.ref}",),
        is_fault=is_late,
    )


def _late(late_s: float, is_late: bool) -> str:
    return f", {format_seconds(late_s)} after the grace period" if is_late else ""


def check_claim_deletion(metadata: ObjectMeta, users: Sequence[ObjectRef], *, is_allocated: bool) -> tuple[Cause, ...]:
    """Return what a claim that is being deleted waits for; never empty."""
    name = f"claim {metadata.namespace}/{metadata.name}"
    if users:
        return (
            Cause(
                code=CauseCode.CLAIM_IN_USE,
                message=f"{name} is being deleted; pod {list_names(list(map(str, users)))} still uses it",
                next_step="wait until the pod ends, or delete it",
                objects=(name, *(f"pod {user}" for user in users)),
                is_fault=False,
            ),
        )
    others = [each for each in metadata.finalizers if each != _DELETE_PROTECTION]
    if is_allocated and not others:
        return (
            Cause(
                code=CauseCode.CLAIM_DELETING,
                message=f"{name} is being deleted: its allocation is cleared next",
                next_step="wait some seconds; if nothing changes, check that kube-controller-manager runs, on classic "
                "clusters the controller of the claim's driver",
                objects=(name,),
                is_fault=False,
            ),
        )
    found = tuple(_check_finalizers(metadata, name))
    return found or (
        Cause(
            code=CauseCode.CLAIM_DELETING,
            message=f"{name} is being deleted",
            next_step="wait some seconds: nothing keeps it",
            objects=(name,),
            is_fault=False,
        ),
    )


def _check_finalizers(metadata: ObjectMeta, name: str) -> Iterator[Cause]:
    if metadata.finalizers:
        names = ", ".join(metadata.finalizers)
        yield Cause(
            code=CauseCode.FINALIZER,
            message=f"{name} has metadata.finalizers: {names}",
            next_step="check that the controller that set the finalizer runs: it removes it when its work is done",
            objects=(name,),
        )
