"""Whether DeviceClasses or claims read attributes or capacities that devices of a family no longer have.

In CEL a missing attribute is a run-time error that ends a pod's whole scheduling attempt. So what reads a retired one
has to change before the first node publishes without it: during an update nodes of both kinds are there.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from kerf_dra.api.model.claims import DeviceClass, DeviceSelector, ResourceClaim
from kerf_dra.driver.cel.attribute_references import analyze_expression
from kerf_dra.driver.diagnostics.preflight.results import CheckResult, name_first, ok, problem

CHECK: Final = "retired-attributes"


def check_retired_attributes(
    classes: Iterable[DeviceClass], claims: Iterable[ResourceClaim], retired: Mapping[str, Collection[str]]
) -> Iterator[CheckResult]:
    """Check the selectors of classes, and of claims that are not allocated yet.

    ``retired`` has the names of attributes and capacities that devices no longer have, by driver.
    """
    read_by_class = {f"DeviceClass {each.metadata.name}": each.spec.selectors for each in classes}
    waiting = (each for each in claims if each.status.allocation is None)
    read_by_claim = {
        f"ResourceClaim {each.metadata.namespace}/{each.metadata.name}": tuple(_list_selectors(each))
        for each in waiting
    }
    users: dict[str, list[str]] = {}
    for name, selectors in {**read_by_class, **read_by_claim}.items():
        for word in dict.fromkeys(word for each in selectors for word in find_retired(each, retired)):
            users.setdefault(word, []).append(name)
    for word, names in users.items():
        yield problem(
            CHECK,
            f"{name_first(names)} read {word}, which devices no longer have: pods with such claims are not scheduled",
            "select by another attribute, such as profile, productName or driverVersion (docs/asking-for-devices.md), "
            "before you update the plugins",
        )
    if not users:
        yield ok(CHECK, "no DeviceClass or waiting claim reads an attribute that devices no longer have")


def find_retired(selector: DeviceSelector, retired: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Yield each retired attribute or capacity that ``selector`` reads, as ``gpu.kerf.dev/brand``."""
    if selector.cel is None:
        return
    found = analyze_expression(selector.cel.expression)
    for driver, words in retired.items():
        read = {each.id for each in found.reads if each.domain == driver}
        if not found.is_exact and driver in found.domains:  # it may read any: what it names is taken as read
            read |= found.names
        yield from (f"{driver}/{word}" for word in sorted(words) if word in read)


def _list_selectors(claim: ResourceClaim) -> Iterator[DeviceSelector]:
    for request in claim.spec.devices.requests:
        for each in (request.exactly, *request.first_available):
            if each is not None:
                yield from each.selectors
