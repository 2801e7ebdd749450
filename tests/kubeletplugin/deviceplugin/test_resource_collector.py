"""What no container has any more is released, although the interface has no call for it (DP-12)."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import anyio
import grpc
import pytest
from msgspec.structs import replace as replace_struct

from kerf_dra.api.core.v1 import Pod, PodStatus
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef, ObjectRef
from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.api.podresources.v1 import DeviceUse
from kerf_dra.driver.kubeletplugin.backends.base import HardwareRefusedError
from kerf_dra.driver.kubeletplugin.deviceplugin.offer import record_uid
from kerf_dra.driver.kubeletplugin.deviceplugin.resource_collector import ResourceCollector
from kerf_dra.driver.kubeletplugin.inventory.state.surveys import SurveyTracker
from tests.fakes.claims import DRIVER
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import SETTINGS
from tests.kubeletplugin.deviceplugin.node import RESOURCE, OfferingNode, offering_node
from tests.kubeletplugin.deviceplugin.test_interface import FIRST, SECOND, refused
from tests.kubeletplugin.records import record
from tests.kubeletplugin.wait import until

NEVER_S = 1e6


def put_pod(node: OfferingNode, name: str, *, uid: str = "uid-1", phase: str = "Running") -> None:
    pod = Pod(metadata=ObjectMeta(namespace="default", name=name, uid=uid), status=PodStatus(phase=phase))
    node.machine.cluster.pods[ObjectRef("default", name)] = pod


async def wait_made(node: OfferingNode, *names: str) -> None:
    await until(lambda: node.made == {*names})


async def allocate_and_show(node: OfferingNode, pod: str) -> None:
    """A pod gets the first device, and the plugin sees it there."""
    node.offer(_1g_1gb=2)
    await node.kubelet.wait_list(RESOURCE, 2)
    await node.kubelet.allocate(RESOURCE, FIRST, pod=pod)
    await node.kubelet.wait_lists_asked(3)  # the second of them had it, and was applied before the third


@pytest.mark.parametrize("fate", ["deleted", "finished", "replaced by another of the name"])
async def test_dp_12_the_device_of_a_pod_that_has_ended_is_free_after_the_grace(fate: str) -> None:
    async with offering_node(unused_grace_s=0.05, unlisted_grace_s=NEVER_S) as node, node.machine.plugin():
        put_pod(node, "a")
        await allocate_and_show(node, "a")
        node.kubelet.end("a")
        if fate == "deleted":
            node.machine.cluster.pods.clear()
        else:
            put_pod(node, "a", phase="Succeeded" if fate == "finished" else "Running", uid=f"uid of {fate}")
            if fate == "finished":
                put_pod(node, "a", phase="Succeeded")
        await wait_made(node)
        assert node.machine.cdi_files == []
        assert {*await node.kubelet.wait_list(RESOURCE, 2)} == {FIRST, SECOND}  # still kept for the resource


async def test_dp_12_two_answers_apart_by_the_grace_are_needed() -> None:
    async with offering_node(unused_grace_s=NEVER_S) as node, node.machine.plugin():
        await allocate_and_show(node, "a")
        node.kubelet.end("a")
        await node.kubelet.wait_lists_asked(5)
        assert node.made == {FIRST}


async def test_dp_12_a_kubelet_that_does_not_answer_frees_nothing() -> None:
    async with offering_node(unused_grace_s=0.0) as node, node.machine.plugin():
        await allocate_and_show(node, "a")
        node.kubelet.end("a")
        node.kubelet.is_silent = True
        node.machine.cluster.is_down = False
        await node.kubelet.wait_lists_asked(5)
        made = node.made
        node.kubelet.is_silent = False
        assert made == {FIRST}
        await wait_made(node)


async def test_a_kubelet_that_lists_no_pods_while_the_api_server_is_away_frees_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It has started and knows no pods yet, but their containers run. The log says it once."""
    caplog.set_level("WARNING")  # whatever a test before has set
    async with offering_node(unused_grace_s=0.0) as node, node.machine.plugin():
        put_pod(node, "a")
        await allocate_and_show(node, "a")
        node.machine.cluster.is_down = True
        node.kubelet.end("a")
        while (line := f"{RESOURCE}/{FIRST} is not released: ") not in caplog.text:
            await node.kubelet.wait_lists_asked(1)
        await node.kubelet.wait_lists_asked(5)
        assert node.made == {FIRST}
        assert caplog.text.count(line) == 1


async def test_a_pod_that_the_api_server_has_keeps_its_device_though_the_kubelet_does_not_list_it() -> None:
    async with offering_node(unused_grace_s=0.0) as node, node.machine.plugin():
        put_pod(node, "a")
        await allocate_and_show(node, "a")
        node.kubelet.end("a")
        await node.kubelet.wait_lists_asked(5)
        assert node.made == {FIRST}
        node.machine.cluster.pods.clear()
        await wait_made(node)


async def allocate_unlisted(node: OfferingNode) -> None:
    """A pod gets the only device, and the kubelet never lists the two together."""
    node.offer(_1g_1gb=1)
    await node.kubelet.wait_list(RESOURCE, 1)
    await node.kubelet.allocate(RESOURCE, FIRST)


