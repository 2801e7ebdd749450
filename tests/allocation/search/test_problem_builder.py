"""The domains of requests, and the errors that do not depend on a node."""

import pytest

from kerf_dra.api.model.claims import (
    CapacityRequirements,
    DerivedAttribute,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    ResourceClaim,
)
from kerf_dra.api.model.devices import (
    Attribute,
    Capacity,
    CapacityRange,
    CapacityRequestPolicy,
    DeviceTaint,
    DeviceToleration,
)
from kerf_dra.api.model.names import DeviceId, ShareId
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import AllocatedState, DoesNotFit, Failed, Features, Fits, Outcome
from tests.allocation.builders import (
    ALL_FEATURES,
    DRIVER,
    alternative,
    claim,
    class_,
    decide,
    device,
    first_of,
    partitioned,
    request,
    same,
    slice_,
)

A, B = DeviceId(DRIVER, "pool", "a"), DeviceId(DRIVER, "pool", "b")
PAIR = [slice_(device("a"), device("b"))]


def taken(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, Fits), outcome
    return [each.device for result in outcome.results for each in result.devices.results]


def is_fatal(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed) and outcome.kind == "fatal"


@pytest.mark.parametrize(
    ("asked", "features"),
    [
        (claim(request("r", device_class_name="missing")), ALL_FEATURES),
        (claim(request("r", device_class_name="")), ALL_FEATURES),
        (claim(request("r", allocation_mode="Most")), ALL_FEATURES),
        (claim(DeviceRequest(name="r")), ALL_FEATURES),
        (claim(request("r", selectors=(DeviceSelector(),))), ALL_FEATURES),
        (claim(request("r"), constraints=[DeviceConstraint()]), ALL_FEATURES),
        (claim(request("r", admin_access=True)), Features(admin_access=False)),
        (claim(first_of("r", alternative("s"))), Features(prioritized_list=False)),
        (claim(request("r", derived_attributes=(DerivedAttribute(name="n", expression="1"),))), Features()),
        (claim(request("r", capacity={"memory": "1"})), Features(consumable_capacity=False)),
        (claim(first_of("r", alternative("s", capacity={"memory": "1"}))), Features(consumable_capacity=False)),
    ],
)
def test_what_nobody_can_answer_fails_the_pod(asked: ResourceClaim, features: Features) -> None:
    assert is_fatal(decide(PAIR, asked, features=features))


def test_a_selector_that_fails_on_a_device_fails_the_pod_unless_the_device_is_not_reached() -> None:
    slices = [slice_(device("a", attributes={"size": 1}), device("b"))]
    picky = f'device.attributes["{DRIVER}"].size == 1'
    assert taken(decide(slices, claim(request("r", picky)))) == ["a"]
    assert is_fatal(decide(slices, claim(request("r", picky, count=2))))
    assert is_fatal(decide(slices, claim(request("r", picky, count=None))))
    held = AllocatedState(exclusive=frozenset({B}))
    assert isinstance(decide(slices, claim(request("r", picky, count=2)), allocated=held), DoesNotFit)


@pytest.mark.parametrize("value", [Attribute(), Attribute(version="1.0"), Attribute(versions=("1.0.0", "v2"))])
def test_no_selector_can_be_evaluated_on_a_device_with_an_attribute_that_is_no_value(value: Attribute) -> None:
    slices = [slice_(device("a", attributes={"broken": value}))]
    assert is_fatal(decide(slices, claim(request("r", "true"))))
    assert taken(decide(slices, claim(request("r")))) == ["a"]


@pytest.mark.parametrize("count", [1, None])
def test_a_capacity_that_cannot_be_calculated_fails_the_pod(count: int | None) -> None:
    policy = CapacityRequestPolicy(valid_range=CapacityRange(min=Quantity(2), max=Quantity(4), step=Quantity(2)))
    memory = Capacity(value=Quantity(4), request_policy=policy)
    slices = [slice_(device("a", capacity={"memory": memory}), device("b", capacity={"memory": "100E"}))]
    assert is_fatal(decide(slices, claim(request("r", count=count, capacity={"memory": "18446744073709551616"}))))


def test_class_selectors_come_before_those_of_the_request() -> None:
    slices = [slice_(device("a", attributes={"size": 1}), device("b"))]
    sized = class_("sized", f'"size" in device.attributes["{DRIVER}"]')
    picky = request("r", f'device.attributes["{DRIVER}"].size == 1', count=None, device_class_name="sized")
    assert taken(decide(slices, claim(picky), classes=[sized])) == ["a"]


