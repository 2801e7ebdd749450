"""Converts built-in objects between Kubernetes' protobuf encoding and their JSON form.

Typed clients of client-go send and prefer that encoding (``application/vnd.kubernetes.protobuf``): DRA drivers in Go,
and kubectl since 1.32 for ``create``. An object is an envelope (``runtime.Unknown``: API version, kind, bytes) behind
four bytes of magic; a watch is a stream of ``WatchEvent`` without envelope, each behind its length in four bytes, whose
object has one.

Source: apimachinery ``pkg/runtime/serializer/protobuf`` and ``pkg/util/framer``.
"""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError, Message

from kerf_dra.api.errors import InvalidDocumentError, Problem, UnsupportedError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.times import format_time
from kerf_dra.driver.local.apiserver.meta.protobuf_messages import MessageField, MessageType, find_kind, message_types

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
WATCH_MEDIA_TYPE: Final = f"{MEDIA_TYPE};stream=watch"
_MAGIC: Final = b"k8s\x00"
_LENGTH_BYTES: Final = 4
"""Bytes of the length of a frame, big-endian."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_IS_STRING: Final = 1
"""The type of an IntOrString that is a string (apimachinery ``intstr.String``)."""


def can_encode(api_version: str, kind: str) -> bool:
    """Whether a kind has a protobuf form; custom resources have none."""
    return find_kind(api_version, kind) is not None


def decode(body: bytes) -> JsonObject:
    """Return the object in ``body``, with ``apiVersion`` and ``kind``.

    Raises InvalidDocumentError when ``body`` is not in the encoding, and UnsupportedError when its kind is not known.
    """
    if not body.startswith(_MAGIC):
        raise _invalid("it does not begin as Kubernetes' protobuf encoding does")
    try:
        wrapper: Any = message_types()["Unknown"].make.FromString(body[len(_MAGIC) :])
        api_version, kind = wrapper.typeMeta.apiVersion, wrapper.typeMeta.kind
        type_ = find_kind(api_version, kind)
        if type_ is None:
            raise UnsupportedError(f"objects of kind {kind!r} in {api_version!r} are not read from protobuf; send JSON")
        content = _object(type_.make.FromString(wrapper.raw), type_)
    except (DecodeError, ValueError, OverflowError) as error:  # text that is no UTF-8, a time beyond the year 9999
        raise _invalid(f"it is no valid protobuf: {error}") from error
    return {"apiVersion": api_version, "kind": kind, **content}


def encode(document: JsonObject) -> bytes:
    """Return an object of a kind that ``can_encode``. Raises TypeError, ValueError for a field of the wrong type."""
    api_version, kind = document["apiVersion"], document["kind"]
    type_ = find_kind(api_version, kind)
    assert type_ is not None, f"{kind} has no protobuf form"
    wrapper: Any = message_types()["Unknown"].make()
    wrapper.typeMeta.apiVersion, wrapper.typeMeta.kind = api_version, kind
    wrapper.raw = _message(document, type_).SerializeToString()
    return _MAGIC + bytes(wrapper.SerializeToString())


def encode_event(type_: str, document: JsonObject) -> bytes:
    """Return one frame of a watch."""
    event: Any = message_types()["meta.v1.WatchEvent"].make()
    event.type, event.object.raw = type_, encode(document)
    frame = event.SerializeToString()
    return len(frame).to_bytes(_LENGTH_BYTES, "big") + bytes(frame)


def _invalid(message: str) -> InvalidDocumentError:
    return InvalidDocumentError("protobuf body", [Problem("", message)])


def _object(message: Message, type_: MessageType) -> JsonObject:
    """Convert a message to the JSON that Go writes of the same object."""
    found: JsonObject = {}
    for field in type_.fields:
        if field.shape == "one" and not message.HasField(field.name):
            continue
        value = _json_value(getattr(message, field.name), field)
        if field.is_inline:
            found.update(value)
        elif value is not None and (value or not (field.omits_zero or field.shape != "one")):
            found[field.name] = value
    return found


def _json_value(value: Any, field: MessageField) -> Any:  # noqa: ANN401  (any JSON)
    match field.shape:
        case "list":
            return [_json_single(item, field.type) for item in value]
        case "map":
            return {key: _json_single(item, field.type) for key, item in value.items()}
        case "one":
            return _json_single(value, field.type)


def _json_single(value: Any, type_: str) -> Any:  # noqa: ANN401  (any JSON; a case for each type)
    match type_:
        case "Time":
            return _time(value, digits=False)
        case "MicroTime":
            return _time(value, digits=True)
        case "Quantity":
            return value.string or "0"
        case "IntOrString":
            return value.strVal if value.type == _IS_STRING else value.intVal
        case "RawExtension" | "FieldsV1":
            return msgspec.json.decode(value.raw) if value.raw else None
        case "bytes":
            return base64.b64encode(value).decode()
        case "bool" | "double" | "int32" | "int64" | "string":
            return value
        case _:
            return _object(value, message_types()[type_])


def _time(value: Any, *, digits: bool) -> str | None:  # noqa: ANN401  (a message)
    """Return the time as RFC 3339; None: Go's zero time, which is encoded as an empty message."""
    if not value.ListFields():
        return None
    moment = _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if digits else format_time(moment)


def _message(document: JsonObject, type_: MessageType) -> Message:
    message = type_.make()
    for field in type_.fields:
        value = document if field.is_inline else document.get(field.name)
        if value is not None:
            _set(message, field, value)
    return message


def _set(message: Message, field: MessageField, value: Any) -> None:  # noqa: ANN401  (any JSON)
    match field.shape:
        case "list":
            getattr(message, field.name).extend(_protobuf_single(item, field.type) for item in value)
        case "map":
            for key, item in value.items():
                _put(getattr(message, field.name), key, _protobuf_single(item, field.type))
        case "one":
            single = _protobuf_single(value, field.type)
            if isinstance(single, Message):
                getattr(message, field.name).CopyFrom(single)
            else:
                setattr(message, field.name, single)


def _put(entries: Any, key: str, item: Any) -> None:  # noqa: ANN401  (a map of protobuf)
    if isinstance(item, Message):
        entries[key].CopyFrom(item)
    else:
        entries[key] = item


def _protobuf_single(value: Any, type_: str) -> Any:  # noqa: ANN401  (a case for each type)
    match type_:
        case "Time" | "MicroTime":
            return _time_message(value, type_)
        case "Quantity":
            return message_types()[type_].make(string=str(value))
        case "IntOrString" if isinstance(value, str):
            return message_types()[type_].make(type=_IS_STRING, strVal=value)
        case "IntOrString":
            return message_types()[type_].make(type=0, intVal=value)
        case "RawExtension" | "FieldsV1":
            return message_types()[type_].make(raw=msgspec.json.encode(value))
        case "bytes":
            return base64.b64decode(value)
        case "bool" | "double" | "int32" | "int64" | "string":
            return value
        case _:
            return _message(value, message_types()[type_])


def _time_message(text: str, type_: str) -> Message:
    since = datetime.fromisoformat(text) - _EPOCH
    seconds = since.days * 86400 + since.seconds
    return message_types()[type_].make(seconds=seconds, nanos=since.microseconds * 1000)
