"""The device plugin interface as a kubelet meets it: the rows DP- of the reference, on a fake device manager."""

from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest

from kerf_dra.api._generated.deviceplugin_v1beta1 import api_pb2 as v1beta1
from kerf_dra.api.deviceplugin.v1beta1 import (
    ALLOCATE,
    LIST_AND_WATCH,
    REGISTER,
    ContainerAllocation,
    DevicePluginOptions,
    ListedDevice,
    Registration,
)
from kerf_dra.driver.kubeletplugin.backends.base import HardwareRefusedError, HealthState
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.fakes.cards import gpu
from tests.kubeletplugin.deviceplugin.node import LARGE, RESOURCE, offering_node
from tests.kubeletplugin.wait import until

FIRST, SECOND = "gpu-0-1g-1gb-at-0", "gpu-0-1g-1gb-at-1"


async def refused(call: Any, code: grpc.StatusCode, words: str) -> None:
    """Check that ``call`` fails with a status and a message."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is code
    assert words in (caught.value.details() or "")


async def test_dp_01_a_registration_has_version_endpoint_resource_and_options() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        request = await node.kubelet.wait_registrations(1)
        assert (request.version, request.resource_name) == ("v1beta1", RESOURCE)
        assert "/" not in request.endpoint
        assert (node.kubelet.folder / request.endpoint).is_socket()
        assert {field.name for field, _ in request.ListFields()} == {
            "version",
            "endpoint",
            "resource_name",
            "options",
        }


@pytest.mark.parametrize("event", ["the socket is removed", "the kubelet starts again"])
async def test_dp_02_a_kubelet_that_starts_gets_a_new_registration(event: str) -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        await node.kubelet.wait_list(RESOURCE, 2)
        first = node.kubelet.registrations[0]
        if event == "the socket is removed":
            (node.kubelet.folder / first.endpoint).unlink()
            await node.kubelet.wait_registrations(2)
            await node.kubelet.wait_list(RESOURCE, 2)
        else:
            async with type(node.kubelet)(node.machine.settings.kubelet_root).running() as successor:
                await successor.wait_registrations(1)
                await successor.wait_list(RESOURCE, 2)


async def test_dp_02_a_registration_that_is_refused_is_tried_again() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.kubelet.refuses = True
        node.offer(_1g_1gb=1)
        await node.kubelet.wait_refusals(2)
        node.kubelet.refuses = False
        await node.kubelet.wait_list(RESOURCE, 1)


async def test_dp_03_each_list_is_whole_and_comes_at_the_start_and_at_each_change() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        await node.kubelet.wait_list(RESOURCE, 2, healthy=2)
        before = len(node.kubelet.lists[RESOURCE])
        node.machine.backend.report(gpu(0).uuid, "hot")
        devices = await node.kubelet.wait_list(RESOURCE, 2, healthy=0)
        assert {*devices} == {FIRST, SECOND}
        assert len(node.kubelet.lists[RESOURCE]) == before + 1
        node.machine.backend.report(gpu(0).uuid, state=HealthState.HEALTHY)
        await node.kubelet.wait_list(RESOURCE, 2, healthy=2)


async def test_dp_04_the_options_are_those_of_the_registration() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=1)
        await node.kubelet.wait_list(RESOURCE, 1)
        assert await node.kubelet.options(RESOURCE) == node.kubelet.registrations[0].options
        assert node.kubelet.registrations[0].options == v1beta1.DevicePluginOptions(
            pre_start_required=True, get_preferred_allocation_available=True
        )


async def test_dp_05_the_kubelet_is_told_which_devices_go_together() -> None:
    """All sizes and sets are in test_preference."""
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=6)
        devices = await node.kubelet.wait_list(RESOURCE, 6)
        others = sorted(each for each in devices if each.startswith("gpu-1"))
        assert sorted(await node.kubelet.prefer(RESOURCE, sorted(devices), 2)) == others
        assert await node.kubelet.prefer(RESOURCE, sorted(devices), 1, must=[SECOND]) == [SECOND]


async def test_dp_06_an_answer_has_names_environment_and_annotations_and_the_cdi_device_has_the_rest() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        await node.kubelet.wait_list(RESOURCE, 2)
        answer = await node.kubelet.allocate(RESOURCE, FIRST, SECOND)
        assert dict(answer.envs) == {"KERF_RESOURCE_KERF_DEV_GPU_1G_1GB": f"{FIRST},{SECOND}"}
        assert dict(answer.annotations) == {RESOURCE: f"{FIRST},{SECOND}"}
        names = [device.name for device in answer.cdi_devices]
        assert [name.rpartition("-gpu-0-")[2] for name in names] == ["1g-1gb-at-0", "1g-1gb-at-1"]
        assert all(name.startswith("k8s.gpu.kerf.dev/claim=claim-resource-") for name in names)
        assert {field.name for field, _ in answer.ListFields()} == {"envs", "annotations", "cdi_devices"}


async def test_dp_07_the_spec_file_is_there_before_the_answer_and_the_partition_is_cut_then() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        await node.kubelet.wait_list(RESOURCE, 2)
        assert node.made == set()  # nothing is cut before it is allocated
        answer = await node.kubelet.allocate(RESOURCE, FIRST)
        [file] = node.machine.cdi_files
        text = node.machine.store.path(file).read_text()
        assert answer.cdi_devices[0].name.partition("=")[2] in text
        assert node.made == {FIRST}


async def test_dp_08_before_a_container_starts_what_is_gone_is_prepared_anew() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=1)
        await node.kubelet.wait_list(RESOURCE, 1)
        await node.kubelet.allocate(RESOURCE, FIRST, pod="a")
        calls = list(node.machine.backend.calls)
        await node.kubelet.pre_start(RESOURCE, FIRST)
        assert node.machine.backend.calls == calls  # it is there
        node.machine.backend.reboot()
        [file] = node.machine.cdi_files
        node.machine.store.path(file).unlink()
        await node.kubelet.pre_start(RESOURCE, FIRST)
        assert (node.made, node.machine.cdi_files) == ({FIRST}, [file])


@pytest.mark.parametrize("is_card_there", [True, False])
async def test_dp_08_dp_11_after_a_reboot_a_container_starts_with_its_device_made_anew_or_is_told_which_is_gone(
    is_card_there: bool,
) -> None:
    """The kubelet has the allocation in its own checkpoint, and calls Allocate no more."""
    async with offering_node() as node:
        async with node.machine.plugin():
            node.offer(_1g_1gb=1)
            await node.kubelet.wait_list(RESOURCE, 1)
            await node.kubelet.allocate(RESOURCE, FIRST, pod="a")
        node.machine.backend.reboot()
        node.machine.boot_id = "boot-2"
        if not is_card_there:
            del node.machine.backend.cards[0]
        registered = len(node.kubelet.registrations)
        async with node.machine.plugin():
            await node.kubelet.wait_registrations(registered + 1)
            assert node.made == set()
            start = node.kubelet.pre_start(RESOURCE, FIRST)
            if is_card_there:
                await start
            else:
                words = f"{FIRST}: not among the devices of {RESOURCE}"
                await refused(start, grpc.StatusCode.INVALID_ARGUMENT, words)
            assert node.made == ({FIRST} if is_card_there else set())


async def test_dp_08_a_device_that_cannot_be_prepared_keeps_its_container_from_starting() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=1)
        await node.kubelet.wait_list(RESOURCE, 1)
        await node.kubelet.allocate(RESOURCE, FIRST, pod="a")
        node.machine.backend.reboot()
        node.machine.backend.fail("prepare", FIRST, HardwareRefusedError("too hot"))
        await refused(node.kubelet.pre_start(RESOURCE, FIRST), grpc.StatusCode.FAILED_PRECONDITION, "too hot")


@pytest.mark.parametrize("failing", [FIRST, SECOND])
async def test_dp_08_one_device_of_several_that_cannot_be_prepared_fails_the_call_and_the_next_has_all(
    failing: str,
) -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        await node.kubelet.wait_list(RESOURCE, 2)
        hot = HardwareRefusedError("too hot")
        node.machine.backend.fail("prepare", failing, hot)
        code = grpc.StatusCode.FAILED_PRECONDITION
        await refused(node.kubelet.allocate(RESOURCE, FIRST, SECOND), code, "too hot")
        await node.kubelet.allocate(RESOURCE, FIRST, SECOND, pod="a")
        assert node.made == {FIRST, SECOND}
        node.machine.backend.reboot()
        node.machine.backend.fail("prepare", failing, hot)
        await refused(node.kubelet.pre_start(RESOURCE, FIRST, SECOND), code, "too hot")
        await node.kubelet.pre_start(RESOURCE, FIRST, SECOND)
        assert node.made == {FIRST, SECOND}


async def test_dp_11_what_any_pod_uses_is_allocated_to_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        await node.kubelet.wait_list(RESOURCE, 2)
        for name, pod in ((FIRST, "a"), (SECOND, "b")):
            await node.kubelet.allocate(RESOURCE, name, pod=pod)
        for name, pod in ((FIRST, "a"), (SECOND, "b")):
            words = f"{name} of {RESOURCE} is in use by another pod"
            await refused(node.kubelet.allocate(RESOURCE, name), grpc.StatusCode.UNAVAILABLE, words)
            assert f"{name} of {RESOURCE} is in use by pod default/{pod}" in caplog.text, "the log names it"


async def test_dp_09_a_device_names_its_numa_node_if_anybody_knows_it() -> None:
    async with offering_node() as node:
        cards = node.machine.backend.cards
        cards[0] = replace(cards[0], numa_node=1)
        async with node.machine.plugin():
            node.offer(_1g_1gb=5)
            devices = await node.kubelet.wait_list(RESOURCE, 5)
            assert {
                id_.split("-")[1]: [each.ID for each in device.topology.nodes] for id_, device in devices.items()
            } == {"0": [1], "1": []}


async def test_dp_10_a_repeated_allocate_has_the_same_answer_and_no_second_effect() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        await node.kubelet.wait_list(RESOURCE, 2)
        first = await node.kubelet.allocate(RESOURCE, FIRST)
        made = dict(node.machine.backend.made)
        assert await node.kubelet.allocate(RESOURCE, FIRST) == first
        assert node.machine.backend.made == made
        assert [call for call in node.machine.backend.calls if call[0] == "prepare"] == [("prepare", FIRST)]


@pytest.mark.parametrize("ids", [["gpu-0-1g-1gb-at-3"], ["nonsense"], [FIRST, "gpu-7"], [""]])
async def test_dp_11_an_id_that_is_not_listed_is_refused_and_nothing_is_changed(ids: list[str]) -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        await node.kubelet.wait_list(RESOURCE, 2)
        words = "not among the devices of kerf.dev/gpu-1g-1gb"
        await refused(node.kubelet.allocate(RESOURCE, *ids), grpc.StatusCode.INVALID_ARGUMENT, words)
        await refused(node.kubelet.pre_start(RESOURCE, *ids), grpc.StatusCode.INVALID_ARGUMENT, words)
        assert (node.made, node.machine.cdi_files) == (set(), [])


async def test_dp_11_an_id_of_another_resource_is_refused() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=2, _2g_2gb=1)
        await node.kubelet.wait_list(RESOURCE, 2)
        [large] = await node.kubelet.wait_list(LARGE, 1)
        await refused(node.kubelet.allocate(RESOURCE, large), grpc.StatusCode.INVALID_ARGUMENT, "not among")


async def test_dp_13_ids_are_device_names_of_at_most_63_characters() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=8)
        devices = await node.kubelet.wait_list(RESOURCE, 8)
        assert all(len(id_) <= 63 and id_.replace("-", "").isalnum() for id_ in devices)


async def test_dp_15_a_class_without_a_device_plugin_is_not_registered() -> None:
    """Its extended resource is the scheduler's, and the same pod works (tests/e2e/test_node_choice)."""
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=1)
        await node.kubelet.wait_list(RESOURCE, 1)
        node.offer()
        await node.wait_published(present=(FIRST,))
        await until(lambda: not (list(node.kubelet.folder.glob("gpu.kerf.dev-*.sock"))))


