"""A claim that was deallocated and allocated otherwise, while it had a record of what it had before."""

from pathlib import Path

import pytest

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, CardSurvey, FoundPartition, HardwareBusyError
from kerf_dra.driver.kubeletplugin.claims.allocated_devices import DeviceInUseError
from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError
from kerf_dra.driver.partitions.records import from_card_part
from tests.fakes.claims import claim
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import CARDS, GRACE_S, PluginCore, plugin_core
from tests.kubeletplugin.records import BOOT, LATER

SLICE = "gpu-0-1g-1gb-at-0"
USED = (ClaimUse(claim=ObjectRef("default", "training"), pod=ObjectRef("default", "trainer")),)


async def look(core: PluginCore, at: float) -> None:
    """Have garbage collected at this time."""
    core.clock[0] = at
    await core.garbage_collector.collect(set(core.checkpoint.records))


async def test_a_claim_gets_its_new_devices_while_the_release_of_its_old_ones_waits(tmp_path: Path) -> None:
    """A claim that pods use in turn: its card has died, and the scheduler has allocated another one."""
    cluster = FakeCluster()
    async with plugin_core(tmp_path, cluster) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        away = CardAbsentError("card GPU-0 fell off the bus")
        core.backend.fail("unprepare", SLICE, away, away)
        await core.preparer.unprepare_claim(held)
        core.cluster.add(claim("training", "gpu-1"))
        await core.preparer.prepare_claim(held)
        assert set(core.backend.made) == {SLICE, "gpu-1"}
        core.backend.fail("unprepare", SLICE, away)
        core.state.note_surveyed("GPU-0")
        await core.garbage_collector.collect(core.state.suspects.take())
        assert set(core.backend.made) == {SLICE, "gpu-1"}, "still away"
    async with plugin_core(tmp_path, cluster) as core:
        core.state.note_surveyed("GPU-0")
        await core.garbage_collector.collect(core.state.suspects.take())
        assert set(core.backend.made) == {"gpu-1"}
        await core.preparer.unprepare_claim(held)
        assert (dict(core.checkpoint.records), core.backend.made) == ({}, {})


async def test_what_a_claim_had_before_it_was_allocated_otherwise_is_kept_for_a_minute(tmp_path: Path) -> None:
    """The kubelet was restarted and calls for claims of running pods again: one may have what the claim had before."""
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.uses.uses = USED
        core.cluster.add(claim("training", "gpu-1"))
        await core.preparer.prepare_claim(held)
        await core.garbage_collector.collect(core.state.suspects.take())
        await look(core, GRACE_S - 1)
        assert set(core.backend.made) == {SLICE, "gpu-1"}
        await look(core, GRACE_S)
        assert set(core.backend.made) == {"gpu-1"}
        assert set(core.checkpoint.records) == {held.uid}
        assert core.cluster.reported == []


@pytest.mark.parametrize("wanted", [("gpu-0",), (SLICE, "gpu-1")], ids=["the card of its part", "its part and more"])
async def test_a_claim_that_needs_some_of_what_it_had_before_gets_it_after_a_minute(
    wanted: tuple[str, ...], tmp_path: Path
) -> None:
    """The pod that waits for it is listed by the kubelet, too, which says nothing of what was before.

    With its part and more, the part counted as the claim's for good (schedule 91001).
    """
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.uses.uses = USED
        core.cluster.add(claim("training", *wanted))
        for at in (0, GRACE_S - 1):
            with pytest.raises(DeviceInUseError):
                await core.preparer.prepare_claim(held)
            core.garbage_collector.check_files()
            await look(core, at)
            assert set(core.backend.made) == {SLICE}
        await look(core, GRACE_S)
        await core.preparer.prepare_claim(held)
        assert set(core.backend.made) == {*wanted}
        assert core.cluster.reported == []


async def test_what_a_claim_had_before_is_kept_while_a_process_uses_it(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        partition = from_card_part(core.checkpoint.records[held.uid].devices[0].part)
        used = FoundPartition(id="gi-1", profile=partition.profile, placement=partition.placement, in_use=True)
        survey = CardSurvey(card_uuid="GPU-0", partitions=(used,))
        core.surveys.update(CARDS[0], survey, core.checkpoint.records.values(), BOOT, LATER)
        core.cluster.add(claim("training", "gpu-1"))
        await core.preparer.prepare_claim(held)
        await look(core, 0)
        await look(core, 2 * GRACE_S)
        assert set(core.backend.made) == {SLICE, "gpu-1"}
        assert [reason for _, _, reason, _ in core.cluster.reported] == ["ClaimOrphaned"]


async def test_what_a_claim_had_before_goes_when_the_kubelet_unprepares_the_claim(tmp_path: Path) -> None:
    """Then no pod uses the claim, whatever it had. A start before that offers it to no container."""
    cluster = FakeCluster()
    async with plugin_core(tmp_path, cluster) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.cluster.add(claim("training", "gpu-1"))
        await core.preparer.prepare_claim(held)
    async with plugin_core(tmp_path, cluster) as core:
        await core.preparer.restore_files()
        assert len(list((tmp_path / "cdi").iterdir())) == 1
        assert set(core.backend.made) == {SLICE, "gpu-1"}
        core.backend.fail("unprepare", SLICE, HardwareBusyError("busy"))
        with pytest.raises(DevicesFailedError, match="busy"):
            await core.preparer.unprepare_claim(held)
        await core.preparer.unprepare_claim(held)
        assert (dict(core.checkpoint.records), core.backend.made) == ({}, {})


async def test_what_was_prepared_early_for_a_claim_that_was_allocated_otherwise_goes_at_once(tmp_path: Path) -> None:
    """No pod was bound, so that no container has it."""
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_early(held)
        core.cluster.add(claim("training", "gpu-1"))
        await core.preparer.prepare_claim(held)
        assert set(core.backend.made) == {"gpu-1"}


async def test_an_answer_that_gave_a_claim_other_devices_by_mistake_takes_nothing_once_it_is_put_right(
    tmp_path: Path,
) -> None:
    """The kubelet was restarted and called for a claim whose pod runs, and the one answer to that was wrong."""
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.cluster.add(claim("training", "gpu-1"))
        await core.preparer.prepare_claim(held)
        core.cluster.add(claim("training", SLICE))
        for number in range(8):
            await look(core, number * GRACE_S)
        assert SLICE in core.backend.made


async def test_a_claim_that_has_its_earlier_devices_again_gets_them_as_they_are(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with plugin_core(tmp_path, cluster) as core:
        held = cluster.add(claim("training", SLICE))
        first = await core.preparer.prepare_claim(held)
        cluster.add(claim("training", "gpu-1"))
        await core.preparer.prepare_claim(held)
        cluster.add(claim("training", SLICE))
        with pytest.raises(DeviceInUseError):
            await core.preparer.prepare_claim(held)  # what it has now is set aside first
        assert await core.preparer.prepare_claim(held) == first
        assert set(core.backend.made) == {SLICE, "gpu-1"}
        await look(core, 0)
        await look(core, GRACE_S)
        assert set(core.backend.made) == {SLICE}
        assert [*core.checkpoint.records.values()] == [first]
        await core.preparer.unprepare_claim(held)
        assert (dict(core.checkpoint.records), core.backend.made) == ({}, {})
