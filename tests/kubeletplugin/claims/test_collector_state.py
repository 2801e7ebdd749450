"""What garbage collection keeps of claims, and what it does where it cannot look."""

from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError
from tests.fakes.claims import claim
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import plugin_core

SLICE = "gpu-0-1g-1gb-at-0"


async def test_a_folder_that_cannot_be_read_is_logged_and_does_not_keep_the_next_one_from_being_checked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        for name in ("metadata", "cdi"):
            if (tmp_path / name).exists():
                (tmp_path / name).rename(tmp_path / f"{name}-before")
            (tmp_path / name).write_text("")
        core.garbage_collector.check_files()
    assert "cannot remove stray files: device metadata in " in caplog.text
    assert "cannot check CDI files: " in caplog.text


async def test_of_a_claim_that_is_released_nothing_is_kept_and_of_others_all_is(tmp_path: Path) -> None:
    """What answers have shown of every claim of a plugin's life would gather without end."""
    async with plugin_core(tmp_path, FakeCluster()) as core:
        gone, kept = (core.cluster.add(claim(name, device)) for name, device in (("gone", SLICE), ("kept", "gpu-1")))
        for held in (gone, kept):
            await core.preparer.prepare_claim(held)
        assert all(core.seen.get(held.uid).pods for held in (gone, kept))
        await core.preparer.unprepare_claim(gone)
        await core.garbage_collector.collect(set(core.checkpoint.records))
        assert core.seen.get(gone.uid).pods == ()
        assert core.seen.get(kept.uid).pods


async def test_a_successor_finishes_the_releases_that_wait_for_their_cards(tmp_path: Path) -> None:
    cluster = FakeCluster()
    claims = {device: cluster.add(claim(f"training-{device}", device)) for device in (SLICE, "gpu-1")}
    async with plugin_core(tmp_path, cluster) as core:
        for device, held in claims.items():
            await core.preparer.prepare_claim(held)
            core.backend.fail("unprepare", device, CardAbsentError("the card fell off the bus"))
            await core.preparer.unprepare_claim(held)
    async with plugin_core(tmp_path, cluster) as core:
        for card, left in (("GPU-1", {SLICE}), ("GPU-0", set[str]())):
            core.state.note_surveyed(card)
            await core.garbage_collector.collect(core.state.suspects.take())
            assert (len(core.checkpoint.records), set(core.backend.made)) == (len(left), left)
