"""What is found on cards is ours or somebody else's, and keeps from claims exactly what it overlaps."""

import dataclasses
import re

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kerf_dra.api.dra.health import Health
from kerf_dra.api.model.names import ShareId
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey, FoundPartition
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.kubeletplugin.inventory.state.surveys import SurveyTracker, find_foreign, find_replacements
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.partitions.unit_map import get_unit_map
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import DRIVER
from tests.kubeletplugin.records import BOOT, LATER, device, record

CARD = gpu(0)
HEALTH = DeviceHealthTracker(driver=DRIVER, now=lambda: 0)
PARTITIONS = [spec.of(CARD.uuid) for spec in get_unit_map(CARD).specs]
FOUND = [
    FoundPartition(id=f"gi-{index}", profile=part.profile, placement=part.placement)
    for index, part in enumerate(PARTITIONS)
]


def found(start: int | None, size: int = 1, *, profile: str | None = "", id_: str = "gi-1") -> FoundPartition:
    placement = None if start is None else Placement(start, size)
    return FoundPartition(id=id_, profile=f"{size}g.{size}gb" if profile == "" else profile, placement=placement)


def surveyed(*partitions: FoundPartition, card: Card = CARD, records: tuple[PreparedClaim, ...] = ()) -> SurveyTracker:
    tracker = SurveyTracker(driver=DRIVER)
    tracker.update(card, CardSurvey(card_uuid=card.uuid, partitions=partitions), records, BOOT, LATER)
    return tracker


def held_names(tracker: SurveyTracker) -> set[tuple[str | None, Placement | None]]:
    return {(part.profile, part.placement) for part in PARTITIONS if tracker.find_held(part)}


def of_ours(start: int, size: int, *, boot_id: str = BOOT) -> PreparedClaim:
    """A record of a claim that has this partition."""
    held = device(start=start, size=size)
    named = replace(held, part=replace(held.part, profile=f"{size}g.{size}gb"))
    return record("training", named, boot_id=boot_id)


def test_what_a_record_of_this_boot_has_is_ours_and_nothing_else() -> None:
    survey = CardSurvey(card_uuid=CARD.uuid, partitions=(found(2, 2),))
    assert find_foreign(survey, [of_ours(2, 2)], BOOT, LATER) == ()
    assert find_foreign(survey, [of_ours(0, 2)], BOOT, LATER) == survey.partitions, "another place"
    assert find_foreign(survey, [of_ours(2, 1)], BOOT, LATER) == survey.partitions, "another profile"
    assert find_foreign(survey, [of_ours(2, 2, boot_id="boot-0")], BOOT, LATER) == survey.partitions, "an earlier boot"
    elsewhere = CardSurvey(card_uuid="GPU-1", partitions=(found(2, 2),))
    assert find_foreign(elsewhere, [of_ours(2, 2)], BOOT, LATER) == elsewhere.partitions, "another card"


def test_what_was_there_before_the_prepare_is_not_ours() -> None:
    survey = CardSurvey(card_uuid=CARD.uuid, partitions=(found(2, 2, id_="gi-1"),))
    mine = of_ours(2, 2)

    class Notes:
        def came_later(self, claim_uid: str, share: ShareId, found_id: str) -> bool:
            assert (claim_uid, share) == (mine.claim.uid, mine.devices[0].share)
            return found_id != "gi-1"

    assert find_foreign(survey, [mine], BOOT, Notes()) == survey.partitions
    assert find_foreign(survey, [mine], BOOT, LATER) == ()


def test_a_static_partition_is_for_everybody_while_no_stranger_uses_it() -> None:
    there = dataclasses.replace(found(2, 2), is_static=True)
    used = dataclasses.replace(there, in_use=True)
    started = of_ours(2, 2)
    handed_out = record("training", replace(started.devices[0], handle={}))
    for partition, records, foreign in (
        (there, (), ()),
        (there, (handed_out,), ()),
        (used, (handed_out,), ()),
        (used, (started,), (used,)),
        (used, (), (used,)),
    ):
        survey = CardSurvey(card_uuid=CARD.uuid, partitions=(partition,))
        assert find_foreign(survey, records, BOOT, LATER) == foreign


