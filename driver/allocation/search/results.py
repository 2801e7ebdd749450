"""Builds allocation results from the solution of a search.

A result lists for each device the consumed capacity, contains the configuration of classes and claim, and selects
the nodes on which all devices can be used. All this is as in ``k8s.io/dynamic-resource-allocation/structured``
(``Allocate``, ``createNodeSelector``).
"""

from collections.abc import Callable, Iterable, Sequence

from kerf_dra.api.model.allocations import (
    AllocationResult,
    ConfigSource,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    OpaqueAllocationConfiguration,
)
from kerf_dra.api.model.claims import OpaqueDeviceConfiguration, ResourceClaim
from kerf_dra.api.model.metadata import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kerf_dra.driver.allocation.pools.gather import PublishedDevice
from kerf_dra.driver.allocation.search.assignment import Assignment, Solution
from kerf_dra.driver.allocation.search.problem import AllocationProblem, RequestAlternative
from kerf_dra.driver.allocation.semantics.outcomes import Features, NodeView


def build_results(
    problem: AllocationProblem, solution: Solution, share_id: Callable[[], str]
) -> tuple[AllocationResult, ...]:
    """Build the allocation result of each claim; ``share_id`` gives a new UUID for every share."""
    return tuple(_result(problem, solution, claim, share_id) for claim in range(len(problem.claims)))


def _result(
    problem: AllocationProblem, solution: Solution, claim: int, share_id: Callable[[], str]
) -> AllocationResult:
    node_devices, assignments = problem.node_devices, solution.assignments[claim]
    published = [node_devices.device(assignment.device) for assignment in assignments]
    results = []
    for assignment, device in zip(assignments, published, strict=True):
        share = share_id() if node_devices.shareable >> assignment.device & 1 else None
        results.append(_device_result(assignment, device, share, node_devices.features))
    alternatives = [each for each in solution.alternatives if each.claim == claim]
    config = tuple(_configuration(problem.claims[claim], alternatives))
    return AllocationResult(
        devices=DeviceAllocationResult(results=tuple(results), config=config),
        node_selector=_node_selector(published, node_devices.node),
    )


def _device_result(
    assignment: Assignment, published: PublishedDevice, share_id: str | None, features: Features
) -> DeviceRequestAllocationResult:
    alternative, device = assignment.alternative, published.device
    with_conditions = features.device_binding_and_status
    demand = alternative.demands.get(assignment.device)
    return DeviceRequestAllocationResult(
        request=alternative.name,
        driver=published.id.driver,
        pool=published.id.pool,
        device=published.id.device,
        admin_access=True if alternative.is_admin else None,
        tolerations=alternative.spec.tolerations,
        binding_conditions=device.binding_conditions if with_conditions else (),
        binding_failure_conditions=device.binding_failure_conditions if with_conditions else (),
        share_id=share_id,
        consumed_capacity=dict(demand.amounts) if demand and share_id is not None else {},
        skip_node_operations=published.skip_node_operations,
    )


def _configuration(
    claim: ResourceClaim, alternatives: Sequence[RequestAlternative]
) -> Iterable[DeviceAllocationConfiguration]:
    """The entries of the classes, in the order in which requests use them, then those of the claim that apply."""
    of_class: dict[str, list[RequestAlternative]] = {}
    for alternative in alternatives:
        of_class.setdefault(alternative.class_.metadata.name, []).append(alternative)
    for users in of_class.values():
        for entry in users[0].class_.spec.config:
            yield _entry("FromClass", [each.name for each in users], entry.opaque, alternatives)
    for configuration in claim.spec.devices.config:
        requests = configuration.requests
        if not requests or any(_names(each, requests) for each in alternatives):
            yield _entry("FromClaim", requests, configuration.opaque, alternatives)


def _entry(
    source: ConfigSource,
    requests: Sequence[str],
    opaque: OpaqueDeviceConfiguration | None,
    alternatives: Iterable[RequestAlternative],
) -> DeviceAllocationConfiguration:
    """One entry of the configuration; one that covers every request names none."""
    covers_all = all(_names(each, requests) for each in alternatives)
    return DeviceAllocationConfiguration(
        source=source,
        requests=() if covers_all else tuple(requests),
        opaque=None
        if opaque is None
        else OpaqueAllocationConfiguration(driver=opaque.driver, parameters=opaque.parameters),
    )


def _names(alternative: RequestAlternative, requests: Sequence[str]) -> bool:
    """Whether ``requests`` name the alternative, or the request that it belongs to."""
    return alternative.name in requests or alternative.name.partition("/")[0] in requests


def _node_selector(devices: Iterable[PublishedDevice], node: NodeView) -> NodeSelector | None:
    """The nodes on which all devices can be used: only ``node`` if some device is bound to it; None: all nodes."""
    fields: list[NodeSelectorRequirement] = []
    selector_expressions: list[NodeSelectorRequirement] = []
    for published in devices:
        if published.node_name is not None or published.device.binds_to_node:
            name = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node.name,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(name,)),))
        for term in published.node_selector.node_selector_terms if published.node_selector else ():
            _add(fields, term.match_fields)
            _add(selector_expressions, term.match_expressions)
    if not fields and not selector_expressions:
        return None
    term = NodeSelectorTerm(match_fields=tuple(fields), match_expressions=tuple(selector_expressions))
    return NodeSelector(node_selector_terms=(term,))


def _add(to: list[NodeSelectorRequirement], requirements: Iterable[NodeSelectorRequirement]) -> None:
    for requirement in requirements:
        if not any(
            (known.key, known.operator, set(known.values))
            == (requirement.key, requirement.operator, set(requirement.values))
            for known in to
        ):
            to.append(requirement)
