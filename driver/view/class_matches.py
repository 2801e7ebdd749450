"""What DeviceClasses select of the published devices, by their own CEL, and how much more of a class would fit."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.model.claims import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.devices import Device
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.allocation.pools.interning import InternedSlice
from kerf_dra.driver.allocation.semantics.matching import Selectors, evaluate_selectors, may_read, selector_expressions
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.manifests.workload import Workload, WorkloadClaim
from kerf_dra.driver.diagnostics.plan import Headroom, plan_workloads

MOST_EVALUATED: Final = 100_000
"""Devices on which a class is evaluated, which takes a second; equal ones of several nodes count once."""
_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMatches:
    """What one class selects."""

    devices: int
    """Published devices that match; parts of one card that exclude one another are all counted."""
    by_node: Mapping[str, int]
    """Matching devices by node; those of no single node by the empty name."""
    problem: str = ""
    """Why that is not all, such as the error of a selector."""


def find_matches(cluster: ClusterIndex, class_: DeviceClass) -> ClassMatches:
    """Return what ``class_`` selects among all published devices.

    Slices that are equal but for strings that the selectors do not read, such as UUIDs, are evaluated once.
    """
    selectors = selector_expressions(class_.spec.selectors)
    by_node: Counter[str] = Counter()
    problems: dict[str, None] = {}
    read: dict[InternedSlice, tuple[int, ...]] = {}
    known: dict[tuple[InternedSlice, tuple[str, ...]], Counter[str]] = {}
    evaluated = 0
    for slice_ in cluster.slices.compact:
        content, strings = slice_.published.interned, slice_.published.strings
        if content not in read:
            read[content] = _find_read_strings(content, selectors)
        key = content, tuple([strings[number] for number in read[content]])
        if key not in known:
            evaluated += len(content.spec.devices)
            if evaluated > MOST_EVALUATED:
                problems[f"not all are counted: more than {MOST_EVALUATED} devices differ in what the class reads"] = (
                    None
                )
                break
            known[key] = _count_matches(content.spec.driver, content.restore_devices(strings), selectors, problems)
        for node, count in known[key].items():
            by_node[slice_.published.node_name or node] += count
    problem = next(iter(problems), "")
    return ClassMatches(devices=by_node.total(), by_node=dict(sorted(by_node.items())), problem=problem)


def _find_read_strings(content: InternedSlice, selectors: Selectors) -> tuple[int, ...]:
    """Return the numbers of the attribute strings of a slice that selectors may read."""
    driver = content.spec.driver
    slots = {slot for of_device in content.slots() for slot in of_device}
    names = {name for name in {slot.attribute for slot in slots} if may_read(selectors, driver, name)}
    return tuple(sorted({slot.string for slot in slots if slot.attribute in names}))


def _count_matches(
    driver: str, devices: Iterable[Device], selectors: Selectors, problems: dict[str, None]
) -> Counter[str]:
    """Count the devices that match, by the node that each names itself; errors of selectors are ``problems``."""
    found: Counter[str] = Counter()
    for device in devices:
        outcome = evaluate_selectors(driver, device, selectors)
        if isinstance(outcome, str):
            problems[outcome] = None
        elif outcome:
            found[device.node_name or ""] += 1
    return found


def count_more(cluster: ClusterIndex, class_: DeviceClass) -> Headroom | None:
    """Return how many claims for one device of a class would fit now; None: none does."""
    name = class_.metadata.name
    exactly = ExactDeviceRequest(device_class_name=name)
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=(DeviceRequest(name="device", exactly=exactly),)))
    claim = ResourceClaim(metadata=ObjectMeta(name=name, namespace=_NAMESPACE), spec=spec)
    workload = Workload(
        kind="ResourceClaimTemplate",
        name=ObjectRef(_NAMESPACE, name),
        replicas=0,
        pod=None,
        claims=(WorkloadClaim(claim=claim, is_shared=False),),
    )
    return next(iter(plan_workloads(cluster, [workload]).more), None)


def list_claims_of(cluster: ClusterIndex, name: str) -> list[ObjectRef]:
    """Return the claims that have a request for a class."""
    return sorted(
        claim.ref
        for claim in cluster.claims.values()
        if any(
            each is not None and each.device_class_name == name
            for request in claim.spec.devices.requests
            for each in (request.exactly, *request.first_available)
        )
    )
