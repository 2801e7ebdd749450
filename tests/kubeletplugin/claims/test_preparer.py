"""What becomes of a claim of which one device fails and another does not, and what is measured of a call."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.prepared import ClaimState
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, HardwareBusyError
from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError
from kerf_dra.driver.kubeletplugin.claims.steps import CdiFileError
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.fakes.claims import DRIVER, claim
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import plugin_core

SLICE = "gpu-0-1g-1gb-at-0"
OTHER = "gpu-1"


async def test_what_was_ready_is_kept_when_the_rest_of_its_claim_cannot_be_made_again(tmp_path: Path) -> None:
    """A container may run with it."""
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE, "gpu-0-1g-1gb-at-1", OTHER))
        prepared = await core.preparer.prepare_claim(held)
        ready, *gone = prepared.devices
        for device in gone:
            core.backend.remove_by_hand(core.backend.made[device.share.id.device].serial)
        lost = [replace(device, handle=None) for device in gone]
        core.checkpoint.put(replace(prepared, state=ClaimState.STARTED, devices=(ready, *lost)))
        core.backend.fail("prepare", OTHER, PermanentError("the card has no memory left"))
        with pytest.raises(DevicesFailedError, match="the card has no memory left"):
            await core.preparer.prepare_claim(held)
        assert set(core.backend.made) == {SLICE}
        record = core.checkpoint.get(held.uid)
        assert record is not None
        assert [device.handle for device in record.devices] == [ready.handle, None, None]


async def test_a_release_that_fails_for_two_reasons_does_not_pass_for_one_that_waits_for_a_card(
    tmp_path: Path,
) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        held = core.cluster.add(claim("training", SLICE, OTHER))
        await core.preparer.prepare_claim(held)
        core.backend.fail("unprepare", SLICE, CardAbsentError("card GPU-0 fell off the bus"))
        core.backend.fail("unprepare", OTHER, HardwareBusyError("busy"))
        with pytest.raises(DevicesFailedError, match="busy"):
            await core.preparer.unprepare_claim(held)
        assert core.state.deferred == set()
        await core.preparer.unprepare_claim(held)
        assert (dict(core.checkpoint.records), core.backend.made) == ({}, {})


async def test_a_cdi_file_that_can_be_neither_written_nor_removed_fails_the_call_with_its_folder(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "cdi"
    async with plugin_core(tmp_path, FakeCluster()) as core:
        first, second = (core.cluster.add(claim(name, device)) for name, device in (("a", SLICE), ("b", OTHER)))
        await core.preparer.prepare_claim(first)
        folder.rename(tmp_path / "elsewhere")
        folder.write_text("a file stands where the folder was")
        with pytest.raises(CdiFileError, match=f"the claim's CDI file: {folder}"):
            await core.preparer.prepare_claim(second)
        with pytest.raises(CdiFileError, match=f"the claim's CDI file: {folder}"):
            await core.preparer.unprepare_claim(first)
        folder.unlink()
        (tmp_path / "elsewhere").rename(folder)
        for held in (first, second):
            await core.preparer.unprepare_claim(held)
        assert (dict(core.checkpoint.records), core.backend.made, core.store.names()) == ({}, {}, [])


async def test_each_call_for_a_claim_is_measured_with_its_operation_and_outcome(tmp_path: Path) -> None:
    def count(operation: str, outcome: str) -> float:
        labels = {"driver": DRIVER, "operation": operation, "outcome": outcome}
        return REGISTRY.get_sample_value("kerf_claim_seconds_count", labels) or 0

    calls = [
        ("prepare", "failed"),
        ("prepare", "done"),
        ("unprepare", "done"),
        ("prepare early", "done"),
        ("collect", "done"),
        ("finish release", "done"),
    ]
    before = [count(*call) for call in calls]
    async with plugin_core(tmp_path, FakeCluster()) as core:
        first, second = (core.cluster.add(claim(name, device)) for name, device in (("a", SLICE), ("b", OTHER)))
        core.backend.fail("prepare", SLICE, PermanentError("no"))
        with pytest.raises(DevicesFailedError):
            await core.preparer.prepare_claim(first)
        await core.preparer.prepare_claim(first)
        await core.preparer.unprepare_claim(first)
        await core.preparer.prepare_early(second)
        await core.preparer.release_if_gone(core.checkpoint.records[second.uid])
        await core.preparer.finish_release(second)
    assert [count(*call) - earlier for call, earlier in zip(calls, before, strict=True)] == [1] * len(calls)
