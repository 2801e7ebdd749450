"""Shares of one card's memory for several claims (KEP-5075)."""

from typing import Final

from tests.e2e import pods
from tests.e2e.namespace import Space
from tests.realcluster.api import Document
from tests.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
GIB: Final = 2**30


async def in_shares(space: Space, **offer: object) -> str:
    return await space.resource_class("shares", device="gpu", allocation="Shared", **offer)


def share(device_class: str, memory: str) -> Document:
    return pods.exactly("gpu", device_class, capacity={"requests": {"memory": memory}})


async def test_two_claims_share_a_partition_and_each_container_reads_its_own_limit(space: Space) -> None:
    shares = await in_shares(space, profile="3g.40gb", sharing={"strategy": "Mps"})
    for name, memory in {"four": "4Gi", "eight": "8Gi"}.items():
        await space.template(name, share(shares, memory))
        await space.pods_of(name, name)
    four, eight = (await space.running("four")).main, (await space.running("eight")).main
    ((device, uuid),) = four.kerf_devices.items()
    assert eight.kerf_devices == {device: uuid}
    assert [profile for _, profile, _ in space.node.cut] == ["3g.40gb"]
    variable = f"KERF_MEMORY_LIMIT_{device.upper().replace('-', '_')}"
    assert (four.environment[variable], eight.environment[variable]) == (str(4 * GIB), str(8 * GIB))
    assert eight.environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M"
    results = [result for name in ("four", "eight") for result in await space.allocated(name)]
    assert [result["consumedCapacity"]["memory"] for result in results] == ["4Gi", "8Gi"]
    assert {result["device"] for result in results} == {device}
    ids = {result["shareID"] for result in results}
    assert len(ids) == 2
    assert all(any(share_id in name for name in space.node.cdi_devices()) for share_id in ids)


async def test_a_shared_partition_goes_with_its_last_share(space: Space) -> None:
    shares = await in_shares(space, profile="3g.40gb")
    await space.template("some", share(shares, "4Gi"))
    await space.pods_of("some", "one", "two")
    before = await space.running("one")
    await space.running("two")
    cut = space.node.cut
    await space.delete_pod("two")
    assert space.node.cut == cut
    assert (await space.running("one")).starts == before.starts
    await space.delete_pod("one")
    assert space.node.cut == []


async def test_a_share_for_which_no_memory_is_left_waits_until_another_goes(space: Space) -> None:
    shares = await in_shares(space, cut="Whole")
    await space.template("thirty", share(shares, "30Gi"))
    await space.pods_of("thirty", "one", "two")
    for name in ("one", "two"):
        await space.running(name)
    await space.pods_of("thirty", "three")
    assert "cannot allocate all claims" in await space.waits("three", "FailedScheduling")
    await space.delete_pod("one")
    await space.running("three")
    assert [profile for _, profile, _ in space.node.cut] == ["whole"]


async def test_shares_and_partitions_of_a_card_exclude_each_other(space: Space) -> None:
    shares = await in_shares(space, cut="Whole")
    small = await space.resource_class("small", device="gpu", profile="1g.10gb")
    await space.template("some", share(shares, "1Gi"))
    await space.template("small", pods.exactly("gpu", small))
    await space.pods_of("some", "one")
    await space.running("one")
    await space.pods_of("small", "s")
    await space.waits("s", "FailedScheduling")
    await space.delete_pod("one")
    await space.running("s")
    await space.pods_of("some", "two")
    await space.waits("two", "FailedScheduling")
