"""Whether claims have hardware that only one of them can have, by the devices that are allocated now."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.driver.diagnostics.devices.device_parts import find_given_parts
from kerf_dra.driver.diagnostics.preflight.results import CheckResult, ok, problem

CHECK: Final = "double-allocation"


def check_allocations(claims: Sequence[ResourceClaim], slices: Iterable[ResourceSlice]) -> Iterator[CheckResult]:
    """Check whether a claim has a device while one has a part of it: no scheduler sees that by UUIDs."""
    reported: set[tuple[object, object]] = set()
    for given in find_given_parts(claims, slices):
        if (pair := (given.part_of, given.whole_of)) in reported:
            continue
        reported.add(pair)
        yield problem(
            CHECK,
            f"claim {given.whole_of} has device {given.whole}, and claim {given.part_of} has {given.part}, which is a "
            "part of it (parentUUID)",
            f"kerf why claim {given.part_of.name} -n {given.part_of.namespace} says which pod to delete; have classes "
            "select either cards or parts of cards",
        )
    if not reported:
        allocated = sum(claim.status.allocation is not None for claim in claims)
        yield ok(CHECK, f"none of {allocated} allocated claims has a part of a device that a claim has, too")
