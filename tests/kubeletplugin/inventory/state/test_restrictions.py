"""What restricts the devices of a node: each reason by itself, and each claim and device of several."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.devices import DeviceTaint
from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey, FoundPartition
from kerf_dra.driver.kubeletplugin.backends.card_selection import CardSelection
from kerf_dra.driver.kubeletplugin.inventory.state.refusals import RefusalTracker
from kerf_dra.driver.kubeletplugin.inventory.state.reservations import list_in_use
from kerf_dra.driver.kubeletplugin.inventory.state.restrictions import (
    DeviceRestrictions,
    KeptOutCards,
    KnownAllocations,
    OrphanedDevices,
    UnusableDevices,
)
from kerf_dra.driver.kubeletplugin.inventory.state.surveys import SurveyTracker
from kerf_dra.driver.partitions.geometry import Partition, Placement
from tests.fakes.cards import gpu
from tests.fakes.claims import DRIVER, NODE
from tests.kubeletplugin.records import BOOT, LATER, device, record

BOTH = record("both", device(), device("gpu-1-1g-1gb-at-0", card="GPU-1"))
OTHER = record("other", device("gpu-0-1g-1gb-at-2", start=2))
ORPHANED = (DeviceTaint(key=f"{DRIVER}/orphaned", effect="NoSchedule"),)
WHOLE = Partition(kind="gpu", card_uuid="GPU-1")


def part(start: int, card: str = "GPU-0") -> Partition:
    return Partition(kind="gpu", card_uuid=card, profile="1g.1gb", placement=Placement(start, 1))


def restrictions() -> DeviceRestrictions:
    return DeviceRestrictions(
        orphaned=OrphanedDevices(driver=DRIVER),
        surveys=SurveyTracker(driver=DRIVER),
        refusals=RefusalTracker(driver=DRIVER, now=lambda: 0),
        allocated=KnownAllocations({}),
        unusable=UnusableDevices(driver=DRIVER),
    )


def test_every_device_of_every_orphaned_claim_is_tainted_until_that_claim_is_there_again() -> None:
    orphaned = OrphanedDevices(driver=DRIVER)
    assert [orphaned.add(each) for each in (BOTH, OTHER, BOTH)] == [True, True, False]
    for partition in (part(0), part(0, "GPU-1"), part(2), WHOLE):
        assert orphaned.build_taints(partition) == ORPHANED
    assert orphaned.build_taints(part(1)) == ()
    assert orphaned.discard(BOTH.claim.uid)
    assert not orphaned.discard(BOTH.claim.uid)
    assert [orphaned.build_taints(part(start)) for start in (0, 2)] == [(), ORPHANED]
    assert set(orphaned.claim_uids) == {OTHER.claim.uid}


def test_what_containers_have_is_listed_by_each_extended_resource() -> None:
    records = [
        replace(record("a", device("gpu-0-1g-1gb-at-0")), resource="kerf.dev/small"),
        replace(record("b", device("gpu-0-1g-1gb-at-1", start=1)), resource="kerf.dev/small"),
        replace(record("c", *BOTH.devices), resource="kerf.dev/other"),
        record("a claim"),
    ]
    placements = {resource: [each.placement for each in found] for resource, found in list_in_use(records).items()}
    assert placements == {
        "kerf.dev/small": [Placement(0, 1), Placement(1, 1)],
        "kerf.dev/other": [Placement(0, 1), Placement(0, 1)],
    }


def _hold(made: DeviceRestrictions) -> None:
    found = FoundPartition(id="by-hand", profile="1g.1gb", placement=Placement(0, 1))
    made.surveys.update(gpu(0), CardSurvey(card_uuid="GPU-0", partitions=(found,)), (), BOOT, LATER)


def _quarantine(made: DeviceRestrictions) -> None:
    made.surveys.fail("GPU-0", "the card fell off the bus", is_doubtful=True)


def _refuse(made: DeviceRestrictions) -> None:
    made.refusals.taint(DeviceId(DRIVER, f"{NODE}/gpu", "gpu-0"), part(0), "refused", evicts=False)


def _orphan(made: DeviceRestrictions) -> None:
    made.orphaned.add(BOTH)


@pytest.mark.parametrize("restrict", [_hold, _quarantine, _refuse, _orphan])
def test_each_reason_alone_taints_a_device(restrict: Callable[[DeviceRestrictions], None]) -> None:
    made = restrictions()
    assert (made.has_taints, made.build_taints(part(0))) == (False, ())
    restrict(made)
    assert made.has_taints
    assert len(made.build_taints(part(0))) == 1


def test_all_reasons_together_are_all_published() -> None:
    made = restrictions()
    for restrict in (_hold, _quarantine, _refuse, _orphan):
        restrict(made)
    keys = [taint.key.rpartition("/")[2] for taint in made.build_taints(part(0))]
    assert {"refused", "orphaned"} < set(keys)
    assert len(keys) >= 3


def test_of_a_card_that_is_kept_out_only_what_claims_have_is_published() -> None:
    """Of a drained card, and of no other: of one that no claim has, nothing is published anyway."""
    excluded = CardSelection.of(exclude=[gpu(0).pci_bus_id, gpu(1).pci_bus_id])
    kept_out = KeptOutCards(KnownAllocations({"other": OTHER}), {"gpus": excluded}, driver=DRIVER)
    published = kept_out.select("gpus", [gpu(0), gpu(1), gpu(2)])
    assert [card.uuid for card in published] == ["GPU-0", "GPU-2"]
    (held,) = (each.share.id for each in OTHER.devices)
    free = DeviceId(held.driver, held.pool, "gpu-0-1g-1gb-at-1")
    assert [kept_out.is_withheld("GPU-0", device) for device in (held, free)] == [False, True]
    assert not kept_out.is_withheld("GPU-2", DeviceId(held.driver, held.pool, "gpu-2"))
