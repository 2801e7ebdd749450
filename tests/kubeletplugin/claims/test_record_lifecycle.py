"""What a prepare finds of a record before it changes anything, and that a plugin which stops begins no more work."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kerf_dra.api.model.names import ClaimRef, ShareId
from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey
from kerf_dra.driver.kubeletplugin.claims.allocated_devices import select_results
from kerf_dra.driver.kubeletplugin.claims.record_lifecycle import StoppingError
from kerf_dra.driver.kubeletplugin.claims.transitions import RecordState
from tests.fakes.claims import DRIVER, claim
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import CARDS, PluginCore, plugin_core
from tests.kubeletplugin.records import BOOT, LATER

SLICE, OTHER, THIRD = "gpu-0-1g-1gb-at-0", "gpu-1", "gpu-0-1g-1gb-at-1"


def allocated(*devices: str) -> list[tuple[str, ShareId]]:
    """The devices of a claim as it is read, each with its request."""
    results = select_results(claim("training", *devices), DRIVER)
    return [(result.request_name.request, result.share) for result in results]


async def prepared(core: PluginCore) -> ClaimRef:
    """A claim with two devices on two cards, beside another one with a third device."""
    for name, devices in (("training", (SLICE, OTHER)), ("beside", (THIRD,))):
        await core.preparer.prepare_claim(core.cluster.add(claim(name, *devices)))
    return core.checkpoint.records["uid-of-training"].claim


@pytest.mark.parametrize(
    ("devices", "lost_card", "state", "ready"),
    [
        ((SLICE, OTHER), None, RecordState.PREPARED, [SLICE, OTHER]),
        ((OTHER, SLICE), None, RecordState.PREPARED, [SLICE, OTHER]),
        ((SLICE, OTHER), 0, RecordState.STARTED, [OTHER]),
        ((SLICE,), None, RecordState.OUTDATED, []),
        ((SLICE, "gpu-1-1g-1gb-at-0"), 0, RecordState.OUTDATED, []),
    ],
    ids=["there", "in another order", "one is gone", "fewer devices", "other devices"],
)
async def test_a_prepare_asks_the_cards_before_the_record_is_the_answer(
    tmp_path: Path, devices: Sequence[str], lost_card: int | None, state: RecordState, ready: Sequence[str]
) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        ref = await prepared(core)
        if lost_card is not None:
            card = CARDS[lost_card]
            core.surveys.update(card, CardSurvey(card_uuid=card.uuid), core.checkpoint.records.values(), BOOT, LATER)
        found = await core.lifecycle.begin_prepare(ref, allocated(*devices))
        assert (found.state, [device.share.id.device for device in found.ready]) == (state, ready)
        assert found.makes_devices == (state is not RecordState.PREPARED)


async def test_a_record_without_devices_that_are_asked_for_is_judged_by_its_state_alone(tmp_path: Path) -> None:
    """As that of an extended resource, whose device follows from its ID."""
    async with plugin_core(tmp_path, FakeCluster()) as core:
        ref = await prepared(core)
        assert (await core.lifecycle.begin_prepare(ref)).state is RecordState.PREPARED
        unknown = ClaimRef("", "example.com/gpu/a", "resource-a")
        found = await core.lifecycle.begin_prepare(unknown, resource="example.com/gpu")
        assert (found.state, found.context.record, found.context.resource) == (
            RecordState.ABSENT,
            None,
            "example.com/gpu",
        )


async def test_a_plugin_that_stops_begins_no_work_on_records(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        ref = await prepared(core)
        await core.lifecycle.drain(0)
        with pytest.raises(StoppingError, match="its successor"):
            await core.preparer.prepare_claim(ref)
        with pytest.raises(StoppingError, match="its successor"):
            await core.preparer.unprepare_claim(ref)
