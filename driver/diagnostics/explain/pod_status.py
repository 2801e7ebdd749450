"""What a pod's status and the events about it say, and its allocated claims, of either generation of DRA."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.core.v1 import ContainerStatus, Event, Pod
from kerf_dra.api.model.allocations import DeviceRequestAllocationResult, ResourceClaimConsumerReference
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.classic import ClassicClaim
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex

_SCHEDULED: Final = "PodScheduled"
_ABOUT_TO_START: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""The kubelet's reasons for containers that wait for nothing of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldClaim:
    """An allocated claim."""

    ref: ObjectRef
    results: tuple[DeviceRequestAllocationResult, ...]
    """The allocated devices; of classic claims those of drivers whose handles Kerf reads."""
    drivers: tuple[str, ...]
    """The drivers whose plugins the kubelet calls."""
    reserved_for: tuple[ResourceClaimConsumerReference, ...]

    def is_reserved_for(self, pod: Pod) -> bool:
        """Whether the kubelet may prepare the claim for ``pod``; of consumers that are no pods nothing is known."""
        return any(
            user.uid == pod.metadata.uid or user.api_group or user.resource != "pods" for user in self.reserved_for
        )


def held_claims(claims: Iterable[ResourceClaim]) -> tuple[HeldClaim, ...]:
    """Return those of ``claims`` that are allocated."""
    return tuple(
        HeldClaim(
            ref=claim.ref,
            results=allocation.devices.results,
            drivers=tuple(dict.fromkeys(result.driver for result in allocation.devices.results)),
            reserved_for=claim.status.reserved_for,
        )
        for claim in claims
        if (allocation := claim.status.allocation) is not None
    )


def held_classic_claims(claims: Iterable[ClassicClaim]) -> tuple[HeldClaim, ...]:
    """Return those of ``claims`` that are allocated."""
    return tuple(
        HeldClaim(
            ref=claim.ref,
            results=allocation.devices.results,
            drivers=allocation.drivers or (claim.status.driver_name,),
            reserved_for=claim.status.reserved_for,
        )
        for claim in claims
        if (allocation := claim.status.allocation) is not None
    )


def container_statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    """Return the kubelet's reports on all containers of the pod."""
    return (*pod.status.init_container_statuses, *pod.status.container_statuses)


def has_started(pod: Pod) -> bool:
    """Whether the kubelet has prepared the pod's devices: it does so before it makes a sandbox for containers."""
    statuses = container_statuses(pod)
    return (
        pod.status.phase != "Pending"
        or any(each.type == "PodReadyToStartContainers" and each.status == "True" for each in pod.status.conditions)
        or any(each.state.running is not None or each.state.terminated is not None for each in statuses)
    )


def is_in_order(pod: Pod) -> bool:
    """Whether the pod has started, is to stay, and neither a container nor a device of it is reported as failing."""
    if pod.is_terminating or not has_started(pod) or waiting_containers(pod):
        return False
    statuses = container_statuses(pod)
    healths = (one.health for each in statuses for part in each.allocated_resources_status for one in part.resources)
    return "Unhealthy" not in healths


def scheduler_message(pod: Pod) -> str:
    """Return why the scheduler does not place the pod, as its condition PodScheduled says it; empty without one."""
    return next(
        (each.message for each in pod.status.conditions if each.type == _SCHEDULED and each.status != "True"), ""
    )


def running_containers(pod: Pod) -> list[str]:
    """Return the names of the containers that run."""
    return [each.name for each in container_statuses(pod) if each.state.running is not None]


def waiting_containers(pod: Pod) -> dict[str, str]:
    """Return why containers wait, by name, except for those that the kubelet is about to create."""
    return {
        each.name: each.state.waiting.reason
        for each in container_statuses(pod)
        if each.state.waiting is not None and each.state.waiting.reason not in _ABOUT_TO_START
    }


def events_about(cluster: ClusterIndex, pod: Pod, *reasons: str) -> list[Event]:
    """Return the events about ``pod`` with one of ``reasons``, the newest first."""
    found = [
        event
        for event in cluster.state.events
        if event.reason in reasons
        and (about := event.involved_object).name == pod.metadata.name
        and about.namespace == pod.metadata.namespace
        and about.uid in ("", pod.metadata.uid)
    ]
    return sorted(found, key=lambda event: event.last_timestamp or "", reverse=True)
