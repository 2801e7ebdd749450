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
        "3 devices match, but none has enough free: memory",
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
        "2 devices requested, but the node has at most 1; a card has at most 1",
    ),
    "too many at once, now": (
        partitioned(
            *(device(f"half-{number}", uses={f"card-{number // 2}": {"slices": 4}}) for number in range(4)),
            sets={"card-0": {"slices": 7}, "card-1": {"slices": 7}},
        ),
        {"count": 3},
        Obstacle.COUNTERS,
        "3 devices requested, but the node has at most 2; a card has at most 1",
    ),
    "enough on an empty node": (
        partitioned(
            *(device(f"slice-{number}", uses={f"card-{number % 2}": {"slices": 2}}) for number in range(6)),
            device("other", uses={"card-0": {"slices": 3}}),
            sets={"card-0": {"slices": 5}, "card-1": {"slices": 5}},
        ),
        {"count": 4, "allocated": AllocatedState(exclusive=frozenset({DeviceId(DRIVER, "pool", "slice-0")}))},
        Obstacle.COUNTERS,
        "4 devices requested, but their counters allow 3 at once",
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
    ("rule", "name", "why"),
    [
        (same(f"{DRIVER}/serial"), "matchAttribute gpu.example.com/serial", "no device that matches has it"),
        (
            distinct(f"{DRIVER}/model"),
            "distinctAttribute gpu.example.com/model",
            "2 devices are to differ in it, and those that match have 1 different value",
        ),
        (distinct(f"{DRIVER}/serial"), "distinctAttribute gpu.example.com/serial", "no device that matches has it"),
    ],
)
def test_a_constraint_that_cannot_hold_is_named_with_its_requests(rule: Any, name: str, why: str) -> None:
    outcome = decide(GPUS, claim(request("a"), request("b"), constraints=[rule]))
    assert isinstance(outcome, DoesNotFit)
    text = f"{name} cannot hold over the devices that are free: {why}"
    assert [str(reason) for reason in outcome.reasons] == [f"claim default/claim, request a, b: {text}"]


NUMA = [
    slice_(*(device(f"gpu-{number}", attributes={"numa": number // 2, "uuid": str(number)}) for number in range(4)))
]
VALUES: dict[str, tuple[Any, int, tuple[str, ...], str]] = {
    # the constraint, how many devices, those in use; what the message says of the values
    "too few values": (
        distinct(f"{DRIVER}/numa"),
        3,
        (),
        "3 devices are to differ in it, and those that match have 2 different",
    ),
    "too few free values": (
        distinct(f"{DRIVER}/uuid"),
        3,
        ("gpu-1", "gpu-2"),
        "3 devices are to differ in it, and those that match have 4 different values, of which 2 are free",
    ),
    "too few of one value": (
        same(f"{DRIVER}/numa"),
        3,
        (),
        "3 devices are to have one value in common, and 2 of those that match have one, at most",
    ),
    "too few free of one value": (
        same(f"{DRIVER}/numa"),
        2,
        ("gpu-1", "gpu-2"),
        "2 devices are to have one value in common, and 2 of those that match have one, at most, of which 1 is free",
    ),
}


@pytest.mark.parametrize("case", VALUES.values(), ids=VALUES.keys())
def test_how_many_values_there_are_is_told_with_a_constraint(case: tuple[Any, int, tuple[str, ...], str]) -> None:
    rule, count, used, text = case
    held = AllocatedState(exclusive=frozenset(DeviceId(DRIVER, "pool", name) for name in used))
    asked = claim(*(request(f"r{number}") for number in range(count)), constraints=[rule])
    outcome = decide(NUMA, asked, allocated=held)
    assert isinstance(outcome, DoesNotFit)
    [reason] = outcome.reasons
    assert text in reason.message


def test_requests_that_do_not_fit_together_say_how_many_a_node_and_a_card_have() -> None:
    """Three of a size of which a card has two were told to wait until a claim gives devices back."""
    slices = partitioned(
        *(device(f"half-{number}", uses={f"card-{number // 2}": {"slices": 2}}) for number in range(4)),
        sets={"card-0": {"slices": 4}, "card-1": {"slices": 4}},
    )
    requests = [request(f"r{number}") for number in range(5)]
    outcome = decide(slices, claim(*requests))
    assert isinstance(outcome, DoesNotFit)
    end = "5 such devices are requested, and the node has at most 4; a card has at most 2"
    assert {reason.message.partition(": ")[2] for reason in outcome.reasons} == {end}
    used = AllocatedState(exclusive=frozenset({DeviceId(DRIVER, "pool", "half-0")}))
    outcome = decide(slices, claim(*requests[:4]), allocated=used)
    assert isinstance(outcome, DoesNotFit)
    end = "4 such devices are requested, and 3 are free at once"
    assert {reason.message.partition(": ")[2] for reason in outcome.reasons} == {end}


def test_what_only_fails_together_is_said_so() -> None:
    outcome = decide(GPUS, claim(request("a", count=2), request("b", count=2)))
    assert isinstance(outcome, DoesNotFit)
    assert {reason.obstacle for reason in outcome.reasons} == {Obstacle.COMBINATION}
    assert [reason.request for reason in outcome.reasons] == ["a", "b"]


def test_reasons_do_not_depend_on_anything_but_the_question() -> None:
    node = NodeView("node-1", {"zone": "east"})
    outcomes = [decide(GPUS, claim(request("r")), allocated=HELD, node=node) for _ in range(2)]
    assert outcomes[0] == outcomes[1]
