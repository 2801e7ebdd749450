"""What is kept for extended resources follows records in the same step."""

from kerf_dra.api.model.prepared import PreparedDevice
from kerf_dra.driver.kubeletplugin.inventory.state.reservations import ReservationContext, Reservations
from kerf_dra.driver.partitions.geometry import Partition
from tests.fakes.cards import gpu
from tests.kubeletplugin.deviceplugin.node import RESOURCE, resource
from tests.kubeletplugin.observed_state import SmallestGpus
from tests.kubeletplugin.records import device, record

CARDS = (gpu(0), gpu(1))


def note_device(*held: PreparedDevice) -> tuple[tuple[Partition, ...], tuple[Partition, ...]]:
    """Return what is kept of four placements, all of the first card, before and after a claim has ``held``."""
    reservations = Reservations()
    context = ReservationContext(cards=CARDS, in_use={}, taken=(), can_grow=True, rules=SmallestGpus())
    reservations.update((resource("1g.1gb", 4),), context)
    before = reservations.kept[RESOURCE]
    reservations.note_records((record("training", *held),), {card.uuid: card for card in CARDS})
    return before, reservations.kept[RESOURCE]


def whole(*, admin: bool) -> PreparedDevice:
    return device("gpu-0", profile=None, start=None, size=None, admin=admin)


def test_placements_of_a_card_that_a_claim_has_are_kept_no_longer() -> None:
    before, after = note_device(whole(admin=False))
    assert len(before) == 4
    assert after == ()


def test_a_claim_that_only_looks_at_a_card_takes_nothing_of_it() -> None:
    before, after = note_device(whole(admin=True))
    assert len(before) == 4
    assert after == before


def test_a_placement_that_a_claim_has_is_kept_no_longer_and_the_others_are() -> None:
    [first, *_], _ = note_device(whole(admin=True))
    assert first.placement is not None
    start = first.placement.start
    before, after = note_device(device(f"gpu-0-1g-1gb-at-{start}", profile="1g.1gb", start=start))
    assert after == before[1:]
