"""Schemas 1 and 2 of the kubelet plugin's checkpoint: one record for each prepared claim, and notes on its devices.

A record is a JSON envelope ``{"schema": 1, "sha256": "...", "record": {...}}``. The checksum covers the bytes of
``record``, so a field that is added later does not make old records unreadable. Such a field needs a default here; a
reader that does not know it ignores it. Only a change that an older reader would misunderstand increases the schema:
a record of an extended resource has schema 2, because an older plugin would take it for a claim that does not exist,
and release what a container uses.
"""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.names import ClaimRef, DeviceId, ShareId
from kerf_dra.api.model.prepared import (
    CardPart,
    ClaimState,
    DeviceDescription,
    DeviceNotes,
    PreparedClaim,
    PreparedDevice,
)
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.model.recorded_cards import CardRecord
from kerf_dra.api.wire import dec_hook, enc_hook

ValueT = TypeVar("ValueT")
CardRecords: TypeAlias = Mapping[str, CardRecord]
"""What cards were when they were discovered last, by their UUIDs."""
EncodedCards: TypeAlias = Mapping[str, bytes]
"""The same, each as ``encode_card`` has encoded it: it is in each record that has devices of the card."""

SCHEMA: Final = 2
"""The newest schema that is read."""
_OF_CLAIMS: Final = 1
"""The schema of everything but records of extended resources."""
_DAMAGED: Final = "restore the file, or drain the node, remove the partitions by the vendor's tool, then the file"


class CheckpointError(PermanentError):
    """A record of a prepared claim cannot be read or written. It must never be treated as absent."""

    def __init__(self, where: str, reason: str, remedy: str) -> None:
        self.where = where
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{where}: {reason}; {remedy}")


class DeviceRecord(Value):
    """The wire form of PreparedDevice: fields may be renamed or reordered in the model, never here."""

    requests: tuple[str, ...] = ()
    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(default=None, name="shareID")
    admin_access: bool = False
    consumed_capacity: dict[str, Quantity] = {}
    part: CardPart
    backend: str
    config: JsonObject | None = None
    handle: JsonObject | None = None
    description: DeviceDescription | None = None
    cdi_ids: tuple[str, ...] = msgspec.field(default=(), name="cdiIDs")


class ClaimRecord(Value):
    """The wire form of PreparedClaim."""

    namespace: str
    name: str
    uid: str
    state: ClaimState
    boot_id: str = msgspec.field(default="", name="bootID")
    pod_claim_name: str = ""
    awaits_pod: bool = False
    resource: str = ""
    devices: tuple[DeviceRecord, ...] = ()
    cards: dict[str, msgspec.Raw] = {}
    """The devices' cards by UUID. Each is encoded and decoded by itself (CardRecord): it changes less often than
    records, and a record can be read whose cards another version of Kerf has described otherwise. An older version
    ignores the field."""


class StoredClaim(NamedTuple):
    """A claim's record, and what it says of the devices' cards, as far as this version can read that."""

    claim: PreparedClaim
    cards: CardRecords


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A record with its schema and the checksum of its bytes, in hex digits."""

    schema: int
    sha256: str
    record: msgspec.Raw


class NotesRecord(Value):
    """The wire form of DeviceNotes."""

    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(default=None, name="shareID")
    boot_id: str = msgspec.field(default="", name="bootID")
    notes: JsonObject = {}


class ContentSummary(Value):
    """What a checkpoint has: how many claims, and the digest of all its rows in hex digits."""

    claims: int
    digest: str


class ContentRecord(Value):
    """Which content a checkpoint has since the boot ``boot_id``; during a write the one before and the one after it."""

    boot_id: str = msgspec.field(default="", name="bootID")
    contents: tuple[ContentSummary, ...] = ()


_ENVELOPE: Final = msgspec.json.Decoder(Envelope)
_RECORD: Final = msgspec.json.Decoder(ClaimRecord, dec_hook=dec_hook)
_NOTES: Final = msgspec.json.Decoder(NotesRecord, dec_hook=dec_hook)
_CONTENTS: Final = msgspec.json.Decoder(ContentRecord)
_CARD: Final = msgspec.json.Decoder(CardRecord, dec_hook=dec_hook)
_ENCODER: Final = msgspec.json.Encoder(enc_hook=enc_hook)


_NO_CARDS: Final[EncodedCards] = MappingProxyType({})


def encode_card(card: CardRecord) -> bytes:
    """Encode what is known of a card, for ``encode``."""
    return _ENCODER.encode(card)


def encode(claim: PreparedClaim, cards: EncodedCards = _NO_CARDS) -> bytes:
    """Encode a claim with what is known of its devices' ``cards``; equal ones give equal bytes."""
    return _seal(to_record(claim, cards), SCHEMA if claim.resource else _OF_CLAIMS)


