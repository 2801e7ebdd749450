"""Why a pod whose claims are all allocated does not start: binding conditions, its node, its devices, failed prepares.

What published objects show is found first; what the kubelet reports in events completes it, or is a cause of its own.
A kubelet's message is classified by ``kubelet_messages``, a container runtime's by ``container_devices``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kerf_dra.api.core.v1 import Event, Pod
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.model.names import list_names
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.explain.device_faults import find_device_faults, find_driver_faults
from kerf_dra.driver.diagnostics.explain.double_allocation import find_double_allocations
from kerf_dra.driver.diagnostics.explain.events.container_devices import (
    find_container_faults,
    find_failing_containers,
    find_unhealthy_devices,
)
from kerf_dra.driver.diagnostics.explain.events.kubelet_messages import classify_message
from kerf_dra.driver.diagnostics.explain.next_steps import merge_causes, recreate_step
from kerf_dra.driver.diagnostics.explain.pod_status import HeldClaim, events_about, has_started, waiting_containers
from kerf_dra.driver.diagnostics.explain.report import Cause, CauseCode, Verdict
from kerf_dra.driver.diagnostics.times import format_seconds, seconds_between
from kerf_dra.driver.scheduling.binding_conditions import TIMEOUT_S

PREPARE_FAILED: Final = "FailedPrepareDynamicResources"
"""The reason of the kubelet's event about a failed prepare."""
_WAITING_FOR: Final[Mapping[str, str]] = {
    "FailedCreatePodSandBox": "see what the message names, mostly the network plugin or the runtime of {node}",
    "FailedMount": "see what the message names: the volume, or the object that it is of; the claims are prepared next",
    "FailedAttachVolume": "see what the message names, mostly the driver of the volume; the claims are prepared next",
}
"""The kubelet's reasons of events about what a pod waits for beside its devices, with what to do."""
_LOST: Final = frozenset({CauseCode.DEVICE_GONE, CauseCode.DEVICE_UNHEALTHY, CauseCode.DOUBLE_ALLOCATION})
"""The causes for which a device of a running pod is of no use to it, or not its own."""
_ANYWHERE: Final = frozenset({CauseCode.PARAMETERS_REFUSED, CauseCode.NOT_RESERVED})
"""Failures that another node does not cure."""
_PREFIXES: Final = re.compile(r"(?i:failed to prepare dynamic resources: |prepare dynamic resources: )+")
"""What kubelets write before every message."""
_MOST_MESSAGES: Final = 3
"""Messages that are shown: a kubelet that tries again repeats a few."""


def check_binding(cluster: ClusterIndex, claims: Sequence[ResourceClaim]) -> tuple[Cause, ...]:
    """Return the devices of ``claims`` for which the binding of a pod waits, or that cannot be made ready."""
    return merge_causes(cause for claim in claims for cause in _check_binding(cluster, claim))


def _check_binding(cluster: ClusterIndex, claim: ResourceClaim) -> Iterator[Cause]:
    allocation = claim.status.allocation
    if allocation is None:
        return
    waited_s = seconds_between(allocation.allocation_timestamp, cluster.state.gathered_at)
    for result in allocation.devices.results:
        conditions: Mapping[str, Condition] = {
            condition.type: condition
            for device in claim.status.devices
            if (device.driver, device.pool, device.device) == (result.driver, result.pool, result.device)
            for condition in device.conditions
            if condition.status == "True"
        }
        objects = f"device {result.id}", f"claim {claim.ref}"
        failed = [conditions[type_] for type_ in result.binding_failure_conditions if type_ in conditions]
        pending = [type_ for type_ in result.binding_conditions if type_ not in conditions]
        if failed:
            said = "; ".join(f"{each.type}: {each.message or each.reason}" for each in failed)
            yield Cause(
                code=CauseCode.DEVICE_FAILED,
                message=f"{result.device} of claim {claim.ref} cannot be made ready: {said}",
                next_step="nothing: the scheduler takes the device back and tries others; if it comes again, read the "
                f"log of the plugin of {result.driver}",
                objects=objects,
            )
        elif pending:
            since = "" if waited_s is None else f" for {format_seconds(waited_s)}"
            is_late = waited_s is not None and waited_s >= TIMEOUT_S
            yield Cause(
                code=CauseCode.DEVICE_LOADING,
                message=f"{result.device} of claim {claim.ref} is being made ready{since}: the pod is bound once "
                f"status.devices has the condition {', '.join(pending)}",
                next_step=f"check that the plugin of {result.driver} runs: it sets the condition"
                if is_late
                else f"wait: the scheduler gives up after {format_seconds(TIMEOUT_S)} and tries other devices",
                objects=objects,
                is_fault=is_late,
            )


