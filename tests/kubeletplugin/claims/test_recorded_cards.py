"""What the records of claims say of the cards of their devices outlives the process."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from kerf_dra.api.checkpoint.v1 import CheckpointError
from kerf_dra.api.model.prepared import ClaimState
from kerf_dra.api.model.recorded_cards import CardRecord
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import FILE_NAME, open_checkpoint
from tests.kubeletplugin.records import BOOT, device, record


def card(index: int) -> CardRecord:
    return CardRecord(kind="gpu", uuid="GPU", index=index, unit="memory-slice", units=1, specs=())


def test_records_describe_their_cards_as_they_were_noted_last(tmp_path: Path) -> None:
    """Also those that were written before, by this process or by one that did not know the cards."""
    first, second = record("first"), record("second", device("gpu-1", card="GPU-1", start=None, size=None))
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(first)
        checkpoint.note_cards({"GPU-0": card(0), "GPU-1": card(1), "GPU-2": card(2)})
        checkpoint.put(second)
        checkpoint.note_cards({"GPU-1": card(7)})
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert checkpoint.cards == {"GPU-0": card(0), "GPU-1": card(7)}, "no claim has the third"
        aside = checkpoint.set_aside(first.claim.uid).claim.uid
        checkpoint.put(replace(second, state=ClaimState.RELEASING))
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert checkpoint.cards.keys() == {"GPU-0", "GPU-1"}
        checkpoint.drop(aside)
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert checkpoint.cards.keys() == {"GPU-1"}


def test_cards_that_are_as_they_were_are_not_written_again(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.note_cards({"GPU-0": card(0)})
        checkpoint.put(record("one"))
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        log = tmp_path / f"{FILE_NAME}-wal"
        before = log.stat().st_size
        checkpoint.note_cards({"GPU-0": card(0), "GPU-1": card(1)})
        assert log.stat().st_size == before


def test_cards_that_could_not_be_written_are_written_by_the_next_call(tmp_path: Path) -> None:
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        checkpoint.put(record("one"))
        checkpoint._connection.execute("PRAGMA query_only = 1")
        with pytest.raises(CheckpointError, match="cannot be written"):
            checkpoint.note_cards({"GPU-0": card(0)})
        checkpoint._connection.execute("PRAGMA query_only = 0")
        checkpoint.note_cards({})
    with open_checkpoint(tmp_path, boot_id=BOOT) as checkpoint:
        assert checkpoint.cards == {"GPU-0": card(0)}
