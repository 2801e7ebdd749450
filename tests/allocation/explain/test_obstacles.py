"""The obstacles on a node, in messages for users."""

from typing import Any

import pytest

from kerf_dra.api.model.devices import DeviceTaint
from kerf_dra.api.model.names import DeviceId, ObjectRef
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import AllocatedState, DoesNotFit, NodeView, Obstacle, Reason
from tests.allocation.builders import (
    DRIVER,
    alternative,
    claim,
    class_,
    decide,
    device,
    distinct,
    first_of,
    labelled,
    partitioned,
    request,
    same,
    slice_,
)

BIG = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0'
H100 = 'device.attributes["gpu.example.com"].model == "h100"'
GPUS = [
    slice_(*(device(f"gpu-{index}", attributes={"model": "a100"}, capacity={"memory": "40Gi"}) for index in range(3)))
]
HALVES = partitioned(
    *(device(f"half-{index}", uses={"card-0": {"slices": 4}}) for index in range(3)), sets={"card-0": {"slices": 7}}
)
FANS = [slice_(device("gpu-0", taints=(DeviceTaint(key="repair", value="fan", effect="NoSchedule"),)))]
HELD = AllocatedState(
    exclusive=frozenset(DeviceId(DRIVER, "pool", f"gpu-{index}") for index in range(3)),
    holders={
        DeviceId(DRIVER, "pool", f"gpu-{index}"): ObjectRef("default", name)
        for index, name in enumerate(["train", "train", "serve"])
    },
)
CUT = AllocatedState(exclusive=frozenset({DeviceId(DRIVER, "pool", "half-0")}))
CASES: dict[str, tuple[list[Any], dict[str, Any], Obstacle, str]] = {
    "nothing published": ([], {}, Obstacle.NO_POOL, "no driver publishes devices for this node"),
    "no such class": (
        GPUS,
        {"device_class_name": "nic"},
        Obstacle.CLASS,
        "none of the 3 devices for this node is of class nic",
    ),
    "second selector": (
        GPUS,
        {"selectors": [BIG.replace("80", "20"), H100]},
        Obstacle.SELECTOR,
        f"none of the 3 devices of class any matches selector 1: {H100}",
    ),
    "in use": (
        GPUS,
        {"allocated": HELD},
        Obstacle.IN_USE,
        "3 devices match, but are in use by default/train, default/serve",
    ),
    "all, some in use": (
        GPUS,
        {"count": None, "allocated": AllocatedState(exclusive=frozenset({DeviceId(DRIVER, "pool", "gpu-1")}))},
        Obstacle.IN_USE,
        "all are requested of 3 devices that match, but 1 is in use",
    ),
    "too small": (
        GPUS,
        {"capacity": {"memory": "80Gi"}},
        Obstacle.CAPACITY,
        "3 devices match, but none has the capacity asked for (memory 80Gi)",
    ),
    "tainted": (FANS, {}, Obstacle.TAINTED, "1 device matches, but is tainted: repair=fan:NoSchedule"),
    "counters": (
        HALVES,
        {"allocated": CUT},
        Obstacle.COUNTERS,
        "2 devices match, but what they need is taken: slices of card-0",
    ),
    "too many at once": (
        HALVES,
        {"count": 2},
        Obstacle.COUNTERS,
        "2 devices requested, but their counters allow 1 at once",
    ),
    "too few": (GPUS, {"count": 4}, Obstacle.TOO_FEW, "4 devices requested, but only 3 devices match"),
    "too few that are free": (
        GPUS,
        {"count": 3, "allocated": AllocatedState(exclusive=frozenset({DeviceId(DRIVER, "pool", "gpu-1")}))},
        Obstacle.TOO_FEW,
        "3 devices requested, but 2 are free that match",
    ),
    "one pool is being updated, the other has nothing": (
        [slice_(device("a", attributes={"model": "a100"}), pool="p0"), slice_(device("b"), pool="p1", slices=2)],
        {"selectors": [H100]},
        Obstacle.POOL_INCOMPLETE,
        "pool gpu.example.com/p1 is being updated: 1 of 2 slices are published",
    ),
    "groups that do not go together": (
        partitioned(
            device("half-0", uses={"card-0": {"slices": 1}}, groups={"card-0": ["mig"]}),
            device("half-1", uses={"card-0": {"slices": 1}}, groups={"card-0": ["vgpu"]}),
            sets={"card-0": {"slices": 7}},
        ),
        {"allocated": CUT},
        Obstacle.COUNTERS,
        "1 device matches, but what it needs is taken: gpu.example.com/pool (devices that do not go together)",
    ),
    "all, one used up": (
        [
            slice_(
                *(
                    device(f"gpu-{index}", capacity={"memory": "4Gi"}, allow_multiple_allocations=True)
                    for index in range(3)
                )
            )
        ],
        {
            "count": None,
            "capacity": {"memory": "2Gi"},
            "allocated": AllocatedState(consumed={DeviceId(DRIVER, "pool", "gpu-1"): {"memory": Quantity("3Gi")}}),
        },
        Obstacle.CAPACITY,
        "all are requested of 3 devices that match, but 1 has too little capacity left",
    ),
    "a kubelet that lacks what the slice needs": (
        [slice_(device("a"), skip_node_operations=("*",), node_name="node-1")],
        {},
        Obstacle.COUNTERS,
        "1 device matches, but what it needs is taken: a feature that is disabled, or that the kubelet lacks",
    ),
    "elsewhere": (
        [
            slice_(
                device("here", attributes={"model": "a100"}, all_nodes=True),
                device("there", attributes={"model": "h100"}, node_selector=labelled("zone", "In", "west")),
                per_device_node_selection=True,
            )
        ],
        {"selectors": [H100]},
        Obstacle.NODE,
        "1 device matches, but can be used on other nodes only",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_first_obstacle_is_named(case: tuple[list[Any], dict[str, Any], Obstacle, str]) -> None:
    slices, fields, obstacle, message = case
    asked = dict(fields)
    allocated = asked.pop("allocated", None)
    selectors = asked.pop("selectors", [])
    nics = class_("nic", 'device.driver == "nic.example.com"')
    outcome = decide(slices, claim(request("r", *selectors, **asked)), allocated=allocated, classes=[nics])
    assert outcome == DoesNotFit((Reason(claim="default/claim", request="r", obstacle=obstacle, message=message),))


def test_requests_that_can_be_served_have_no_part_in_the_reasons() -> None:
    outcome = decide(GPUS, claim(request("gpu"), request("many", count=9)))
    assert isinstance(outcome, DoesNotFit)
    assert [reason.request for reason in outcome.reasons] == ["many"]


def test_every_alternative_is_explained_when_none_can_be_had() -> None:
    asked = claim(first_of("r", alternative("h100", H100), alternative("many", count=4)))
    outcome = decide(GPUS, asked)
    assert isinstance(outcome, DoesNotFit)
    assert [(reason.request, reason.obstacle) for reason in outcome.reasons] == [
        ("r/h100", Obstacle.SELECTOR),
        ("r/many", Obstacle.TOO_FEW),
    ]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (same(f"{DRIVER}/serial"), "matchAttribute gpu.example.com/serial cannot hold over the devices that are free"),
        (
            distinct(f"{DRIVER}/model"),
            "distinctAttribute gpu.example.com/model cannot hold over the devices that are free",
        ),
    ],
)
def test_a_constraint_that_cannot_hold_is_named_with_its_requests(rule: Any, text: str) -> None:
    outcome = decide(GPUS, claim(request("a"), request("b"), constraints=[rule]))
    assert isinstance(outcome, DoesNotFit)
    assert [str(reason) for reason in outcome.reasons] == [f"claim default/claim, request a, b: {text}"]


def test_what_only_fails_together_is_said_so() -> None:
    outcome = decide(GPUS, claim(request("a", count=2), request("b", count=2)))
    assert isinstance(outcome, DoesNotFit)
    assert {reason.obstacle for reason in outcome.reasons} == {Obstacle.COMBINATION}
    assert [reason.request for reason in outcome.reasons] == ["a", "b"]


def test_reasons_do_not_depend_on_anything_but_the_question() -> None:
    node = NodeView("node-1", {"zone": "east"})
    outcomes = [decide(GPUS, claim(request("r")), allocated=HELD, node=node) for _ in range(2)]
    assert outcomes[0] == outcomes[1]
