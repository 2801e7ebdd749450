"""Stored objects as the bytes of answers and watch events, in the form and version that was asked for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from api.model.base import JsonObject
from driver.local.apiserver.http.content_negotiation import ResponseForm
from driver.local.apiserver.kinds.types import ApiVersion, ResourceType
from driver.local.apiserver.storage import StoredObject

_META_VERSION = "meta.k8s.io/v1"


def encode(value: Any) -> bytes:  # noqa: ANN401  (any JSON value)
    return msgspec.json.encode(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectEncoder:
    """How one request wants to see objects of one kind."""

    type: ResourceType
    version: ApiVersion
    form: ResponseForm = "object"
    include_object: str = "Metadata"
    """Of table rows: None, Metadata or Object."""

    def one(self, stored: StoredObject, now: datetime) -> bytes:
        """An answer that is one object."""
        match self.form:
            case "object":
                return self._typed(stored)
            case "metadata":
                return encode(_metadata_only(stored))
            case "table":
                return encode(self._table([stored], {"resourceVersion": str(stored.revision)}, now))

    def many(self, items: Sequence[StoredObject], metadata: JsonObject, now: datetime) -> bytes:
        """An answer that is a list."""
        match self.form:
            case "object":
                return self._list(items, metadata)
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
        """One line of a watch."""
        return b'{"type":"' + type_.encode() + b'","object":' + self.one(stored, now) + b"}\n"

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        """The line that tells a watcher how far it has seen everything."""
        metadata: JsonObject = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        kinds = {
            "object": (self.type.kind, self.type.api_version(self.version)),
            "metadata": ("PartialObjectMetadata", _META_VERSION),
            "table": ("Table", _META_VERSION),
        }
        kind, api_version = kinds[self.form]
        rest: JsonObject = {"columnDefinitions": [], "rows": []} if self.form == "table" else {}
        body = {"kind": kind, "apiVersion": api_version, "metadata": metadata, **rest}
        return encode({"type": "BOOKMARK", "object": body}) + b"\n"

    def _typed(self, stored: StoredObject) -> bytes:
        head = f'{{"kind":"{self.type.kind}","apiVersion":"{self.type.api_version(self.version)}",'
        return head.encode() + stored.wire(self.version.to_wire)[1:]

    def _list(self, items: Iterable[StoredObject], metadata: JsonObject) -> bytes:
        # Items of built-in kinds carry no kind of their own: their Go types are known from the list.
        bodies = (self._typed(item) if self.type.custom else item.wire(self.version.to_wire) for item in items)
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
