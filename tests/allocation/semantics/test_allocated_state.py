"""The devices, counters and capacity that claims hold."""

from typing import Any

import msgspec

from kerf_dra.api.model.allocations import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimStatus,
)
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import DeviceId, ObjectRef, ShareId
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import AllocatedState, Fits
from kerf_dra.driver.allocation.semantics.allocated_state import AllocatedStateTracker, PoolId
from tests.allocation.builders import DRIVER, claim, decide, device, request, slice_


def holding(name: str, *results: DeviceRequestAllocationResult) -> ResourceClaim:
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results))
    return msgspec.structs.replace(claim(name=name), status=ResourceClaimStatus(allocation=allocation))


def held(name: str, **fields: Any) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(request="r", driver=DRIVER, pool="pool", device=name, **fields)


def share(name: str, id_: str, **amounts: str) -> DeviceRequestAllocationResult:
    return held(name, share_id=id_, consumed_capacity={key: Quantity(amount) for key, amount in amounts.items()})


A, B = DeviceId(DRIVER, "pool", "a"), DeviceId(DRIVER, "pool", "b")


def test_devices_shares_and_amounts_are_summed_over_all_claims() -> None:
    state = AllocatedState.from_claims(
        [
            holding("one", held("a"), share("b", "1", memory="1Gi")),
            holding("two", share("b", "2", memory="512Mi", slots="1")),
            claim(name="waiting"),
        ]
    )
    assert state.exclusive == {A}
    assert state.shares == {ShareId(B, "1"), ShareId(B, "2")}
    assert state.consumed == {B: {"memory": Quantity("1536Mi"), "slots": Quantity("1")}}
    assert state.holders == {A: ObjectRef("default", "one"), B: ObjectRef("default", "one")}


def test_admin_access_takes_nothing() -> None:
    assert AllocatedState.from_claims([holding("watcher", held("a", admin_access=True))]) == AllocatedState()


def test_a_share_without_capacities_still_holds_its_device() -> None:
    state = AllocatedState.from_claims([holding("one", share("a", "1"))])
    assert state.shared == {A}
    assert state.of(PoolId(DRIVER, "pool")).names == {"a"}


def test_what_an_allocation_gave_is_taken_for_the_next() -> None:
    slices = [slice_(device("a"), device("b", capacity={"memory": "4Gi"}, allow_multiple_allocations=True))]
    claims: list[ResourceClaim] = []
    for number in range(3):
        asked = claim(request("r", capacity={"memory": "2Gi"} if number else None), name=f"c{number}")
        outcome = decide(slices, asked, allocated=AllocatedState.from_claims(claims))
        assert isinstance(outcome, Fits), number
        status = ResourceClaimStatus(allocation=outcome.results[0])
        claims.append(msgspec.structs.replace(asked, status=status))
    state = AllocatedState.from_claims(claims)
    assert state.exclusive == {A}
    assert state.consumed == {B: {"memory": Quantity("4Gi")}}
    assert not isinstance(decide(slices, claim(request("r")), allocated=state), Fits)


def test_a_ledger_says_what_a_state_of_the_same_claims_says() -> None:
    one = holding("one", share("b", "1", memory="2Gi"), held("a"))
    two = holding("two", share("b", "2", memory="1Gi"))
    pool = PoolId(DRIVER, "pool")
    allocated_state = AllocatedStateTracker()
    assert allocated_state.record(one) == allocated_state.record(two) == {pool}
    assert allocated_state.of(pool) == AllocatedState.from_claims([one, two]).of(pool)
    assert allocated_state.remove(one.ref) == {pool}
    assert allocated_state.remove(one.ref) == set()
    assert allocated_state.of(pool) == AllocatedState.from_claims([two]).of(pool)
    assert allocated_state.record(claim(name="two")) == {pool}
    assert allocated_state.of(pool) == AllocatedState().of(pool)


def test_a_ledger_names_who_holds_a_device_as_long_as_it_is_held() -> None:
    one, two = holding("one", held("a")), holding("two", held("b"))
    allocated_state = AllocatedStateTracker()
    allocated_state.record(one)
    allocated_state.record(two)
    assert allocated_state.holders == {A: ObjectRef("default", "one"), B: ObjectRef("default", "two")}
    allocated_state.record(holding("one", held("c")))
    allocated_state.remove(two.ref)
    assert allocated_state.holders == {DeviceId(DRIVER, "pool", "c"): ObjectRef("default", "one")}


def test_of_two_claims_that_share_a_device_the_one_that_stays_is_its_holder() -> None:
    allocated_state = AllocatedStateTracker()
    for name, id_ in (("one", "1"), ("two", "2")):
        allocated_state.record(holding(name, share("b", id_)))
    for gone, staying in (("two", "one"), ("one", "two")):
        allocated_state.remove(ObjectRef("default", gone))
        assert allocated_state.holders == {B: ObjectRef("default", staying)}
        allocated_state.record(holding(gone, share("b", "3")))