def test_of_a_static_card_only_what_is_there_can_be_had() -> None:
    tracker = SurveyTracker(driver=DRIVER)

    def update(*starts: int) -> bool:
        there = (dataclasses.replace(found(start, 2, id_=f"gi-{start}"), is_static=True) for start in starts)
        survey = CardSurvey(card_uuid=CARD.uuid, partitions=(*there,), no_whole="static", no_partitions="static")
        return tracker.update(CARD, survey, (), BOOT, LATER)

    free = [part for part in PARTITIONS if (part.profile, part.placement and part.placement.start) == ("2g.2gb", 2)]
    assert free
    assert update(2)
    assert [part for part in PARTITIONS if not tracker.find_held(part)] == free
    assert not update(2)
    assert update(2, 0), "an administrator has made another one"
    assert update(2), "and removed it"
    assert update()
    assert tracker.find_held(free[0]) == "static"
    shared = dataclasses.replace(free[0], shared=True)
    update(2)
    assert tracker.find_held(shared) is None


def test_a_process_on_the_whole_card_is_that_of_the_claim_that_has_the_card() -> None:
    use = FoundPartition(id="processes", profile=None, placement=None, in_use=True)
    survey = CardSurvey(card_uuid=CARD.uuid, partitions=(use,))
    started = record("training", device("gpu-0", start=None, size=None))
    handed_out = record("training", replace(started.devices[0], handle={}))
    assert find_foreign(survey, [handed_out], BOOT, LATER) == ()
    assert find_foreign(survey, [started], BOOT, LATER) == (use,)
    watching = record("monitor", replace(handed_out.devices[0], admin_access=True))
    assert find_foreign(survey, [watching], BOOT, LATER) == (use,), "admin access has nothing of the card"
    assert find_foreign(survey, [of_ours(2, 2)], BOOT, LATER) == (use,)


def test_a_process_in_a_part_of_a_device_is_that_of_the_claim_that_has_the_device() -> None:
    """Each slot of an FPGA is used by itself, whatever device it belongs to."""
    use = FoundPartition(id="port-1", profile=None, placement=Placement(1, 1), in_use=True)
    survey = CardSurvey(card_uuid=CARD.uuid, partitions=(use,))
    for start, size, foreign in ((0, 2, ()), (1, 1, ()), (None, None, ()), (2, 2, (use,))):
        held = record("training", replace(device("slots", start=start, size=size, profile=None), handle={}))
        assert find_foreign(survey, [held], BOOT, LATER) == foreign, (start, size)


def test_another_partition_at_the_place_of_a_claims_is_not_what_the_claim_has() -> None:
    """A card was reset and somebody has cut it again as it was: the record has a UUID that no longer exists."""
    ours = of_ours(2, 2)
    [held] = ours.devices
    tracker = surveyed(found(2, 2, id_="gi-1"), records=(ours,))
    again = CardSurvey(card_uuid=CARD.uuid, partitions=(found(2, 2, id_="gi-7"),))
    for _ in range(2):
        tracker.update(CARD, again, [ours], BOOT, LATER)
        assert tracker.is_missing(ours.claim.uid, held)
    anew = replace(ours, devices=(replace(held, handle={"gi": 7}),))
    tracker.update(CARD, again, [anew], BOOT, LATER)
    assert not tracker.is_missing(ours.claim.uid, held), "it was prepared anew, with what is there"


def test_what_a_prepared_claim_has_and_the_card_does_not_is_missing_until_it_is_there_again() -> None:
    """A card was reset without a reboot: every partition of ours is gone."""
    ours = of_ours(2, 2)
    [held] = ours.devices
    tracker = surveyed(found(2, 2), records=(ours,))
    assert not tracker.is_missing(ours.claim.uid, held)
    assert tracker.update(CARD, CardSurvey(card_uuid=CARD.uuid), [ours], BOOT, LATER)
    assert tracker.is_missing(ours.claim.uid, held)
    assert "has lost" in tracker.describe(CARD)["PartitionGone"]
    health = HEALTH.build_reports([ours], is_missing=tracker.is_missing)
    assert [(each.health, "it is gone" in each.message) for each in health] == [(Health.UNHEALTHY, True)]
    assert not surveyed(records=(of_ours(2, 2, boot_id="boot-0"),)).describe(CARD), "of an earlier boot"
    for state in (ClaimState.STARTED, ClaimState.RELEASING):
        assert not surveyed(records=(replace(ours, state=state),)).describe(CARD), "nobody knows what it has"
    assert not surveyed(records=(record("x", device("gpu-0", start=None, size=None)),)).describe(CARD)
    assert tracker.update(CARD, CardSurvey(card_uuid=CARD.uuid, partitions=(found(2, 2),)), [ours], BOOT, LATER)
    assert not tracker.is_missing(ours.claim.uid, held)


