"""The claims that hold devices, counters and capacity."""

import msgspec

from kerf_dra.api.model.allocations import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimStatus,
)
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import DeviceId, ObjectRef
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation.explain.holders import Blocker, HolderIndex
from tests.allocation.builders import DRIVER, claim, device, partitioned, slice_

POOL = f"{DRIVER}/pool"
HALVES = partitioned(
    device("low", uses={"card-0": {"a": 1, "b": 1}}),
    device("high", uses={"card-0": {"c": 1, "d": 1}}),
    device("whole", uses={"card-0": {"a": 1, "b": 1, "c": 1, "d": 1}}),
    sets={"card-0": dict.fromkeys("abcd", 1)},
)


def id_of(name: str) -> DeviceId:
    return DeviceId(DRIVER, "pool", name)


def holder(name: str, *devices: str, **fields: object) -> ResourceClaim:
    results = tuple(
        DeviceRequestAllocationResult(request="r", driver=DRIVER, pool="pool", device=each, **fields)  # type: ignore[arg-type]
        for each in devices
    )
    status = ResourceClaimStatus(allocation=AllocationResult(devices=DeviceAllocationResult(results=results)))
    return msgspec.structs.replace(claim(name=name), status=status)


def ref(name: str) -> ObjectRef:
    return ObjectRef("default", name)


def test_who_takes_the_counters_that_are_short_is_in_the_way() -> None:
    holdings = HolderIndex(HALVES, [holder("train", "low")])
    assert holdings.blockers([id_of("whole")]) == (Blocker(POOL, "card-0", ("a", "b"), (ref("train"),)),)
    assert holdings.blockers([id_of("high")]) == ()


def test_a_device_in_use_is_told_with_its_card() -> None:
    holdings = HolderIndex(HALVES, [holder("train", "low")])
    assert holdings.blockers([id_of("low")]) == (Blocker(POOL, "card-0", (), (ref("train"),)),)


def test_everybody_on_a_card_is_told_together() -> None:
    holdings = HolderIndex(HALVES, [holder("z", "low"), holder("a", "high")])
    [blocker] = holdings.blockers([id_of("whole")])
    assert (blocker.counters, blocker.claims) == (("a", "b", "c", "d"), (ref("a"), ref("z")))


def test_counters_that_nobody_has_enough_of_block_without_a_holder() -> None:
    short = partitioned(device("wide", uses={"card-0": {"a": 2}}), sets={"card-0": {"a": 1}})
    assert HolderIndex(short, []).blockers([id_of("wide")]) == (Blocker(POOL, "card-0", ("a",), ()),)


def test_every_holder_of_a_share_is_told() -> None:
    slices = [slice_(device("nic", allow_multiple_allocations=True, capacity={"bandwidth": "10"}))]
    shares = [
        holder(name, "nic", share_id=name, consumed_capacity={"bandwidth": Quantity(5)}) for name in ("one", "two")
    ]
    [blocker] = HolderIndex(slices, shares).blockers([id_of("nic")])
    assert (blocker.card, blocker.claims) == ("nic", (ref("one"), ref("two")))


def test_admin_access_holds_nothing() -> None:
    holdings = HolderIndex(HALVES, [holder("watch", "low", admin_access=True)])
    assert holdings.blockers([id_of("low"), id_of("whole")]) == ()


def test_only_the_newest_generation_counts() -> None:
    old = slice_(device("low", uses={"card-0": {"a": 4}}), name="old", generation=1)
    new = [*partitioned(device("low", uses={"card-0": {"a": 1}}), sets={"card-0": {"a": 1}}, generation=2)]
    assert HolderIndex([old, *new], []).blockers([id_of("low")]) == ()


def test_a_claim_weighs_what_it_takes() -> None:
    claims = [holder("half", "low"), holder("all", "whole"), claim(name="nothing")]
    holdings = HolderIndex(HALVES, claims)
    weights = [holdings.weight(each) for each in claims]
    assert weights[1] == 2 * weights[0]
    assert weights[2] == 0
