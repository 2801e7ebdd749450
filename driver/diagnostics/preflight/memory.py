"""Whether the controller's limit of memory is enough for the devices of its cluster (docs/install.md)."""

from collections.abc import Iterable, Iterator
from typing import Final

from kerf_dra.api.core.v1 import Pod
from kerf_dra.driver.diagnostics.preflight.results import CheckResult, name_first, ok, warning

CHECK: Final = "memory"
OWN_PODS: Final = "app.kubernetes.io/part-of=kerf"
"""The label of the pods of Kerf's programs."""
_CONTAINER: Final = "controller"
"""The name of the controller's container."""
_BASE: Final = 64_000_000
"""Bytes of a controller in a small cluster."""
_PER_NODE: Final = 40_000
"""Bytes for each node with eight GPUs."""
_DEVICES_OF_NODE: Final = 208
"""The devices that such a node publishes."""
_HEADROOM: Final = 2
"""The factor of the limit: the lists are read again when a watch cannot go on."""


def check_memory(pods: Iterable[Pod], devices: int) -> Iterator[CheckResult]:
    """Check the limits of the controllers among ``pods`` for a cluster with this number of devices of Kerf's."""
    needed = _HEADROOM * (_BASE + -(-devices * _PER_NODE // _DEVICES_OF_NODE))
    controllers = {
        pod.metadata.name: int(container.resources.limits["memory"])
        for pod in pods
        for container in pod.spec.containers
        if container.name == _CONTAINER and "memory" in container.resources.limits
    }
    low = {name: limit for name, limit in controllers.items() if limit < needed}
    if low:
        least, wanted = _to_megabytes(min(low.values())), _to_megabytes(needed)
        yield warning(
            CHECK,
            f"the limit of memory of {name_first(low)} is {least} MB, and the devices of this cluster ({devices}) need "
            f"{wanted} MB: the controller may be killed while it reads its lists",
            f"set controller.resources.limits.memory of the chart to at least {wanted}M",
        )
    elif controllers:
        yield ok(CHECK, f"the controller's limit of memory is enough for the devices of this cluster ({devices})")


def _to_megabytes(count: int) -> int:
    return -(-count // 1_000_000)
