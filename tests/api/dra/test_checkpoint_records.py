"""Checkpoint records: they survive the round trip and upgrades, and damage is never read as something else."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.checkpoint import v1
from kerf_dra.api.checkpoint.v1 import CheckpointError
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.model.recorded_cards import CardRecord, SpecRecord
from tests.api.dra.strategies import PREPARED_CLAIMS

WHERE = "/var/lib/kubelet/plugins/kerf.dev/checkpoint.db"
DATA = Path(__file__).parents[2] / "data/checkpoint"
OLDER = Path(__file__).parents[2] / "upgrade/kerf_dra-0.1.0-py3-none-any.whl"
"""The version whose records do not describe cards."""


def envelope(record: bytes, schema: int = 1) -> bytes:
    checksum = hashlib.sha256(record).hexdigest()
    return b'{"schema":%d,"sha256":"%s","record":%s}' % (schema, checksum.encode(), record)


@given(claim=PREPARED_CLAIMS)
def test_records_round_trip(claim: PreparedClaim) -> None:
    assert v1.decode(v1.encode(claim), WHERE) == claim


@given(claim=PREPARED_CLAIMS, data=st.data())
def test_a_changed_byte_is_noticed(claim: PreparedClaim, data: st.DataObject) -> None:
    good = v1.encode(claim)
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= data.draw(st.integers(1, 255))
    try:
        read = v1.decode(bytes(bad), WHERE)
    except CheckpointError:
        return
    assert read == claim, "a record that passes its checksum must be the one that was written"


@given(data=st.binary(max_size=200))
def test_any_bytes_give_an_error_that_names_the_file_and_the_remedy(data: bytes) -> None:
    with pytest.raises(CheckpointError, match="drain the node") as raised:
        v1.decode(data, WHERE)
    assert str(raised.value).startswith(f"{WHERE}: unreadable: ")


def test_a_record_of_a_newer_schema_is_refused_not_guessed() -> None:
    with pytest.raises(CheckpointError, match=r"newer Kerf \(schema 3, this one reads up to 2\)"):
        v1.decode(envelope(b"{}", schema=3), WHERE)


def test_a_record_of_an_extended_resource_is_refused_by_releases_that_would_take_it_for_a_claim() -> None:
    """They read up to schema 1, and would release what a container uses, because there is no claim of its name."""
    claim = v1.decode((DATA / "v1-prepared.json").read_bytes(), WHERE)
    resource = msgspec.structs.replace(claim, resource="kerf.dev/small")
    assert v1.decode(v1.encode(resource), WHERE) == resource
    assert [msgspec.json.decode(v1.encode(each))["schema"] for each in (claim, resource)] == [1, 2]


def test_a_field_that_a_newer_version_added_is_skipped() -> None:
    record = msgspec.json.decode((DATA / "v1-prepared.json").read_bytes())["record"] | {"addedLater": {"x": 1}}
    claim = v1.decode(envelope(msgspec.json.encode(record)), WHERE)
    assert claim == v1.decode((DATA / "v1-prepared.json").read_bytes(), WHERE)


def test_a_record_with_the_fields_of_the_first_release_only_is_read() -> None:
    claim = v1.decode((DATA / "v1-minimal.json").read_bytes(), WHERE)
    (device,) = claim.devices
    assert (claim.state, claim.boot_id) == (ClaimState.STARTED, "")
    assert (device.share.share, device.handle, device.cdi_ids) == (None, None, ())


def test_the_written_form_is_the_one_that_older_releases_read() -> None:
    written = (DATA / "v1-prepared.json").read_bytes()
    assert v1.encode(v1.decode(written, WHERE)) == written.strip()


CARD = CardRecord(
    kind="gpu",
    uuid="GPU-0",
    index=0,
    unit="memory-slice",
    units=8,
    attributes={"numaNode": Attribute.of(1)},
    specs=(SpecRecord(size=(8,), weight=8, capacity={"memory": Quantity("80Gi")}),),
)


@given(claim=PREPARED_CLAIMS)
def test_a_record_describes_the_cards_of_its_devices(claim: PreparedClaim) -> None:
    assert v1.decode_stored(v1.encode(claim, {"GPU-0": v1.encode_card(CARD)}), WHERE) == (claim, {"GPU-0": CARD})
    assert v1.decode_stored(v1.encode(claim), WHERE) == (claim, {}), "as an older version writes it"


@pytest.mark.parametrize("change", [{"specs": "of another version"}, {"index": None}, {"added": 1}])
def test_a_record_whose_cards_another_version_has_described_is_read(change: dict[str, object]) -> None:
    """A field that was added is ignored; what cannot be read is as if it were not there."""
    claim = v1.decode((DATA / "v1-prepared.json").read_bytes(), WHERE)
    written = msgspec.json.decode(v1.encode(claim, dict.fromkeys(("GPU-0", "GPU-1"), v1.encode_card(CARD))))["record"]
    written["cards"]["GPU-0"] |= change
    read = v1.decode_stored(envelope(msgspec.json.encode(written)), WHERE)
    assert read == (claim, {"GPU-0": CARD, "GPU-1": CARD} if "added" in change else {"GPU-1": CARD})


def test_an_older_kerf_reads_a_record_that_describes_cards() -> None:
    """0.1.0 ignores the field: a node that goes back to it keeps its claims."""
    claim = v1.decode((DATA / "v1-prepared.json").read_bytes(), WHERE)
    module = v1.__name__.removeprefix("kerf_dra.")  # the name that it had then
    program = (
        f"import importlib, sys; v1 = importlib.import_module({module!r}); "
        "print(v1.decode(sys.stdin.buffer.read(), 'a record').claim.uid, v1.__file__)"
    )
    older = subprocess.run(
        [sys.executable, "-c", program],
        input=v1.encode(claim, {"GPU-0": v1.encode_card(CARD)}),
        env={**os.environ, "PYTHONPATH": str(OLDER)},
        cwd=OLDER.parent,
        capture_output=True,
        check=True,
    )
    uid, read_by = older.stdout.decode().split()
    assert (uid, read_by.startswith(str(OLDER))) == (claim.claim.uid, True)
