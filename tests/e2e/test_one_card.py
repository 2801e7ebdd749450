"""One card: cut for who asks, taken back, cut anew."""

import pytest

from tests.e2e import pods
from tests.e2e.namespace import Space
from tests.e2e.wait import eventually
from tests.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})

SMALL = {"device": "gpu", "profile": "1g.10gb"}
WHOLE = {"device": "gpu", "cut": "Whole"}


async def test_a_partition_is_cut_for_a_pod_seen_by_its_container_and_gone_with_it(space: Space) -> None:
    small = await space.resource_class("small", **SMALL)
    await space.template("small", pods.exactly("gpu", small))
    await space.pods_of("small", "p")
    told = (await space.running("p")).main

    ((card, profile, _),) = space.node.cut
    assert (card, profile) == ("gpu-0", "1g.10gb")
    (result,) = await space.allocated("p")
    assert list(told.kerf_devices) == [result["device"]]
    assert told.kerf_devices[result["device"]].startswith("MIG-")
    assert told.environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert {"/dev/nvidia0", "/dev/nvidiactl"} < told.card_nodes
    assert len(told.card_nodes) == 4, "the card, its control node, and two capabilities of the partition"
    assert {told.device_nodes[path] for path in told.card_nodes} == {(1, 3)}, "all stand for the host's /dev/null"
    assert len(space.node.cdi_files) == 1
    assert await space.node.claim_records() == 1

    await space.delete_pod("p")
    assert space.node.cut == []
    assert space.node.cdi_files == []
    assert await space.node.claim_records() == 0

    async def no_claims() -> bool:
        return not await space.claims()

    await eventually("the claim is gone", no_claims)


async def test_two_containers_of_a_pod_share_its_claim(space: Space) -> None:
    small = await space.resource_class("small", **SMALL)
    await space.template("small", pods.exactly("gpu", small))
    await space.pods_of("small", "p", containers=("first", "second"))
    first, second = (await space.running("p")).containers.values()
    assert first.kerf_devices == second.kerf_devices
    assert first.card_nodes == second.card_nodes
    assert len(space.node.cut) == 1


async def test_a_claim_of_two_pods_keeps_its_partition_until_the_last_one_goes(space: Space) -> None:
    small = await space.resource_class("small", **SMALL)
    await space.claim("shared", pods.exactly("gpu", small))
    for name in ("one", "two"):
        await space.apply(pods.pod(name, {"gpu": pods.by_name("shared")}))
    one, two = await space.running("one"), await space.running("two")
    assert one.main.kerf_devices == two.main.kerf_devices
    cut = space.node.cut
    assert len(cut) == 1

    await space.delete_pod("one")
    assert space.node.cut == cut
    assert (await space.running("two")).starts == two.starts
    await space.delete_pod("two")
    await space.nothing_left()


async def test_seven_partitions_fill_a_card_and_an_eighth_pod_starts_when_one_goes(space: Space) -> None:
    small = await space.resource_class("small", **SMALL)
    await space.template("small", pods.exactly("gpu", small))
    names = [f"p{number}" for number in range(7)]
    await space.pods_of("small", *names)
    seen = [(await space.running(name)).main.kerf_devices for name in names]
    assert len({uuid for devices in seen for uuid in devices.values()}) == 7
    assert len(space.node.cut) == 7

    await space.pods_of("small", "eighth")
    assert "cannot allocate all claims" in await space.waits("eighth", "FailedScheduling")
    assert len(space.node.cut) == 7
    await space.delete_pod("p3")
    await space.running("eighth")
    assert len(space.node.cut) == 7


async def test_a_card_is_cut_differently_once_it_is_free(space: Space) -> None:
    small = await space.resource_class("small", **SMALL)
    half = await space.resource_class("half", device="gpu", profile="3g.40gb")
    await space.template("small", pods.exactly("gpu", small))
    await space.template("half", pods.exactly("gpu", half))
    await space.pods_of("small", "s0", "s1")
    await space.running("s0")
    await space.running("s1")
    await space.pods_of("half", "h0")
    await space.running("h0")
    assert sorted(profile for _, profile, _ in space.node.cut) == ["1g.10gb", "1g.10gb", "3g.40gb"]
    await space.pods_of("half", "h1")
    await space.waits("h1", "FailedScheduling")
    for name in ("s0", "s1"):
        await space.delete_pod(name)
    await space.running("h1")
    assert [profile for _, profile, _ in space.node.cut] == ["3g.40gb", "3g.40gb"]


@pytest.mark.parametrize(("first", "second"), [("small", "whole"), ("whole", "small")])
async def test_a_whole_card_and_its_partitions_exclude_each_other(space: Space, first: str, second: str) -> None:
    await space.template("small", pods.exactly("gpu", await space.resource_class("small", **SMALL)))
    await space.template("whole", pods.exactly("gpu", await space.resource_class("whole", **WHOLE)))
    await space.pods_of(first, "first")
    await space.running("first")
    await space.pods_of(second, "second")
    await space.waits("second", "FailedScheduling")
    await space.delete_pod("first")
    told = (await space.running("second")).main
    (uuid,) = told.kerf_devices.values()
    assert uuid.startswith("GPU-" if second == "whole" else "MIG-")
