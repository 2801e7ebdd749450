"""Where built-in kinds have quantities: there is one form of each amount, whatever form it was written in.

``1024Mi`` comes back as ``1Gi``, and what is no amount cannot be decoded at all. A client that compares what it reads
with what it wrote must know that. Source: ``resource.Quantity`` of ``k8s.io/apimachinery`` (``UnmarshalJSON``).
"""

from collections.abc import Sequence
from typing import Any, Final

from api.errors import InvalidQuantityError
from api.model.base import JsonObject
from api.model.quantity import Quantity
from driver.local.apiserver.meta.documents import replace
from driver.local.apiserver.meta.status_errors import bad_request

_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
PODS: Final = tuple(f"spec.{each}[].resources.{part}{{}}" for each in _CONTAINERS for part in ("requests", "limits"))
NODES: Final = ("status.capacity{}", "status.allocatable{}")
SLICES: Final = (
    "spec.devices[].capacity{}.value",
    "spec.devices[].capacity{}.requestPolicy.default",
    "spec.devices[].capacity{}.requestPolicy.validValues[]",
    *(f"spec.devices[].capacity{{}}.requestPolicy.validRange.{bound}" for bound in ("min", "max", "step")),
    "spec.devices[].consumesCounters[].counters{}.value",
    "spec.sharedCounters[].counters{}.value",
)
_REQUESTS: Final = (
    "devices.requests[].exactly.capacity.requests{}",
    "devices.requests[].firstAvailable[].capacity.requests{}",
)
CLAIMS: Final = (
    *(f"spec.{path}" for path in _REQUESTS),
    "status.allocation.devices.results[].consumedCapacity{}",
)
TEMPLATES: Final = tuple(f"spec.spec.{path}" for path in _REQUESTS)


def canonicalize(body: JsonObject, paths: Sequence[str], kind: str, version: str) -> None:
    """Rewrites, in place, the quantities at paths. Raises RefusedError (400) for one that is none."""
    try:
        for path in paths:
            replace(body, path, _canonical)
    except InvalidQuantityError as error:
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: quantities must match the regular '
            "expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from error


def _canonical(amount: Any) -> str:  # noqa: ANN401  (any JSON; numbers are taken too)
    return str(Quantity(str(amount)))
