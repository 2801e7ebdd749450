"""What a node offers of its placements, and what it gives for an id."""

from typing import Any

import pytest

from kerf_dra.driver.kubeletplugin.deviceplugin.offer import UnknownIdError
from kerf_dra.driver.kubeletplugin.deviceplugin.placements import PlacementOffer
from kerf_dra.driver.kubeletplugin.inventory.state.reservations import ReservationContext
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import CARDS, NODE_DEVICES
from tests.kubeletplugin.deviceplugin.node import RESOURCE, resource
from tests.kubeletplugin.observed_state import ObservedState, SmallestGpus
from tests.kubeletplugin.records import device, record

FIRST, SECOND = "gpu-0-1g-1gb-at-0", "gpu-0-1g-1gb-at-1"


@pytest.fixture
def offer() -> PlacementOffer:
    state = ObservedState(devices=NODE_DEVICES)
    state.cards = CARDS
    reservations = state.restrictions.reservations
    context = ReservationContext(
        cards=CARDS,
        in_use={},
        taken=(),
        can_grow=True,
        rules=SmallestGpus(),
    )
    reservations.update((resource("1g.1gb", 1),), context)
    reservations.confirm(reservations.partitions)
    nothing: Any = None
    return PlacementOffer(
        checkpoint=nothing,
        state=state,
        cluster=FakeCluster(),
    )


def test_an_id_gives_its_device(offer: PlacementOffer) -> None:
    assert offer.resolve(RESOURCE, FIRST, None).share.id.device == FIRST


def test_a_device_that_is_not_kept_for_the_resource_is_given_to_nobody(offer: PlacementOffer) -> None:
    """It may have been given to a claim between the kubelet's call and its turn."""
    with pytest.raises(UnknownIdError):
        offer.resolve(RESOURCE, SECOND, None)


def test_what_a_container_has_is_given_again_whatever_is_kept_now(offer: PlacementOffer) -> None:
    assert offer.resolve(RESOURCE, SECOND, record("user", device())).share.id.device == SECOND