def check_running(
    cluster: ClusterIndex, pod: Pod, claims: Sequence[HeldClaim], found: Sequence[ResourceClaim]
) -> tuple[Cause, ...]:
    """Return what a pod that has started should know: containers that wait, and faults of its devices."""
    return merge_causes(
        (
            *find_container_faults(cluster, pod, claims),
            *find_unhealthy_devices(pod, claims),
            *find_device_faults(cluster, claims),
            *find_double_allocations(cluster, found),
            *_check_waiting(cluster, pod),
        )
    )


def _check_waiting(cluster: ClusterIndex, pod: Pod) -> Iterator[Cause]:
    """Yield a cause for each container that waits for something other than its devices."""
    failing = find_failing_containers(cluster, pod)
    for name, reason in waiting_containers(pod).items():
        if name not in failing:
            yield Cause(
                code=CauseCode.CONTAINER_WAITING,
                message=f"the devices are prepared, and container {name} waits: {reason}",
                next_step=f"kubectl describe pod {pod.metadata.name} -n {pod.metadata.namespace}, not about devices",
                objects=(f"pod {pod.ref}",),
                is_fault=False,
            )


def check_start(
    cluster: ClusterIndex,
    pod: Pod,
    claims: Sequence[HeldClaim],
    found: Sequence[ResourceClaim],
    alternatives: Sequence[str] = (),
) -> tuple[Cause, ...]:
    """Return why ``pod``, which is on a node with its allocated ``claims``, has not started; never empty.

    ``found`` are the claims where the scheduler allocates; ``alternatives`` are other nodes that fit.
    """
    node = pod.spec.node_name
    away = tuple(find_driver_faults(cluster, node, claims))
    published = [claim for claim in claims if not any(f"claim {claim.ref}" in cause.objects for cause in away)]
    causes = [
        *check_node_of_pod(cluster, pod),
        *away,
        *find_double_allocations(cluster, found),
        *_check_reservations(pod, claims),
        *find_device_faults(cluster, published),
        *find_container_faults(cluster, pod, claims, alternatives),
        *find_unhealthy_devices(pod, claims, alternatives),
    ]
    failures = tuple(_failed_prepares(cluster, pod, claims, alternatives))
    for failure in failures:
        index = next((index for index, cause in enumerate(causes) if cause.code == failure.code), None)
        if index is None:
            causes.append(failure)
        else:
            said = f"{causes[index].message}; {failure.message}"
            causes[index] = replace(causes[index], message=said)
    waiting = tuple(_check_waiting(cluster, pod))
    if not (failures or waiting or any(cause.is_fault for cause in causes)):
        causes += _waits_beside_devices(cluster, pod) or (_preparing(cluster, pod, claims),)
    return merge_causes((*causes, *waiting))


def verdict_of_start(pod: Pod, causes: Sequence[Cause]) -> tuple[Verdict, str]:
    """Return the verdict on a pod that is on a node with its allocated claims, with its sentence."""
    node = pod.spec.node_name
    codes = {cause.code for cause in causes}
    if has_started(pod):
        if CauseCode.DEVICE_INJECTION_FAILED in codes:
            return Verdict.CANNOT_START, f"its claims are prepared on {node}, and a container cannot get its devices"
        if has_lost_devices(causes):
            return Verdict.DEVICES_FAILED, f"it is on node {node}, and its devices have a fault"
        if CauseCode.CONTAINER_WAITING in codes:
            return Verdict.STARTING, f"its devices are prepared on {node}, and a container waits"
        return Verdict.HAS_DEVICES, f"all claims have their devices and the pod is on node {node}"
    if any(cause.is_fault for cause in causes):
        return Verdict.CANNOT_START, f"it has its devices on {node} and cannot start"
    return Verdict.STARTING, f"it has its devices on {node} and has not started yet"


def has_lost_devices(causes: Sequence[Cause]) -> bool:
    """Whether a device of a pod that runs is of no use to it, or another claim has it, too."""
    return any(cause.is_fault and cause.code in _LOST for cause in causes)


def check_node_of_pod(cluster: ClusterIndex, pod: Pod) -> Iterator[Cause]:
    """Yield why the pod's node cannot do anything for it, if it cannot."""
    name = pod.spec.node_name
    node = next((node for node in cluster.nodes if node.metadata.name == name), None)
    if node is None:
        yield Cause(
            code=CauseCode.NODE_MISSING,
            message=f"node {name} does not exist",
            next_step=f"{recreate_step(pod)}; for a pod that stays, add --force --grace-period=0",
            objects=(f"node {name}", f"pod {pod.ref}"),
        )
    elif not node.is_ready:
        ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
        reason = f" ({ready.reason}, since {ready.last_transition_time})" if ready and ready.reason else ""
        yield Cause(
            code=CauseCode.NODE_NOT_READY,
            message=f"node {name} is not ready{reason}: its kubelet does not run, or does not reach the API server",
            next_step=f"bring the node back; if its machine is off for good, taint it: kubectl taint node {name} "
            "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
            objects=(f"node {name}",),
        )


