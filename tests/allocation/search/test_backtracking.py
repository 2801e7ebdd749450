"""The search: the same first solution as an exhaustive one, in few steps where that one needs exponentially many."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kerf_dra.api.model.claims import DerivedAttribute, DeviceRequest, ResourceClaim
from kerf_dra.api.model.devices import Attribute, Device, ResourceSlice
from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.allocation import AllocatedState, Budget, DoesNotFit, Failed, Fits, Outcome, Undecided
from tests.allocation.builders import (
    DRIVER,
    alternative,
    claim,
    decide,
    device,
    distinct,
    first_of,
    partitioned,
    request,
    same,
    slice_,
)
from tests.allocation.exhaustive import Chosen, Exhaustive, FatalError
from tests.allocation.hard_cases.crowded import crowded
from tests.allocation.hard_cases.families import FAMILIES
from tests.allocation.result_check import faults

ROOT = f"{DRIVER}/root"
TAGS = f"{DRIVER}/tags"
SELECTORS = [f'device.attributes["{DRIVER}"].kind == {kind}' for kind in (0, 1)]
NAMES = ["r0", "r1", "r2"]


@st.composite
def devices(draw: st.DrawFn, name: str) -> Device:
    """A device that some constraints accept, some selectors fail on, and some counters limit."""
    attributes: dict[str, object] = {}
    if draw(st.sampled_from([True] * 9 + [False])):
        attributes["kind"] = draw(st.integers(0, 1))
    if draw(st.sampled_from([True] * 5 + [False])):
        attributes["root"] = draw(st.sampled_from(["a", "b"]))
    if draw(st.booleans()):
        tags = draw(st.lists(st.sampled_from("xyz"), min_size=1, max_size=2, unique=True))
        attributes["tags"] = Attribute(strings=tuple(tags))
    sets = draw(st.lists(st.sampled_from(["s0", "s1"]), max_size=2, unique=True))
    uses = {set_: {"c": draw(st.integers(1, 2))} for set_ in sets}
    return device(name, attributes=attributes, uses=uses)


@st.composite
def pools(draw: st.DrawFn) -> list[ResourceSlice]:
    slices: list[ResourceSlice] = []
    for pool in ["p0", "p1"][: draw(st.integers(1, 2))]:
        names = [f"d{index}" for index in range(draw(st.integers(0, 4)))]
        sets = {set_: {"c": draw(st.integers(1, 4))} for set_ in ("s0", "s1")}
        slices += partitioned(*(draw(devices(name)) for name in names), pool=pool, sets=sets)
    return slices


@st.composite
def requests(draw: st.DrawFn, name: str) -> DeviceRequest:
    def asked() -> tuple[list[str], int | None]:
        selectors = draw(st.lists(st.sampled_from(SELECTORS), max_size=1))
        return selectors, draw(st.sampled_from([1, 1, 1, 2, 2, 3, None]))

    if draw(st.sampled_from([True, False, False])):
        choices = [(f"a{index}", *asked()) for index in range(draw(st.integers(1, 3)))]
        return first_of(name, *(alternative(each, *selectors, count=count) for each, selectors, count in choices))
    selectors, count = asked()
    return request(name, *selectors, count=count)


@st.composite
def claims(draw: st.DrawFn, name: str) -> ResourceClaim:
    asked = [draw(requests(each)) for each in NAMES[: draw(st.integers(1, 3))]]
    over = st.lists(st.sampled_from([each.name for each in asked]), max_size=2, unique=True)
    rule = st.builds(
        lambda kind, attribute, names: kind(attribute, *names),
        st.sampled_from([same, distinct]),
        st.sampled_from([ROOT, TAGS]),
        over,
    )
    return claim(*asked, name=name, constraints=draw(st.lists(rule, max_size=2)))


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[ResourceSlice], list[ResourceClaim], AllocatedState]:
    slices = draw(pools())
    asked = [draw(claims(name)) for name in ["c0", "c1"][: draw(st.integers(1, 2))]]
    ids = [
        DeviceId(each.spec.driver, each.spec.pool.name, listed.name) for each in slices for listed in each.spec.devices
    ]
    held = draw(st.lists(st.sampled_from(ids), max_size=2, unique=True)) if ids else []
    return slices, asked, AllocatedState(exclusive=frozenset(held))


def chosen(outcome: Fits) -> list[Chosen]:
    return [
        Chosen(position, device.request, device.id)
        for position, result in enumerate(outcome.results)
        for device in result.devices.results
    ]


@settings(max_examples=4 * settings().max_examples)
@given(questions())
def test_the_answer_is_the_first_that_an_exhaustive_search_finds(
    question: tuple[list[ResourceSlice], list[ResourceClaim], AllocatedState],
) -> None:
    slices, asked, allocated = question
    outcome = decide(slices, *asked, allocated=allocated)
    event(type(outcome).__name__)
    try:
        first = Exhaustive(slices, asked, allocated).first()
    except FatalError:
        assert isinstance(outcome, Failed)
        assert outcome.kind == "fatal"
        return
    if first is None:
        assert isinstance(outcome, DoesNotFit)
        assert outcome.reasons
        return
    assert isinstance(outcome, Fits)
    assert chosen(outcome) == first
    assert faults(slices, asked, outcome.results, allocated) == []


@settings(max_examples=4 * settings().max_examples)
@given(st.integers(0, 10**6))
def test_crowded_questions_are_answered_as_an_exhaustive_search_answers_them(seed: int) -> None:
    slices, asked = crowded(seed)
    outcome = decide(slices, *asked)
    event(type(outcome).__name__)
    try:
        first = Exhaustive(slices, asked, AllocatedState()).first()
    except FatalError:
        assert isinstance(outcome, Failed)
        return
    assert (chosen(outcome) if isinstance(outcome, Fits) else None) == first
    assert isinstance(outcome, Fits | DoesNotFit)


def test_a_constraint_that_ends_the_attempt_is_not_forgotten_after_another_failure() -> None:
    """What constraints had seen was left out of what is remembered, where only one device has the value: the second
    choice for ``any`` counted as failed like the first, and the pod as one that does not fit.
    """
    attributes = ({"kind": 0, "tags": "y"}, {"kind": 0, "tags": "z"}, {"kind": 1, "tags": "y"})
    slices = [slice_(*(device(f"d{index}", attributes=each) for index, each in enumerate(attributes)))]
    asked = claim(
        request("any"),
        request("all", SELECTORS[1], count=None),
        request("more", SELECTORS[1], count=2),
        constraints=[same(TAGS, "any", "all")],
    )
    outcome = decide(slices, asked)
    assert isinstance(outcome, Failed)
    assert "violates matchAttribute" in outcome.message


def test_a_selector_that_fails_on_a_device_is_met_though_its_counters_are_used_up() -> None:
    """Devices in use and devices without counters were remembered as one; only those in use are never looked at."""
    devices = (
        device("d0", uses={"s2": {"c": 2}}),
        device("d1", attributes={"kind": 0}, uses={"s2": {"c": 2}}),
        device("d2", attributes={"kind": 0}, uses={"s2": {"c": 1}}),
        device("d3"),
    )
    slices = partitioned(*devices, sets={"s2": {"c": 3}})
    asked = claim(request("any", count=3), request("one", SELECTORS[0]), request("two", SELECTORS[0], count=2))
    outcome = decide(slices, asked)
    assert isinstance(outcome, Failed)
    assert "d0" in outcome.message


@st.composite
def shared_questions(draw: st.DrawFn) -> tuple[list[ResourceSlice], list[ResourceClaim]]:
    """Devices of which shares can be taken, mixed with others, over counters."""
    listed = [
        device(
            f"d{index}",
            attributes={"root": draw(st.sampled_from(["a", "b"]))},
            capacity={"memory": str(draw(st.integers(1, 6)))},
            uses={"s0": {"c": draw(st.integers(1, 2))}} if draw(st.booleans()) else {},
            groups={"s0": draw(st.lists(st.sampled_from(["mig", "vgpu"]), max_size=2, unique=True))},
            allow_multiple_allocations=draw(st.booleans()),
        )
        for index in range(draw(st.integers(1, 4)))
    ]
    asked = [
        request(name, count=draw(st.integers(1, 2)), capacity={"memory": str(draw(st.integers(1, 4)))})
        for name in NAMES[: draw(st.integers(1, 3))]
    ]
    rules = draw(st.lists(st.sampled_from([same(ROOT), distinct(ROOT)]), max_size=1))
    slices = partitioned(*listed, sets={"s0": {"c": draw(st.integers(1, 4))}})
    return slices, [claim(*asked, constraints=rules), claim(request("r"), name="other")]


@given(shared_questions())
def test_no_shared_device_gives_more_than_it_has(question: tuple[list[ResourceSlice], list[ResourceClaim]]) -> None:
    slices, asked = question
    outcome = decide(slices, *asked)
    event(type(outcome).__name__)
    assert isinstance(outcome, Fits | DoesNotFit)
    if isinstance(outcome, Fits):
        assert faults(slices, asked, outcome.results, AllocatedState()) == []


def gpus(count: int, **attributes: Sequence[object]) -> ResourceSlice:
    return slice_(
        *(
            device(f"gpu-{index:02}", attributes={key: values[index] for key, values in attributes.items()})
            for index in range(count)
        )
    )


GENERIC = [f"g{index}" for index in range(16)]


def kinds(*kinds_: int) -> list[ResourceSlice]:
    return [gpus(len(kinds_), kind=kinds_)]


def of_kind(name: str, kind: int, **fields: Any) -> DeviceRequest:
    return request(name, f'device.attributes["{DRIVER}"].kind == {kind}', **fields)


CARD = partitioned(
    device("whole", attributes={"kind": 1}, uses={"card": {"slices": 6}}),
    *(device(f"third-{index}", attributes={"kind": 0}, uses={"card": {"slices": 2}}) for index in range(3)),
    sets={"card": {"slices": 6}},
)
ROOTS = [
    slice_(*(device(f"d{kind}-{root}", attributes={"kind": kind, "root": root}) for kind, root in [(1, "x"), (0, "y")]))
]
SAME_ROOTS = [slice_(*(device(f"d{kind}", attributes={"kind": kind, "root": "x"}) for kind in (1, 0)))]
CHOICE = [
    slice_(
        device("big", attributes={"kind": 1}, uses={"card": {"slices": 4}}),
        device("small", attributes={"kind": 0}, uses={"card": {"slices": 1}}),
        device("rest", attributes={"kind": 2}, uses={"card": {"slices": 3}}),
        sets={"card": {"slices": 4}},
    )
]
SECOND_THOUGHTS = {
    "counters are given back": (
        CARD,
        [claim(request("any"), of_kind("thirds", 0, count=2))],
        "third-0 third-1 third-2",
    ),
    "fewer devices leave enough for the next claim": (
        kinds(0, 0, 0),
        [
            claim(first_of("r", alternative("many", count=2), alternative("few"))),
            claim(request("r", count=2), name="two"),
        ],
        "gpu-00 gpu-01 gpu-02",
    ),
    "a smaller partition leaves enough for the next claim": (
        CHOICE,
        [
            claim(first_of("r", alternative("big", SELECTORS[1]), alternative("small", SELECTORS[0]))),
            claim(of_kind("r", 2), name="two"),
        ],
        "small rest",
    ),
    "just enough different values": (
        ROOTS,
        [claim(request("any"), of_kind("one", 1), constraints=[distinct(ROOT)])],
        "d0-y d1-x",
    ),
    "just enough equal values": (
        SAME_ROOTS,
        [claim(request("any"), of_kind("one", 1), constraints=[same(ROOT)])],
        "d0 d1",
    ),
    "just enough devices": (kinds(1, 0), [claim(request("any"), of_kind("one", 1))], "gpu-01 gpu-00"),
    "just enough for admin access and user": (
        kinds(1, 0),
        [claim(request("any"), of_kind("admin", 1, admin_access=True))],
        "gpu-01 gpu-00",
    ),
    "what a match had narrowed is wide again": (
        [
            slice_(
                *(
                    device(f"d{kind}-{root}", attributes={"kind": kind, "root": root})
                    for kind, root in [(0, "x"), (0, "y"), (1, "y")]
                )
            )
        ],
        [claim(of_kind("zero", 0), of_kind("one", 1), constraints=[same(ROOT)])],
        "d0-y d1-y",
    ),
    "capacity is given back": (
        [
            slice_(
                *(
                    device(
                        f"d{kind}", attributes={"kind": kind}, capacity={"memory": "4"}, allow_multiple_allocations=True
                    )
                    for kind in (1, 0)
                )
            )
        ],
        [claim(request("any", capacity={"memory": "3"}), of_kind("one", 1, capacity={"memory": "3"}))],
        "d0 d1",
    ),
}


@pytest.mark.parametrize("case", SECOND_THOUGHTS.values(), ids=SECOND_THOUGHTS.keys())
def test_a_choice_that_is_given_up_leaves_no_trace(
    case: tuple[list[ResourceSlice], list[ResourceClaim], str],
) -> None:
    """kubernetes#140436, #140431, #140663: counters and constraints kept what a rejected device had taken."""
    slices, asked, wanted = case
    outcome = decide(slices, *asked)
    assert isinstance(outcome, Fits), outcome
    assert " ".join(each.device.device for each in chosen(outcome)) == wanted


