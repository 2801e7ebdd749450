"""Devices that nobody could get are withdrawn, but never those that a claim has in its allocation."""

import dataclasses
from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.model.devices import Device
from kerf_dra.api.model.names import DeviceId, DriverName
from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey, FoundPartition, HealthChange, HealthState
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, PublishTarget, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.optional_devices import OptionalDevices
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.kubeletplugin.inventory.state.refusals import RefusalTracker
from kerf_dra.driver.kubeletplugin.inventory.state.reservations import Reservations
from kerf_dra.driver.kubeletplugin.inventory.state.restrictions import (
    DeviceRestrictions,
    KnownAllocations,
    OrphanedDevices,
    UnusableDevices,
)
from kerf_dra.driver.kubeletplugin.inventory.state.surveys import SurveyTracker
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.partitions.slice_limits import MAX_TAINTS_COMBINED, SliceLayout
from kerf_dra.driver.partitions.unit_map import get_unit_map
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import DRIVER, NODE, VOCABULARIES
from tests.kubeletplugin.records import BOOT, LATER, device, record

HEALTHY = DeviceHealthTracker(driver=DRIVER, now=lambda: 0)
TARGET = PublishTarget(driver=DriverName(DRIVER), node=NODE, layout=SliceLayout.SPLIT, vocabularies=VOCABULARIES)
OVERLAPPED = {"gpu-0-1g-1gb-at-0", "gpu-0-1g-1gb-at-1", "gpu-0-2g-2gb-at-0", "gpu-0-4g-4gb-at-0", "gpu-0"}
"""What a foreign partition on the first two units of the first card leaves nothing of."""
KEPT = Partition(kind="gpu", card_uuid="GPU-0", profile="2g.2gb", placement=Placement(0, 2))
HAND_CUT = FoundPartition(id="gi-1", profile="2g.2gb", placement=Placement(0, 2))


def restrictions(
    allocated: Collection[str] | None = (), *, card: Card | None = None, **survey: str
) -> DeviceRestrictions:
    """A hand-cut partition on the first card, or a card in another mode, and the devices that claims have."""
    card = card or gpu(0)
    made = DeviceRestrictions(
        orphaned=OrphanedDevices(driver=DRIVER),
        unusable=UnusableDevices(driver=DRIVER),
        surveys=SurveyTracker(driver=DRIVER),
        refusals=RefusalTracker(driver=DRIVER, now=lambda: 0),
        allocated=KnownAllocations({}),
    )
    partitions = () if survey else (HAND_CUT,)
    made.surveys.update(card, CardSurvey(card_uuid=card.uuid, partitions=partitions, **survey), (), BOOT, LATER)
    made.allocated.replace(None if allocated is None else {name(one) for one in allocated})
    return made


def name(device_name: str) -> DeviceId:
    return DeviceId(DRIVER, f"{NODE}/gpu", device_name)


def build(
    restricting: DeviceRestrictions | None,
    *,
    previous: DeviceSet | None = None,
    target: PublishTarget = TARGET,
) -> DeviceSet:
    return build_device_set(
        target, {"one": [gpu(0), gpu(1), fpga(0)]}, (), HEALTHY, previous or DeviceSet(), restricting
    )


def published(devices: DeviceSet) -> dict[str, Device]:
    return {each.name: each for pool in devices.pools for content in pool.slices for each in content.devices}


def test_what_overlaps_a_foreign_partition_is_withdrawn_and_comes_back_with_the_rest_as_it_was() -> None:
    free = build(None)
    held = build(restrictions())
    assert published(free).keys() - published(held).keys() == OVERLAPPED
    assert not any(each.taints for each in published(held).values())
    assert published(build(restrictions(no_whole="x"), previous=held)).keys() == published(free).keys() - {"gpu-0"}
    assert published(build(None, previous=held)) == published(free)


def test_a_device_that_a_claim_has_stays_with_its_counters_and_is_tainted() -> None:
    allocated = "gpu-0-2g-2gb-at-0"
    held = published(build(restrictions({allocated})))
    assert OVERLAPPED - held.keys() == OVERLAPPED - {allocated}
    assert [(taint.key, taint.value, taint.effect) for taint in held[allocated].taints] == [
        (f"{DRIVER}/held", "2g.2gb-at-0", "NoSchedule")
    ]
    assert held[allocated].consumes_counters == published(build(None))[allocated].consumes_counters


def test_while_nobody_knows_what_is_allocated_nothing_is_withdrawn_and_all_is_tainted() -> None:
    devices = build(restrictions(None))
    held = published(devices)
    assert {each for each, found in held.items() if found.taints} == OVERLAPPED
    assert devices.inputs[0].taints.keys() == OVERLAPPED, "by name, as a NodeInventory has them"
    assert held.keys() == published(build(None)).keys()


def test_a_withdrawn_device_is_still_found_for_claims_that_were_allocated_before() -> None:
    held = build(restrictions())
    for each in OVERLAPPED:
        assert held.find(name(each)) is not None


def test_what_a_record_has_is_allocated() -> None:
    restricting = dataclasses.replace(
        restrictions(), allocated=KnownAllocations({"uid": record("training", device("gpu-0-1g-1gb-at-1"))})
    )
    restricting.allocated.replace(())
    assert OVERLAPPED & published(build(restricting)).keys() == {"gpu-0-1g-1gb-at-1"}


