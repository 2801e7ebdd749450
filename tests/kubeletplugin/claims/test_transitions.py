"""The rules of prepare and unprepare: what is found decides what is done, and every interruption is recoverable."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.names import ShareId
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.driver.kubeletplugin.claims.transitions import (
    ACQUIRE,
    PREPARE,
    UNPREPARE,
    RecordState,
    Step,
    classify_record,
    may_run,
)
from tests.kubeletplugin.records import BOOT, device, record

REQUEST = device().requests[0]
OTHER = [(REQUEST, device("gpu-1").share)]
SAME = [(REQUEST, device().share)]
TWO = record("training", device(), device("gpu-1"))


@pytest.mark.parametrize(
    ("held", "boot_id", "allocated", "expected"),
    [
        (None, BOOT, SAME, RecordState.ABSENT),
        (None, BOOT, None, RecordState.ABSENT),
        (record(state=ClaimState.STARTED), BOOT, SAME, RecordState.STARTED),
        (record(state=ClaimState.STARTED), BOOT, None, RecordState.STARTED),
        (record(state=ClaimState.RELEASING), BOOT, SAME, RecordState.STARTED),
        (record(state=ClaimState.RELEASING), BOOT, None, RecordState.STARTED),
        (record(), BOOT, SAME, RecordState.PREPARED),
        (record(), BOOT, None, RecordState.PREPARED),
        (record(), "boot-2", SAME, RecordState.STARTED),
        (record(boot_id=""), BOOT, None, RecordState.STARTED),
        (record(), BOOT, OTHER, RecordState.OUTDATED),
        (record(), BOOT, [*SAME, *OTHER], RecordState.OUTDATED),
        (record(state=ClaimState.STARTED), "boot-2", OTHER, RecordState.OUTDATED),
        (TWO, BOOT, [*SAME, *OTHER], RecordState.PREPARED),
        (TWO, BOOT, [*OTHER, *SAME], RecordState.PREPARED),
        (TWO, BOOT, [*SAME, ("another", OTHER[0][1])], RecordState.OUTDATED),
        (TWO, BOOT, [*SAME, *SAME], RecordState.OUTDATED),
    ],
)
def test_what_a_record_means(
    held: PreparedClaim | None, boot_id: str, allocated: Sequence[tuple[str, ShareId]] | None, expected: RecordState
) -> None:
    assert classify_record(held, boot_id, allocated) is expected


def test_every_finding_has_a_plan_for_prepare() -> None:
    assert set(PREPARE) == set(RecordState)


def test_every_finding_without_regard_to_an_allocation_has_a_plan_for_unprepare() -> None:
    assert set(UNPREPARE) == set(RecordState) - {RecordState.OUTDATED}


@pytest.mark.parametrize("steps", [*PREPARE.values(), *UNPREPARE.values()])
def test_hardware_is_never_touched_without_a_started_record(steps: tuple[Step, ...]) -> None:
    is_recorded = False
    for step in steps:
        if step in {Step.RECORD_STARTED, Step.RECORD_RELEASING}:
            is_recorded = True
        if step in {Step.RECORD_PREPARED, Step.DROP_RECORD}:
            is_recorded = False
        if step in {Step.PREPARE_HARDWARE, Step.RELEASE_HARDWARE}:
            assert is_recorded


@pytest.mark.parametrize("steps", [*PREPARE.values(), *UNPREPARE.values()])
def test_a_cdi_file_never_names_hardware_that_is_being_released(steps: tuple[Step, ...]) -> None:
    if Step.RELEASE_HARDWARE in steps:
        assert steps.index(Step.REMOVE_CDI) < steps.index(Step.RELEASE_HARDWARE)
    if Step.PREPARE_HARDWARE in steps:
        assert steps[-3:] == (Step.PREPARE_HARDWARE, Step.WRITE_CDI, Step.RECORD_PREPARED)


def test_a_new_claim_goes_through_the_steps_in_the_documented_order() -> None:
    assert PREPARE[RecordState.ABSENT] == ACQUIRE
    assert [str(step) for step in ACQUIRE] == [
        "record started",
        "prepare hardware",
        "write CDI file",
        "record prepared",
    ]


@pytest.mark.parametrize(
    ("state", "handles", "expected"),
    [
        (ClaimState.PREPARED, [{}, {}], True),
        (ClaimState.STARTED, [None, None], False),
        (ClaimState.STARTED, [None, {}], True),
        (ClaimState.RELEASING, [{}, {}], False),
    ],
)
def test_a_container_may_run_with_what_is_ready_also_while_the_rest_is_prepared_anew(
    state: ClaimState, handles: Sequence[JsonObject | None], expected: bool
) -> None:
    devices = [replace(device(f"gpu-{index}"), handle=handle) for index, handle in enumerate(handles)]
    held = replace(record("training", *devices), state=state)
    assert may_run(held, BOOT) is expected
    assert not may_run(held, "another boot")
    assert not may_run(replace(held, awaits_pod=True), BOOT)