VALUE = f"{DRIVER}/value"
LATE_FAILURES = {
    "All violates a constraint once its first device is free": (
        [gpus(3)],
        [claim(request("two", count=2), request("all", count=None), constraints=[same(VALUE, "all")])],
    ),
    "a selector fails on a device that the first choice had in use": (
        [slice_(device("without"), device("with", attributes={"kind": 0}))],
        [claim(request("any"), of_kind("one", 1))],
    ),
}


@pytest.mark.parametrize("case", LATE_FAILURES.values(), ids=LATE_FAILURES.keys())
def test_a_failure_that_only_a_later_choice_meets_is_met(case: tuple[list[ResourceSlice], list[ResourceClaim]]) -> None:
    """Where trying a device can fail the pod, neither bounds nor equal situations may spare it."""
    slices, asked = case
    outcome = decide(slices, *asked)
    assert isinstance(outcome, Failed)
    assert outcome.kind == "fatal"


AT_LEAST = f'device.attributes["{DRIVER}"].kind == 0 && device.attributes["{DRIVER}"].size >= {{}}'
FEW = Budget(steps=300)
"""Without a shortcut, each of these searches would take many millions of steps."""

HOPELESS = {
    "more devices than there are": ([gpus(31)], [claim(request("r", count=32))]),
    "as many requests as devices, and one that nothing serves": (
        [gpus(16, kind=[0] * 16)],
        [claim(*(request(name) for name in GENERIC), request("nic", SELECTORS[1]))],
    ),
    "every one of the alternatives, and one request that nothing serves": (
        [gpus(12, kind=[0] * 12)],
        [
            claim(
                *(first_of(name, alternative("a"), alternative("b"), alternative("c")) for name in GENERIC[:12]),
                request("nic", SELECTORS[1]),
            )
        ],
    ),
    "one device too few on either side": (
        [gpus(30, root=["a", "b"] * 15)],
        [claim(*(request(name) for name in GENERIC), constraints=[same(ROOT)])],
    ),
    "one device more than there are different ones": (
        [gpus(28, root=list("abcdefg") * 4)],
        [claim(request("r", count=8), constraints=[distinct(ROOT)])],
    ),
    "back from the second claim into the first": (
        [gpus(24, kind=[0] * 24)],
        [claim(request("r", count=12)), claim(request("nic", SELECTORS[1]), name="other")],
    ),
    "partitions that fit in pairs only": (
        partitioned(
            *(
                device(f"card-{card}-half-{half}", uses={f"card-{card}": {"slices": 3}})
                for card in range(8)
                for half in range(4)
            ),
            sets={f"card-{card}": {"slices": 7} for card in range(8)},
        ),
        [claim(request("r", count=17))],
    ),
    "a shareable device whose card somebody else has, behind devices that are all different": (
        partitioned(
            device("card", attributes={"kind": 1}, uses={"card": {"slices": 1}}),
            device("share", attributes={"kind": 2}, uses={"card": {"slices": 1}}, allow_multiple_allocations=True),
            *(device(f"gpu-{size:02}", attributes={"kind": 0, "size": size}) for size in range(16)),
            sets={"card": {"slices": 1}},
        ),
        [
            claim(
                of_kind("card", 1),
                *(request(name, AT_LEAST.format(size)) for size, name in enumerate(GENERIC[:12])),
                of_kind("share", 2),
            )
        ],
    ),
}