def test_all_means_every_device_and_at_least_one() -> None:
    assert taken(decide(PAIR, claim(request("r", count=None)))) == ["a", "b"]
    assert isinstance(decide(PAIR, claim(request("r", "false", count=None))), DoesNotFit)
    held = AllocatedState(exclusive=frozenset({B}))
    assert isinstance(decide(PAIR, claim(request("r", count=None)), allocated=held), DoesNotFit)
    fallback = claim(first_of("r", alternative("all", count=None), alternative("one")))
    assert taken(decide(PAIR, fallback, allocated=held)) == ["a"]


def test_a_constraint_that_all_devices_cannot_hold_fails_the_pod() -> None:
    slices = [slice_(device("a", attributes={"value": 1}), device("b", attributes={"value": 2}))]
    assert is_fatal(decide(slices, claim(request("r", count=None), constraints=[same(f"{DRIVER}/value")])))


def test_an_alternative_is_taken_only_when_the_earlier_ones_leave_no_solution() -> None:
    asked = claim(first_of("r", alternative("many", count=2), alternative("few", count=1)), request("s"))
    outcome = decide(PAIR, asked)
    assert isinstance(outcome, Fits)
    assert [each.request for each in outcome.results[0].devices.results] == ["r/few", "s"]


def test_an_alternative_of_no_devices_is_a_way_out() -> None:
    asked = claim(first_of("r", alternative("all", "false", count=None), alternative("none", count=0)))
    assert taken(decide(PAIR, asked)) == []


TAINT = DeviceTaint(key="repair", value="fan", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "is_taken"),
    [
        (None, False),
        (DeviceToleration(key="repair", value="fan"), True),
        (DeviceToleration(key="repair", value="board"), False),
        (DeviceToleration(key="repair", operator="Exists"), True),
        (DeviceToleration(operator="Exists"), True),
        (DeviceToleration(key="other", operator="Exists"), False),
        (DeviceToleration(key="repair", operator="Exists", effect="NoSchedule"), True),
        (DeviceToleration(key="repair", operator="Exists", effect="NoExecute"), False),
    ],
)
def test_a_taint_keeps_away_who_does_not_tolerate_it(toleration: DeviceToleration | None, is_taken: bool) -> None:
    slices = [slice_(device("a", taints=(TAINT,)))]
    asked = claim(request("r", tolerations=(toleration,) if toleration else ()))
    outcome = decide(slices, asked)
    assert isinstance(outcome, Fits) is is_taken
    if isinstance(outcome, Fits):
        assert outcome.results[0].devices.results[0].tolerations == (toleration,)


@pytest.mark.parametrize(
    ("effect", "features", "is_taken"),
    [
        ("NoSchedule", ALL_FEATURES, False),
        ("NoExecute", ALL_FEATURES, False),
        ("None", ALL_FEATURES, True),
        ("Later", ALL_FEATURES, True),
        ("NoSchedule", Features(device_taints=False), True),
    ],
)
def test_only_the_two_strong_effects_keep_away(effect: str, features: Features, is_taken: bool) -> None:
    slices = [slice_(device("a", taints=(DeviceTaint(key="k", effect=effect),)))]
    assert isinstance(decide(slices, claim(request("r")), features=features), Fits) is is_taken


def test_admin_access_sees_devices_in_use_but_not_one_twice_in_a_claim() -> None:
    held = AllocatedState(exclusive=frozenset({A, B}))
    assert taken(decide(PAIR, claim(request("r", count=2, admin_access=True)), allocated=held)) == ["a", "b"]
    assert isinstance(decide(PAIR, claim(request("r", count=3, admin_access=True))), DoesNotFit)
    twice = [claim(request("r", count=2, admin_access=True), name=name) for name in ("one", "two")]
    assert taken(decide(PAIR, *twice)) == ["a", "b", "a", "b"]
    with_user = claim(request("user"), request("admin", admin_access=True))
    assert taken(decide(PAIR, with_user)) == ["a", "b"]


def test_a_shared_device_serves_requests_until_it_is_used_up() -> None:
    slices = [slice_(device("a", capacity={"memory": "4Gi"}, allow_multiple_allocations=True))]
    asked = [claim(request("r", capacity={"memory": "2Gi"}), name=f"c{index}") for index in range(3)]
    assert taken(decide(slices, *asked[:2])) == ["a", "a"]
    assert isinstance(decide(slices, *asked), DoesNotFit)
    half = AllocatedState(shares=frozenset({ShareId(A, "1")}), consumed={A: {f"{DRIVER}/memory": Quantity("2Gi")}})
    assert taken(decide(slices, asked[0], allocated=half)) == ["a"]
    assert isinstance(decide(slices, *asked[:2], allocated=half), DoesNotFit)