def _check_reservations(pod: Pod, claims: Sequence[HeldClaim]) -> Iterator[Cause]:
    for claim in claims:
        if not claim.is_reserved_for(pod):
            users = list_names([user.name for user in claim.reserved_for]) or "no pod"
            yield Cause(
                code=CauseCode.NOT_RESERVED,
                message=f"claim {claim.ref} is reserved for {users} (status.reservedFor), not for this pod",
                next_step="wait some seconds: the controller manager reserves it if the claim may have more pods; else "
                f"wait until the others end, or {recreate_step(pod)}",
                objects=(f"claim {claim.ref}", f"pod {pod.ref}"),
            )


def _failed_prepares(
    cluster: ClusterIndex, pod: Pod, claims: Sequence[HeldClaim], alternatives: Sequence[str]
) -> Iterator[Cause]:
    shown: set[str] = set()
    for event in events_about(cluster, pod, PREPARE_FAILED):
        message = _PREFIXES.sub("", event.message, count=1)
        if message in shown or len(shown) == _MOST_MESSAGES:
            continue
        shown.add(message)
        failure = classify_message(message)
        claim = _claim_in(message, claims)
        what = f"claim {claim.ref}" if claim else "the pod's claims"
        yield Cause(
            code=failure.code,
            message=f"{what} cannot be prepared on {pod.spec.node_name}{_times(event)}: {message}",
            next_step=failure.step.format(
                recreate=recreate_step(pod, () if failure.code in _ANYWHERE else alternatives), node=pod.spec.node_name
            ),
            objects=(f"pod {pod.ref}", *([f"claim {claim.ref}"] if claim else [])),
            is_fault=failure.is_fault,
        )


def _waits_beside_devices(cluster: ClusterIndex, pod: Pod) -> tuple[Cause, ...]:
    """Return what the kubelet reports of the pod beside its devices: the newest of its volumes, or of its sandbox."""
    for event in events_about(cluster, pod, *_WAITING_FOR):
        return (
            Cause(
                code=CauseCode.KUBELET_ERROR,
                message=f"not about devices: {event.message} (event {event.reason}{_times(event)})",
                next_step=f"{_WAITING_FOR[event.reason].format(node=pod.spec.node_name)}; kubectl describe pod "
                f"{pod.metadata.name} -n {pod.metadata.namespace}; the kubelet tries again by itself",
                objects=(f"pod {pod.ref}",),
            ),
        )
    return ()


def _times(event: Event) -> str:
    lasted_s = seconds_between(event.first_timestamp, event.last_timestamp)
    if event.count < 2:
        return ""
    return f", {event.count} times" + (f" in {format_seconds(lasted_s)}" if lasted_s else "")


def _claim_in(message: str, claims: Sequence[HeldClaim]) -> HeldClaim | None:
    """Return the claim that a message names, or the only one."""
    named = [claim for claim in claims if re.search(rf"(?<![\w.-]){re.escape(claim.ref.name)}(?![\w-])", message)]
    if len(named) == 1:
        return named[0]
    return claims[0] if len(claims) == 1 else None


def _preparing(cluster: ClusterIndex, pod: Pod, claims: Sequence[HeldClaim]) -> Cause:
    drivers = list_names(list(dict.fromkeys(driver for claim in claims for driver in claim.drivers)))
    events = (
        "events could not be read" if "events" in cluster.state.forbidden_lists else "no event reports a failed prepare"
    )
    if not claims:
        return Cause(
            code=CauseCode.PREPARING,
            message=f"no fault is found: node {pod.spec.node_name} is ready, and its kubelet gives containers what "
            "their limits ask for",
            next_step=f"wait some seconds; if nothing changes, kubectl describe pod {pod.metadata.name} -n "
            f"{pod.metadata.namespace}",
            objects=(f"pod {pod.ref}",),
            is_fault=False,
        )
    return Cause(
        code=CauseCode.PREPARING,
        message=f"no fault is found: node {pod.spec.node_name} is ready, the plugin of {drivers} is there, the devices "
        f"are published, not tainted and of no other claim, and {events}",
        next_step=f"wait some seconds; if nothing changes, kubectl describe pod {pod.metadata.name} -n "
        f"{pod.metadata.namespace}, and read the log of the plugin of {drivers} on {pod.spec.node_name}",
        objects=(f"pod {pod.ref}",),
        is_fault=False,
    )