@pytest.mark.parametrize("case", HOPELESS.values(), ids=HOPELESS.keys())
def test_what_cannot_be_is_found_out_in_few_steps(case: tuple[list[ResourceSlice], list[ResourceClaim]]) -> None:
    slices, asked = case
    assert isinstance(decide(slices, *asked, budget=FEW), DoesNotFit)


def test_a_device_that_only_a_later_request_can_use_is_given_up_at_once() -> None:
    """The needle is the first device in the list, so first-fit takes it for the request that any device would serve."""
    slices = [gpus(40, kind=[1] + [0] * 39)]
    asked = claim(request("any", count=20), request("needle", SELECTORS[1]))
    outcome = decide(slices, asked, budget=FEW)
    assert isinstance(outcome, Fits)
    assert [each.device.device for each in chosen(outcome)] == [
        *(f"gpu-{index:02}" for index in range(1, 21)),
        "gpu-00",
    ]


def test_a_spent_budget_is_an_answer_of_its_own() -> None:
    assert decide([gpus(4)], claim(request("r", count=3)), budget=Budget(steps=2)) == Undecided("steps", 2)


class Ticking:
    """A clock that goes on by one second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.mark.parametrize(
    ("budget", "outcome"),
    [
        (lambda: Budget(seconds=2.0, clock=Ticking()), Undecided("seconds", 2.0)),
        (lambda: Budget(seconds=100.0, clock=Ticking()), None),
        (lambda: Budget(steps=1, seconds=100.0, clock=Ticking()), Undecided("steps", 1)),
    ],
)
def test_a_deadline_ends_a_search_and_says_so(budget: Callable[[], Budget], outcome: Undecided | None) -> None:
    answer = decide([gpus(4)], claim(request("r", count=3)), budget=budget())
    assert answer == outcome or (outcome is None and isinstance(answer, Fits))


def test_parts_of_a_question_have_no_time_of_their_own() -> None:
    """They are tried by themselves when a search fails for the first time; it may not take longer for that."""
    clock = Ticking()
    hard = FAMILIES["second_claim_impossible"](16)
    assert isinstance(decide(hard.slices, *hard.claims, budget=Budget(seconds=1000, clock=clock)), DoesNotFit)
    whole = clock.now
    clock = Ticking()
    outcome = decide(hard.slices, *hard.claims, budget=Budget(seconds=whole - 3, clock=clock))
    assert outcome == Undecided("seconds", whole - 3)
    assert clock.now < whole + 2


def test_the_same_question_gets_the_same_answer() -> None:
    slices = partitioned(
        *(device(f"d{index}", uses={"s0": {"c": 1}}) for index in range(6)), sets={"s0": {"c": 3}}, pool="p"
    )
    answers = {repr(decide(slices, claim(request("r", count=3)))) for _ in range(3)}
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("requests_", "kind"),
    [
        ([request("r", count=20), request("s", count=13)], Failed),
        ([request("r", count=20), first_of("s", alternative("many", count=20), alternative("few", count=12))], Fits),
    ],
)
def test_a_claim_gets_32_devices_at_most(requests_: list[DeviceRequest], kind: type[Outcome]) -> None:
    assert isinstance(decide([gpus(64)], claim(*requests_)), kind)


def test_a_pod_may_have_more_devices_than_python_has_frames() -> None:
    slices = [
        slice_(*(device(f"d{number}-{index}") for index in range(128)), name=f"slice-{number}", slices=10)
        for number in range(10)
    ]
    outcome = decide(slices, *(claim(request("r", count=32), name=f"c{number}") for number in range(40)))
    assert isinstance(outcome, Fits)
    assert len({each.device for each in chosen(outcome)}) == 1280


def test_shares_are_alike_only_where_they_take_the_same_counters() -> None:
    """Once the second device was said to fail because the first one had, though what they take differs."""
    taking = [{"c0": 1}, {"c0": 4, "c1": 4}, {"c0": 2, "c1": 4}, {"c0": 4, "c1": 2}, {"c0": 1, "c1": 2}, {}]
    devices = [
        device(
            f"d{number}",
            allow_multiple_allocations=number != 4,
            uses={"set": amounts} if amounts else {},
            groups={"set": [] if number else ["mig"]},
        )
        for number, amounts in enumerate(taking)
    ]
    slices = partitioned(*devices, sets={"set": {"c0": 6, "c1": 4}})
    outcome = decide(slices, claim(request("r", count=3)))
    assert isinstance(outcome, Fits)
    assert [result.device for result in outcome.results[0].devices.results] == ["d3", "d4", "d5"]


def test_what_failed_because_of_a_derived_attribute_may_succeed_with_another_one() -> None:
    """Devices that an alternative cannot tell apart the next alternative of the same devices may tell apart."""
    numbers = {"d0": {"kind": 0, "x": 1, "y": 1}, "d1": {"kind": 0, "x": 1, "y": 2}, "d2": {"kind": 1, "x": 2, "y": 2}}
    slices = [slice_(*(device(name, attributes=each) for name, each in numbers.items()))]
    near_x, near_y = (
        (DerivedAttribute(name="near", expression=f'device.attributes["{DRIVER}"].{each}'),) for each in ("x", "y")
    )
    asked = claim(
        first_of(
            "r",
            alternative("x", SELECTORS[0], derived_attributes=near_x),
            alternative("y", SELECTORS[0], derived_attributes=near_y),
        ),
        of_kind("s", 1, derived_attributes=near_y),
        constraints=[same("near")],
    )
    outcome = decide(slices, asked)
    assert isinstance(outcome, Fits)
    assert [each.device for each in outcome.results[0].devices.results] == ["d1", "d2"]


def test_shares_that_fill_a_device_exactly_are_found_after_a_failure() -> None:
    shared = device("shared", attributes={"kind": 9}, capacity={"memory": "2"}, allow_multiple_allocations=True)
    others = (device(f"d{root}", attributes={"kind": kind, "root": root}) for kind, root in [(0, "x"), (0, "y")])
    slices = [slice_(shared, *others, device("last", attributes={"kind": 1, "root": "y"}))]
    shares = (of_kind(name, 9, capacity={"memory": "1"}) for name in ("one", "other"))
    outcome = decide(slices, claim(of_kind("r", 0), of_kind("s", 1), *shares, constraints=[same(ROOT, "r", "s")]))
    assert isinstance(outcome, Fits)
    assert [each.device for each in outcome.results[0].devices.results] == ["dy", "last", "shared", "shared"]


@pytest.mark.parametrize("order", [["one", "two"], ["two", "one"]], ids="-".join)
def test_a_device_that_is_shared_is_told_from_one_that_is_not_though_both_leave_the_same_counters(
    order: list[str],
) -> None:
    """A further share of a device takes nothing of its counters, also where nothing is left of them."""
    devices = (
        device(f"d{kind}", attributes={"kind": kind}, uses={"card": {"slices": 1}}, allow_multiple_allocations=kind < 2)
        for kind in range(3)
    )
    slices = partitioned(*devices, sets={"card": {"slices": 2}})
    requests = {"one": of_kind("one", 1), "two": of_kind("two", 2)}
    outcome = decide(slices, claim(request("any"), *(requests[name] for name in order)))
    assert isinstance(outcome, Fits)
    got = {each.request: each.device for each in outcome.results[0].devices.results}
    assert got == {"any": "d1", "one": "d1", "two": "d2"}
