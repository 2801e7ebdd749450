"""The binding to the CEL engine (cel-cpp through cel-expr-python), with Kubernetes' quantities and versions as values.

The engine has no Python types: ``Engine`` stands for its module, environments, types and values. Quantities and
versions are protobuf messages with one string field, the only foreign values that the engine takes. The strings are
canonical, so that the engine's own ``==`` is correct.
"""

from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

from kerf_dra.api.model.semver import Version, parse_version

Engine: TypeAlias = Any

QUANTITY: Final = "kubernetes.Quantity"
"""Kubernetes' name for the type of quantities."""
SEMVER: Final = "kubernetes.Semver"
"""Kubernetes' name for the type of versions."""
_VALUE: Final = "__value"
"""The field of the messages, under a name that no expression can use."""
_CACHED_MESSAGES: Final = 4096
"""The most messages kept: a cluster has few distinct quantities and versions."""


@cache
def load_engine() -> Engine:
    """Return the engine, imported at first use: it takes 25 MB, and most processes never evaluate an expression."""
    from cel_expr_python import cel

    return cel


class _Messages:
    """The two message types, in a separate descriptor pool: the default pool belongs to gRPC's messages."""

    def __init__(self) -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        file = descriptor_pb2.FileDescriptorProto(name="kubernetes.proto", package="kubernetes", syntax="proto3")
        text = descriptor_pb2.FieldDescriptorProto
        for name in (QUANTITY, SEMVER):
            message = file.message_type.add(name=name.rpartition(".")[2])
            message.field.add(name=_VALUE, number=1, type=text.TYPE_STRING, label=text.LABEL_OPTIONAL)
        self.pool = descriptor_pool.DescriptorPool()
        self.pool.AddSerializedFile(file.SerializeToString())
        self.classes: dict[str, Any] = {
            name: message_factory.GetMessageClass(self.pool.FindMessageTypeByName(name)) for name in (QUANTITY, SEMVER)
        }


@cache
def load_messages() -> _Messages:
    """The message types, built at first use."""
    return _Messages()


@lru_cache(maxsize=_CACHED_MESSAGES)
def _message(type_name: str, text: str) -> Engine:
    return load_messages().classes[type_name](**{_VALUE: text})


def _text(message: Engine) -> str:
    text: str = getattr(message, _VALUE)
    return text


def quantity_message(nano: int) -> Engine:
    """The engine's value of a quantity, given in units of 1e-9."""
    return _message(QUANTITY, str(nano))


def quantity_nano(message: Engine) -> int:
    """The value of a quantity in units of 1e-9."""
    return int(_text(message))


def version_message(version: Version) -> Engine:
    """The engine's value of a version."""
    return _message(SEMVER, str(version))


def version_of(value: object) -> Version | None:
    """The version in a value of the engine; None: the value is not a version."""
    return parse_version(_text(value)) if isinstance(value, load_messages().classes[SEMVER]) else None
