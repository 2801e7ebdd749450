"""The identity of an answer: one that is not the object asked for is no answer, whatever its HTTP status says. Pure.

A proxy, a gateway, a cache or a broken server may answer 200 with anything: ``{}``, a page, an object of another name,
kind or cluster, a Status. Decoded as the expected kind, ``{}`` is an object without a status, which reads like a claim
that has ended. So kind and API version of each answer are compared with the request, of one object also namespace and
name, and UID where the request names it. What the API server stores has a UID and a resource version.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kerf_dra.api.model.json_limits import MAX_LEVELS, make_readable
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.api.wire import Kind

_LEVELS_OF_A_LIST: Final = 2
"""The levels of a list around each object: the list itself, and its items."""
_LONGEST_NAME: Final = 300
"""Characters that are quoted of what an answer says of itself: more than a namespace and a name have."""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Identity(msgspec.Struct, frozen=True, rename="camel"):
    """The fields that say which object a document is."""

    api_version: str = ""
    kind: str = ""
    metadata: _Metadata = _Metadata()


_decoder: Final = msgspec.json.Decoder(_Identity)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedAnswer:
    """The document that answers a request."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    """The object's name; empty: any, as in a list, and in a review that has none."""
    uid: str = ""
    """The object's UID, where the request names it; empty: any."""
    is_stored: bool = True
    """Whether the server has stored the document, and so has given it a resource version, and an object a UID."""

    @classmethod
    def of_object(
        cls, kind: Kind[Any], namespace: str, name: str, *, uid: str = "", is_stored: bool = True
    ) -> "ExpectedAnswer":
        """Return what answers a request for one object, a write of its subresources included."""
        return cls(
            api_version=kind.api_version,
            kind=kind.kind,
            namespace=namespace if kind.namespaced else "",
            name=name,
            uid=uid,
            is_stored=is_stored and bool(name),
        )

    @classmethod
    def of_list(cls, kind: Kind[Any]) -> "ExpectedAnswer":
        """Return what answers a request for a list; its items have neither kind nor version of their own."""
        return cls(api_version=kind.api_version, kind=f"{kind.kind}List")

    @classmethod
    def of_event(cls, kind: Kind[Any]) -> "ExpectedAnswer":
        """Return what the object of a watch's event is, bookmarks included, which have no name and no UID."""
        return cls(api_version=kind.api_version, kind=kind.kind, is_stored=False)

    def __str__(self) -> str:
        return _describe(self.api_version, self.kind, self.namespace, self.name)


def find_mismatch(expected: ExpectedAnswer, body: bytes | msgspec.Raw) -> str | None:
    """Return what ``body`` is instead of ``expected``, for people; None: it is that."""
    try:
        found = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"it is no such document: {error}"
    metadata = found.metadata
    if (found.api_version, found.kind) != (expected.api_version, expected.kind) or (
        expected.name and (metadata.namespace, metadata.name) != (expected.namespace, expected.name)
    ):
        described = _describe(found.api_version, found.kind, metadata.namespace, metadata.name)
        return f"it is {described}"
    if expected.uid and metadata.uid != expected.uid:
        return f"its UID is {_quote(metadata.uid)}, not {expected.uid}"
    if expected.is_stored and not metadata.resource_version:
        return "it has no resource version"
    if expected.is_stored and expected.name and not metadata.uid:
        return "it has no UID"
    return None


def _decode(body: bytes | msgspec.Raw) -> _Identity:
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decoder.decode(make_readable(bytes(body), MAX_LEVELS + _LEVELS_OF_A_LIST))


def _describe(api_version: str, kind: str, namespace: str, name: str) -> str:
    ref = f"{namespace}/{name}" if namespace else name
    known = " ".join(part for part in (kind, ref) if part)
    return _quote(f"{known or 'an object without a kind'} of {api_version or 'no version'}")


def _quote(text: str) -> str:
    return to_one_line(text[:_LONGEST_NAME])
