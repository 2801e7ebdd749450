"""The contract of every backend (``driver.kubeletplugin.backends.base``), for the simulated one and the fake one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from api.model.names import ShareId
from driver.kubeletplugin.backends.base import Backend, FoundPartition, HardwareConflictError
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.backends.claims import Machine, Notes
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


def surveyed(backend: Backend, machine: Machine, card: int = 0) -> tuple[FoundPartition, ...]:
    return backend.survey(machine.card(card).uuid).partitions


def test_the_cards_come_in_a_stable_order(opened: Opener, machine: Machine) -> None:
    assert [card.uuid for card in opened().discover()] == list(machine.cards)
    assert opened().discover() == opened().discover()


def test_a_survey_lists_what_was_made_where_under_one_id_for_all_processes(opened: Opener, machine: Machine) -> None:
    backend, card = opened(), machine.card(0)
    assert surveyed(backend, machine) == ()
    handles = [
        backend.prepare(machine.device(gpu_partition(card, *place)), None, Notes(), None)
        for place in (("2g.20gb", 2), ("1g.10gb", 0))
    ]
    assert {(one.profile, one.placement) for one in surveyed(backend, machine)} == {
        ("2g.20gb", (2, 2)),
        ("1g.10gb", (0, 1)),
    }
    assert set(surveyed(opened(), machine)) == set(surveyed(backend, machine))
    assert len({one.id for one in surveyed(backend, machine)}) == len({one.uuid for one in surveyed(backend, machine)})
    assert surveyed(backend, machine, 1) == ()
    for handle in handles:
        backend.unprepare(handle)
    assert surveyed(backend, machine) == ()


def test_what_was_found_is_finished_with_the_same_handle_also_in_a_new_process(
    opened: Opener, machine: Machine
) -> None:
    device, notes = machine.device(gpu_partition(machine.card(0), "2g.20gb", 2)), Notes()
    handle = opened().prepare(device, None, notes, None)
    [found] = surveyed(opened(), machine)
    assert opened().prepare(device, None, notes, found) == handle
    edits = opened().edits(handle)
    assert edits != type(edits)(), "a container gets something"
    assert opened().edits(handle) == edits


@pytest.mark.parametrize("start", [2, 0])
def test_what_overlaps_is_a_conflict_until_it_is_taken_back(opened: Opener, machine: Machine, start: int) -> None:
    backend, card = opened(), machine.card(0)
    handle = backend.prepare(machine.device(gpu_partition(card, "1g.10gb", start), "first"), None, Notes(), None)
    with pytest.raises(HardwareConflictError):
        backend.prepare(machine.device(gpu_partition(card, "4g.40gb", 0), "second"), None, Notes(), None)
    backend.unprepare(handle)
    backend.prepare(machine.device(whole(card), "second"), None, Notes(), None)


def test_what_does_not_overlap_is_had_at_once(opened: Opener, machine: Machine) -> None:
    backend = opened()
    for number in range(2):
        for start in range(7):
            partition = gpu_partition(machine.card(number), "1g.10gb", start)
            backend.prepare(machine.device(partition, f"claim-{number}-{start}"), None, Notes(), None)


def test_taking_back_twice_succeeds(opened: Opener, machine: Machine) -> None:
    backend, device = opened(), machine.device(gpu_partition(machine.card(0), "1g.10gb", 0))
    handle = backend.prepare(device, None, Notes(), None)
    for _ in range(2):
        backend.unprepare(handle)
    backend.prepare(device, None, Notes(), None)


def test_abandoning_takes_back_what_was_found_and_nothing_else(opened: Opener, machine: Machine) -> None:
    backend, notes = opened(), Notes()
    left = machine.device(gpu_partition(machine.card(0), "1g.10gb", 0), "left")
    other = machine.device(gpu_partition(machine.card(0), "1g.10gb", 1), "other")
    for device in (left, other):
        backend.prepare(device, None, notes, None)
    backend.abandon(left, notes, None)
    assert len(surveyed(backend, machine)) == 2
    [found] = [one for one in surveyed(backend, machine) if one.placement == left.partition.placement]
    backend.abandon(left, notes, found)
    assert [one.placement for one in surveyed(backend, machine)] == [other.partition.placement]


def test_admin_access_is_had_beside_others_and_changes_nothing(opened: Opener, machine: Machine) -> None:
    backend, partition = opened(), gpu_partition(machine.card(0), "1g.10gb", 0)
    backend.prepare(machine.device(partition, "user"), None, Notes(), None)
    before, notes = surveyed(backend, machine), Notes()
    handle = backend.prepare(machine.device(partition, "admin", admin=True), None, notes, None)
    assert backend.edits(handle) != type(backend.edits(handle))()
    assert (surveyed(backend, machine), notes.notes) == (before, {})


def test_the_shares_of_a_partition_have_it_together_and_any_handle_takes_it_back(
    opened: Opener, machine: Machine
) -> None:
    backend, partition = opened(), replace(gpu_partition(machine.card(0), "1g.10gb", 0), shared=True)
    devices = [machine.device(partition, claim) for claim in ("one", "two")]
    one, two = (replace(device, share=ShareId(device.share.id, device.claim.uid)) for device in devices)
    backend.prepare(one, None, Notes(), None)
    [found] = surveyed(backend, machine)
    handle = backend.prepare(two, None, Notes(), found)
    assert surveyed(backend, machine) == (found,)
    backend.unprepare(handle)
    assert surveyed(backend, machine) == ()


def test_a_wait_for_events_ends_when_the_backend_is_closed(opened: Opener) -> None:
    backend = opened()
    backend.open()
    assert list(backend.wait_for_events(0)) == []
    backend.close()
    backend.close()
    assert list(backend.wait_for_events(3600)) == []
