"""Shares of one card's memory for several claims (KEP-5075)."""

from typing import Final

from tests.e2e import pods
from tests.e2e.hardware import BOTH_BACKENDS
from tests.e2e.namespace import Namespace
from tools.realcluster.api import Document
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm", "sharing": ["Mps"]}], options={})
GIB: Final = 2**30


async def in_shares(namespace: Namespace, **offer: object) -> str:
    return await namespace.resource_class("shares", device="gpu", allocation="Shared", **offer)


def share(device_class: str, memory: str) -> Document:
    return pods.exactly("gpu", device_class, capacity={"requests": {"memory": memory}})


async def test_two_claims_share_a_partition_and_each_container_reads_its_own_limit(namespace: Namespace) -> None:
    shares = await in_shares(namespace, profile="3g.40gb", sharing={"strategy": "Mps"})
    for name, memory in {"four": "4Gi", "eight": "8Gi"}.items():
        await namespace.template(name, share(shares, memory))
        await namespace.create_pods(name, name)
    four, eight = (await namespace.wait_running("four")).main, (await namespace.wait_running("eight")).main
    ((device, uuid),) = four.kerf_devices.items()
    assert eight.kerf_devices == {device: uuid}
    assert [profile for _, profile, _ in namespace.node.gpu_partitions] == ["3g.40gb"]
    variable = f"KERF_MEMORY_LIMIT_{device.upper().replace('-', '_')}"
    assert (four.environment[variable], eight.environment[variable]) == (str(4 * GIB), str(8 * GIB))
    assert eight.environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M"
    results = [result for name in ("four", "eight") for result in await namespace.allocation_results(name)]
    assert [result["consumedCapacity"]["memory"] for result in results] == ["4Gi", "8Gi"]
    assert {result["device"] for result in results} == {device}
    ids = {result["shareID"] for result in results}
    assert len(ids) == 2
    assert all(any(share_id in name for name in namespace.node.cdi_devices()) for share_id in ids)


@BOTH_BACKENDS
async def test_a_shared_partition_goes_with_its_last_share(namespace: Namespace) -> None:
    shares = await in_shares(namespace, profile="3g.40gb")
    await namespace.template("some", share(shares, "4Gi"))
    await namespace.create_pods("some", "one", "two")
    before = await namespace.wait_running("one")
    await namespace.wait_running("two")
    cut = namespace.node.gpu_partitions
    await namespace.delete_pod("two")
    assert namespace.node.gpu_partitions == cut
    assert (await namespace.wait_running("one")).starts == before.starts
    await namespace.delete_pod("one")
    assert namespace.node.gpu_partitions == []


async def test_a_share_for_which_no_memory_is_left_waits_until_another_goes(namespace: Namespace) -> None:
    shares = await in_shares(namespace, cut="Whole")
    await namespace.template("thirty", share(shares, "30Gi"))
    await namespace.create_pods("thirty", "one", "two")
    for name in ("one", "two"):
        await namespace.wait_running(name)
    await namespace.create_pods("thirty", "three")
    await namespace.wait_event("three", "FailedScheduling", "cannot allocate all claims")
    await namespace.delete_pod("one")
    await namespace.wait_running("three")
    assert namespace.node.gpu_partitions == [], "the card is shared whole"


async def test_shares_and_partitions_of_a_card_exclude_each_other(namespace: Namespace) -> None:
    shares = await in_shares(namespace, cut="Whole")
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("some", share(shares, "1Gi"))
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("some", "one")
    await namespace.wait_running("one")
    await namespace.create_pods("small", "s")
    await namespace.wait_event("s", "FailedScheduling")
    await namespace.delete_pod("one")
    await namespace.wait_running("s")
    await namespace.create_pods("some", "two")
    await namespace.wait_event("two", "FailedScheduling")
