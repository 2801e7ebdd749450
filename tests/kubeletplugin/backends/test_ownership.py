"""What is ours on a card: what is exactly in our place and was not there before, and nothing else."""

from typing import Any

import pytest

from kerf_dra.driver.kubeletplugin.backends.base import (
    CardSurvey,
    FoundPartition,
    HardwareBusyError,
    HardwareConflictError,
)
from kerf_dra.driver.kubeletplugin.backends.ownership import BEFORE, check_free, find_ours, list_before
from kerf_dra.driver.partitions.geometry import Partition, Placement

GPU = "gpu"
WANTED = Partition(kind=GPU, card_uuid="GPU-0", profile="2g.20gb", placement=Placement(2, 2))
SLOTS = Partition(kind="fpga", card_uuid="GPU-0", placement=Placement(2, 2))
WHOLE = Partition(kind=GPU, card_uuid="GPU-0")
EXACT = FoundPartition(id="gi-3", profile="2g.20gb", placement=Placement(2, 2))
NEIGHBOR = FoundPartition(id="gi-9", profile="1g.10gb", placement=Placement(1, 1))
NOTED: dict[str, Any] = {BEFORE: ["gi-9"]}


def survey(*partitions: FoundPartition, **modes: str) -> CardSurvey:
    return CardSurvey(card_uuid="GPU-0", partitions=partitions, **modes)


def found(partition: FoundPartition, **changes: Any) -> FoundPartition:
    known = {name: getattr(partition, name) for name in ("id", "profile", "placement", "uuid", "in_use")}
    return FoundPartition(**{**known, **changes})


@pytest.mark.parametrize(
    ("there", "own", "others", "is_ours"),
    [
        (EXACT, NOTED, [], True),
        (EXACT, {BEFORE: []}, [], True),
        (EXACT, {}, [], False),
        (EXACT, {BEFORE: ["gi-3"]}, [], False),
        (EXACT, {"instance": 3}, [], False),
        (EXACT, {}, [NOTED], True),
        (EXACT, {}, [{BEFORE: ["gi-3"]}], False),
        (EXACT, {}, [{}, NOTED], True),
        (found(EXACT, in_use=True), NOTED, [], True),
        (found(EXACT, profile="2g.20gb+me"), NOTED, [], False),
        (found(EXACT, placement=Placement(2, 1)), NOTED, [], False),
        (found(EXACT, placement=None), NOTED, [], False),
    ],
)
def test_a_partition_is_ours_if_it_is_exactly_in_place_and_came_after_a_note(
    there: FoundPartition, own: dict[str, Any], others: list[dict[str, Any]], is_ours: bool
) -> None:
    assert find_ours(WANTED, survey(NEIGHBOR, there), own, others) == (there if is_ours else None)


STATIC = FoundPartition(id="gi-3", profile="2g.20gb", placement=Placement(2, 2), is_static=True)
USED = FoundPartition(id="gi-3", profile="2g.20gb", placement=Placement(2, 2), is_static=True, in_use=True)


@pytest.mark.parametrize(
    ("there", "own", "others", "is_ours"),
    [
        (STATIC, {}, [], True),
        (STATIC, {BEFORE: ["gi-3"]}, [], True),
        (USED, {}, [], False),
        (USED, NOTED, [], False),
        (USED, {}, [{}], False),
        (USED, {}, [{BEFORE: ["gi-3"]}], True),
    ],
)
def test_a_static_partition_is_every_claims_unless_a_process_uses_it_that_is_of_no_share(
    there: FoundPartition, own: dict[str, Any], others: list[dict[str, Any]], is_ours: bool
) -> None:
    assert find_ours(WANTED, survey(NEIGHBOR, there), own, others) == (there if is_ours else None)


def test_a_static_partition_is_noted_and_can_be_had_though_none_can_be_made() -> None:
    static = survey(NEIGHBOR, STATIC, no_whole="static", no_partitions="static")
    assert [*list_before(static, STATIC)] == ["gi-9", "gi-3"]
    assert (static.find_restriction(WANTED), static.find_restriction(WHOLE)) == ("", "static")
    assert survey(STATIC, no_static="no hook").find_restriction(WANTED) == "no hook"
    check_free(WANTED, static, STATIC)
    with pytest.raises(HardwareBusyError):
        check_free(Partition(kind=GPU, card_uuid="GPU-0", profile="1g.10gb", placement=Placement(7, 1)), static, None)


@pytest.mark.parametrize("wanted", [SLOTS, WHOLE])
def test_a_use_by_a_process_is_never_what_a_prepare_left(wanted: Partition) -> None:
    process = FoundPartition(id="processes", profile=None, placement=wanted.placement, in_use=True)
    assert find_ours(wanted, survey(process), NOTED, []) is None
    assert find_ours(wanted, survey(process), NOTED, [NOTED]) == process, "but of those who share the device"
    idle = found(process, in_use=False)
    assert find_ours(wanted, survey(idle), NOTED, []) == idle, "an object of a kind without profiles"


def test_what_others_have_in_the_place_is_named() -> None:
    check_free(WANTED, survey(NEIGHBOR, EXACT), EXACT)
    for there, name in (
        (EXACT, "2g.20gb at 2"),
        (found(NEIGHBOR, placement=Placement(3, 1)), "1g.10gb at 3"),
        (FoundPartition(id="processes", profile=None, placement=None, in_use=True), r"processes \(whole card\)"),
    ):
        with pytest.raises(HardwareConflictError, match=f"^in use outside of Kerf: {name}$"):
            check_free(WANTED, survey(there), None)


def test_anything_on_the_card_keeps_it_from_being_had_whole() -> None:
    check_free(WHOLE, survey(), None)
    with pytest.raises(HardwareConflictError, match=r"1g\.10gb at 1"):
        check_free(WHOLE, survey(NEIGHBOR), None)


def test_modes_keep_a_partition_from_being_made_but_not_from_being_finished() -> None:
    check_free(WANTED, survey(EXACT, no_partitions="MIG mode is off"), EXACT)
    check_free(WANTED, survey(no_whole="MIG mode is on"), None)
    with pytest.raises(HardwareBusyError, match="is not available in partitions now: MIG mode is off"):
        check_free(WANTED, survey(no_partitions="MIG mode is off"), None)
    with pytest.raises(HardwareBusyError, match="is not available whole now: MIG mode is on"):
        check_free(WHOLE, survey(no_whole="MIG mode is on"), None)


def test_what_is_ours_is_not_noted_as_having_been_there() -> None:
    assert list_before(survey(NEIGHBOR, EXACT), None) == ["gi-9", "gi-3"]
    assert list_before(survey(NEIGHBOR, EXACT), EXACT) == ["gi-9"]