def test_a_request_gets_different_devices_even_where_they_can_be_shared() -> None:
    slices = [slice_(device("a", capacity={"memory": "4Gi"}, allow_multiple_allocations=True))]
    assert isinstance(decide(slices, claim(request("r", count=2, capacity={"memory": "1Gi"}))), DoesNotFit)


def test_a_device_that_is_not_shared_is_taken_whole_and_capacity_is_a_least_size() -> None:
    slices = [slice_(device("small", capacity={"memory": "1Gi"}), device("big", capacity={"memory": "4Gi"}))]
    outcome = decide(slices, claim(request("r", capacity={"memory": "2Gi"})))
    assert taken(outcome) == ["big"]
    assert isinstance(outcome, Fits)
    assert outcome.results[0].devices.results[0].share_id is None
    assert outcome.results[0].devices.results[0].consumed_capacity == {}


def test_all_fails_while_a_shared_device_is_used_up() -> None:
    """kubernetes#140769: a device without capacity left is wanted, as one in use is; a device too small is not."""
    slices = [
        slice_(
            device("a", capacity={"memory": "4Gi"}, allow_multiple_allocations=True),
            device("b", capacity={"memory": "4Gi"}, allow_multiple_allocations=True),
            device("tiny", capacity={"memory": "1Gi"}, allow_multiple_allocations=True),
        )
    ]
    asked = claim(request("r", count=None, capacity={"memory": "2Gi"}))
    assert taken(decide(slices, asked)) == ["a", "b"]
    used = AllocatedState(shares=frozenset({ShareId(A, "1")}), consumed={A: {"memory": Quantity("4Gi")}})
    assert isinstance(decide(slices, asked, allocated=used), DoesNotFit)


def test_a_constraint_is_violated_by_all_devices_though_one_of_them_is_used_up() -> None:
    devices = (
        device(name, attributes={"root": name}, capacity={"memory": "4Gi"}, allow_multiple_allocations=True)
        for name in ("a", "b")
    )
    asked = claim(request("r", count=None, capacity={"memory": "2Gi"}), constraints=[same(f"{DRIVER}/root")])
    used = AllocatedState(shares=frozenset({ShareId(B, "1")}), consumed={B: {"memory": Quantity("4Gi")}})
    outcome = decide([slice_(*devices)], asked, allocated=used)
    assert isinstance(outcome, Failed)
    assert "violates matchAttribute" in outcome.message


def test_shares_of_a_partition_take_its_counters_once() -> None:
    """kubernetes#134100: each further share was charged again."""
    partition = device("a", uses={"card": {"slices": 3}}, allow_multiple_allocations=True)
    other = device("b", uses={"card": {"slices": 3}})
    slices = partitioned(partition, other, sets={"card": {"slices": 4}})
    three = [claim(request("r"), name=f"c{index}") for index in range(3)]
    assert taken(decide(slices, *three)) == ["a", "a", "a"]
    shared = AllocatedState(shares=frozenset({ShareId(A, "1")}))
    assert taken(decide(slices, *three, allocated=shared)) == ["a", "a", "a"]
    whole = AllocatedState(exclusive=frozenset({B}))
    assert isinstance(decide(slices, three[0], allocated=whole), DoesNotFit)


def test_counters_of_two_drivers_pools_of_one_name_are_different() -> None:
    """kubernetes#140434: they were kept by the pool's name alone."""
    part = {"card": {"slices": 1}}
    slices = [
        listed
        for driver in ("a.example.com", "b.example.com")
        for listed in partitioned(device("d", uses=part), sets={"card": {"slices": 1}}, driver=driver, pool="node-1")
    ]
    assert taken(decide(slices, claim(request("r", count=2)))) == ["d", "d"]


def test_a_pool_with_an_overdrawn_counter_gives_no_partition_at_all() -> None:
    parts = [device(name, uses={"card-0": {"slices": 3}}) for name in "ab"]
    free = device("c", uses={"card-1": {"slices": 1}})
    slices = partitioned(*parts, free, sets={"card-0": {"slices": 4}, "card-1": {"slices": 4}})
    held = AllocatedState(exclusive=frozenset({A, B}))
    assert isinstance(decide(slices, claim(request("r")), allocated=held), DoesNotFit)


def test_capacity_of_an_alternative_is_its_own() -> None:
    slices = [slice_(device("a", capacity={"memory": "4Gi"}, allow_multiple_allocations=True))]
    wanted = CapacityRequirements(requests={"memory": Quantity("3Gi")})
    asked = claim(
        first_of("r", alternative("big", capacity={"memory": "5Gi"}), alternative("fit", capacity={"memory": "3Gi"}))
    )
    outcome = decide(slices, asked)
    assert isinstance(outcome, Fits)
    (result,) = outcome.results[0].devices.results
    assert (result.request, result.consumed_capacity) == ("r/fit", wanted.requests)
