"""No placement is counted by the scheduler and by the kubelet at a time, whatever happens in between (DP-14)."""

from dataclasses import replace
from typing import Any

import anyio
import grpc
import grpc.aio
import pytest

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.inventory.state.reservations import fits, list_excluded
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.unit_map import get_unit_map
from tests.fakes.cards import gpu
from tests.fakes.claims import claim
from tests.fakes.kubelet import ClaimError
from tests.kubeletplugin.deviceplugin.node import LARGE, RESOURCE, OfferingNode, offering_node
from tests.kubeletplugin.deviceplugin.test_interface import FIRST, SECOND, refused
from tests.kubeletplugin.wait import until


def excluded(*ids: str) -> set[str]:
    """The names of all devices that cannot be had beside those of card 0 with these names."""
    card = gpu(0)
    kept = [spec.of(card.uuid) for spec in get_unit_map(card).specs if device_name(card, spec.of(card.uuid)) in ids]
    return {device_name(card, each) for each in list_excluded(card, kept)}


def counters(node: OfferingNode, card: str) -> dict[str, str]:
    """What is left for claims of each unit of a card."""
    pools = node.machine.cluster.published[-1]
    sets = (each for pool in pools for content in pool.slices for each in content.shared_counters)
    found = next(each for each in sets if each.name == card)
    return {name: str(counter.value) for name, counter in found.counters.items() if name.startswith("memory-slice")}


async def test_what_is_listed_is_in_no_slice_nor_what_excludes_it_nor_its_counters() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        await node.kubelet.wait_list(RESOURCE, 2)
        assert excluded(FIRST, SECOND) == {FIRST, SECOND, "gpu-0-2g-2gb-at-0", "gpu-0-4g-4gb-at-0", "gpu-0"}
        assert node.published.isdisjoint(excluded(FIRST, SECOND))
        assert [counters(node, "gpu-0")[f"memory-slice-{unit}"] for unit in range(4)] == ["0", "0", "1", "1"]
        assert set(counters(node, "gpu-1").values()) == {"1"}


async def test_nothing_is_listed_while_the_slices_are_not_written() -> None:
    """A refused update, and a crash between the reservation and the listing, look like this to the kubelet."""
    async with offering_node() as node:
        node.machine.cluster.holds_writes = True
        async with node.machine.plugin():
            node.offer(_1g_1gb=2)
            await node.wait_published(FIRST, SECOND)
            await until(lambda: not (node.machine.cluster.slice_lists < 3))
            assert node.kubelet.registrations == []
            node.machine.cluster.holds_writes = False
            await node.kubelet.wait_list(RESOURCE, 2)


async def test_nothing_is_listed_while_the_api_server_still_has_it_in_a_slice() -> None:
    async with offering_node() as node, node.machine.plugin():
        await until(lambda: bool(node.machine.cluster.published))
        node.machine.cluster.stale = node.machine.cluster.published[-1]
        node.offer(_1g_1gb=2)
        await node.wait_published(FIRST, SECOND)
        asked = node.machine.cluster.slice_lists
        await until(lambda: not (node.machine.cluster.slice_lists < asked + 3))
        assert node.kubelet.registrations == []
        node.machine.cluster.stale = None
        await node.kubelet.wait_list(RESOURCE, 2)


async def test_a_plugin_that_dies_between_reservation_and_listing_begins_again() -> None:
    async with offering_node() as node:
        node.machine.cluster.holds_writes = True
        async with node.machine.plugin():
            node.offer(_1g_1gb=2)
            await node.wait_published(FIRST, SECOND)
        assert node.kubelet.registrations == []
        # The scheduler gave one of them to a claim meanwhile, from slices that were not written.
        ref = node.machine.cluster.add(claim("theirs", FIRST))
        node.machine.cluster.holds_writes = False
        async with node.machine.plugin():
            devices = await node.kubelet.wait_list(RESOURCE, 2)
            assert FIRST not in devices
            assert await node.machine.kubelet.prepare(ref)


async def test_what_a_claim_got_by_the_slices_before_is_never_listed() -> None:
    async with offering_node() as node:
        node.machine.cluster.holds_writes = True
        async with node.machine.plugin():
            node.offer(_1g_1gb=2)
            await node.wait_published(FIRST, SECOND)
            node.machine.cluster.add(claim("theirs", FIRST))
            node.machine.cluster.holds_writes = False
            await node.kubelet.wait_list(RESOURCE, 2)
            assert not any(FIRST in each for each in node.kubelet.lists[RESOURCE])


