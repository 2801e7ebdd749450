"""From the devices found to allocation results: what each device passes on, configuration, node selector."""

from collections.abc import Callable, Iterable, Sequence

from api.model.allocations import (
    AllocationResult,
    ConfigSource,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    OpaqueAllocationConfiguration,
)
from api.model.claims import OpaqueDeviceConfiguration, ResourceClaim
from api.model.metadata import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from driver.allocation.pools.pool_view import PublishedDevice
from driver.allocation.search.assignment import Placement
from driver.allocation.search.problem import Question, Want
from driver.allocation.semantics.outcomes import Features, NodeView


def conclude(
    question: Question,
    wants: Sequence[Want],
    placements: Sequence[Sequence[Placement]],
    share_id: Callable[[], str],
) -> tuple[AllocationResult, ...]:
    """The result of each claim: ``wants`` are those that were chosen, ``placements`` the devices of each claim."""
    return tuple(
        _result(question, claim, [want for want in wants if want.claim == position], placed, share_id)
        for position, (claim, placed) in enumerate(zip(question.claims, placements, strict=True))
    )


def _result(
    question: Question,
    claim: ResourceClaim,
    wants: Sequence[Want],
    placements: Sequence[Placement],
    share_id: Callable[[], str],
) -> AllocationResult:
    offer = question.offer
    published = [offer.devices[placement.device] for placement in placements]
    results = []
    for placement, device in zip(placements, published, strict=True):
        share = share_id() if offer.shareable >> placement.device & 1 else None
        results.append(_device_result(placement, device, share, offer.features))
    return AllocationResult(
        devices=DeviceAllocationResult(results=tuple(results), config=tuple(_configuration(claim, wants))),
        node_selector=_node_selector(published, offer.node),
    )


def _device_result(
    placement: Placement, published: PublishedDevice, share_id: str | None, features: Features
) -> DeviceRequestAllocationResult:
    want, device = placement.want, published.device
    with_conditions = features.device_binding_and_status
    demand = want.demands.get(placement.device)
    return DeviceRequestAllocationResult(
        request=want.name,
        driver=published.id.driver,
        pool=published.id.pool,
        device=published.id.device,
        admin_access=True if want.is_admin else None,
        tolerations=want.ask.tolerations,
        binding_conditions=device.binding_conditions if with_conditions else (),
        binding_failure_conditions=device.binding_failure_conditions if with_conditions else (),
        share_id=share_id,
        consumed_capacity=dict(demand.amounts) if demand and share_id is not None else {},
        skip_node_operations=published.skip_node_operations,
    )


def _configuration(claim: ResourceClaim, wants: Sequence[Want]) -> Iterable[DeviceAllocationConfiguration]:
    """The entries of the classes, in the order in which requests use them, then those of the claim that apply."""
    of_class: dict[str, list[Want]] = {}
    for want in wants:
        of_class.setdefault(want.class_.metadata.name, []).append(want)
    for users in of_class.values():
        for entry in users[0].class_.spec.config:
            yield _entry("FromClass", [want.name for want in users], entry.opaque, wants)
    for configuration in claim.spec.devices.config:
        requests = configuration.requests
        if not requests or any(_names(want, requests) for want in wants):
            yield _entry("FromClaim", requests, configuration.opaque, wants)


def _entry(
    source: ConfigSource, requests: Sequence[str], opaque: OpaqueDeviceConfiguration | None, wants: Iterable[Want]
) -> DeviceAllocationConfiguration:
    """One entry; one that covers every request names none."""
    covers_all = all(_names(want, requests) for want in wants)
    return DeviceAllocationConfiguration(
        source=source,
        requests=() if covers_all else tuple(requests),
        opaque=None
        if opaque is None
        else OpaqueAllocationConfiguration(driver=opaque.driver, parameters=opaque.parameters),
    )


def _names(want: Want, requests: Sequence[str]) -> bool:
    """Whether ``requests`` name the want or the request whose alternative it is."""
    return want.name in requests or want.name.partition("/")[0] in requests


def _node_selector(devices: Iterable[PublishedDevice], node: NodeView) -> NodeSelector | None:
    """Where the devices can be used: on this node alone if one is bound to it, else where all of them can."""
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for published in devices:
        if published.node_name is not None or published.device.binds_to_node:
            name = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node.name,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(name,)),))
        for term in published.node_selector.node_selector_terms if published.node_selector else ():
            _add(fields, term.match_fields)
            _add(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_fields=tuple(fields), match_expressions=tuple(expressions))
    return NodeSelector(node_selector_terms=(term,))


def _add(to: list[NodeSelectorRequirement], requirements: Iterable[NodeSelectorRequirement]) -> None:
    """Adds those that are not there yet, whatever the order of their values."""
    for requirement in requirements:
        if not any(
            (known.key, known.operator, set(known.values))
            == (requirement.key, requirement.operator, set(requirement.values))
            for known in to
        ):
            to.append(requirement)