async def test_a_device_that_no_container_has_begun_with_is_free_after_a_grace_of_its_own() -> None:
    """Its pod was rejected after Allocate."""
    async with offering_node(unused_grace_s=0.0, unstarted_grace_s=NEVER_S) as node, node.machine.plugin():
        await allocate_unlisted(node)
        await node.kubelet.wait_lists_asked(5)
        assert node.made == {FIRST}
    settings = {"unused_grace_s": NEVER_S, "unstarted_grace_s": 0.05, "unlisted_grace_s": NEVER_S}
    async with offering_node(**settings) as node, node.machine.plugin():
        await allocate_unlisted(node)
        await wait_made(node)


async def test_a_device_that_a_container_may_have_begun_with_has_more_time_though_no_pod_is_listed_with_it() -> None:
    """The kubelet does not list the devices of init containers."""
    short = {"unused_grace_s": 0.0, "unstarted_grace_s": 0.0}
    async with offering_node(**short, unlisted_grace_s=NEVER_S) as node:
        node.kubelet.is_silent = True
        async with node.machine.plugin():
            await allocate_unlisted(node)
            await node.kubelet.pre_start(RESOURCE, FIRST)
            node.kubelet.is_silent = False
            await node.kubelet.wait_lists_asked(5)
            assert node.made == {FIRST}
    async with offering_node(**short, unlisted_grace_s=0.05) as node, node.machine.plugin():
        await allocate_unlisted(node)
        await node.kubelet.pre_start(RESOURCE, FIRST)
        await wait_made(node)


async def test_what_began_before_the_plugin_did_is_not_taken_for_unstarted() -> None:
    async with offering_node(unused_grace_s=0.0, unstarted_grace_s=0.0, unlisted_grace_s=NEVER_S) as node:
        node.kubelet.is_silent = True
        async with node.machine.plugin():
            await allocate_unlisted(node)
        node.kubelet.is_silent = False
        async with node.machine.plugin():
            await node.kubelet.wait_lists_asked(5)
            assert node.made == {FIRST}


async def test_what_began_before_the_plugin_did_is_not_taken_for_unstarted_when_the_kubelet_names_it_again() -> None:
    """The kubelet allocates again what it has allocated, for the next container of a pod whose first one runs."""
    async with offering_node(unused_grace_s=0.0, unstarted_grace_s=0.0, unlisted_grace_s=NEVER_S) as node:
        node.kubelet.is_silent = True
        async with node.machine.plugin():
            await allocate_unlisted(node)
        async with node.machine.plugin():
            await node.kubelet.wait_list(RESOURCE, 1)
            await node.kubelet.allocate(RESOURCE, FIRST)
            node.kubelet.is_silent = False
            await node.kubelet.wait_lists_asked(5)
            assert node.made == {FIRST}


async def test_a_device_that_no_pod_was_ever_listed_with_is_not_free_while_the_api_server_is_away() -> None:
    """A kubelet that the API server does not answer may list no pods after its start."""
    async with offering_node(unused_grace_s=NEVER_S, unstarted_grace_s=0.0) as node, node.machine.plugin():
        node.offer(_1g_1gb=1)
        await node.kubelet.wait_list(RESOURCE, 1)
        node.machine.cluster.is_down = True
        await node.kubelet.allocate(RESOURCE, FIRST)
        await node.kubelet.wait_lists_asked(5)
        assert node.made == {FIRST}
        node.machine.cluster.is_down = False
        await wait_made(node)


async def test_a_kubelet_that_is_silent_when_a_container_starts_is_asked_again_before_the_interval() -> None:
    """On a busy node the answer that was to show a pod of seconds came too late, and the next question came when the
    pod was gone: its partition was kept as one that no pod was ever listed with, for an hour.
    """
    settings = {"unused_grace_s": NEVER_S, "usage_interval_s": NEVER_S, "usage_retry_s": 0.02}
    async with offering_node(**settings) as node, node.machine.plugin():
        node.offer(_1g_1gb=1)
        await node.kubelet.wait_list(RESOURCE, 1)
        node.kubelet.is_silent = True
        await node.kubelet.allocate(RESOURCE, FIRST, pod="a")
        await node.kubelet.pre_start(RESOURCE, FIRST)
        await node.kubelet.wait_lists_asked(3)
        node.kubelet.is_silent = False
        await node.kubelet.wait_lists_asked(1)