def test_a_whole_card_that_a_claim_has_is_missing_while_the_card_is_cut() -> None:
    whole = record("training", replace(device("gpu-0", start=None, size=None, profile=None), handle={}))
    [held] = whole.devices
    use = FoundPartition(id="processes", profile=None, placement=None, in_use=True)
    for partitions, is_missing in (((), False), ((use,), False), ((found(2, 2),), True), ((use, found(2, 2)), True)):
        tracker = surveyed(*partitions, records=(whole,))
        assert tracker.is_missing(whole.claim.uid, held) is is_missing
    slots = record("training", replace(device("slots", start=0, size=2, profile=None), handle={}))
    assert not surveyed(records=(slots,)).is_missing(slots.claim.uid, slots.devices[0])


def test_a_foreign_partition_is_named_and_ends_with_itself() -> None:
    tracker = surveyed(found(0, 2))
    assert held_names(tracker) == {
        ("1g.1gb", Placement(0, 1)),
        ("1g.1gb", Placement(1, 1)),
        ("2g.2gb", Placement(0, 2)),
        ("4g.4gb", Placement(0, 4)),
        (None, None),
    }
    assert tracker.find_held(PARTITIONS[0]) == "in use outside of Kerf: 2g.2gb at 0"
    (taint,) = tracker.build_taints(PARTITIONS[0])
    assert (taint.key, taint.value, taint.effect) == (f"{DRIVER}/held", "2g.2gb-at-0", "NoSchedule")
    assert not tracker.update(
        CARD, CardSurvey(card_uuid=CARD.uuid, partitions=(found(0, 2, id_="gi-9"),)), (), BOOT, LATER
    )
    assert tracker.update(CARD, CardSurvey(card_uuid=CARD.uuid), (), BOOT, LATER)
    assert held_names(tracker) == set()
    assert not tracker.has_held


def test_a_use_of_the_whole_card_holds_every_device() -> None:
    tracker = surveyed(found(None, profile=None, id_="process 4711"))
    assert all(tracker.find_held(part) for part in PARTITIONS)
    assert tracker.find_held(PARTITIONS[0]) == "in use outside of Kerf: process 4711 (whole card)"
    assert tracker.find_held(Partition(kind=CARD.kind, card_uuid="GPU-1")) is None


def test_slots_that_processes_use_are_held_with_every_function_for_them() -> None:
    card = fpga(0)
    tracker = surveyed(found(1, profile=None, id_="slot-1"), card=card)
    held = {part for spec in get_unit_map(card).specs if tracker.find_held(part := spec.of(card.uuid))}
    assert {part.placement for part in held} == {Placement(1, 1), Placement(0, 2), None}
    assert {part.function for part in held} == {None, "aes"}


def test_impossible_modes_keep_the_whole_card_or_its_partitions() -> None:
    tracker = SurveyTracker(driver=DRIVER)
    tracker.update(CARD, CardSurvey(card_uuid=CARD.uuid, no_partitions="MIG is off and needs a reset"), (), BOOT, LATER)
    whole, first = PARTITIONS[-1], PARTITIONS[0]
    assert (tracker.find_held(whole), tracker.find_held(first)) == (None, "MIG is off and needs a reset")
    assert [taint.value for taint in tracker.build_taints(first)] == ["mode"]
    tracker.update(CARD, CardSurvey(card_uuid=CARD.uuid, no_whole="MIG cannot be left"), (), BOOT, LATER)
    assert (tracker.find_held(whole), tracker.find_held(first)) == ("MIG cannot be left", None)
    assert tracker.describe(CARD) == {
        "CardModeUnavailable": "card gpu-0 (GPU-0) is not available whole: MIG cannot be left"
    }


