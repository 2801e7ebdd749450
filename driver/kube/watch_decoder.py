"""Decodes objects, list pages and watch events, so that one object that cannot be read does not hide the others.

A kind decodes a whole page at once. Where that fails, the page is decoded again object by object. An object that cannot
be decoded as it is, is decoded once more as ``make_readable`` rewrites it: without what is nested too deeply, which a
user may put into free-form fields. What else such an object says, the devices of a claim above all, still counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, Literal

import msgspec

from kerf_dra.api.model.json_limits import CUT, MAX_LEVELS, make_readable
from kerf_dra.api.model.metadata import ObjectT
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.wire import Kind, ListMeta, UndecodableObjectError
from kerf_dra.driver.kube.http.answer_identity import ExpectedAnswer, find_mismatch
from kerf_dra.driver.kube.http.errors import build_status_error


class EventType(StrEnum):
    """The type of a watch event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent(Generic[ObjectT]):
    """One change, or only progress (BOOKMARK).

    ``object`` is None in bookmarks and where the object cannot be decoded; ``ref`` is None in bookmarks.
    """

    type: EventType
    ref: ObjectRef | None
    object: ObjectT | None
    resource_version: str
    """The resource version from which a watch continues after this event."""
    unreadable: UndecodableObjectError | None = None
    """Why the object cannot be decoded, or where ``object`` is given why parts of it cannot."""


@dataclass(frozen=True, slots=True)
class DecodedObject(Generic[ObjectT]):
    """One object; ``unreadable`` says why parts of it were cut off."""

    value: ObjectT
    unreadable: UndecodableObjectError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage(Generic[ObjectT]):
    """One page of a list."""

    metadata: ListMeta
    items: tuple[ObjectT, ...]
    unreadable: Mapping[ObjectRef, UndecodableObjectError]
    """Why objects cannot be decoded."""
    shortened: Mapping[ObjectRef, UndecodableObjectError]
    """Why parts of some ``items`` cannot be decoded."""


class _HeadMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct, frozen=True):
    """The identity of an object, which every kind has."""

    metadata: _HeadMeta = _HeadMeta()

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(self.metadata.namespace, self.metadata.name)


class _RawPage(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] | None = ()


class _RawEvent(msgspec.Struct, frozen=True):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


_CUT: Final = CUT.encode()
_LEVELS_OF_A_PAGE: Final = 2
"""The levels of a list around each object: the list itself, and its items."""
_LEVELS_OF_AN_EVENT: Final = 1

_head_decoder: Final = msgspec.json.Decoder(_Head)
_page_decoder: Final = msgspec.json.Decoder(_RawPage)
_event_decoder: Final = msgspec.json.Decoder(_RawEvent)


def decode_page(kind: Kind[ObjectT], body: bytes) -> ListPage[ObjectT]:
    """Decode one page of a list. Raises UndecodableObjectError when ``body`` is not a list at all."""
    try:
        page = kind.decode_list(body)
        return ListPage(metadata=page.metadata, items=page.items, unreadable={}, shortened={})
    except UndecodableObjectError as error:
        try:
            raw = _page_decoder.decode(make_readable(body, MAX_LEVELS + _LEVELS_OF_A_PAGE))
        except msgspec.DecodeError:
            raise error from None
    items: list[ObjectT] = []
    unreadable: dict[ObjectRef, UndecodableObjectError] = {}
    shortened: dict[ObjectRef, UndecodableObjectError] = {}
    for item in raw.items or ():
        try:
            decoded = decode_object(kind, item)
        except UndecodableObjectError as error:
            unreadable[_head(kind, item).ref] = error
        else:
            items.append(decoded.value)
            if decoded.unreadable is not None:
                shortened[decoded.value.ref] = decoded.unreadable
    return ListPage(metadata=raw.metadata, items=tuple(items), unreadable=unreadable, shortened=shortened)


def decode_object(kind: Kind[ObjectT], data: bytes | msgspec.Raw) -> DecodedObject[ObjectT]:
    """Decode an object without what is nested too deeply. Raises UndecodableObjectError for one of another kind."""
    text = bytes(data)
    try:
        value = kind.decode(data)
    except UndecodableObjectError:
        text = make_readable(text)
        value = kind.decode(text)
    if _CUT not in text:
        return DecodedObject(value)
    reason = f"what is nested more than {MAX_LEVELS} levels deep is cut off"
    return DecodedObject(value, UndecodableObjectError(kind.kind, kind.api_version, reason))


def decode_event(kind: Kind[ObjectT], call: str, line: bytes) -> WatchEvent[ObjectT]:
    """Decode the event of one line of a watch.

    Raises the StatusError of an ERROR event (ExpiredError: 410), UndecodableObjectError when the line is no event of an
    object of the kind.
    """
    try:
        event = _event_decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        event = _decode_readable_event(line)
    if event.type == "ERROR":
        raise build_status_error(call, 0, event.object)
    if (mismatch := find_mismatch(ExpectedAnswer.of_event(kind), event.object)) is not None:
        raise UndecodableObjectError(kind.kind, kind.api_version, f"the object of an event is another one: {mismatch}")
    type_ = EventType(event.type)
    if type_ is EventType.BOOKMARK:
        version = _head(kind, event.object).metadata.resource_version
        return WatchEvent(type=type_, ref=None, object=None, resource_version=version)
    try:
        decoded = decode_object(kind, event.object)
    except UndecodableObjectError as error:
        head = _head(kind, event.object)
        version = head.metadata.resource_version
        return WatchEvent(type=type_, ref=head.ref, object=None, resource_version=version, unreadable=error)
    value = decoded.value
    if not value.metadata.name:
        raise UndecodableObjectError(kind.kind, kind.api_version, "the event's object has no name")
    return WatchEvent(
        type=type_,
        ref=value.ref,
        object=value,
        resource_version=value.metadata.resource_version,
        unreadable=decoded.unreadable,
    )


def _decode_readable_event(line: bytes) -> _RawEvent:
    try:
        return _event_decoder.decode(make_readable(line, MAX_LEVELS + _LEVELS_OF_AN_EVENT))
    except msgspec.DecodeError as error:
        raise UndecodableObjectError("WatchEvent", "v1", str(error)) from error


def _head(kind: Kind[ObjectT], data: bytes | msgspec.Raw) -> _Head:
    try:
        return _head_decoder.decode(make_readable(bytes(data)))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UndecodableObjectError(kind.kind, kind.api_version, str(error)) from error
