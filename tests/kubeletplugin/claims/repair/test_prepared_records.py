"""Which records a repair of an earlier process has left to this one."""

from pathlib import Path

import anyio
import pytest

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from kerf_dra.driver.kubeletplugin.claims.repair.prepared_records import PreparedRecords
from kerf_dra.driver.runtime.concurrency import SingleFlight
from tests.kubeletplugin.records import BOOT, record

TOO_LONG = Path("x" * 300)
"""A name for which the system has an error that is not that there is no such file."""


@pytest.mark.parametrize("unseen", ["first", "second"])
async def test_a_file_that_cannot_be_seen_keeps_no_plugin_from_starting_and_no_other_repair_from_being_finished(
    unseen: str, tmp_path: Path
) -> None:
    """EIO ended the process."""
    (tmp_path / "there").touch()

    def find_file(claim: ClaimRef) -> Path:
        return TOO_LONG if claim.name == unseen else tmp_path / "there"

    async with anyio.create_task_group() as tasks:
        flights = SingleFlight[str, PreparedClaim | None](tasks, stopping=AssertionError)
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        for name in ("first", "second"):
            checkpoint.put(record(name, state=ClaimState.STARTED))
        records = PreparedRecords(checkpoint=checkpoint, boot_id=BOOT, flights=flights)
        records.adopt_interrupted(find_file)
        assert [each.claim.name for each in records.list_all()] == [{"first": "second", "second": "first"}[unseen]]