class Collection:
    """A collector that is asked again and again, of a node with one device of a resource and one claim."""

    def __init__(self) -> None:
        device = replace_struct(record("a"), claim=ClaimRef("", "a", record_uid(RESOURCE, FIRST)), resource=RESOURCE)
        self.now = 0.0
        self.listed = False
        """Whether the kubelet lists a pod with the device."""
        self.released: list[str] = []
        checkpoint: Any = SimpleNamespace(records={held.claim.uid: held for held in (device, record("claim"))})
        allocator: Any = SimpleNamespace(
            count_calls=lambda _: 1,
            count_allocations=lambda _: 1,
            note_used=lambda _: None,
            is_unstarted=lambda _: True,
            release_unused=self._release,
        )
        self._collector = ResourceCollector(
            settings=replace(SETTINGS, unused_grace_s=30, unstarted_grace_s=30),
            cluster=FakeCluster(),
            checkpoint=checkpoint,
            allocator=allocator,
            list_uses=self._list_uses,
            surveys=SurveyTracker(driver=DRIVER),
            clock=lambda: self.now,
        )

    async def collect(self, now: float, *, listed: bool = False) -> list[str]:
        """Ask the kubelet at this time, and return the names of all that has been released."""
        self.now, self.listed = now, listed
        assert await self._collector.collect()
        return self.released

    async def _list_uses(self) -> list[DeviceUse]:
        return [DeviceUse(resource=RESOURCE, id=FIRST, pod=ObjectRef("default", "a"))] if self.listed else []

    async def _release(self, held: PreparedClaim, _: int) -> None:
        self.released.append(held.claim.name)


async def test_what_a_claim_has_is_not_released_for_the_kubelet_lists_claims_elsewhere() -> None:
    collection = Collection()
    await collection.collect(0)
    assert await collection.collect(30) == ["a"]


async def test_the_grace_begins_anew_when_the_kubelet_has_listed_a_pod_in_between() -> None:
    collection = Collection()
    await collection.collect(0)
    await collection.collect(20, listed=True)
    await collection.collect(30)
    assert await collection.collect(59) == []
    assert await collection.collect(60) == ["a"]


async def test_the_next_pod_gets_the_placement_prepared_anew() -> None:
    """The kubelet gives an ID to the next pod at once, long before the grace is over."""
    async with offering_node(unused_grace_s=NEVER_S) as node, node.machine.plugin():
        await allocate_and_show(node, "a")
        before = node.machine.backend.made[FIRST]
        node.kubelet.end("a")
        await node.kubelet.allocate(RESOURCE, FIRST, pod="b")
        after = node.machine.backend.made[FIRST]
        assert (before.start, before.serial) == (after.start, after.serial - 1)


async def test_what_is_released_and_prepared_for_the_next_pod_is_not_released_once_more() -> None:
    """The collector had seen the record while it was releasing, and finished the release after the next prepare: the
    pod began without its partition, and was never seen with it.
    """
    async with offering_node(unused_grace_s=NEVER_S) as node, node.machine.plugin():
        await allocate_and_show(node, "a")
        node.kubelet.end("a")
        gate = node.machine.backend.gate("unprepare", FIRST)
        async with anyio.create_task_group() as group:
            group.start_soon(partial(node.kubelet.allocate, RESOURCE, FIRST, pod="b"))
            await gate.reached.wait()
            await node.kubelet.wait_lists_asked(1)
            gate.opened.set()
        serial = node.machine.backend.made[FIRST].serial
        await node.kubelet.wait_lists_asked(3)
        assert node.machine.backend.made[FIRST].serial == serial


async def test_a_device_that_was_seen_with_a_pod_is_not_given_again_by_a_kubelet_that_is_silent_about_it() -> None:
    async with offering_node(unused_grace_s=NEVER_S) as node, node.machine.plugin():
        await allocate_and_show(node, "a")
        node.kubelet.is_silent = True
        await refused(node.kubelet.allocate(RESOURCE, FIRST), grpc.StatusCode.UNAVAILABLE, "does not say")


async def test_a_release_that_fails_is_tried_again_and_outlives_the_process() -> None:
    async with offering_node(unused_grace_s=0.0) as node:
        async with node.machine.plugin():
            await allocate_and_show(node, "a")
            node.machine.backend.fail("unprepare", FIRST, *[HardwareRefusedError("busy")] * 1000)
            node.kubelet.end("a")
            await until(lambda: bool(node.machine.backend.calls.count(("unprepare", FIRST))))
        assert node.made == {FIRST}
        node.machine.backend.failures.clear()
        async with node.machine.plugin():
            await wait_made(node)
            await until(lambda: not (node.machine.cdi_files))


async def test_a_device_that_the_kubelet_names_while_it_answers_is_not_released() -> None:
    """The answer is older than the call: a container may start while the plugin hears that there is none."""
    async with offering_node(unused_grace_s=0.0) as node, node.machine.plugin():
        await allocate_and_show(node, "a")
        node.kubelet.end("a")
        node.kubelet.before_answer = lambda: node.kubelet.pre_start(RESOURCE, FIRST)
        await node.kubelet.wait_lists_asked(6)
        assert node.made == {FIRST}
        node.kubelet.before_answer = None
        await wait_made(node)


async def test_a_device_that_the_kubelet_names_after_its_answer_is_not_released() -> None:
    async with offering_node(unused_grace_s=0.0) as node, node.machine.plugin():
        put_pod(node, "a")
        await allocate_and_show(node, "a")
        node.machine.cluster.pods.clear()
        node.machine.cluster.before_pod = lambda: node.kubelet.pre_start(RESOURCE, FIRST)
        node.kubelet.end("a")
        await node.kubelet.wait_lists_asked(6)
        assert node.made == {FIRST}
        node.machine.cluster.before_pod = None
        await wait_made(node)
