"""Garbage collection of claims: soon what was only begun, later what was prepared, never what is in use."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import DeviceTaint
from kerf_dra.api.model.names import ClaimRef, ObjectRef
from kerf_dra.api.model.prepared import ClaimState
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.kube.http.errors import UnexpectedAnswerError, UnreachableError
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    CardSurvey,
    FoundPartition,
    HardwareBusyError,
    HardwareHeldError,
)
from kerf_dra.driver.kubeletplugin.claims.allocated_devices import DeviceInUseError
from kerf_dra.driver.kubeletplugin.claims.garbage_collection import CollectionSchedule
from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError
from kerf_dra.driver.kubeletplugin.claims.steps import HELD_TRIES
from kerf_dra.driver.kubeletplugin.cluster.base import AbsenceUnprovenError
from kerf_dra.driver.partitions.records import from_card_part
from tests.fakes.claims import DRIVER, claim
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import CARDS, GRACE_S, SETTINGS, PluginCore, plugin_core
from tests.kubeletplugin.records import BOOT, LATER, device, record

SLICE = "gpu-0-1g-1gb-at-0"


class Wavering(FakeCluster):
    """A cluster that does not find claims for a while."""

    misses = 0

    async def read_claim(self, claim: ClaimRef, *, not_older_than: str | None = None) -> ResourceClaim | None:
        if self.misses:
            self.misses -= 1
            return None
        return await super().read_claim(claim, not_older_than=not_older_than)


async def look(core: PluginCore, at: float) -> list[str]:
    """Return what is still prepared after a collection at this time."""
    core.clock[0] = at
    await core.garbage_collector.collect(set(core.checkpoint.records))
    return sorted(record.claim.name for record in core.checkpoint.records.values())


async def test_a_prepared_claim_is_taken_back_when_it_was_gone_for_longer_than_the_kubelet_needs(
    tmp_path: Path,
) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        gone = core.cluster.add(claim("gone", SLICE))
        kept = core.cluster.add(claim("kept", "gpu-1"))
        for held in (gone, kept):
            await core.preparer.prepare_claim(held)
        core.cluster.remove(gone)
        assert await look(core, 0) == ["gone", "kept"]
        assert await look(core, GRACE_S - 1) == ["gone", "kept"]
        assert await look(core, GRACE_S) == ["kept"]
        assert set(core.backend.made) == {"gpu-1"}
        assert core.store.names() == [f"k8s.gpu.kerf.dev-claim_{kept.uid}"]


@pytest.mark.parametrize(
    "now",
    [
        claim("training"),
        claim("training", "gpu-1"),
        claim("training", SLICE, uid="another"),
        claim("training", SLICE, is_reserved=False),
    ],
    ids=["deallocated", "allocated otherwise", "made anew", "reserved for nobody"],
)
async def test_a_claim_that_no_longer_has_its_devices_is_as_good_as_gone(now: Any, tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        await core.preparer.prepare_claim(core.cluster.add(claim("training", SLICE)))
        core.cluster.add(now)
        await look(core, 0)
        assert await look(core, GRACE_S - 1) == ["training"]
        assert await look(core, GRACE_S) == []


async def test_a_claim_that_comes_back_is_left_alone_and_its_time_starts_anew(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.cluster.add(claim("training"))
        await look(core, 0)
        core.cluster.add(claim("training", SLICE))
        await look(core, 1)
        core.cluster.add(claim("training"))
        assert await look(core, GRACE_S) == ["training"]
        assert await look(core, 2 * GRACE_S) == []


async def test_a_claim_that_is_allocated_again_at_the_last_moment_keeps_its_devices(tmp_path: Path) -> None:
    """The look that found it gone may be old by the time its devices could be taken; so that looks again."""
    cluster = Wavering()
    async with plugin_core(tmp_path, cluster) as core:
        await core.preparer.prepare_claim(cluster.add(claim("training", SLICE)))
        cluster.misses = 2
        await look(core, 0)
        assert await look(core, GRACE_S) == ["training"]
        assert (cluster.misses, cluster.reads) == (0, 2)


async def test_what_was_only_begun_is_taken_back_at_once(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        core.backend.fail("prepare", SLICE, HardwareBusyError("busy"))
        core.backend.fail("abandon", SLICE, HardwareBusyError("busy"))
        with pytest.raises(DevicesFailedError, match="busy"):
            await core.preparer.prepare_claim(held)
        assert await look(core, 0) == ["training"], "its claim is there: the kubelet will try again"
        core.cluster.remove(held)
        assert await look(core, 1) == []


async def test_what_was_only_begun_and_is_prepared_by_its_turn_is_no_longer_taken_back_at_once(tmp_path: Path) -> None:
    """The claim was deleted while its prepare ran: the kubelet was answered, and 50 ms later its device was gone."""
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.cluster.remove(held)
        begun = replace(core.checkpoint.records[held.uid], state=ClaimState.STARTED)
        await core.preparer.release_if_gone(begun)
        assert await look(core, 0) == ["training"]
        assert await look(core, GRACE_S) == []


async def test_a_prepared_claim_of_an_earlier_boot_is_taken_back_at_once(tmp_path: Path) -> None:
    cluster = FakeCluster()
    held = cluster.add(claim("training", SLICE))
    async with plugin_core(tmp_path, cluster) as core:
        await core.preparer.prepare_claim(held)
    async with plugin_core(tmp_path, cluster, boot_id="boot-2") as core:
        assert await look(core, 0) == ["training"]
        cluster.remove(held)
        assert await look(core, 0) == []


async def test_one_claim_that_cannot_be_looked_at_or_taken_back_does_not_keep_others(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        stuck = core.cluster.add(claim("a-stuck", SLICE))
        gone = core.cluster.add(claim("gone", "gpu-1"))
        for held in (stuck, gone):
            await core.preparer.prepare_claim(held)
            core.cluster.remove(held)
        await look(core, 0)
        core.backend.fail("unprepare", SLICE, HardwareBusyError("in use by another client"))
        assert await look(core, GRACE_S) == ["a-stuck"]
        assert await look(core, GRACE_S + 1) == [], "and it is tried again"


async def test_a_claim_that_has_no_record_any_more_does_not_keep_others_from_being_checked(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        core.checkpoint.put(record("training", device(), state=ClaimState.STARTED))
        await core.garbage_collector.collect({"a-uid-that-is-gone", "uid-of-training"})
        assert not core.checkpoint.records


async def test_nothing_is_taken_back_while_the_api_server_is_silent(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.cluster.remove(held)
        core.cluster.is_down = True
        for at in (0, GRACE_S, 10 * GRACE_S):
            assert await look(core, at) == ["training"]
        with pytest.raises(TransientError):
            await core.preparer.release_if_gone(core.checkpoint.records[held.uid])


async def test_a_claim_that_the_kubelet_unprepared_meanwhile_is_no_longer_looked_at(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.cluster.remove(held)
        await look(core, 0)
        await core.preparer.unprepare_claim(held)
        reads = core.cluster.reads
        await core.garbage_collector.collect({held.uid})
        assert core.cluster.reads == reads


async def test_a_directory_that_cannot_be_read_is_told_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cdi").write_text("a file")
    async with plugin_core(tmp_path, FakeCluster()) as core:
        core.garbage_collector.check_files()
    assert "cannot check CDI files" in caplog.text


async def test_a_leftover_that_cannot_be_looked_at_is_told_and_hides_no_lost_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("WARNING")  # whatever a test before has set
    async with plugin_core(tmp_path, FakeCluster()) as core:
        await core.preparer.prepare_claim(core.cluster.add(claim("training", SLICE)))
        (file,) = (tmp_path / "cdi").iterdir()
        file.rename(file.with_name(f"{file.stem}-of-nobody.json"))
        leftover = file.with_name(f".{file.name}.0123456789abcdef.tmp")
        leftover.touch()
        look = Path.lstat

        def fail(path: Path) -> os.stat_result:
            if path == leftover:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return look(path)

        monkeypatch.setattr(Path, "lstat", fail)
        core.garbage_collector.check_files()
    told, lost = caplog.records
    assert told.levelname == "WARNING"
    assert f"{leftover}: could not be read: Input/output error" in told.getMessage()
    assert "-of-nobody is lost" in lost.getMessage()


async def test_a_claim_in_the_way_of_another_is_suspected(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        first = core.cluster.add(claim("first", SLICE))
        second = core.cluster.add(claim("second", "gpu-0"))
        await core.preparer.prepare_claim(first)
        with pytest.raises(DeviceInUseError):
            await core.preparer.prepare_claim(second)
        assert core.state.suspects.take() == {first.uid}


async def test_a_release_whose_card_is_away_succeeds_and_is_finished_once_the_card_is_surveyed(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        away = CardAbsentError("card GPU-0 fell off the bus")
        core.backend.fail("unprepare", SLICE, away, away)
        await core.preparer.unprepare_claim(held)
        record = core.checkpoint.get(held.uid)
        assert record is not None
        assert (record.state, core.store.names()) == (ClaimState.RELEASING, [])
        core.state.note_surveyed("GPU-1")
        assert core.state.suspects.take() == set(), "another card"
        for expected in (["training"], []):  # away once more, then there; its claim exists all the while
            core.state.note_surveyed("GPU-0")
            await core.garbage_collector.collect(core.state.suspects.take())
            assert [each.claim.name for each in core.checkpoint.records.values()] == expected
        assert core.backend.made == {}


async def test_a_claim_whose_device_a_process_keeps_ends_after_some_tries_and_is_released_when_it_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.backend.fail("unprepare", SLICE, *[HardwareHeldError("in use by process 4711")] * (HELD_TRIES + 2))
        for _ in range(HELD_TRIES - 1):
            with pytest.raises(DevicesFailedError, match="in use by process 4711"):
                await core.preparer.unprepare_claim(held)
        await core.preparer.unprepare_claim(held)
        assert caplog.text.count("unprepared, but the release waits for a process to end: ") == 1
        for expected in (["training"], ["training"], []):
            core.state.note_surveyed("GPU-0")
            await core.garbage_collector.collect(core.state.suspects.take())
            assert [each.claim.name for each in core.checkpoint.records.values()] == expected
        assert caplog.text.count("unprepared, but ") == 1, "told once"
        assert core.backend.made == {}


@pytest.mark.parametrize("refused", [HELD_TRIES - 1, HELD_TRIES], ids=["released in the last try", "kept"])
async def test_a_claim_that_is_prepared_again_after_some_tries_is_tried_as_often(tmp_path: Path, refused: int) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        for _ in range(2):
            await core.preparer.prepare_claim(held)
            core.backend.fail("unprepare", SLICE, *[HardwareHeldError("in use by process 4711")] * refused)
            for _ in range(HELD_TRIES - 1):
                with pytest.raises(DevicesFailedError, match="in use by process 4711"):
                    await core.preparer.unprepare_claim(held)
            await core.preparer.unprepare_claim(held)
            assert bool(core.state.deferred) == (refused == HELD_TRIES)


async def test_hardware_that_is_busy_for_another_reason_is_not_given_up(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.backend.fail("unprepare", SLICE, *[HardwareBusyError("no answer")] * (HELD_TRIES + 1))
        for _ in range(HELD_TRIES + 1):
            with pytest.raises(DevicesFailedError, match="no answer"):
                await core.preparer.unprepare_claim(held)


async def test_a_claim_that_is_prepared_again_while_its_release_waits_keeps_its_devices(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.backend.fail("unprepare", SLICE, CardAbsentError("card GPU-0 fell off the bus"))
        await core.preparer.unprepare_claim(held)
        await core.preparer.prepare_claim(held)
        core.state.note_surveyed("GPU-0")
        await core.garbage_collector.collect(core.state.suspects.take())
        assert [each.state for each in core.checkpoint.records.values()] == [ClaimState.PREPARED]


async def test_a_release_that_waits_for_one_card_keeps_no_other_from_claims(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("both", SLICE, "gpu-1"))
        await core.preparer.prepare_claim(held)
        core.backend.fail("unprepare", SLICE, CardAbsentError("card GPU-0 fell off the bus"))
        await core.preparer.unprepare_claim(held)
        assert set(core.backend.made) == {SLICE}
        await core.preparer.prepare_claim(core.cluster.add(claim("next", "gpu-1")))
        core.state.note_surveyed("GPU-0")
        await core.garbage_collector.collect(core.state.suspects.take())
        assert set(core.backend.made) == {"gpu-1"}
        assert [each.claim.name for each in core.checkpoint.records.values()] == ["next"]
        assert core.state.deferred == set(), "it waits for nothing any more"


async def test_what_an_earlier_boot_made_needs_no_card_to_be_released(tmp_path: Path) -> None:
    cluster = FakeCluster()
    held = cluster.add(claim("training", SLICE))
    async with plugin_core(tmp_path, cluster) as core:
        await core.preparer.prepare_claim(held)
    async with plugin_core(tmp_path, cluster, boot_id="boot-2") as core:
        for operation in ("unprepare", "abandon"):
            core.backend.fail(operation, SLICE, CardAbsentError("there is no card GPU-0"))
        await core.preparer.unprepare_claim(held)
        assert dict(core.checkpoint.records) == {}


async def test_files_of_prepared_claims_are_written_anew_and_one_failure_keeps_no_other_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        first, second = (core.cluster.add(claim(name, device)) for name, device in (("a", SLICE), ("b", "gpu-1")))
        for held in (first, second):
            await core.preparer.prepare_claim(held)
        names = core.store.names()
        texts = [core.store.path(name).read_text() for name in names]
        for name in names:
            core.store.path(name).unlink()
        handle = next(iter(core.checkpoint.records.values())).devices[0].handle
        assert handle is not None
        refused = handle.copy()
        handle.clear()
        await core.preparer.restore_files()
        assert core.store.names() == names[1:]
        assert "claim default/a: its files cannot be written again" in caplog.text
        handle.update(refused)
        await core.preparer.restore_files()
        assert [core.store.path(name).read_text() for name in names] == texts


@pytest.mark.parametrize(
    "error",
    [
        UnexpectedAnswerError("GET claim", "no answer that ResourceClaim default/training does not exist: 404"),
        UnreachableError("GET claim", "connection refused"),
    ],
    ids=["another 404", "no answer"],
)
async def test_what_is_no_proof_of_absence_takes_nothing_back(
    error: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")  # whatever a test before has set
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.cluster.errors["training"] = error
        for at in range(0, 1000, 15):
            assert await look(core, at) == ["training"]
        assert len(caplog.messages) == 1, "it is told once"
        assert "default/training is left as it is until more is known" in caplog.text
        with pytest.raises(type(error)):
            await core.preparer.prepare_claim(held)
        assert (set(core.backend.made), len(core.store.names())) == ({SLICE}, 1)
        await core.preparer.unprepare_claim(held)
        assert core.backend.made == {}, "the kubelet needs no API server to unprepare"


async def test_what_is_not_known_of_a_claim_is_told_again_when_it_was_unprepared_meanwhile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")  # whatever a test before has set
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        for times in (1, 2):
            await core.preparer.prepare_claim(held)
            core.cluster.errors["training"] = UnreachableError("GET claim", "connection refused")
            for _ in range(2):
                assert await look(core, 0) == ["training"]
            assert caplog.text.count("default/training is left as it is until more is known") == times
            await core.preparer.unprepare_claim(held)
            assert await look(core, 0) == []
            core.cluster.errors.clear()


async def test_a_claim_that_a_list_shows_is_not_absent(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.cluster.remove(held)
        core.cluster.doubts[held.uid] = AbsenceUnprovenError("the API server lists it")
        await look(core, 0)
        assert await look(core, GRACE_S) == ["training"]
        core.cluster.doubts.clear()
        assert await look(core, 2 * GRACE_S) == []


async def test_what_was_only_begun_needs_the_same_proof(tmp_path: Path) -> None:
    cluster = FakeCluster()
    held = cluster.add(claim("training", SLICE))
    async with plugin_core(tmp_path, cluster) as core:
        core.checkpoint.put(record("training", state=ClaimState.STARTED))
        cluster.remove(held)
        cluster.doubts[held.uid] = AbsenceUnprovenError("the API server lists it")
        assert await look(core, 0) == ["training"]
        cluster.doubts.clear()
        assert await look(core, 0) == []


POD = ObjectRef("default", "trainer")


@pytest.mark.parametrize("user", ["pod", "process"])
@pytest.mark.parametrize("now", [None, claim("training", "gpu-1")], ids=["absent", "allocated otherwise"])
async def test_a_claim_that_is_in_use_here_keeps_its_devices_whatever_the_api_server_says(
    user: str, now: ResourceClaim | None, tmp_path: Path
) -> None:
    """The API server was restored from a backup that is older than the claim: its proof is perfect, and wrong."""
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.cluster.remove(held)
        if now is not None:
            core.cluster.add(now)
        if user == "pod":
            core.uses.uses = (ClaimUse(claim=ObjectRef("default", "training"), pod=POD),)
        else:
            survey(core, in_use=True)
        for at in (0, GRACE_S, 10 * GRACE_S):
            assert await look(core, at) == ["training"]
        assert (set(core.backend.made), len(core.store.names())) == ({SLICE}, 1)
        [(kind, _, reason, message)] = core.cluster.reported
        assert (kind, reason) == ("Node", "ClaimOrphaned")
        assert ("the kubelet runs pod default/trainer" if user == "pod" else f"a process uses {SLICE}") in message
        taint = DeviceTaint(key=f"{DRIVER}/orphaned", effect="NoSchedule")
        taints = {
            name: core.orphaned.build_taints(from_card_part(device(name, start=start, size=size).part))
            for name, start, size in ((SLICE, 0, 1), ("gpu-0", None, None), ("gpu-0-1g-1gb-at-1", 1, 1))
        }
        assert taints == {SLICE: (taint,), "gpu-0": (taint,), "gpu-0-1g-1gb-at-1": ()}
        core.uses.uses = ()
        survey(core, in_use=False)
        assert await look(core, 11 * GRACE_S) == []
        assert core.orphaned.build_taints(from_card_part(device().part)) == ()


async def test_a_claim_that_is_there_again_is_no_orphan(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.cluster.remove(held)
        survey(core, in_use=True)
        await look(core, 0)
        await look(core, GRACE_S)
        assert set(core.orphaned.claim_uids) == {held.uid}
        assert core.state.noted["orphans"] == 1, "its devices are tainted at once"
        core.cluster.add(claim("training", SLICE))
        assert await look(core, GRACE_S + 1) == ["training"]
        assert set(core.orphaned.claim_uids) == set()
        assert core.state.noted["orphans"] == 2, "and no longer, at once"


async def test_a_claim_without_a_reservation_that_a_pod_still_uses_waits_for_the_kubelet(tmp_path: Path) -> None:
    """A pod that was deleted by force while its kubelet was away; the claim is known, so nobody has to be told."""
    async with plugin_core(tmp_path, FakeCluster()) as core:
        await core.preparer.prepare_claim(core.cluster.add(claim("training", SLICE)))
        core.cluster.add(claim("training", SLICE, is_reserved=False))
        core.uses.uses = (ClaimUse(claim=ObjectRef("default", "training"), pod=POD),)
        await look(core, 0)
        assert await look(core, GRACE_S) == ["training"]
        assert core.cluster.reported == []
        core.uses.uses = ()
        assert await look(core, GRACE_S + 15) == []


async def test_a_claim_of_the_same_name_that_pods_use_does_not_keep_its_predecessor(tmp_path: Path) -> None:
    """The kubelet has forgotten the first claim, and names claims without UIDs."""
    async with plugin_core(tmp_path, FakeCluster()) as core:
        first = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(first)
        second = core.cluster.add(claim("training", "gpu-1", uid="second"))
        await core.preparer.prepare_claim(second)
        core.uses.uses = (ClaimUse(claim=ObjectRef("default", "training"), pod=POD),)
        for uid in (first.uid, "second"):
            user = await core.garbage_collector._users.find_user(core.checkpoint.records[uid])
            assert (user is None) == (uid == first.uid)
        assert await core.garbage_collector._list_used() == {"second"}, "the first is looked up each minute"
        await look(core, 0)
        await look(core, GRACE_S)
        assert set(core.checkpoint.records) == {"second"}
        assert core.cluster.reported == []


async def test_a_claim_that_loses_its_reservation_and_then_goes_must_be_gone_for_a_minute(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.cluster.add(claim("training", SLICE, is_reserved=False))
        await look(core, 0)
        core.cluster.remove(held)
        assert await look(core, GRACE_S) == ["training"]
        assert await look(core, 2 * GRACE_S) == []


async def test_what_the_kubelet_said_last_counts_while_it_is_silent(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.uses.uses = (ClaimUse(claim=ObjectRef("default", "training"), pod=POD),)
        assert await core.garbage_collector._list_used() == {held.uid}
        core.uses.is_silent = True
        assert await core.garbage_collector._list_used() == {held.uid}


async def test_while_the_kubelet_is_silent_nothing_is_taken_from_what_may_be_a_running_pod(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        core.cluster.remove(held)
        core.uses.is_silent = True
        await look(core, 0)
        assert await look(core, 10 * GRACE_S) == ["training"]
        core.uses.is_silent = False
        assert await look(core, 11 * GRACE_S) == []


def survey(core: PluginCore, *, in_use: bool) -> None:
    part = from_card_part(core.checkpoint.records["uid-of-training"].devices[0].part)
    found = FoundPartition(id="gi-1", profile=part.profile, placement=part.placement, in_use=in_use)
    core.surveys.update(
        CARDS[0], CardSurvey(card_uuid="GPU-0", partitions=(found,)), core.checkpoint.records.values(), BOOT, LATER
    )


def test_claims_are_looked_up_soon_after_the_kubelet_no_longer_lists_them() -> None:
    schedule = CollectionSchedule(600, 60)
    assert schedule.find_due(0, {"a", "b"}, ()) == {"a", "b"}, "all at the start"
    assert schedule.find_due(15, {"a", "b", "new"}, {"a"}) == set()
    assert schedule.find_due(60, {"a", "b", "new"}, {"a"}) == {"b"}, "not listed: each minute"
    assert schedule.find_due(75, {"a", "b", "new"}, {"a"}) == {"new"}, "a minute after it came"
    assert schedule.find_due(80, {"a", "b", "new"}, ()) == {"a"}, "its pod has ended"
    assert schedule.find_due(81, {"a"}, ()) == set()
    assert schedule.find_due(600, {"a"}, {"a"}) == set()
    assert schedule.find_due(680, {"a"}, {"a"}) == {"a"}, "listed: every ten minutes"
    assert schedule.find_due(690, {"a", "b"}, {"a"}) == set(), "a claim of this name is new now"


async def test_a_claim_that_the_kubelet_forgot_is_taken_back_within_a_minute_of_its_end(tmp_path: Path) -> None:
    """kubernetes/kubernetes#140527: the pod has ended, and nobody unprepares its claim."""
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(held)
        use = (ClaimUse(claim=ObjectRef("default", "training"), pod=POD),)
        schedule = CollectionSchedule(SETTINGS.collect_interval_s, SETTINGS.collect_unused_interval_s)
        ended_at, at = 1000.0, 0.0
        while core.backend.made:
            core.uses.uses = use if at < ended_at else ()
            if at >= ended_at:
                core.cluster.add(claim("training", SLICE, is_reserved=False))
            core.clock[0] = at
            due = schedule.find_due(at, set(core.checkpoint.records), await core.garbage_collector._list_used())
            await core.garbage_collector.collect(due | core.garbage_collector._proofs.keys())
            at += SETTINGS.usage_interval_s
        assert at - ended_at <= 60 + 2 * SETTINGS.usage_interval_s
