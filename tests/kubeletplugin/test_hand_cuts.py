"""What an administrator cuts by hand, with an API server, simulated hardware and a kubelet over real sockets."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from kerf_dra.api.core.v1 import EVENTS, NODES, PODS, Container, Pod, PodSpec
from kerf_dra.api.model.allocations import ResourceClaimConsumerReference
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import Device
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.kubeletplugin.backends.simulated import open_backend
from kerf_dra.driver.local.apiserver import ApiServerSettings
from tests.fakes.claims import NODE, claim
from tests.fakes.kubelet import ClaimError
from tests.kubeletplugin.test_with_the_embedded_cluster import Site, running, site

CUT = "gpu-0-1g-10gb-at-0"
"""The device of the partition that is cut by hand."""
OVERLAPPED = "gpu-0-3g-40gb-at-0"
BESIDE = "gpu-0-3g-40gb-at-4"


@asynccontextmanager
async def published(
    settings: ApiServerSettings | None = None, *, survey_interval_s: float = 0.05
) -> AsyncIterator[Site]:
    """A node whose plugin surveys often and has published its devices."""
    async with site(settings or ApiServerSettings()) as place:
        place.change(survey_interval_s=survey_interval_s)
        async with running(place):
            await place.until_published(OVERLAPPED)
            yield place


def state_file(place: Site, card: str) -> Any:
    return place.hardware.parent / "hardware" / f"{card}.json"


def cut_by_hand(place: Site, card: str = "gpu-0") -> None:
    file = state_file(place, card)
    state = json.loads(file.read_text()) if file.exists() else {"model": "h100-80gb-sxm"}
    instance = {"id": 99, "profile": "1g.10gb", "placement": [0, 1], "mig_uuid": "MIG-by-hand"}
    place.write_hardware(card, {**state, "mig": True, "instances": [*state.get("instances", []), instance]})


def instances(place: Site, card: str = "gpu-0") -> list[Any]:
    found: list[Any] = json.loads(state_file(place, card).read_text())["instances"]
    return found


def remove_by_hand(place: Site, card: str = "gpu-0") -> None:
    state = json.loads(state_file(place, card).read_text())
    kept = [one for one in state["instances"] if one["id"] != 99]
    place.write_hardware(card, {**state, "instances": kept})


def reset(place: Site, card: str = "gpu-0") -> None:
    """Reset a card: its partitions and its MIG mode are gone."""
    state = json.loads(state_file(place, card).read_text())
    place.write_hardware(card, {**state, "mig": False, "instances": []})


async def devices(place: Site) -> dict[str, Device]:
    return {device.name: device for one in await place.complete_slices() for device in one.spec.devices}


async def until_devices(place: Site, condition: Callable[[dict[str, Device]], bool]) -> dict[str, Device]:
    while not condition(found := await devices(place)):  # noqa: ASYNC110  (as elsewhere)
        await anyio.sleep(0.005)
    return found


def taints(found: dict[str, Device], device: str) -> set[tuple[str, str]]:
    return {(taint.key.partition("/")[2], taint.effect) for taint in found[device].taints} if device in found else set()


async def events(place: Site, kind: str) -> dict[str, str]:
    """Messages by reason."""
    found = (await place.client.list(EVENTS)).items
    return {event.reason: event.message for event in found if event.involved_object.kind == kind}


async def until_event(place: Site, kind: str, reason: str) -> str:
    while reason not in (found := await events(place, kind)):  # noqa: ASYNC110  (as elsewhere)
        await anyio.sleep(0.005)
    return found[reason]


async def test_what_was_cut_before_an_allocation_is_withdrawn_and_comes_back_when_it_is_gone() -> None:
    async with published() as place:
        cut_by_hand(place)
        found = await until_devices(place, lambda found: OVERLAPPED not in found)
        assert {CUT, "gpu-0"}.isdisjoint(found)
        assert {BESIDE, "gpu-1", "gpu-1-3g-40gb-at-0"} <= found.keys()
        message = await until_event(place, "Node", "InUseOutsideKerf")
        assert "card gpu-0 " in message
        assert "in use outside of Kerf: 1g.10gb at 0" in message
        beside = await place.allocated(claim("beside", BESIDE))
        await place.kubelet.prepare(beside)
        assert len(instances(place)) == 2, "a claim that fits beside it gets its partition"
        await place.kubelet.unprepare(beside)
        assert [one["id"] for one in instances(place)] == [99]
        remove_by_hand(place)
        await place.until_published(OVERLAPPED)
        await place.until_published("gpu-0")


async def refused(place: Site, held: ClaimRef) -> str:
    """Have the kubelet try until the hardware has refused often enough; returns the errors."""
    errors = ""
    for _ in range(3):
        with pytest.raises(ClaimError) as raised:
            await place.kubelet.prepare(held)
        errors += str(raised.value)
    return errors


async def with_pod(place: Site, wanted: ResourceClaim, *, is_owned: bool) -> ClaimRef:
    """A claim that a pod has, as scheduler and controllers leave both; some object that exists owns the pod."""
    node = await place.client.get(NODES, NODE)
    owner = OwnerReference(api_version="v1", kind="Node", name=NODE, uid=node.metadata.uid, controller=True)
    owners = (owner,) if is_owned else ()
    pod = await place.client.create(
        PODS,
        Pod(
            metadata=ObjectMeta(name="web-1", namespace="default", owner_references=owners),
            spec=PodSpec(containers=(Container(name="main", image="none"),)),
        ),
    )
    consumer = ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
    return await place.allocated(replace(wanted, status=replace(wanted.status, reserved_for=(consumer,))))


async def test_what_was_cut_after_the_allocation_is_tainted_and_the_pod_goes_elsewhere() -> None:
    async with published() as place:
        held = await with_pod(place, claim("training", OVERLAPPED), is_owned=True)
        cut_by_hand(place)
        found = await until_devices(place, lambda found: ("held", "NoSchedule") in taints(found, OVERLAPPED))
        assert CUT not in found, "nobody has this one"
        assert found[OVERLAPPED].consumes_counters
        assert await until_event(place, "ResourceClaim", "InUseOutsideKerf") == (
            f"{OVERLAPPED}: in use outside of Kerf: 1g.10gb at 0"
        )
        assert "in use outside of Kerf: 1g.10gb at 0" in await refused(place, held)
        await until_devices(place, lambda found: ("refused", "NoExecute") in taints(found, OVERLAPPED))
        assert "the pod is evicted" in await until_event(place, "Pod", "DeviceRefused")
        assert [one["id"] for one in instances(place)] == [99], "what is not ours is never touched"
        await place.kubelet.unprepare(held)
        await place.client.delete(place.kinds.resource_claims, held.name, held.namespace)
        await until_devices(place, lambda found: OVERLAPPED not in found)
        remove_by_hand(place)
        await place.until_published(OVERLAPPED)


@pytest.mark.parametrize(("kubernetes", "is_owned"), [((1, 37), False), ((1, 35), True)])
async def test_a_pod_that_eviction_does_not_help_is_named(kubernetes: tuple[int, int], is_owned: bool) -> None:
    async with published(ApiServerSettings(kubernetes=kubernetes)) as place:
        held = await with_pod(place, claim("training", OVERLAPPED), is_owned=is_owned)
        cut_by_hand(place)
        await refused(place, held)
        assert "delete pod default/web-1 " in await until_event(place, "Pod", "DeviceRefused")
        await until_devices(place, lambda found: ("refused", "NoSchedule") in taints(found, OVERLAPPED))


async def until_lost(place: Site, card: str) -> None:
    def is_lost(found: dict[str, Device]) -> bool:
        names = [name for name in found if name.startswith(card)]
        return all(("unhealthy", "NoExecute") in taints(found, name) for name in names)

    await until_devices(place, is_lost)


@asynccontextmanager
async def away(place: Site, card: str) -> AsyncIterator[None]:
    """The card is not there: of its devices, what a claim has is published as lost, and nothing else."""
    place.write_hardware("faults", {"absent": [card]})
    await until_lost(place, card)
    yield
    place.write_hardware("faults", {})


async def prepare_after(place: Site, earlier: ClaimRef, held: ClaimRef) -> None:
    """Prepare a claim as the kubelet does: again while the earlier one's release, which goes on by itself, has not
    ended with its record."""
    while True:
        try:
            await place.kubelet.prepare(held)
        except ClaimError as error:
            if f"held by claim {earlier.namespace}/{earlier.name}, which has not been unprepared yet" not in str(error):
                raise
            await anyio.sleep(0.005)
        else:
            return


async def test_a_card_that_was_away_and_comes_back_with_what_a_deleted_pod_had_is_usable_again() -> None:
    device = "gpu-1-3g-40gb-at-0"
    async with published() as place:
        held = await place.allocated(claim("training", device))
        await place.kubelet.prepare(held)
        async with away(place, "gpu-1"):
            await place.kubelet.unprepare(held)
            assert len(instances(place, "gpu-1")) == 1
        await place.until_published(device)
        while instances(place, "gpu-1"):  # noqa: ASYNC110  (as elsewhere)
            await anyio.sleep(0.005)
        await prepare_after(place, held, await place.allocated(claim("next", device)))
        assert len(open_backend(place.hardware).partitions()) == 1


async def test_a_card_that_was_reset_is_told_and_the_claim_gets_its_partition_anew() -> None:
    """Without a reboot: the record still has a UUID that no longer exists."""
    async with published() as place:
        held = await place.allocated(claim("training", OVERLAPPED))
        await place.kubelet.prepare(held)
        reset(place)
        assert OVERLAPPED in await until_event(place, "Node", "PartitionGone")
        await place.kubelet.prepare(held)
        (made,) = instances(place)
        assert made["profile"] == "3g.40gb"
        while ((await place.until_shown(held, OVERLAPPED)).data or {})["uuid"] != made["mig_uuid"]:  # noqa: ASYNC110
            await anyio.sleep(0.005)  # until the claim shows the new one
        await until_event(place, "Node", "CardFree")
        await place.kubelet.unprepare(held)
        assert instances(place) == []


async def test_a_prepare_right_after_a_reset_does_not_answer_from_the_record() -> None:
    """No survey has seen the reset yet: the record is compared with the card before it is the answer."""
    async with published(survey_interval_s=600) as place:
        held = await place.allocated(claim("training", OVERLAPPED))
        await place.kubelet.prepare(held)
        reset(place)
        await place.kubelet.prepare(held)
        assert [one["profile"] for one in instances(place)] == ["3g.40gb"]


async def test_a_card_that_is_away_at_the_start_and_comes_back_with_what_a_deleted_pod_had_is_usable_again() -> None:
    device = "gpu-1-3g-40gb-at-0"
    async with site(ApiServerSettings()) as place:
        place.change(survey_interval_s=0.05)
        held = await place.allocated(claim("training", device))
        async with running(place):
            await place.kubelet.prepare(held)
        place.write_hardware("faults", {"absent": ["gpu-1"]})
        async with running(place):
            await place.until_published("gpu-0")
            await until_lost(place, "gpu-1")
            await place.kubelet.unprepare(held)
            await place.client.delete(place.kinds.resource_claims, held.name, held.namespace)
            place.write_hardware("faults", {})
            await place.until_published(device)
            while instances(place, "gpu-1"):  # noqa: ASYNC110  (as elsewhere)
                await anyio.sleep(0.005)
            await prepare_after(place, held, await place.allocated(claim("next", device)))
