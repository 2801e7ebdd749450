"""What is known of a held device outlives the process: whenever a card falls ill, the next plugin says the same of it.

Each state of a card is reached twice: while the plugin runs, and while none does, after each way in which one may end.
What is then published, reported to the kubelet and counted must be equal, after any number of restarts.
"""

import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from kerf_dra.api.model.allocations import DeviceRequestAllocationResult
from kerf_dra.driver.kubeletplugin.backends.base import HealthState
from kerf_dra.driver.kubeletplugin.inventory.optional_devices import OptionalDevices
from tests.fakes.claims import DRIVER, claim, config, result
from tests.fakes.kubelet import ClaimError
from tests.kubeletplugin.card_failures import (
    ENDS,
    EVICTING,
    HEALTHY,
    LOST,
    UNAFFECTED,
    UNHEALTHY,
    UNKNOWN,
    Facts,
    Hardware,
    forget_cards,
    node,
    prepare,
    published,
    read_facts,
    starting,
    stop,
    taints,
)
from tests.kubeletplugin.deviceplugin.node import RESOURCE, offering_node
from tests.kubeletplugin.harness import Machine
from tests.kubeletplugin.test_rolling_update import instance
from tests.kubeletplugin.wait import until

# The states of a card, with the taints of its device then


def degrade(hardware: Hardware) -> None:
    hardware.fall_ill("GPU-0", HealthState.UNHEALTHY)


def lose(hardware: Hardware) -> None:
    hardware.fall_ill("GPU-0", HealthState.LOST)


def vanish(hardware: Hardware) -> None:
    hardware.remove("GPU-0")
    hardware.report("FPGA-0")  # an event that says nothing of the card: the next survey, or discovery, finds it


def vanish_and_report(hardware: Hardware) -> None:
    hardware.remove("GPU-0")
    lose(hardware)


STATES = {
    "healthy": (lambda _: None, set()),
    "degraded": (degrade, {(f"{DRIVER}/unhealthy", "degraded", "NoSchedule")}),
    "lost": (lose, {EVICTING}),
    "gone": (vanish, {EVICTING, UNKNOWN}),
    "gone, as its backend reports": (vanish_and_report, {EVICTING, UNKNOWN}),
}


async def reach_while_running(state: Callable[[Hardware], None], wanted: set[tuple[str, str, str]]) -> Facts:
    """Return what is seen when a card comes into ``state`` while the plugin runs."""
    with node() as (made, hardware):
        async with starting(made):
            await prepare(made)
            state(hardware)
            await until(lambda: taints(made, LOST) == wanted)
            return await read_facts(made)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize(("state", "wanted"), STATES.values(), ids=STATES.keys())
async def test_a_card_is_shown_as_if_the_plugin_had_never_ended(
    state: Callable[[Hardware], None], wanted: set[tuple[str, str, str]], end: Callable[[Machine], Awaitable[None]]
) -> None:
    """The device of a card that was lost meanwhile was withdrawn without a taint, and its pod stayed for ever."""
    before = await reach_while_running(state, wanted)
    with node() as (made, hardware):
        await end(made)
        state(hardware)
        for _ in range(3):
            async with starting(made):
                await until(lambda: taints(made, LOST) == wanted)
                assert await read_facts(made) == before
        async with starting(made):
            await until(lambda: taints(made, LOST) == wanted)
            hardware.repair()
            await until(lambda: not any(device.taints for device in published(made).values()))
            facts = await read_facts(made)
            assert facts.health == {(LOST, HEALTHY), (UNAFFECTED, HEALTHY)}
            assert (facts.is_ready, facts.unhealthy) == (True, 0)


async def test_while_no_driver_is_loaded_at_the_start_every_held_card_is_lost_until_it_is() -> None:
    """As when it is unloaded while the plugin runs: nothing that a pod of this boot has can work without it."""
    with node() as (made, hardware):
        await stop(made)
        hardware.unload()
        for _ in range(3):
            async with starting(made):
                await until(lambda: taints(made, LOST) == taints(made, UNAFFECTED) == {EVICTING, UNKNOWN})
                facts = await read_facts(made)
                assert facts.health == {(LOST, UNHEALTHY), (UNAFFECTED, UNHEALTHY)}
                assert facts.events == {"CardsNotDiscovered", "CardInQuarantine", "SurveyFailed"}
                assert (facts.is_ready, facts.unhealthy) == (False, 2)
        async with starting(made):
            hardware.repair()
            await until(lambda: "fpga-0" in published(made) and not taints(made, LOST))
            assert (await read_facts(made)).health == {(LOST, HEALTHY), (UNAFFECTED, HEALTHY)}