async def test_what_a_claim_has_when_the_slices_change_is_not_listed_but_something_else() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.machine.cluster.add(claim("theirs", "gpu-0-2g-2gb-at-0"))
        node.offer(_1g_1gb=2)
        devices = await node.kubelet.wait_list(RESOURCE, 2)
        assert excluded("gpu-0-2g-2gb-at-0").isdisjoint(devices)
        await node.wait_published(*devices, present=("gpu-0-2g-2gb-at-0",))


async def test_a_claim_that_the_scheduler_decided_by_old_slices_gets_what_no_container_has() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        await node.kubelet.wait_list(RESOURCE, 2)
        ref = node.machine.cluster.add(claim("late", FIRST))
        assert await node.machine.kubelet.prepare(ref)
        await refused(node.kubelet.allocate(RESOURCE, FIRST), grpc.StatusCode.INVALID_ARGUMENT, "not among")
        devices = await node.kubelet.wait_list(RESOURCE, 2)
        while FIRST in devices:
            await node.kubelet.wait_lists_asked(1)
            devices = await node.kubelet.wait_list(RESOURCE, 2)
        assert node.made == {FIRST}


async def test_a_claim_does_not_get_what_a_container_has() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        await node.kubelet.wait_list(RESOURCE, 2)
        await node.kubelet.allocate(RESOURCE, FIRST, pod="a")
        for device in sorted(excluded(FIRST)):
            ref = node.machine.cluster.add(claim(f"claim-{device}", device))
            with pytest.raises(ClaimError, match=r"held by a container as kerf\.dev/gpu-1g-1gb"):
                await node.machine.kubelet.prepare(ref)
        assert node.made == {FIRST}


async def test_a_smaller_number_gives_back_what_is_free_and_leaves_what_is_in_use() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=3)
        ids = sorted(await node.kubelet.wait_list(RESOURCE, 3))
        await node.kubelet.allocate(RESOURCE, ids[1], pod="a")
        node.offer(_1g_1gb=1)
        assert {*await node.kubelet.wait_list(RESOURCE, 1)} == {ids[1]}
        await node.wait_published(ids[1], present=(ids[0], ids[2]))
        assert node.published.isdisjoint(excluded(ids[1]))


async def test_what_is_in_use_beyond_a_smaller_number_is_listed_as_unhealthy_and_not_published() -> None:
    """Else the kubelet would give it to the next pod, and the number would never be reached. A list without it, while
    its Allocate is answered, ends the kubelet.
    """
    async with offering_node(unused_grace_s=0.0) as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        await node.kubelet.wait_list(RESOURCE, 2)
        await node.kubelet.allocate(RESOURCE, FIRST, pod="a")
        await node.kubelet.allocate(RESOURCE, SECOND, pod="b")
        await node.kubelet.wait_lists_asked(3)
        node.offer(_1g_1gb=1)
        listed = await node.kubelet.wait_list(RESOURCE, 2, healthy=1)
        [kept] = [name for name, device in listed.items() if device.health == "Healthy"]
        surplus = ({FIRST, SECOND} - {kept}).pop()
        assert surplus not in node.published
        await refused(node.kubelet.allocate(RESOURCE, surplus), grpc.StatusCode.INVALID_ARGUMENT, "not among")
        await node.kubelet.pre_start(RESOURCE, surplus)  # its container may start again
        node.kubelet.end("a" if surplus == FIRST else "b")
        await node.wait_published(kept, present=(surplus,))


async def test_a_class_that_is_gone_gives_back_everything_once_nothing_is_in_use() -> None:
    async with offering_node(unused_grace_s=0.0) as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        await node.kubelet.wait_list(RESOURCE, 2)
        await node.kubelet.allocate(RESOURCE, FIRST, pod="a")
        await node.kubelet.wait_lists_asked(3)
        node.offer()
        assert {*await node.kubelet.wait_list(RESOURCE, 1, healthy=0)} == {FIRST}
        await node.wait_published(FIRST, present=(SECOND,))
        node.kubelet.end("a")
        await node.wait_published(present=(FIRST, SECOND, "gpu-0"))


async def test_a_larger_number_adds_and_moves_nothing() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=1)
        before = {*await node.kubelet.wait_list(RESOURCE, 1)}
        node.offer(_1g_1gb=3, _2g_2gb=1)
        assert before < {*await node.kubelet.wait_list(RESOURCE, 3)}
        [large] = await node.kubelet.wait_list(LARGE, 1)
        assert large not in excluded(*await node.kubelet.wait_list(RESOURCE, 3))


