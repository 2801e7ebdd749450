"""The CEL engine, cel-cpp by way of cel-expr-python, and the values of Kubernetes that it does not have of its own.

The engine has no Python types: ``Engine`` stands for its module, environments, types and values. Quantities and
versions are protobuf messages with one text, because the engine takes no other foreign values. Their texts are
canonical, so that the engine's own ``==`` is right.
"""

from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

from api.model.semver import Version, parse_version

Engine: TypeAlias = Any

QUANTITY: Final = "kubernetes.Quantity"
"""The name that Kubernetes gives the type of quantities."""
SEMVER: Final = "kubernetes.Semver"
"""The name that Kubernetes gives the type of versions."""
_VALUE: Final = "__value"
"""The messages' field; no expression can name it."""
_CONVERTED: Final = 4096
"""Messages kept: distinct quantities and versions in a cluster are few."""


@cache
def engine() -> Engine:
    """The engine, imported at first use: it costs some 25 MB, and most processes never evaluate an expression."""
    from cel_expr_python import cel

    return cel


class _Messages:
    """The two message types, in a descriptor pool of their own: the process's pool belongs to gRPC's messages."""

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
def messages() -> _Messages:
    """The message types."""
    return _Messages()


@lru_cache(maxsize=_CONVERTED)
def _message(type_name: str, text: str) -> Engine:
    return messages().classes[type_name](**{_VALUE: text})


def _text(message: Engine) -> str:
    text: str = getattr(message, _VALUE)
    return text


def quantity_message(nano: int) -> Engine:
    """The quantity of so many units of 1e-9, as the engine takes it."""
    return _message(QUANTITY, str(nano))


def quantity_nano(message: Engine) -> int:
    """The value of a quantity in units of 1e-9."""
    return int(_text(message))


def version_message(version: Version) -> Engine:
    """A version as the engine takes it."""
    return _message(SEMVER, str(version))


def version_of(value: object) -> Version | None:
    """The version that a value of the engine is; None: something else."""
    return parse_version(_text(value)) if isinstance(value, messages().classes[SEMVER]) else None
