"""The contract of every backend (``driver.kubeletplugin.backends.base``), for the simulated one and the fake one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from api.model.names import ShareId
from driver.kubeletplugin.backends.base import Backend, HardwareBusyError
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.backends.claims import Machine
from tests.partitions.cards import gpu_partition, whole

Opener = Callable[[], Backend]
"""Opens the backend again, as a new process of the plugin does; the hardware is the same."""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture(params=["simulated", "stand-in"])
def opened(request: pytest.FixtureRequest, machine: Machine, tmp_path: Path) -> Opener:
    cards = list(machine.cards.values())
    return machine.open if request.param == "simulated" else lambda: FakeBackend(cards, tmp_path / "hardware.json")


async def test_the_cards_come_in_a_stable_order(opened: Opener, machine: Machine) -> None:
    assert [card.uuid for card in opened().discover()] == list(machine.cards)
    assert opened().discover() == opened().discover()


async def test_preparing_again_gives_the_same_handle_also_in_a_new_process(opened: Opener, machine: Machine) -> None:
    device = machine.device(gpu_partition(machine.card(0), "2g.20gb", 2))
    handle = await opened().prepare(device, None)
    assert await opened().prepare(device, None) == handle
    edits = opened().edits(handle)
    assert edits != type(edits)(), "a container gets something"
    assert opened().edits(handle) == edits


@pytest.mark.parametrize("start", [2, 0])
async def test_what_overlaps_is_busy_until_it_is_taken_back(opened: Opener, machine: Machine, start: int) -> None:
    backend, card = opened(), machine.card(0)
    handle = await backend.prepare(machine.device(gpu_partition(card, "1g.10gb", start), "first"), None)
    for other in (gpu_partition(card, "4g.40gb", 0), whole(card)):
        with pytest.raises(HardwareBusyError):
            await backend.prepare(machine.device(other, "second"), None)
    await backend.unprepare(handle)
    await backend.prepare(machine.device(whole(card), "second"), None)


async def test_what_does_not_overlap_is_had_at_once(opened: Opener, machine: Machine) -> None:
    backend = opened()
    for number in range(2):
        for start in range(7):
            partition = gpu_partition(machine.card(number), "1g.10gb", start)
            await backend.prepare(machine.device(partition, f"claim-{number}-{start}"), None)


async def test_taking_back_twice_succeeds_and_an_old_handle_leaves_the_next_claim_alone(
    opened: Opener, machine: Machine
) -> None:
    backend, partition = opened(), gpu_partition(machine.card(0), "1g.10gb", 0)
    old = await backend.prepare(machine.device(partition, "old"), None)
    for _ in range(2):
        await backend.unprepare(old)
    new = await backend.prepare(machine.device(partition, "new"), None)
    await backend.unprepare(old)
    with pytest.raises(HardwareBusyError):
        await backend.prepare(machine.device(partition, "third"), None)
    assert await backend.prepare(machine.device(partition, "new"), None) == new


async def test_abandoning_takes_back_what_a_prepare_left_and_nothing_of_others(
    opened: Opener, machine: Machine
) -> None:
    backend, partition = opened(), gpu_partition(machine.card(0), "1g.10gb", 0)
    left, other = machine.device(partition, "left"), machine.device(partition, "other")
    await backend.abandon(left)
    await backend.prepare(left, None)
    await backend.abandon(other)
    with pytest.raises(HardwareBusyError):
        await backend.prepare(other, None)
    await backend.abandon(left)
    await backend.prepare(other, None)


async def test_admin_access_is_had_beside_others_and_takes_nothing(opened: Opener, machine: Machine) -> None:
    backend, partition = opened(), gpu_partition(machine.card(0), "1g.10gb", 0)
    await backend.prepare(machine.device(partition, "user"), None)
    watching = await backend.prepare(machine.device(partition, "admin", admin=True), None)
    await backend.unprepare(watching)
    with pytest.raises(HardwareBusyError):
        await backend.prepare(machine.device(partition, "second"), None)


async def test_the_shares_of_a_partition_find_it_and_any_handle_takes_it_back(opened: Opener, machine: Machine) -> None:
    backend, partition = opened(), replace(gpu_partition(machine.card(0), "1g.10gb", 0), shared=True)
    devices = [machine.device(partition, claim) for claim in ("one", "two")]
    devices = [replace(one, share=ShareId(one.share.id, one.claim.uid)) for one in devices]
    handles = [await backend.prepare(device, None) for device in devices]
    with pytest.raises(HardwareBusyError):
        await backend.prepare(machine.device(gpu_partition(machine.card(0), "1g.10gb", 0), "whole"), None)
    await backend.unprepare(handles[1])
    await backend.prepare(machine.device(gpu_partition(machine.card(0), "1g.10gb", 0), "whole"), None)
