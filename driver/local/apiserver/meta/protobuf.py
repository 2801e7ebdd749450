"""Decodes built-in objects from Kubernetes' protobuf encoding to their JSON form.

Typed clients of client-go send that encoding (``application/vnd.kubernetes.protobuf``; kubectl since 1.32, for example
for ``create namespace``). Responses stay JSON, which these clients accept.

Source: the encoding is described in apimachinery ``pkg/runtime/serializer/protobuf``.
"""

import base64
from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from kerf_dra.api.errors import InvalidDocumentError, Problem, UnsupportedError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.times import format_unix_time
from kerf_dra.driver.local.apiserver._generated.kubernetes_objects import api_pb2

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_CARRIED: Final[dict[str, type[Message]]] = {
    message.DESCRIPTOR.name: message
    for message in (
        api_pb2.Binding,
        api_pb2.ClusterRole,
        api_pb2.ClusterRoleBinding,
        api_pb2.ConfigMap,
        api_pb2.DeleteOptions,
        api_pb2.Eviction,
        api_pb2.Namespace,
        api_pb2.Role,
        api_pb2.RoleBinding,
        api_pb2.ServiceAccount,
    )
}


def decode(body: bytes) -> JsonObject:
    """Return the object in ``body``, with ``apiVersion`` and ``kind``.

    Raises InvalidDocumentError when ``body`` is not in the encoding, and UnsupportedError when its kind is not known.
    """
    if not body.startswith(_MAGIC):
        raise _invalid("it does not begin as Kubernetes' protobuf encoding does")
    try:
        wrapper = api_pb2.Unknown.FromString(body[len(_MAGIC) :])
        kind = wrapper.type_meta.kind
        if kind not in _CARRIED:
            raise UnsupportedError(f"objects of kind {kind!r} are not read from protobuf; send them as JSON")
        content = _CARRIED[kind].FromString(wrapper.raw)
    except DecodeError as error:
        raise _invalid(f"it is no valid protobuf: {error}") from error
    return {"apiVersion": wrapper.type_meta.api_version, "kind": kind, **_object(content)}


def _invalid(message: str) -> InvalidDocumentError:
    return InvalidDocumentError("protobuf body", [Problem("", message)])


def _object(message: Message) -> JsonObject:
    """Convert a message to JSON without empty strings and objects, which Go writes for fields that were not set."""
    values = ((field.json_name, _value(field, value)) for field, value in message.ListFields())
    return {name: value for name, value in values if value not in ("", {}, None)}


def _value(field: FieldDescriptor, value: Any) -> Any:  # noqa: ANN401  (any JSON)
    if _is_map(field):
        return {key: _single(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_single(item) for item in value]
    return _single(value)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _single(value: Any) -> Any:  # noqa: ANN401  (any JSON)
    match value:
        case api_pb2.Time():
            return _time(value)
        case Message():
            return _object(value)
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value


def _time(value: api_pb2.Time) -> str | None:
    """Return the time as RFC 3339 in whole seconds; None: Go's zero time, which is encoded as an empty message."""
    if not value.ListFields():
        return None
    return format_unix_time(value.seconds)
