"""Checked CEL expressions as protobuf messages: the syntax tree and types that the engine serializes.

The messages are the used parts of ``cel/expr/syntax.proto`` and ``checked.proto`` (``github.com/google/cel-spec``).
Unknown fields are ignored, as always in protobuf.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from kerf_dra.driver.cel.engine import Engine

Message: TypeAlias = Any
"""A message of a type in ``_MESSAGES``."""

_PACKAGE: Final = "kerf.cel"
"""The package of the messages: not ``cel.expr``, because the engine registers its own messages under that name."""

_MESSAGES: Final[Mapping[str, str]] = {
    "Packed": "2 checked Checked",
    "Checked": "2 references ReferenceEntry*, 3 types TypeEntry*, 4 expr Expr",
    "ReferenceEntry": "1 key int64, 2 value Reference",
    "Reference": "3 overload_ids string*",
    "TypeEntry": "1 key int64, 2 value Type",
    "Type": "3 primitive int64, 5 well_known int64, 6 list ListType, 7 map MapType, 9 message_type string, "
    "10 type_param string, 14 abstract AbstractType",
    "ListType": "1 element Type",
    "MapType": "1 key Type, 2 value Type",
    "AbstractType": "1 name string, 2 parameters Type*",
    "Expr": "2 id int64, 3 constant Constant, 4 ident Ident, 5 select Select, 6 call Call, 7 list List, "
    "8 struct Struct, 9 loop Loop",
    "Constant": "3 int int64, 6 string string, 7 bytes bytes",
    "Ident": "1 name string",
    "Select": "1 operand Expr, 2 field string, 3 is_test bool",
    "Call": "1 target Expr, 2 function string, 3 args Expr*",
    "List": "1 elements Expr*",
    "Struct": "2 entries Entry*",
    "Entry": "3 key Expr, 4 value Expr",
    "Loop": "1 variable string, 2 range Expr, 3 accumulator string, 4 init Expr, 5 condition Expr, 6 step Expr, "
    "7 result Expr, 8 second_variable string",
}

_PRIMITIVES: Final = ("", "bool", "int", "uint", "double", "string", "bytes")
"""``PrimitiveType`` in checked.proto."""
_WELL_KNOWN: Final = ("", "any", "timestamp", "duration")
"""``WellKnownType`` in checked.proto."""
_SCALARS: Final = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})


class Type(NamedTuple):
    """A static type."""

    kind: str
    """The kind, such as ``bool``, ``list`` or ``struct``; empty: a kind that the cost estimate does not use."""
    name: str = ""
    """The name of a struct or an opaque type, else empty."""
    parameters: tuple["Type", ...] = ()

    @property
    def is_scalar(self) -> bool:
        """Whether every value has size 1."""
        return self.kind in _SCALARS or (self.name == "optional_type" and self.parameters[0].is_scalar)


def read_checked_expression(expression: Engine) -> Message:
    """The ``Checked`` message of a compiled expression."""
    return _packed().FromString(expression.serialize()).checked


def read_type(message: Message) -> Type:
    """The static type in a ``Type`` message."""
    if message.HasField("primitive"):
        return Type(_PRIMITIVES[message.primitive])
    if message.HasField("well_known"):
        return Type(_WELL_KNOWN[message.well_known])
    if message.HasField("list"):
        return Type("list", "", (read_type(message.list.element),))
    if message.HasField("map"):
        return Type("map", "", (read_type(message.map.key), read_type(message.map.value)))
    if message.HasField("message_type"):
        return Type("struct", message.message_type)
    if message.HasField("abstract"):
        return Type("opaque", message.abstract.name, tuple(map(read_type, message.abstract.parameters)))
    return Type("param" if message.HasField("type_param") else "")


@cache
def _packed() -> Message:
    """The class of ``Packed``, in a separate descriptor pool: the default pool belongs to gRPC's messages."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    # proto2: in Constant the presence of a scalar matters.
    file = descriptor_pb2.FileDescriptorProto(name="kerf/cel.proto", package=_PACKAGE, syntax="proto2")
    kind = descriptor_pb2.FieldDescriptorProto
    scalars = {"int64": kind.TYPE_INT64, "string": kind.TYPE_STRING, "bytes": kind.TYPE_BYTES, "bool": kind.TYPE_BOOL}
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, type_ in (each.split() for each in fields.split(",")):
            plain = type_.removesuffix("*")
            label = kind.LABEL_OPTIONAL if plain == type_ else kind.LABEL_REPEATED
            declared = message.field.add(name=field, number=int(number), label=label)
            if plain in scalars:
                declared.type = scalars[plain]
            else:
                declared.type, declared.type_name = kind.TYPE_MESSAGE, f".{_PACKAGE}.{plain}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Packed"))