def test_a_reason_why_a_card_cannot_be_had_at_all_is_said_once() -> None:
    tracker = SurveyTracker(driver=DRIVER)
    no_hook = CardSurvey(card_uuid=CARD.uuid, no_whole="there is no hook", no_partitions="there is no hook")
    tracker.update(CARD, no_hook, (), BOOT, LATER)
    assert tracker.describe(CARD) == {
        "CardModeUnavailable": "card gpu-0 (GPU-0) is not available whole or in partitions: there is no hook"
    }


def test_a_card_of_which_nothing_is_known_is_in_quarantine_and_one_failure_is_none() -> None:
    tracker = SurveyTracker(driver=DRIVER)
    assert tracker.fail(CARD.uuid, "driver not loaded", is_doubtful=False)
    assert not tracker.fail(CARD.uuid, "driver not loaded", is_doubtful=False)
    assert [taint.key for taint in tracker.build_taints(PARTITIONS[0])] == [f"{DRIVER}/quarantined"]
    assert tracker.update(CARD, CardSurvey(card_uuid=CARD.uuid), (), BOOT, LATER)
    assert not tracker.fail(CARD.uuid, "driver not loaded", is_doubtful=False)
    assert tracker.build_taints(PARTITIONS[0]) == ()
    assert tracker.fail(CARD.uuid, "survey has not returned", is_doubtful=True)
    assert tracker.describe(CARD) == {"CardInQuarantine": "card gpu-0 (GPU-0) gets no claims: survey has not returned"}
    assert tracker.keep_only(())
    assert not tracker.quarantine


def test_another_card_at_one_pci_address_is_reported() -> None:
    (replacement,) = find_replacements(
        [gpu(0), gpu(1)], [gpu(0), dataclasses.replace(gpu(2), pci_bus_id="0000:01:00.0")]
    )
    assert (replacement.old_uuid, replacement.new_uuid) == ("GPU-1", "GPU-2")
    assert "the card at 0000:01:00.0 was GPU-1 and is GPU-2 now" in str(replacement)
    assert find_replacements([gpu(0)], [gpu(0), gpu(1)]) == ()


@st.composite
def layouts(draw: st.DrawFn) -> list[FoundPartition]:
    """Partitions that a card can have at the same time."""
    chosen: list[FoundPartition] = []
    for candidate in draw(st.permutations(FOUND)):
        mine = candidate.placement
        if mine is not None and not any(other.placement and mine.overlaps(other.placement) for other in chosen):
            chosen.append(candidate)
    return draw(st.lists(st.sampled_from(chosen), unique_by=lambda one: one.id))


@given(layouts(), st.data())
def test_a_device_is_held_exactly_when_it_overlaps_what_no_record_has(
    layout: list[FoundPartition], data: st.DataObject
) -> None:
    ours = data.draw(st.lists(st.sampled_from(layout), unique_by=lambda one: one.id)) if layout else []
    records = tuple(of_ours(one.placement.start, one.placement.size) for one in ours if one.placement)
    tracker = surveyed(*layout, records=records)
    foreign = [one for one in layout if one not in ours]
    held = [one.placement for one in foreign if one.placement]
    for part in PARTITIONS:
        overlaps = any(
            part.placement is None or one.placement.overlaps(part.placement) for one in foreign if one.placement
        )
        assert (tracker.find_held(part) is not None) is overlaps
        assert bool(tracker.build_taints(part)) is overlaps
        assert tracker.find_held(dataclasses.replace(part, shared=True)) == tracker.find_held(part)
    assert {part.placement for part in tracker.list_foreign()} == set(held)
    assert tracker.has_held is bool(foreign)


@given(st.text(max_size=80), st.integers(0, 3))
def test_taints_have_values_that_the_api_server_accepts(profile: str, start: int) -> None:
    tracker = surveyed(found(start, profile=profile or None, id_=profile or "x"))
    for part in PARTITIONS:
        for taint in tracker.build_taints(part):
            assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", taint.value)