def test_dp_16_messages_are_those_of_go_peers() -> None:
    """Bytes by the field numbers of kubernetes/kubelet: tag, length, content."""
    registration = Registration(
        endpoint="a.sock",
        resource="a.b/c",
        options=DevicePluginOptions(pre_start_required=True, preferred_allocation=True),
    )
    encoded = REGISTER.encode_request(registration)
    assert encoded == b"\x0a\x07v1beta1\x12\x06a.sock\x1a\x05a.b/c\x22\x04\x08\x01\x10\x01"
    assert REGISTER.decode_request(encoded) == registration
    listed = ListedDevice(id="x", health="Unhealthy", numa_nodes=(1,))
    encoded = LIST_AND_WATCH.encode_response([listed])
    assert encoded == b"\x0a\x14\x0a\x01x\x12\x09Unhealthy\x1a\x04\x0a\x02\x08\x01"
    assert LIST_AND_WATCH.decode_response(encoded) == (listed,)
    allocation = ContainerAllocation(cdi_devices=("v/c=d",), environment={"A": "b"}, annotations={"k": "v"})
    encoded = ALLOCATE.encode_response([allocation])
    assert encoded == b"\x0a\x19\x0a\x06\x0a\x01A\x12\x01b\x22\x06\x0a\x01k\x12\x01v\x2a\x07\x0a\x05v/c=d"
    assert ALLOCATE.decode_response(encoded) == (allocation,)
    # What this plugin leaves out others may send: a mount and a device node are skipped.
    foreign = b"\x0a\x0b\x12\x04\x0a\x02/a\x1a\x03\x0a\x01b"
    assert ALLOCATE.decode_response(foreign) == (ContainerAllocation(),)


