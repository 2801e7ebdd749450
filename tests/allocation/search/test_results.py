"""The content of an allocation result besides its devices."""

from typing import Any

import pytest

from kerf_dra.api.model.allocations import AllocationResult, DeviceAllocationConfiguration
from kerf_dra.api.model.claims import DeviceClaimConfiguration, OpaqueDeviceConfiguration
from kerf_dra.api.model.metadata import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kerf_dra.driver.allocation import Fits, Outcome
from tests.allocation.builders import (
    DRIVER,
    alternative,
    claim,
    class_,
    decide,
    device,
    first_of,
    labelled,
    request,
    slice_,
)

FOUR = [slice_(*(device(name) for name in "abcd"))]


def result(outcome: Outcome) -> AllocationResult:
    assert isinstance(outcome, Fits), outcome
    return outcome.results[0]


def configured(name: str, *requests: str) -> DeviceClaimConfiguration:
    return DeviceClaimConfiguration(
        requests=requests, opaque=OpaqueDeviceConfiguration(driver=DRIVER, parameters={"name": name})
    )


def summary(config: tuple[DeviceAllocationConfiguration, ...]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.source, each.opaque.parameters["name"], each.requests) for each in config if each.opaque is not None]


def test_class_configuration_comes_first_once_for_each_class_with_the_requests_that_use_it() -> None:
    classes = [class_("fast", parameters=[{"name": "f1"}, {"name": "f2"}]), class_("slow", parameters=[{"name": "s"}])]
    asked = claim(
        request("r0", device_class_name="slow"),
        request("r1", device_class_name="fast"),
        request("r2", device_class_name="slow"),
        config=[configured("mine", "r1")],
    )
    assert summary(result(decide(FOUR, asked, classes=classes)).devices.config) == [
        ("FromClass", "s", ("r0", "r2")),
        ("FromClass", "f1", ("r1",)),
        ("FromClass", "f2", ("r1",)),
        ("FromClaim", "mine", ("r1",)),
    ]


@pytest.mark.parametrize(
    ("requests", "then"),
    [
        ((), [("FromClaim", "mine", ())]),
        (("r0",), [("FromClaim", "mine", ("r0",))]),
        (("r0", "r1"), [("FromClaim", "mine", ())]),
        (("r0", "r1/small"), [("FromClaim", "mine", ())]),
        (("r1/small",), [("FromClaim", "mine", ("r1/small",))]),
        (("r1/big",), []),
        (("r1/big", "r0"), [("FromClaim", "mine", ("r1/big", "r0"))]),
    ],
)
def test_claim_configuration_is_for_what_was_chosen(requests: tuple[str, ...], then: list[Any]) -> None:
    asked = claim(
        request("r0"),
        first_of("r1", alternative("big", count=4), alternative("small")),
        config=[configured("mine", *requests)],
    )
    assert summary(result(decide(FOUR, asked)).devices.config) == then


def test_configuration_of_a_class_that_an_alternative_uses_names_the_alternative() -> None:
    classes = [class_("fast", parameters=[{"name": "f"}])]
    asked = claim(request("r0"), first_of("r1", alternative("a", device_class_name="fast")))
    assert summary(result(decide(FOUR, asked, classes=classes)).devices.config) == [("FromClass", "f", ("r1/a",))]


EAST, WEST = labelled("zone", "In", "east", "west"), labelled("zone", "In", "west", "east")
RANK = labelled("rank", "Gt", "1")
HERE = NodeSelector(
    node_selector_terms=(
        NodeSelectorTerm(
            match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=("node-1",)),)
        ),
    )
)


def both(*selectors: NodeSelector) -> NodeSelector:
    requirements = tuple(each.node_selector_terms[0].match_expressions[0] for each in selectors)
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=requirements),))


@pytest.mark.parametrize(
    ("places", "selector"),
    [
        ([{"all_nodes": True}], None),
        ([{"node_name": "node-1"}], HERE),
        ([{"node_selector": EAST}], EAST),
        ([{"node_selector": EAST}, {"node_selector": RANK}], both(EAST, RANK)),
        ([{"node_selector": EAST}, {"node_selector": WEST}], EAST),
        ([{"node_selector": EAST}, {"all_nodes": True}], EAST),
        ([{"node_selector": EAST}, {"node_name": "node-1"}], HERE),
    ],
)
def test_the_allocation_can_be_used_where_all_its_devices_can(
    places: list[dict[str, Any]], selector: NodeSelector | None
) -> None:
    slices = [slice_(device("d"), pool=f"pool-{index}", **place) for index, place in enumerate(places)]
    assert result(decide(slices, claim(request("r", count=len(places))))).node_selector == selector
    listed = [device(f"d{index}", **place) for index, place in enumerate(places)]
    one = [slice_(*listed, per_device_node_selection=True)]
    assert result(decide(one, claim(request("r", count=len(places))))).node_selector == selector


def test_a_device_that_binds_keeps_the_pod_on_its_node() -> None:
    slices = [slice_(device("d", binds_to_node=True), all_nodes=True)]
    assert result(decide(slices, claim(request("r")))).node_selector == HERE


def test_binding_conditions_and_share_ids_go_with_the_device() -> None:
    shared = device(
        "a",
        capacity={"memory": "4Gi"},
        allow_multiple_allocations=True,
        binding_conditions=("ready",),
        binding_failure_conditions=("failed",),
    )
    outcome = decide([slice_(shared)], claim(request("r"), name="one"))
    (given,) = result(outcome).devices.results
    assert (given.binding_conditions, given.binding_failure_conditions) == (("ready",), ("failed",))
    assert given.share_id == "share-0"
    assert {name: str(amount) for name, amount in given.consumed_capacity.items()} == {"memory": "4Gi"}
