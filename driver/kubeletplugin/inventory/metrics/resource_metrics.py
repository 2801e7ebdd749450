"""The metrics of a node's extended resources: what is kept for them, what containers have of it, what they can have."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from kerf_dra.driver.kubeletplugin.inventory.state.reservations import Reservations
from kerf_dra.driver.runtime import metrics

_RESERVED: Final = metrics.live_gauge(
    "kerf_extended_resource_reserved",
    "Placements that are kept for an extended resource (devicePlugin of a ResourceClass): claims cannot have them.",
    ["driver", "node", "resource"],
)
_ASSIGNED: Final = metrics.live_gauge(
    "kerf_extended_resource_assigned",
    "Placements of an extended resource that the kubelet has given to containers.",
    ["driver", "node", "resource"],
)
_FREE: Final = metrics.live_gauge(
    "kerf_extended_resource_free",
    "Placements that the kubelet may give to the next container; it leaves out those that are unhealthy.",
    ["driver", "node", "resource"],
)


@contextmanager
def serve_resource_metrics(*, driver: str, node: str, reservations: Reservations) -> Iterator[None]:
    """Serve the metrics of one family's extended resources on one node inside the context."""

    def reading(count: Callable[[str], int]) -> Callable[[], metrics.Samples]:
        return lambda: [((driver, node, name), count(name)) for name in reservations.names]

    with ExitStack() as stack:
        stack.enter_context(_RESERVED.reading(reading(lambda name: len(reservations.kept.get(name, ())))))
        stack.enter_context(_ASSIGNED.reading(reading(lambda name: len(reservations.in_use.get(name, ())))))
        stack.enter_context(_FREE.reading(reading(lambda name: len(reservations.list_free(name)))))
        yield
