"""The description of an object kind in one API version: its URL paths and its JSON codec."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Never, TypeVar

import msgspec

from kerf_dra.api.errors import InvalidQuantityError, KerfError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import Object, ObjectT
from kerf_dra.api.model.quantity import Quantity, parse_quantity

WireT = TypeVar("WireT", bound=msgspec.Struct)
WholeT = TypeVar("WholeT", bound=Object)


class UndecodableObjectError(KerfError):
    """The server sent an object that does not have the shape of its kind."""

    def __init__(self, kind: str, version: str, reason: str) -> None:
        self.kind = kind
        self.reason = reason
        super().__init__(f"cannot read a {kind} of {version}: {reason}")


class ListMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``metadata`` of a list.

    A watch continues at ``resource_version``, the next page at ``continue_`` (empty: this is the last page).
    ``remaining_item_count`` is how many objects follow, where the server knows that; a list's last page has none.
    """

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class _RawList(msgspec.Struct, frozen=True):
    """One page of a list whose objects are not decoded."""

    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] | None = ()


_raw_list_decoder: Final = msgspec.json.Decoder(_RawList)


@dataclass(frozen=True, slots=True)
class ObjectList(Generic[ObjectT]):
    """One page of a list."""

    metadata: ListMeta
    items: tuple[ObjectT, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[ObjectT]):
    """One object kind in one API version.

    ``decode`` takes the JSON of one object, ``decode_list`` that of one page of a list. Both ignore unknown fields, as
    every Kubernetes client must, and raise UndecodableObjectError for JSON of another shape, which ``json_limits``
    may make readable. ``encode`` returns a JSON
    object with ``apiVersion`` and ``kind``, ``encode_body`` its text with sorted keys, for a request.
    """

    group: str
    """The API group; empty for the core group."""
    version: str
    kind: str
    plural: str
    namespaced: bool
    type: type[ObjectT]
    decode: Callable[[bytes | msgspec.Raw], ObjectT]
    decode_list: Callable[[bytes], ObjectList[ObjectT]]
    encode: Callable[[ObjectT], JsonObject]
    encode_body: Callable[[ObjectT], bytes]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, of the object ``name``, or of its subresource.

        An empty namespace of a namespaced kind means all namespaces.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/" + "/".join(parts)


def dec_hook(target: type, value: object) -> object:
    """Decode Quantity fields of structs, for msgspec. Raises InvalidQuantityError, which msgspec gives its path."""
    if target is Quantity:
        if type(value) is str:  # the usual form, of which a slice has hundreds
            return parse_quantity(value)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InvalidQuantityError(value)
        return Quantity(str(value))  # YAML and JSON authors may write `1.5` without quotes
    raise NotImplementedError(f"no decoding of {target} from {type(value).__name__}")


def enc_hook(value: object) -> object:
    """Encode Quantity fields of structs, for msgspec."""
    if isinstance(value, Quantity):
        return str(value)
    raise NotImplementedError(f"no encoding of {type(value).__name__}")


_SORTED: Final = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted")


def to_builtins(value: object) -> Any:  # noqa: ANN401  (whatever the value's JSON form is)
    """Convert ``value`` to plain JSON values: dicts, lists and scalars (``msgspec.to_builtins`` keeps tuples)."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=enc_hook))


def identity_kind(
    type_: type[ObjectT], *, group: str, version: str, plural: str, namespaced: bool, kind: str = ""
) -> Kind[ObjectT]:
    """Build a kind whose wire form is the model's own shape."""
    return converted_kind(
        type_,
        type_,
        _unchanged,
        _unchanged,
        group=group,
        version=version,
        plural=plural,
        namespaced=namespaced,
        kind=kind,
    )


def _unchanged(value: ObjectT) -> ObjectT:
    return value


def converted_kind(
    type_: type[ObjectT],
    wire_type: type[WireT],
    to_model: Callable[[WireT], ObjectT],
    from_model: Callable[[ObjectT], WireT],
    *,
    group: str,
    version: str,
    plural: str,
    namespaced: bool,
    kind: str = "",
) -> Kind[ObjectT]:
    """Build a kind whose wire form differs from the model: JSON is decoded into ``wire_type`` and converted once.

    ``kind`` is the name on the wire; empty: the name of ``type_``.
    """
    kind = kind or type_.__name__
    items_type: Any = tuple[wire_type, ...]  # type: ignore[valid-type]
    page_type = msgspec.defstruct(
        f"{wire_type.__name__}List", [("metadata", ListMeta, ListMeta()), ("items", items_type | None, ())]
    )
    decoder = msgspec.json.Decoder(wire_type, dec_hook=dec_hook)
    page_decoder = msgspec.json.Decoder(page_type, dec_hook=dec_hook)
    api_version = f"{group}/{version}" if group else version

    def decode(data: bytes | msgspec.Raw) -> ObjectT:
        try:
            return to_model(decoder.decode(data))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise UndecodableObjectError(kind, api_version, str(error)) from error

    def decode_list(data: bytes) -> ObjectList[ObjectT]:
        try:
            page: Any = page_decoder.decode(data)
            return ObjectList(page.metadata, tuple(to_model(item) for item in page.items or ()))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise UndecodableObjectError(f"{kind}List", api_version, str(error)) from error

    def encode(value: ObjectT) -> JsonObject:
        return {"apiVersion": api_version, "kind": kind, **to_builtins(from_model(value))}

    beginning = msgspec.json.encode({"apiVersion": api_version, "kind": kind})[:-1]

    def encode_body(value: ObjectT) -> bytes:
        text = _SORTED.encode(from_model(value))
        return beginning + b"," + text[1:] if len(text) > len(b"{}") else beginning + b"}"

    return Kind(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        namespaced=namespaced,
        type=type_,
        decode=decode,
        decode_list=decode_list,
        encode=encode,
        encode_body=encode_body,
    )


def projected_kind(kind: Kind[WholeT], type_: type[ObjectT], project: Callable[[WholeT], ObjectT]) -> Kind[ObjectT]:
    """Build the kind of what ``project`` keeps of the objects of ``kind``, for caches of many or large objects.

    A page is decoded object by object, so that one object at a time is held as a whole. What is kept cannot be written.
    """

    def decode(data: bytes | msgspec.Raw) -> ObjectT:
        return project(kind.decode(data))

    def decode_list(data: bytes) -> ObjectList[ObjectT]:
        try:
            page = _raw_list_decoder.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UndecodableObjectError(f"{kind.kind}List", kind.api_version, str(error)) from error
        return ObjectList(page.metadata, tuple(decode(item) for item in page.items or ()))

    def encode(value: ObjectT) -> Never:
        raise TypeError(f"{kind.kind} {value.ref} is a projection, which lacks fields of the object")

    return Kind(
        group=kind.group,
        version=kind.version,
        kind=kind.kind,
        plural=kind.plural,
        namespaced=kind.namespaced,
        type=type_,
        decode=decode,
        decode_list=decode_list,
        encode=encode,
        encode_body=encode,
    )
