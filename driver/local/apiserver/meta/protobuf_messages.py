"""The protobuf messages of built-in kinds, built from the numbers of fields in ``_generated/kubernetes_messages.json``.

A kind of one API version is one message; its fields have the names of the JSON form, so that both forms convert into
one another without a table for each kind. Six types encode themselves by rules of their own and are written out here.

Source: the Go types of ``k8s.io/api``, from which ``tools.generate.kubernetes_messages`` makes the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, TypeAlias

import msgspec
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kerf_dra.driver.local.apiserver import _generated

_PACKAGE: Final = "kubernetes"
_FILE: Final = "kubernetes_messages.json"
_SCALARS: Final[Mapping[str, FieldDescriptorProto.Type.ValueType]] = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
}
_Row: TypeAlias = tuple[int, str, str]
"""The number of a field, its type and its marks, as the generated file has them."""
_WRITTEN_OUT: Final[Mapping[str, Mapping[str, _Row]]] = {
    "Unknown": {"typeMeta": (1, "TypeMeta", ""), "raw": (2, "bytes", ""), "contentEncoding": (3, "string", "")},
    "TypeMeta": {"apiVersion": (1, "string", ""), "kind": (2, "string", "")},
    "Time": {"seconds": (1, "int64", ""), "nanos": (2, "int32", "")},
    "MicroTime": {"seconds": (1, "int64", ""), "nanos": (2, "int32", "")},
    "Quantity": {"string": (1, "string", "")},
    "IntOrString": {"type": (1, "int64", ""), "intVal": (2, "int32", ""), "strVal": (3, "string", "")},
    "RawExtension": {"raw": (1, "bytes", "")},
    "FieldsV1": {"raw": (1, "bytes", "")},
}
"""The envelope of each object (``runtime.Unknown``), and the types of apimachinery that encode themselves."""


@dataclass(frozen=True, slots=True)
class MessageField:
    """A field of a message."""

    name: str
    type: str
    """The type of one value: a scalar type of protobuf or the name of a message."""
    shape: Literal["one", "list", "map"]
    """Maps have strings as keys."""
    omits_zero: bool
    """Whether Go's JSON leaves out the zero value of the field."""
    is_inline: bool
    """Whether the fields of this message stand among those of its parent in JSON."""


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message with its fields."""

    name: str
    fields: tuple[MessageField, ...]
    make: type[Message]


class _Described(msgspec.Struct):
    kinds: dict[str, str]
    messages: dict[str, dict[str, _Row]]


@cache
def message_types() -> Mapping[str, MessageType]:
    """Return all messages by name. The first call takes a tenth of a second."""
    described = {**_read().messages, **_WRITTEN_OUT}
    pool = DescriptorPool()
    pool.Add(_build_file(described))
    return {
        name: MessageType(
            name,
            tuple(_field(json_name, row) for json_name, row in rows.items()),
            GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{_protobuf_name(name)}")),
        )
        for name, rows in described.items()
    }


def find_kind(api_version: str, kind: str) -> MessageType | None:
    """Return the message of a kind; None: it has none, as all custom resources.

    Options and Status belong to every API version (``metav1.AddToGroupVersion``).
    """
    kinds = _read().kinds
    name = kinds.get(f"{api_version}/{kind}") or (kinds[f"v1/{kind}"] if kind in _OF_EVERY_VERSION else None)
    return message_types()[name] if name else None


_OF_EVERY_VERSION: Final = frozenset({"DeleteOptions", "Status", "WatchEvent"})


@cache
def _read() -> _Described:
    return msgspec.json.decode(resources.files(_generated).joinpath(_FILE).read_bytes(), type=_Described)


def _field(name: str, row: _Row) -> MessageField:
    _, type_, marks = row
    shape: Literal["one", "list", "map"] = "list" if type_[:2] == "[]" else "map" if type_[:2] == "{}" else "one"
    return MessageField(name, type_.removeprefix("[]").removeprefix("{}"), shape, "?" in marks, "+" in marks)


def _build_file(described: Mapping[str, Mapping[str, _Row]]) -> FileDescriptorProto:
    messages = [_build_message(_protobuf_name(name), rows) for name, rows in described.items()]
    return FileDescriptorProto(name=_FILE, package=_PACKAGE, syntax="proto2", message_type=messages)


def _build_message(name: str, rows: Mapping[str, _Row]) -> DescriptorProto:
    message = DescriptorProto(name=name)
    for json_name, row in rows.items():
        field = _field(json_name, row)
        label = FieldDescriptorProto.LABEL_OPTIONAL if field.shape == "one" else FieldDescriptorProto.LABEL_REPEATED
        type_ = _type(field.type)
        if field.shape == "map":
            type_ = {"type": FieldDescriptorProto.TYPE_MESSAGE, "type_name": f"{name}.{_add_entry(message, field)}"}
        message.field.add(name=json_name, number=row[0], label=label, **type_)
    return message


def _add_entry(message: DescriptorProto, field: MessageField) -> str:
    """Add the message that protobuf makes of each entry of a map, and return its name."""
    # Protobuf derives the name from that of the field, and refuses another.
    name = f"{field.name[:1].upper()}{field.name[1:]}Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, (part, type_) in enumerate((("key", "string"), ("value", field.type)), 1):
        entry.field.add(name=part, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL, **_type(type_))
    return name


def _type(name: str) -> dict[str, Any]:
    if name in _SCALARS:
        return {"type": _SCALARS[name]}
    return {"type": FieldDescriptorProto.TYPE_MESSAGE, "type_name": f".{_PACKAGE}.{_protobuf_name(name)}"}


def _protobuf_name(name: str) -> str:
    """Return a message's name without the dots, which protobuf takes for packages."""
    return name.replace(".", "_")