def test_a_claim_that_is_to_be_prepared_brings_its_device_back() -> None:
    restricting = restrictions()
    assert restricting.allocated.add(name("gpu-0"))
    assert not restricting.allocated.add(name("gpu-0"))
    assert OVERLAPPED & published(build(restricting)).keys() == {"gpu-0"}


def test_shared_devices_go_and_stay_as_exclusive_ones_do() -> None:
    optional = OptionalDevices(shareable=frozenset({"2g.2gb"}))
    target = dataclasses.replace(TARGET, optional_devices=optional)
    assert "gpu-0-2g-2gb-at-0-shared" in published(build(None, target=target))
    assert "gpu-0-2g-2gb-at-0-shared" not in published(build(restrictions(), target=target))
    kept = published(build(restrictions({"gpu-0-2g-2gb-at-0-shared"}), target=target))
    assert kept["gpu-0-2g-2gb-at-0-shared"].taints
    assert "gpu-0-2g-2gb-at-0" not in kept


def test_the_order_counts_foreign_partitions_as_taken() -> None:
    units = [each for each in published(build(restrictions())) if "-1g-" in each]
    assert units[:2] == ["gpu-0-1g-1gb-at-2", "gpu-0-1g-1gb-at-3"], "beside what is held: the other card stays whole"


def test_a_card_in_quarantine_stays_published_and_gets_no_claims() -> None:
    restricting = restrictions(no_whole="")
    restricting.surveys.fail("GPU-0", "a call hangs", is_doubtful=True)
    found = published(build(restricting))
    assert {each for each, one in found.items() if one.taints} == {each for each in found if each.startswith("gpu-0")}


@given(st.sets(st.sampled_from(sorted(published(build(None))))), st.booleans())
def test_no_allocated_device_is_ever_withdrawn_or_changed_but_for_its_taint_and_the_rank_of_its_loss(
    allocated: set[str], is_combined: bool
) -> None:
    target = dataclasses.replace(TARGET, layout=SliceLayout.COMBINED) if is_combined else TARGET
    before, after = published(build(None, target=target)), published(build(restrictions(allocated), target=target))
    assert before.keys() - after.keys() == OVERLAPPED - allocated
    for each in after:
        assert bool(after[each].taints) is (each in OVERLAPPED)
        assert after[each].consumes_counters == before[each].consumes_counters
        old, new = ({**one[each].attributes, "lossRank": None} for one in (before, after))
        assert new == old


def test_a_device_in_every_trouble_has_no_more_taints_than_a_slice_may_have_and_the_effective_ones_first() -> None:
    """Before Kubernetes 1.35 a device has at most four; more would keep all of the node from being published."""
    troubled = DeviceHealthTracker(driver=DRIVER, now=lambda: 0)
    troubled.update(HealthChange(card_uuid="GPU-0", partition=None, state=HealthState.UNHEALTHY, reason="hot"))
    first = next(spec.of("GPU-0") for spec in get_unit_map(gpu(0)).specs)
    troubled.record_load_failure(first, "does not load", 60)
    made = restrictions(None)
    made.surveys.fail("GPU-0", "it does not answer", is_doubtful=True)
    made.refusals.taint(name("gpu-0-1g-1gb-at-0"), first, "refused", evicts=True)
    for layout, count in ((SliceLayout.SPLIT, 5), (SliceLayout.COMBINED, MAX_TAINTS_COMBINED)):
        target = dataclasses.replace(TARGET, layout=layout)
        built = build_device_set(target, {"one": [gpu(0)]}, (), troubled, DeviceSet(), made)
        taints = published(built)["gpu-0-1g-1gb-at-0"].taints
        assert len(taints) == count
        assert "NoExecute" in {taint.effect for taint in taints}


def test_an_orphan_that_only_watches_keeps_nothing_from_claims() -> None:
    whole = Partition(kind="gpu", card_uuid="GPU-0")
    orphaned = OrphanedDevices(driver=DRIVER)
    assert orphaned.add(record("watching", device(admin=True)))
    assert orphaned.build_taints(whole) == ()
    assert orphaned.add(record("working", device()))
    assert [taint.effect for taint in orphaned.build_taints(whole)] == ["NoSchedule"]
    assert orphaned.build_taints(Partition(kind="gpu", card_uuid="GPU-1")) == ()


def test_a_device_for_claims_to_share_is_not_published_beside_what_is_kept_for_an_extended_resource() -> None:
    """Its placement is kept: the scheduler would give to a claim what the kubelet has promised to a container."""
    target = dataclasses.replace(TARGET, optional_devices=OptionalDevices(shareable=frozenset({"2g.2gb"})))
    free = published(build(None, target=target))
    reserving = dataclasses.replace(
        restrictions(card=gpu(1)), reservations=Reservations(kept={"kerf.dev/small": (KEPT,)})
    )
    kept = published(build(reserving, target=target))
    assert {"gpu-0-2g-2gb-at-0", "gpu-0-2g-2gb-at-0-shared"} <= free.keys()
    assert {each for each in free.keys() - kept.keys() if each.startswith("gpu-0")} == {
        *OVERLAPPED,
        "gpu-0-2g-2gb-at-0-shared",
    }
