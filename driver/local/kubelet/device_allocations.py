"""Devices of extended resources that containers have by the device plugin interface.

Rules of ``k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/manager.go``: devices are allocated when a pod is admitted,
one pod after the other, by one Allocate for each container and resource; a pod whose devices cannot be allocated is
rejected for good (``UnexpectedAdmissionError``); a container keeps its devices as long as its pod is there; no call of
the interface ends an allocation. Nothing here survives a restart, where a kubelet has a checkpoint.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import anyio

from kerf_dra.api.core.v1 import Container, Pod
from kerf_dra.api.deviceplugin.v1beta1 import ContainerAllocation
from kerf_dra.api.errors import KerfError, PermanentError
from kerf_dra.api.podresources.v1 import DeviceUse
from kerf_dra.driver.local.kubelet.device_choice import find_candidates
from kerf_dra.driver.local.kubelet.device_plugins import DevicePlugins

_SIDECAR: Final = "Always"
"""The restart policy of an init container that keeps running beside the containers (KEP-753)."""
REJECTED: Final = "UnexpectedAdmissionError"
"""The reason of a pod that was rejected because its devices could not be allocated."""


class PodRejectedError(PermanentError):
    """A pod cannot be admitted, and fails; the message is the kubelet's."""

    def __init__(self, error: KerfError) -> None:
        super().__init__(f"Allocate failed due to {error}, which is unexpected")


class _Key(NamedTuple):
    pod_uid: str
    container: str
    resource: str


@dataclass(frozen=True, slots=True)
class _Allocation:
    """The devices of one resource that a container has."""

    pod: Pod
    ids: tuple[str, ...]
    answer: ContainerAllocation = field(default_factory=ContainerAllocation)


class DeviceAllocations:
    """The allocated devices of one node."""

    def __init__(self, plugins: DevicePlugins) -> None:
        self._plugins = plugins
        self._allocations: dict[_Key, _Allocation] = {}
        self._listed: set[str] = set()
        """The UIDs of pods that were in an account of devices (``list_uses``)."""
        self._admission = anyio.Lock()

    async def admit(self, pod: Pod) -> None:
        """Allocate the devices of all containers of ``pod``; may be repeated. Raises PodRejectedError."""
        async with self._admission:
            reusable: dict[str, set[str]] = {}
            try:
                for container in (*pod.spec.init_containers, *pod.spec.containers):
                    await self._allocate_container(pod, container, reusable)
            except KerfError as error:
                self.remove(pod.metadata.uid)
                raise PodRejectedError(error) from error

    async def prepare_start(self, pod: Pod, container: Container) -> list[ContainerAllocation]:
        """Say that a container is about to start, and return what it gets. Raises DriverCallError."""
        found = [
            (key.resource, held)
            for key, held in self._allocations.items()
            if (key.pod_uid, key.container) == (pod.metadata.uid, container.name)
        ]
        for resource, held in found:
            await self._plugins.pre_start(resource, held.ids)
        return [held.answer for _, held in found]

    def remove(self, pod_uid: str) -> None:
        """Forget what a pod has that has ended."""
        self._allocations = {key: held for key, held in self._allocations.items() if key.pod_uid != pod_uid}
        self._listed.discard(pod_uid)

    def list_devices(self, pod_uid: str) -> Mapping[str, tuple[str, ...]]:
        """Return the devices of all containers of a pod, by resource."""
        found: dict[str, dict[str, None]] = {}
        for key, held in self._allocations.items():
            if key.pod_uid == pod_uid:
                found.setdefault(key.resource, {}).update(dict.fromkeys(held.ids))
        return {resource: tuple(ids) for resource, ids in found.items()}

    def was_listed(self, pod_uid: str) -> bool:
        """Whether plugins know of a pod what it has: one that ends before is not known to them to have had it."""
        return pod_uid in self._listed

    def list_uses(self) -> tuple[DeviceUse, ...]:
        """Return the devices that containers have; those of init containers are no part of the kubelet's account."""
        self._listed.update(key.pod_uid for key in self._allocations)
        return tuple(
            DeviceUse(resource=key.resource, id=each, pod=held.pod.ref)
            for key, held in self._allocations.items()
            if key.container in {container.name for container in _list_lasting(held.pod)}
            for each in held.ids
        )

    async def _allocate_container(self, pod: Pod, container: Container, reusable: dict[str, set[str]]) -> None:
        for resource, size in self._list_wanted(container):
            key = _Key(pod.metadata.uid, container.name, resource)
            free_again = reusable.setdefault(resource, set())
            if key not in self._allocations:
                self._allocations[key] = await self._allocate(pod, resource, size, free_again)
            ids = self._allocations[key].ids
            if container in _list_lasting(pod):
                free_again.difference_update(ids)
            else:
                free_again.update(ids)

    async def _allocate(self, pod: Pod, resource: str, size: int, reusable: set[str]) -> _Allocation:
        in_use = {each for key, held in self._allocations.items() if key.resource == resource for each in held.ids}
        candidates = find_candidates(
            resource, size, self._plugins.list_devices(resource), in_use=in_use, reusable=reusable
        )
        preferred = await self._plugins.prefer(resource, candidates.build_request()) if candidates.is_open else ()
        ids = candidates.choose(preferred)
        return _Allocation(pod, ids, await self._plugins.allocate(resource, ids))

    def _list_wanted(self, container: Container) -> Iterator[tuple[str, int]]:
        """Yield the resources in the limits of a container that plugins serve, with the number of each."""
        for resource, amount in sorted(container.resources.limits.items()):
            if int(amount) and self._plugins.is_served(resource):
                yield resource, int(amount)


def build_environment(allocations: list[ContainerAllocation]) -> Mapping[str, str]:
    """Return the variables of a container with these devices."""
    return {name: value for each in allocations for name, value in each.environment.items()}


def build_annotations(allocations: list[ContainerAllocation]) -> Mapping[str, str]:
    """Return the annotations for the runtime of a container with these devices."""
    return {name: value for each in allocations for name, value in each.annotations.items()}


def _list_lasting(pod: Pod) -> tuple[Container, ...]:
    """Return the containers that run until the pod ends: not those that end before others start."""
    return (
        *(container for container in pod.spec.init_containers if container.restart_policy == _SIDECAR),
        *pod.spec.containers,
    )