async def test_metrics_say_what_is_reserved_what_containers_have_and_what_is_free() -> None:
    def values(node: Any) -> list[float | None]:
        labels = {"driver": node.machine.settings.driver_name, "node": "node-1", "resource": RESOURCE}
        words = ("reserved", "assigned", "free")
        return [REGISTRY.get_sample_value(f"kerf_extended_resource_{word}", labels) for word in words]

    async with offering_node() as node:
        async with node.machine.plugin():
            node.offer(_1g_1gb=3)
            await node.kubelet.wait_list(RESOURCE, 3)
            assert values(node) == [3, 0, 3]
            card = {"driver": node.machine.settings.driver_name, "node": "node-1", "card": "gpu-0"}
            small = {**card, "cut": "1g.1gb"}
            await until(lambda: REGISTRY.get_sample_value("kerf_free_partitions", small) == 1)
            assert REGISTRY.get_sample_value("kerf_reserved_units", card) == 3
            await node.kubelet.allocate(RESOURCE, FIRST)
            assert values(node) == [3, 1, 2]
            node.offer(_1g_1gb=1)
            await until(lambda: values(node) == [1, 1, 0])
        assert values(node) == [None, None, None]


async def test_the_walk_through_create_register_list_allocate_and_reclaim() -> None:
    """The steps of the interface in their order, as an introduction to device plugins has them, with its own client."""
    async with offering_node(unused_grace_s=0.0) as node, node.machine.plugin():
        # Create: a resource with two devices, of which nothing is on the card.
        node.offer(_1g_1gb=2)
        # Register: the kubelet learns the name and the socket, and calls back.
        registration = await node.kubelet.wait_registrations(1)
        assert (registration.version, registration.resource_name) == ("v1beta1", RESOURCE)
        # List: both are healthy.
        assert {*await node.kubelet.wait_list(RESOURCE, 2, healthy=2)} == {FIRST, SECOND}
        assert node.made == set()
        # Allocate: the container's device is made now, and only that one.
        answer = await node.kubelet.allocate(RESOURCE, FIRST, pod="first")
        assert len(answer.cdi_devices) == 1
        await node.kubelet.pre_start(RESOURCE, FIRST)
        assert node.made == {FIRST}
        # A device that gets ill stays in the list, which the kubelet then gives to nobody.
        node.machine.backend.report(gpu(0).uuid, "hot")
        assert {*await node.kubelet.wait_list(RESOURCE, 2, healthy=0)} == {FIRST, SECOND}
        node.machine.backend.report(gpu(0).uuid, state=HealthState.HEALTHY)
        await node.kubelet.wait_list(RESOURCE, 2, healthy=2)
        # Reclaim: the pod ends, nobody calls for it, and what it had is removed, and given to the next one.
        await node.kubelet.wait_lists_asked(2)
        node.kubelet.end("first")
        await until(lambda: node.made == set())
        await node.kubelet.allocate(RESOURCE, FIRST, pod="second")
        assert node.made == {FIRST}