async def test_a_backend_that_cannot_be_opened_for_another_reason_says_nothing_of_its_cards() -> None:
    """An error proves nothing: no pod is evicted, no claim comes, and what pods have stays published."""
    with node() as (made, hardware):
        await stop(made)
        hardware.refuse()
        async with starting(made):
            assert taints(made, LOST) == taints(made, UNAFFECTED) == {UNKNOWN}
            facts = await read_facts(made)
            assert facts.health == {(LOST, HEALTHY), (UNAFFECTED, HEALTHY)}
            assert (facts.is_ready, facts.unhealthy) == (False, 0)


async def test_a_backend_that_cannot_list_its_cards_keeps_those_that_claims_have() -> None:
    with node() as (made, hardware):
        await stop(made)
        hardware.lose_list()
        async with starting(made):
            assert {LOST, UNAFFECTED} <= published(made).keys()
            assert not any(device.taints for device in published(made).values())


async def test_a_card_that_is_there_but_not_offered_any_more_is_not_lost() -> None:
    """Such as an FPGA card whose description was deleted: the pod works on."""
    with node() as (made, hardware):
        await stop(made)
        hardware.hide("GPU-0")
        for _ in range(2):
            async with starting(made):
                assert UNAFFECTED in published(made)
                assert LOST not in published(made)
                assert (await read_facts(made)).health == {(LOST, HEALTHY), (UNAFFECTED, HEALTHY)}


async def test_all_cards_may_be_gone() -> None:
    with node() as (made, hardware):
        await stop(made)
        hardware.remove("GPU-0", "GPU-1", "FPGA-0")
        for _ in range(2):
            async with starting(made):
                assert taints(made, LOST) == taints(made, UNAFFECTED) == {EVICTING, UNKNOWN}
                assert not any(name.startswith("fpga-0") for name in published(made)), "no claim has it"
                assert (await read_facts(made)).is_ready, "its backend has listed the cards: there are none"


@pytest.mark.parametrize(
    ("fault", "is_published"),
    [(lambda hardware: hardware.remove("GPU-0"), True), (lambda hardware: hardware.unload(), False)],
    ids=["its card is gone", "no driver is loaded yet"],
)
async def test_after_a_boot_a_pod_leaves_a_card_that_is_gone_but_waits_for_the_driver(
    fault: Callable[[Hardware], None], is_published: bool
) -> None:
    """Drivers are loaded in minutes after a boot, by a pod of their own; what ran on their cards has ended anyway."""
    with node() as (made, hardware):
        await stop(made)
        hardware.reboot()
        made.boot_id = "boot-2"
        fault(hardware)
        async with starting(made):
            assert taints(made, LOST) == ({EVICTING, UNKNOWN} if is_published else set())
            assert (LOST in published(made)) == is_published


async def test_a_claim_that_is_unprepared_while_its_card_is_lost_ends_and_is_released_when_the_card_is_back() -> None:
    with node() as (made, hardware):
        await stop(made)
        hardware.remove("GPU-0")
        async with starting(made):
            await made.kubelet.unprepare(made.cluster.add(claim("lost", LOST)))
            await until(lambda: LOST not in published(made))
        async with starting(made):
            assert LOST not in published(made)
            assert len(hardware.made) == 2, "nothing can be removed from a card that is away"
            hardware.repair()
            await until(lambda: LOST in published(made) and not taints(made, LOST) and len(hardware.made) == 1)


async def test_a_claim_on_a_lost_card_is_not_prepared_again_and_another_claim_does_not_get_the_card() -> None:
    with node() as (made, hardware):
        await stop(made)
        hardware.remove("GPU-0")
        async with starting(made):
            for name, device in (("lost", LOST), ("other", "gpu-0-1g-1gb-at-1")):
                with pytest.raises(ClaimError, match="there is no card GPU-0"):
                    await made.kubelet.prepare(made.cluster.add(claim(name, device)))
            await made.kubelet.prepare(made.cluster.add(claim("unaffected", UNAFFECTED)))