def decode(data: bytes, where: str) -> PreparedClaim:
    """Decode a claim. Raises CheckpointError, with the path ``where``, when the record is damaged or too new."""
    return decode_stored(data, where).claim


def decode_stored(data: bytes, where: str) -> StoredClaim:
    """Decode a claim and the descriptions of its cards. Raises CheckpointError as ``decode`` does."""
    record = _open_envelope(data, _RECORD, where)
    cards = {uuid: card for uuid, data in record.cards.items() if (card := _read_card(data)) is not None}
    return StoredClaim(_to_model(record), cards)


def encode_notes(notes: DeviceNotes) -> bytes:
    """Encode the notes on a device. Raises TypeError when they are no plain JSON."""
    return _seal(to_notes_record(notes))


def decode_notes(data: bytes, where: str) -> DeviceNotes:
    """Decode the notes on a device. Raises CheckpointError as ``decode`` does."""
    record = _open_envelope(data, _NOTES, where)
    share = ShareId(DeviceId(record.driver, record.pool, record.device), record.share_id)
    return DeviceNotes(share=share, boot_id=record.boot_id, notes=record.notes)


def encode_contents(record: ContentRecord) -> bytes:
    """Encode which content a checkpoint has."""
    return _seal(record)


def decode_contents(data: bytes, where: str, remedy: str) -> ContentRecord:
    """Decode which content a checkpoint has. Raises CheckpointError as ``decode`` does, with this ``remedy``."""
    return _open_envelope(data, _CONTENTS, where, remedy)


def _seal(value: Value, schema: int = _OF_CLAIMS) -> bytes:
    record = _ENCODER.encode(value)
    return _ENCODER.encode(Envelope(schema=schema, sha256=_checksum(record), record=msgspec.Raw(record)))


def _open_envelope(data: bytes, decoder: "msgspec.json.Decoder[ValueT]", where: str, remedy: str = _DAMAGED) -> ValueT:
    try:
        envelope = _ENVELOPE.decode(data)
        if envelope.schema > SCHEMA:
            reason = f"written by a newer Kerf (schema {envelope.schema}, this one reads up to {SCHEMA})"
            raise CheckpointError(where, reason, "start that version, or drain the node and remove the file")
        if _checksum(bytes(envelope.record)) != envelope.sha256:
            raise CheckpointError(where, "unreadable: the checksum does not match", remedy)
        return decoder.decode(envelope.record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(where, f"unreadable: {error}", remedy) from error


def _checksum(record: bytes) -> str:
    return hashlib.sha256(record).hexdigest()


def to_notes_record(notes: DeviceNotes) -> NotesRecord:
    """Return the wire form of notes."""
    (driver, pool, device), share = notes.share
    return NotesRecord(
        driver=driver, pool=pool, device=device, share_id=share, boot_id=notes.boot_id, notes=notes.notes
    )


def to_record(claim: PreparedClaim, cards: EncodedCards = _NO_CARDS) -> ClaimRecord:
    """Return the wire form of a claim with what is known of its devices' ``cards``."""
    devices = tuple(
        DeviceRecord(
            requests=device.requests,
            driver=device.share.id.driver,
            pool=device.share.id.pool,
            device=device.share.id.device,
            share_id=device.share.share,
            admin_access=device.admin_access,
            consumed_capacity=device.consumed_capacity,
            part=device.part,
            backend=device.backend,
            config=device.config,
            handle=device.handle,
            description=device.description,
            cdi_ids=device.cdi_ids,
        )
        for device in claim.devices
    )
    namespace, name, uid = claim.claim
    return ClaimRecord(
        namespace=namespace,
        name=name,
        uid=uid,
        state=claim.state,
        boot_id=claim.boot_id,
        pod_claim_name=claim.pod_claim_name,
        awaits_pod=claim.awaits_pod,
        resource=claim.resource,
        devices=devices,
        cards={uuid: msgspec.Raw(data) for uuid, data in cards.items()},
    )


def _read_card(data: msgspec.Raw) -> CardRecord | None:
    """Return what a record says of a card; None: another version wrote it, and this one cannot read it."""
    try:
        return _CARD.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _to_model(record: ClaimRecord) -> PreparedClaim:
    devices = tuple(
        PreparedDevice(
            requests=device.requests,
            share=ShareId(DeviceId(device.driver, device.pool, device.device), device.share_id),
            admin_access=device.admin_access,
            consumed_capacity=device.consumed_capacity,
            part=device.part,
            backend=device.backend,
            config=device.config,
            handle=device.handle,
            description=device.description,
            cdi_ids=device.cdi_ids,
        )
        for device in record.devices
    )
    claim = ClaimRef(record.namespace, record.name, record.uid)
    return PreparedClaim(
        claim=claim,
        state=record.state,
        boot_id=record.boot_id,
        pod_claim_name=record.pod_claim_name,
        awaits_pod=record.awaits_pod,
        resource=record.resource,
        devices=devices,
    )