async def test_a_restart_keeps_what_is_in_use_and_lists_it_again() -> None:
    async with offering_node() as node:
        async with node.machine.plugin():
            node.offer(_1g_1gb=2)
            await node.kubelet.wait_list(RESOURCE, 2)
            await node.kubelet.allocate(RESOURCE, SECOND, pod="a")
        registered = len(node.kubelet.registrations)
        made = dict(node.machine.backend.made)
        async with node.machine.plugin():
            await node.kubelet.wait_registrations(registered + 1)
            assert SECOND in await node.kubelet.wait_list(RESOURCE, 2)
            assert node.published.isdisjoint(excluded(SECOND))
            await node.kubelet.pre_start(RESOURCE, SECOND)
            assert node.machine.backend.made == made


async def test_a_kubelet_that_gives_an_id_out_twice_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """It has lost its checkpoint; its account of pods still has the first one, of which the log tells, not the pod."""
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=2)
        await node.kubelet.wait_list(RESOURCE, 2)
        await node.kubelet.allocate(RESOURCE, FIRST, pod="a")
        await refused(node.kubelet.allocate(RESOURCE, FIRST, pod="b"), grpc.StatusCode.UNAVAILABLE, "by another pod")
        assert "is in use by pod default/a" in caplog.text
        node.kubelet.is_silent = True
        await node.kubelet.allocate(RESOURCE, SECOND, pod="b")  # what has no record nobody can have


async def test_of_calls_for_one_id_at_once_none_is_answered_by_a_partition_of_its_own() -> None:
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=1)
        await node.kubelet.wait_list(RESOURCE, 1)
        answers: list[Any] = []

        async def allocate() -> None:
            answers.append(await node.kubelet.allocate(RESOURCE, FIRST))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(allocate)
        assert all(answer == answers[0] for answer in answers)
        assert node.made == {FIRST}


async def test_pods_of_both_kinds_take_turns_and_never_have_one_place() -> None:
    """Every placement of a card is asked for by both sides at the same time; the hardware refuses overlaps itself."""
    async with offering_node() as node, node.machine.plugin():
        node.offer(_1g_1gb=4)
        ids = sorted(await node.kubelet.wait_list(RESOURCE, 4))
        outcomes: dict[str, set[str]] = {"claim": set(), "container": set()}

        async def by_claim(device: str) -> None:
            ref: ClaimRef = node.machine.cluster.add(claim(f"claim-{device}", device))
            try:
                await node.machine.kubelet.prepare(ref)
            except ClaimError:
                return
            outcomes["claim"].add(device)

        async def by_container(device: str) -> None:
            try:
                await node.kubelet.allocate(RESOURCE, device)
            except grpc.aio.AioRpcError:
                return
            outcomes["container"].add(device)

        async with anyio.create_task_group() as group:
            for device in ids:
                group.start_soon(by_container, device)
                group.start_soon(by_claim, device)
        assert outcomes["claim"].isdisjoint(outcomes["container"])
        assert outcomes["claim"] | outcomes["container"] == {*ids} == node.made


async def test_without_the_list_of_claims_nothing_is_offered_and_it_is_told() -> None:
    async with offering_node() as node:
        node.machine.cluster.may_list = False
        async with node.machine.plugin():
            node.offer(_1g_1gb=2)
            await until(lambda: bool(node.machine.cluster.reported))
            [(kind, _, reason, message)] = node.machine.cluster.reported
            assert (kind, reason) == ("Node", "ResourceNotOffered")
            assert "may not list ResourceClaims" in message
            assert FIRST in node.published


def test_partitions_that_need_an_engine_of_a_kept_one_are_excluded() -> None:
    """Units alone do not say what fits: an engine that is taken keeps partitions elsewhere from being had."""
    geometry, spec = next(
        (geometry, spec)
        for geometry in GPU.geometries()
        for spec in geometry.specs
        if spec.profile
        and any(0 < total == use for (_, total), use in zip(geometry.engines, spec.engines, strict=True))
    )
    card = replace(gpu(0), geometry=geometry)
    own = spec.of(card.uuid)
    apart = [each for each in list_excluded(card, [own]) if not each.overlaps(own)]
    assert apart
    assert not any(fits(card, each, [own]) for each in apart)
