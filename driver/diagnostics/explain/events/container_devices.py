"""Faults of devices that a pod's status and events report: containers that cannot get them, and unhealthy devices.

The kubelet has prepared the claims then. What a runtime says of a container is in its state, once it waits to be
started again in the state before, or in an event; the health is what the driver reports to the kubelet (KEP-4680).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kerf_dra.api.core.v1 import ContainerStateTerminated, ContainerStatus, Pod, ResourceHealth
from kerf_dra.api.model.names import list_names
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.devices.runtime_messages import (
    START_REASONS,
    DeviceFailure,
    find_cdi_names,
    find_device_failure,
)
from kerf_dra.driver.diagnostics.explain.next_steps import recreate_step
from kerf_dra.driver.diagnostics.explain.pod_status import (
    HeldClaim,
    container_statuses,
    events_about,
    running_containers,
)
from kerf_dra.driver.diagnostics.explain.report import Cause, CauseCode

RUNTIME_FAILED: Final = ("Failed", "FailedCreatePodSandBox")
"""The kubelet's reasons of events that quote the container runtime."""
_OF_CLAIM: Final = "claim:"
"""How the name of a claim's devices begins in ``allocatedResourcesStatus``; other names are extended resources."""
_STEPS: Final = {
    DeviceFailure.CDI: "kerf cdi explain {device} on {node} says which CDI file should have it. The kubelet has the "
    "driver write that file once, when it prepares the claim: {recreate}; if the new pod fails, too, the runtime reads "
    "other folders than the driver writes to, or the driver names a device that it does not write: read the log of "
    "the plugin of {drivers}",
    DeviceFailure.NODE: "check on {node} that there is what the message names, and that the kernel module of the "
    "devices is loaded; kerf cdi explain {device} there says what the container is to get; the kubelet tries again by "
    "itself",
    DeviceFailure.HOOK: "kerf cdi explain {device} on {node} says which hook the runtime runs: check that this program "
    "and the library of the devices' driver are there, and of matching versions; the kubelet tries again by itself",
}
"""What to do about each kind of failure."""


def find_container_faults(
    cluster: ClusterIndex, pod: Pod, claims: Sequence[HeldClaim], alternatives: Sequence[str] = ()
) -> Iterator[Cause]:
    """Yield a cause for each container of ``pod`` that the runtime cannot give its devices of ``claims``.

    ``alternatives`` are other nodes that fit.
    """
    for name, message in find_failing_containers(cluster, pod).items():
        kind = find_device_failure(message)
        assert kind is not None, "only such messages are found"
        used = _claims_of(pod, name, claims)
        devices = [str(result.id) for claim in used for result in claim.results]
        drivers = list(dict.fromkeys(driver for claim in used for driver in claim.drivers))
        names = find_cdi_names(message) or tuple(_cdi_names(pod, name))
        what = f" ({list_names(devices)} of claim {list_names([str(each.ref) for each in used])})" if used else ""
        yield Cause(
            code=CauseCode.DEVICE_INJECTION_FAILED,
            message=f"container {name} cannot get its devices{what}: {message}"
            if name
            else f"the pod's sandbox cannot get its devices{what}: {message}",
            next_step=_STEPS[kind].format(
                device=names[0] if names else "DEVICE (kerf cdi devices lists them)",
                node=pod.spec.node_name,
                recreate=recreate_step(pod, alternatives),
                drivers=list_names(drivers) or "the devices",
            ),
            objects=(
                f"pod {pod.ref}",
                *(f"claim {each.ref}" for each in used),
                *(f"device {each}" for each in devices),
            ),
        )


def find_unhealthy_devices(pod: Pod, claims: Sequence[HeldClaim], alternatives: Sequence[str] = ()) -> Iterator[Cause]:
    """Yield a cause for each device that the kubelet reports as unhealthy; ``alternatives``: other nodes that fit."""
    names = pod.claim_names()
    for resource, health in dict.fromkeys(_unhealthy(pod)):
        entry = resource.removeprefix(_OF_CLAIM).partition("/")[0]
        claim = next((each for each in claims if each.ref.name == names.get(entry)), None)
        of = f"claim {claim.ref}" if claim else resource
        said = f": {health.message}" if health.message else "; its driver does not say why"
        yield Cause(
            code=CauseCode.DEVICE_UNHEALTHY,
            message=f"the kubelet reports {health.resource_id} of {of} as unhealthy{said}",
            next_step=f"{recreate_step(pod, alternatives)}: a new pod gets other devices; if it gets none, read the "
            f"log of the driver's plugin on {pod.spec.node_name}",
            objects=(f"pod {pod.ref}", *((f"claim {claim.ref}",) if claim else ())),
        )


def _unhealthy(pod: Pod) -> Iterator[tuple[str, ResourceHealth]]:
    for status in container_statuses(pod):
        for resource in status.allocated_resources_status:
            yield from ((resource.name, each) for each in resource.resources if each.health == "Unhealthy")


def find_failing_containers(cluster: ClusterIndex, pod: Pod) -> Mapping[str, str]:
    """Return the runtime's message of each container that does not run because of its devices, by name.

    The name is empty for the sandbox of the pod.
    """
    statuses = container_statuses(pod)
    found = {each.name: message for each in statuses if (message := _message_of(each))}
    if found or (statuses and all(each.state.running is not None for each in statuses)):
        return found
    for event in events_about(cluster, pod, *RUNTIME_FAILED):
        if find_device_failure(event.message):
            running = running_containers(pod)
            names = (*(each.name for each in statuses), *(each.name for each in pod.spec.containers))
            is_sandbox = event.reason != RUNTIME_FAILED[0]
            return {"" if is_sandbox else next((name for name in names if name not in running), ""): event.message}
    return {}


def _message_of(status: ContainerStatus) -> str:
    """Return what the runtime says of the devices of a container that does not run; empty when it says nothing."""
    now, before = status.state, status.last_state.terminated
    if now.running is not None:
        return ""
    ended = [each for each in (now.terminated, before) if each is not None and _never_ran(each)]
    texts = (each.message for each in (now.waiting, *ended) if each is not None)
    return next((text for text in texts if find_device_failure(text)), "")


def _never_ran(ended: ContainerStateTerminated) -> bool:
    """Whether a container ended before its program began, so that the message is the runtime's, not the program's."""
    return ended.reason in START_REASONS or "OCI runtime" in ended.message or "containerd task" in ended.message


def _claims_of(pod: Pod, container: str, claims: Sequence[HeldClaim]) -> Sequence[HeldClaim]:
    """Return those of ``claims`` that a container has, all of them if its spec names none."""
    entries = {
        claim.name
        for each in (*pod.spec.init_containers, *pod.spec.containers)
        for claim in each.resources.claims
        if each.name == container
    }
    names = {name for entry, name in pod.claim_names().items() if entry in entries}
    return [claim for claim in claims if claim.ref.name in names] or claims


def _cdi_names(pod: Pod, container: str) -> Iterator[str]:
    """Yield the CDI names of a container's devices, where the kubelet reports their health."""
    for status in container_statuses(pod):
        if status.name == container:
            for resource in status.allocated_resources_status:
                yield from (health.resource_id for health in resource.resources if "=" in health.resource_id)
