"""Which devices of an extended resource a container gets. Pure.

Rules of ``devicesToAllocate`` (``k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/manager.go``): those that init
containers of the pod had come first, then those that the plugin prefers, then any healthy device that is in no use.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kerf_dra.api.deviceplugin.v1beta1 import ListedDevice, PreferenceRequest
from kerf_dra.api.errors import PermanentError


class DevicesUnavailableError(PermanentError):
    """A container cannot have the devices that it asks for; the message is the kubelet's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCandidates:
    """The devices that one container could get."""

    size: int
    """The number that it gets."""
    reused: tuple[str, ...]
    """Devices that an init container of the pod had, at most ``size``: it gets all of them."""
    free: tuple[str, ...]
    """Healthy devices that no container has, at least as many as are needed beside the reused ones."""

    @property
    def is_open(self) -> bool:
        """Whether there is a choice among the free devices."""
        return len(self.reused) < self.size

    def build_request(self) -> PreferenceRequest:
        """Return the question which of the devices the plugin prefers."""
        return PreferenceRequest(available=(*self.reused, *self.free), must_include=self.reused, size=self.size)

    def choose(self, preferred: Sequence[str]) -> tuple[str, ...]:
        """Return the devices that the container gets; what the plugin prefers and is not free is ignored."""
        wanted = [each for each in dict.fromkeys(preferred) if each in self.free]
        chosen = dict.fromkeys((*self.reused, *wanted, *self.free))
        return tuple(chosen)[: self.size]


def find_candidates(
    resource: str,
    size: int,
    devices: Mapping[str, ListedDevice],
    *,
    in_use: Collection[str],
    reusable: Collection[str],
) -> DeviceCandidates:
    """Return the devices of ``resource`` that a container that asks for ``size`` could get.

    Raises DevicesUnavailableError when there are too few.
    """
    healthy = [name for name, device in sorted(devices.items()) if device.health == "Healthy"]
    if not healthy:
        raise DevicesUnavailableError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
    reused = tuple(name for name in sorted(reusable) if name in devices)[:size]
    free = tuple(name for name in healthy if name not in in_use and name not in reused)
    needed = size - len(reused)
    if len(free) < needed:
        raise DevicesUnavailableError(
            f"requested number of devices unavailable for {resource}. Requested: {needed}, Available: {len(free)}"
        )
    return DeviceCandidates(size=size, reused=reused, free=free)
