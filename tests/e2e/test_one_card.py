"""One card: partitions are created for claims, removed, and created again."""

import pytest

from tests.e2e import pods
from tests.e2e.hardware import BOTH_BACKENDS
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})

pytestmark = BOTH_BACKENDS

SMALL = {"device": "gpu", "profile": "1g.10gb"}
WHOLE = {"device": "gpu", "cut": "Whole"}


async def test_a_partition_is_cut_for_a_pod_seen_by_its_container_and_gone_with_it(namespace: Namespace) -> None:
    small = await namespace.resource_class("small", **SMALL)
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", "p")
    told = (await namespace.wait_running("p")).main

    ((card, profile, _),) = namespace.node.gpu_partitions
    assert (card, profile) == ("gpu-0", "1g.10gb")
    (result,) = await namespace.allocation_results("p")
    assert list(told.kerf_devices) == [result["device"]]
    assert told.kerf_devices[result["device"]].startswith("MIG-")
    assert told.environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert {"/dev/nvidia0", "/dev/nvidiactl"} < told.card_nodes
    capabilities = {path for path in told.card_nodes if path.startswith("/dev/nvidia-caps/")}
    assert len(capabilities) == 2, "those of the partition's two instances"
    assert {told.device_nodes[path] for path in told.card_nodes} == {(1, 3)}, "all stand for the host's /dev/null"
    assert len(namespace.node.cdi_files) == 1
    assert await namespace.node.claim_records() == 1

    await namespace.delete_pod("p")
    assert namespace.node.gpu_partitions == []
    assert namespace.node.cdi_files == []
    assert await namespace.node.claim_records() == 0

    async def no_claims() -> bool:
        return not await namespace.claims()

    await eventually("the claim is gone", no_claims)


async def test_two_containers_of_a_pod_share_its_claim(namespace: Namespace) -> None:
    small = await namespace.resource_class("small", **SMALL)
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", "p", containers=("first", "second"))
    first, second = (await namespace.wait_running("p")).containers.values()
    assert first.kerf_devices == second.kerf_devices
    assert first.card_nodes == second.card_nodes
    assert len(namespace.node.gpu_partitions) == 1


async def test_a_claim_of_two_pods_keeps_its_partition_until_the_last_one_goes(namespace: Namespace) -> None:
    small = await namespace.resource_class("small", **SMALL)
    await namespace.claim("shared", pods.exactly("gpu", small))
    for name in ("one", "two"):
        await namespace.apply(pods.pod(name, {"gpu": pods.by_name("shared")}))
    one, two = await namespace.wait_running("one"), await namespace.wait_running("two")
    assert one.main.kerf_devices == two.main.kerf_devices
    cut = namespace.node.gpu_partitions
    assert len(cut) == 1

    await namespace.delete_pod("one")
    assert namespace.node.gpu_partitions == cut
    assert (await namespace.wait_running("two")).starts == two.starts
    await namespace.delete_pod("two")
    await namespace.wait_clean()


async def test_seven_partitions_fill_a_card_and_an_eighth_pod_starts_when_one_goes(namespace: Namespace) -> None:
    small = await namespace.resource_class("small", **SMALL)
    await namespace.template("small", pods.exactly("gpu", small))
    names = [f"p{number}" for number in range(7)]
    await namespace.create_pods("small", *names)
    seen = [(await namespace.wait_running(name)).main.kerf_devices for name in names]
    assert len({uuid for devices in seen for uuid in devices.values()}) == 7
    assert len(namespace.node.gpu_partitions) == 7

    await namespace.create_pods("small", "eighth")
    await namespace.wait_event("eighth", "FailedScheduling", "cannot allocate all claims")
    assert len(namespace.node.gpu_partitions) == 7
    await namespace.delete_pod("p3")
    await namespace.wait_running("eighth")
    assert len(namespace.node.gpu_partitions) == 7


async def test_a_card_is_cut_differently_once_it_is_free(namespace: Namespace) -> None:
    small = await namespace.resource_class("small", **SMALL)
    half = await namespace.resource_class("half", device="gpu", profile="3g.40gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.template("half", pods.exactly("gpu", half))
    await namespace.create_pods("small", "s0", "s1")
    await namespace.wait_running("s0")
    await namespace.wait_running("s1")
    await namespace.create_pods("half", "h0")
    await namespace.wait_running("h0")
    assert sorted(profile for _, profile, _ in namespace.node.gpu_partitions) == ["1g.10gb", "1g.10gb", "3g.40gb"]
    await namespace.create_pods("half", "h1")
    await namespace.wait_event("h1", "FailedScheduling")
    for name in ("s0", "s1"):
        await namespace.delete_pod(name)
    await namespace.wait_running("h1")
    assert [profile for _, profile, _ in namespace.node.gpu_partitions] == ["3g.40gb", "3g.40gb"]


@pytest.mark.parametrize(("first", "second"), [("small", "whole"), ("whole", "small")])
async def test_a_whole_card_and_its_partitions_exclude_each_other(
    namespace: Namespace, first: str, second: str
) -> None:
    await namespace.template("small", pods.exactly("gpu", await namespace.resource_class("small", **SMALL)))
    await namespace.template("whole", pods.exactly("gpu", await namespace.resource_class("whole", **WHOLE)))
    await namespace.create_pods(first, "first")
    await namespace.wait_running("first")
    await namespace.create_pods(second, "second")
    await namespace.wait_event("second", "FailedScheduling")
    await namespace.delete_pod("first")
    told = (await namespace.wait_running("second")).main
    (uuid,) = told.kerf_devices.values()
    assert uuid.startswith("GPU-" if second == "whole" else "MIG-")