async def test_another_card_in_the_place_of_a_held_one_is_published_and_the_old_one_is_lost() -> None:
    with node() as (made, hardware):
        await stop(made)
        hardware.replace_first()
        for _ in range(2):
            async with starting(made):
                assert not taints(made, LOST)
                facts = await read_facts(made)
                assert facts.devices[LOST].attributes["uuid"].string == "GPU-new"
                assert facts.health == {(LOST, UNHEALTHY), (UNAFFECTED, HEALTHY)}
                assert facts.events == {"CardReplaced"}


@pytest.mark.parametrize(
    "device",
    [
        "gpu-0",
        "gpu-0-2g-2gb-at-2",
        result("gpu-0-1g-1gb-at-0-shared", share="first"),
        result("gpu-0-monitor", admin=True),
        "fpga-0",
        "fpga-0-aes-at-1",
        "fpga-0-slot-1",
        "fpga-0-slots-0-1",
    ],
    ids=lambda device: device if isinstance(device, str) else device.device,
)
@pytest.mark.parametrize("are_described", [True, False], ids=["cards in records", "records of an older version"])
async def test_whatever_a_claim_has_of_a_lost_card_is_tainted_after_a_restart(
    device: str | DeviceRequestAllocationResult, are_described: bool
) -> None:
    """Of a record that does not describe its card, the published device has its name, its place and its taint."""
    with node() as (made, hardware):
        made.cluster.target = dataclasses.replace(
            made.cluster.target,
            optional_devices=OptionalDevices(shareable=frozenset({"1g.1gb"}), monitors=frozenset({"gpu"})),
        )
        name = device if isinstance(device, str) else device.device
        async with starting(made):
            parameters = {"apiVersion": "kerf.dev/v1alpha1", "kind": "FpgaConfig", "function": "aes"}
            configs = [config(parameters)] if "slot" in name else []
            await made.kubelet.prepare(made.cluster.add(claim("held", device, configs=configs)))
        if not are_described:
            forget_cards(made)
        hardware.remove("GPU-0", "FPGA-0")
        is_monitor = name.endswith("-monitor")  # it has its own taint only, whatever its card's state is
        wanted = {(f"{DRIVER}/monitor", "", "NoSchedule")} if is_monitor else {EVICTING, UNKNOWN}
        for _ in range(2):
            async with starting(made):
                await until(lambda: taints(made, name) == wanted)
                assert (await read_facts(made)).health == {(name, UNHEALTHY)}
                assert published(made)[name].consumes_counters or is_monitor


async def test_a_lost_card_of_which_containers_have_extended_resources_is_listed_as_unhealthy_after_a_restart() -> None:
    """It was listed no more, although its container runs on."""
    async with offering_node(survey_interval_s=0.05) as offering:
        made, kubelet = offering.machine, offering.kubelet
        hardware = made.backend = Hardware(made.root / "hardware.json")
        async with made.plugin():
            offering.offer(_1g_1gb=2)
            ids = sorted(await kubelet.wait_list(RESOURCE, 2, healthy=2))
            await kubelet.allocate(RESOURCE, *ids, pod="a")
            hardware.remove("GPU-0", "GPU-1")
            hardware.report("FPGA-0")
            await kubelet.wait_list(RESOURCE, 2, healthy=0)
        for _ in range(2):
            kubelet.lists.clear()
            async with made.plugin():
                assert sorted(await kubelet.wait_list(RESOURCE, 2, healthy=0)) == ids
        kubelet.lists.clear()
        async with made.plugin():
            await kubelet.wait_list(RESOURCE, 2, healthy=0)
            hardware.repair()
            assert sorted(await kubelet.wait_list(RESOURCE, 2, healthy=2)) == ids


async def test_a_plugin_that_takes_over_while_a_card_is_lost_goes_on_with_its_taint() -> None:
    with node() as (made, hardware):
        async with instance(made, "old") as old:
            await prepare(old)
            hardware.remove("GPU-0")
            hardware.report("FPGA-0")
            await until(lambda: taints(made, LOST) == {EVICTING, UNKNOWN})
            before = await read_facts(old)
            made.cluster.published.clear()
            made.cluster.reported.clear()
            async with instance(made, "new") as new:
                await until(lambda: taints(made, LOST) == {EVICTING, UNKNOWN})
                assert await read_facts(new) == before
