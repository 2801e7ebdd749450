"""What befalls NVIDIA cards, by a stand-in for their library: errors, cards off the bus, processes that do not end."""

import json
from functools import partial
from typing import Any, Final

import pytest

from driver.testing.nvml import NvidiaMachine
from tests.e2e import pods
from tests.e2e.device_health import health, tainted_devices, taints
from tests.e2e.hardware import ON_NVIDIA, StandInCards
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tests.realcluster.api import Document
from tests.realcluster.kerf import DEPLOY, Hardware, manifests

pytestmark = ON_NVIDIA

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
EARLY_LOADING = True
"""The permission to list claims: without it devices are tainted, not withdrawn."""

TAINT: Final = "gpu.kerf.dev/unhealthy"
DRAIN: Final = 4
"""NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET, which does not evict."""
METADATA: Final = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/devices/gpu"
PID: Final = 4711


@pytest.fixture
def machine(namespace: Namespace) -> NvidiaMachine:
    """The machine of the first node."""
    hardware = namespace.node.hardware
    assert isinstance(hardware, StandInCards)
    return hardware.machine


async def test_an_api_server_takes_the_manifest_for_such_nodes(namespace: Namespace) -> None:
    for document in manifests(DEPLOY / "nvidia"):
        await namespace.api.apply(document, dryRun="All")


async def small_pods(namespace: Namespace, *names: str) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", *names)


async def instance_of(namespace: Namespace, machine: NvidiaMachine, pod: str) -> int:
    """Return the id of the GPU instance that the pod has."""
    (uuid,) = (await namespace.wait_running(pod)).main.kerf_devices.values()
    (instance,) = (one.id for one in machine.list_instances() if one.uuid == uuid)
    return instance


async def wait_no_taints(namespace: Namespace) -> None:
    async def has_none() -> bool:
        return not await taints(namespace)

    await eventually("no device is tainted", has_none, but=lambda: taints(namespace))


async def test_an_error_of_one_partition_evicts_its_pod_and_no_other_until_the_driver_has_recovered(
    namespace: Namespace, machine: NvidiaMachine
) -> None:
    await small_pods(namespace, "hit", "beside")
    instance = await instance_of(namespace, machine, "hit")
    beside = await namespace.wait_running("beside")
    machine.report_xid(0, 95, gpu_instance=instance, compute_instance=0)  # memory error that was not contained
    await namespace.wait_gone("v1", "Pod", "hit")
    assert await taints(namespace) == {(TAINT, "lost", "NoExecute")}
    (kept,) = (await namespace.wait_running("beside")).main.kerf_devices
    assert kept not in {device for _, device in await tainted_devices(namespace)}
    assert (await namespace.wait_running("beside")).starts == beside.starts

    machine.set_recovery_action(0, DRAIN)
    await eventually("the card gets no new claims", lambda: _has_taint(namespace, "ill"))
    machine.set_recovery_action(0, 0)
    await wait_no_taints(namespace)
    assert (await namespace.wait_running("beside")).starts == beside.starts


async def test_pods_leave_a_card_that_falls_off_the_bus_and_come_back_to_it_when_it_is_back(
    namespace: Namespace, machine: NvidiaMachine
) -> None:
    await small_pods(namespace, "before")
    await namespace.wait_running("before")
    (left,) = machine.list_instances()
    machine.drop_card(0)
    await namespace.wait_gone("v1", "Pod", "before")
    assert machine.list_instances() == [left], "nothing can be taken back from a card that does not answer"
    await namespace.create_pods("small", "after")
    await namespace.wait_event("after", "FailedScheduling")
    machine.restore_card(0)
    await namespace.wait_running("after")

    async def is_one() -> bool:
        return len(namespace.node.gpu_partitions) == 1

    await eventually("what the lost card kept is taken back", is_one)
    await wait_no_taints(namespace)


async def test_a_process_that_outlives_its_pod_keeps_the_partition_and_not_the_pod(
    namespace: Namespace, machine: NvidiaMachine
) -> None:
    await small_pods(namespace, "p")
    machine.start_process(0, PID, gpu_instance=await instance_of(namespace, machine, "p"), compute_instance=0)
    await namespace.delete_pod("p")
    assert len(namespace.node.gpu_partitions) == 1
    await eventually("what overlaps it gets no claims", lambda: _has_taint(namespace, "ill"))
    await namespace.create_pods("small", "q")
    await namespace.wait_running("q")
    assert len(namespace.node.gpu_partitions) == 2
    machine.end_process(PID)

    async def is_one() -> bool:
        return len(namespace.node.gpu_partitions) == 1

    await eventually("the partition is taken back", is_one)
    await wait_no_taints(namespace)


@pytest.mark.parametrize("sharing", [{}], ids=["memory"])
async def test_shares_health_metadata_status_and_a_partition_cut_by_hand_on_one_card(
    namespace: Namespace, machine: NvidiaMachine, sharing: Document
) -> None:
    described = {"profile": "3g.40gb", "allocation": "Shared", "deviceMetadata": True, **sharing}
    shares = await namespace.resource_class("shares", device="gpu", **described)
    await namespace.template("share", pods.exactly("gpu", shares, capacity={"requests": {"memory": "4Gi"}}))
    with namespace.node.cut_by_hand("gpu-0", "1g.10gb", start=0, size=1) as by_hand:
        await eventually("what overlaps it is withdrawn", lambda: _is_withdrawn(namespace, "gpu-0-3g-40gb-at-0"))
        await namespace.create_pods("share", "one", "two")
        running = {name: await namespace.wait_running(name) for name in ("one", "two")}
        ((device, uuid),) = running["one"].main.kerf_devices.items()
        assert running["two"].main.kerf_devices == {device: uuid}
        assert namespace.node.gpu_partitions == [("gpu-0", "1g.10gb", 0), ("gpu-0", "3g.40gb", 4)]

        for pod in running.values():
            (told,) = pod.main.files.values()
            document: dict[str, Any]
            document, _ = json.JSONDecoder().raw_decode(told)
            (described_device,) = document["requests"][0]["devices"]
            assert described_device["attributes"]["profile"] == {"string": "3g.40gb"}
        shown = [entry["data"] for claim in await namespace.claims() for entry in claim["status"]["devices"]]
        assert [(one["uuid"], one["profile"]) for one in shown] == [(uuid, "3g.40gb")] * 2

        machine.remap_rows(0, uncorrectable=1, is_pending=True)
        reason = "rows of its memory are remapped at the next reset of the card"
        for name in running:
            await eventually("its pod is told", partial(_is_told, namespace, name, reason))
        await eventually("the card gets no new claims", lambda: _has_taint(namespace, "ill"))
        await namespace.create_pods("share", "three")
        await namespace.wait_event("three", "FailedScheduling")
        machine.remap_rows(0)
        assert (await namespace.wait_running("three")).main.kerf_devices == {device: uuid}
        for name, pod in running.items():
            assert (await namespace.wait_running(name)).starts == pod.starts
        for name in (*running, "three"):
            await namespace.delete_pod(name)
        assert namespace.node.gpu_partitions == [("gpu-0", "1g.10gb", 0)]
        assert namespace.node.holds(by_hand)


async def _has_taint(namespace: Namespace, value: str) -> bool:
    return (TAINT, value, "NoSchedule") in await taints(namespace)


async def _is_withdrawn(namespace: Namespace, device: str) -> bool:
    return device not in await namespace.published_devices()


async def _is_told(namespace: Namespace, pod: str, reason: str) -> bool:
    return await health(namespace, pod) == [("Unhealthy", reason)]
