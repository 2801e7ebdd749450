"""Stored objects as the bytes of responses and watch events.

A client chooses the form in ``Accept`` (``application/json;as=Table;v=v1;g=meta.k8s.io``): the objects themselves, a
table of printer columns, or their metadata only. Objects of built-in kinds and their lists and watches are protobuf for
clients that prefer it; everything else is JSON, which these clients accept too. Source: ``k8s.io/apiserver``
``pkg/endpoints/handlers`` (``negotiation``, ``response.go``).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final, Literal, TypeAlias

import msgspec

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.kinds.types import ApiVersion, ResourceType
from kerf_dra.driver.local.apiserver.meta import protobuf
from kerf_dra.driver.local.apiserver.meta.documents import JsonValue
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError
from kerf_dra.driver.local.apiserver.storage import StoredObject

_META_VERSION: Final = "meta.k8s.io/v1"
ResponseForm: TypeAlias = Literal["object", "protobuf", "table", "metadata"]
"""What a response has of an object, all but ``protobuf`` in JSON."""

_FORMS: dict[str, ResponseForm] = {
    "": "object",
    "Table": "table",
    "PartialObjectMetadata": "metadata",
    "PartialObjectMetadataList": "metadata",
}
_JSON = frozenset({"application/json", "application/*", "*/*"})
JSON_MEDIA_TYPE: Final = "application/json"


def encode(value: JsonValue) -> bytes:
    return msgspec.json.encode(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectEncoder:
    """Encodes objects of one kind in the version and form that one request asks for."""

    type: ResourceType
    version: ApiVersion
    form: ResponseForm = "object"
    include_object: str = "Metadata"
    """What a table row has of its object: None, Metadata or Object."""

    @property
    def media_type(self) -> str:
        return protobuf.MEDIA_TYPE if self.form == "protobuf" else JSON_MEDIA_TYPE

    @property
    def watch_media_type(self) -> str:
        return protobuf.WATCH_MEDIA_TYPE if self.form == "protobuf" else JSON_MEDIA_TYPE

    def one(self, stored: StoredObject, now: datetime) -> bytes:
        """Return a response that is one object."""
        match self.form:
            case "object":
                return self._typed(stored)
            case "protobuf":
                return protobuf.encode(self._document(stored))
            case "metadata":
                return encode(_metadata_only(stored))
            case "table":
                return encode(self._table([stored], {"resourceVersion": str(stored.revision)}, now))

    def many(self, items: Sequence[StoredObject], metadata: JsonObject, now: datetime) -> bytes:
        """Return a response that is a list."""
        match self.form:
            case "object":
                return self._list(items, metadata)
            case "protobuf":
                head = {"apiVersion": self.type.api_version(self.version), "kind": self.type.list_kind}
                return protobuf.encode({**head, "metadata": metadata, "items": [*map(self._document, items)]})
            case "metadata":
                return encode(
                    {
                        "kind": "PartialObjectMetadataList",
                        "apiVersion": _META_VERSION,
                        "metadata": metadata,
                        "items": [_metadata_only(item) for item in items],
                    }
                )
            case "table":
                return encode(self._table(items, metadata, now))

    def event(self, type_: str, stored: StoredObject, now: datetime) -> bytes:
        """Return one line, or frame, of a watch."""
        if self.form == "protobuf":
            return protobuf.encode_event(type_, self._document(stored))
        return b'{"type":"' + type_.encode() + b'","object":' + self.one(stored, now) + b"}\n"

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        """Return what says in a watch that the client has seen everything up to a revision."""
        metadata: JsonObject = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        kinds = {
            "object": (self.type.kind, self.type.api_version(self.version)),
            "protobuf": (self.type.kind, self.type.api_version(self.version)),
            "metadata": ("PartialObjectMetadata", _META_VERSION),
            "table": ("Table", _META_VERSION),
        }
        kind, api_version = kinds[self.form]
        rest: JsonObject = {"columnDefinitions": [], "rows": []} if self.form == "table" else {}
        body = {"kind": kind, "apiVersion": api_version, "metadata": metadata, **rest}
        return self._watched("BOOKMARK", body)

    def error(self, status: JsonObject) -> bytes:
        """Return what ends a watch with an error."""
        return self._watched("ERROR", status)

    def _watched(self, type_: str, document: JsonObject) -> bytes:
        if self.form == "protobuf":
            return protobuf.encode_event(type_, document)
        return encode({"type": type_, "object": document}) + b"\n"

    def _document(self, stored: StoredObject) -> JsonObject:
        document: JsonObject = msgspec.json.decode(self._typed(stored))
        return document

    def _typed(self, stored: StoredObject) -> bytes:
        head = f'{{"kind":"{self.type.kind}","apiVersion":"{self.type.api_version(self.version)}",'
        return head.encode() + stored.encode(self.version.to_wire)[1:]

    def _list(self, items: Iterable[StoredObject], metadata: JsonObject) -> bytes:
        # Items of built-in kinds have no kind of their own: their Go type follows from that of the list.
        bodies = (self._typed(item) if self.type.is_custom else item.encode(self.version.to_wire) for item in items)
        head = {"kind": self.type.list_kind, "apiVersion": self.type.api_version(self.version), "metadata": metadata}
        return encode(head)[:-1] + b',"items":[' + b",".join(bodies) + b"]}"

    def _table(self, items: Iterable[StoredObject], metadata: JsonObject, now: datetime) -> JsonObject:
        columns = self.version.columns
        return {
            "kind": "Table",
            "apiVersion": _META_VERSION,
            "metadata": metadata,
            "columnDefinitions": [column.definition for column in columns],
            "rows": [
                {"cells": [column.cell(item.body, now) for column in columns], **self._row_object(item)}
                for item in items
            ],
        }

    def _row_object(self, item: StoredObject) -> JsonObject:
        match self.include_object:
            case "None":
                return {}
            case "Object":
                return {"object": msgspec.Raw(self._typed(item))}
            case _:
                return {"object": _metadata_only(item)}


def _metadata_only(stored: StoredObject) -> JsonObject:
    return {"kind": "PartialObjectMetadata", "apiVersion": _META_VERSION, "metadata": stored.body["metadata"]}


@dataclass(frozen=True, slots=True)
class _MediaRange:
    media_type: str
    parameters: dict[str, str]


def negotiate_form(accept: str, *, in_protobuf: bool) -> ResponseForm:
    """Return the first form in an ``Accept`` header that this server has of a kind, which may have one in protobuf.

    Raises ApiStatusError (406).
    """
    if not accept.strip():
        return "object"
    for offer in _parse_accept(accept):
        form = _FORMS.get(offer.parameters.get("as", ""))
        if offer.media_type == protobuf.MEDIA_TYPE and form == "object" and in_protobuf:
            return "protobuf"
        if offer.media_type in _JSON and form and offer.parameters.get("v", "v1") == "v1":
            return form
    raise ApiStatusError(
        HTTPStatus.NOT_ACCEPTABLE,
        "NotAcceptable",
        f"only the following media types are accepted: application/json, {protobuf.MEDIA_TYPE} (built-in kinds), "
        "application/json;as=Table;v=v1;g=meta.k8s.io, application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    )


def _parse_accept(accept: str) -> Iterator[_MediaRange]:
    for part in accept.split(","):
        media_type, *parameters = (piece.strip() for piece in part.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        yield _MediaRange(media_type.lower(), {name: value.strip('"') for name, _, value in pairs})
