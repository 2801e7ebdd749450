"""Get and list: one object, or one chunk of a consistent list.

All chunks of a list show the revision of the first one. When the history no longer reaches back to it the continue
token is expired (410), and the response has another token that continues with the present state.
Source: Kubernetes "API concepts", resource versions and chunking.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.http.query_options import ListOptions, parse_revision
from kerf_dra.driver.local.apiserver.kinds.types import ResourceType
from kerf_dra.driver.local.apiserver.meta.label_selectors import ObjectSelector, selector_of
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    ApiStatusError,
    bad_request,
    expired,
    object_not_found,
    revision_too_large,
)
from kerf_dra.driver.local.apiserver.storage import ExpiredRevisionError, ObjectKey, Storage, StoredObject

_LIST_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class _ContinueToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The start of the next chunk. ``revision`` -1: the list is inconsistent and continues with the present state."""

    revision: int
    after: tuple[str, str]

    def encode(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> "_ContinueToken":
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (binascii.Error, ValueError, RecursionError) as error:
            raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """One chunk of a list, and the list's ``metadata``."""

    items: list[StoredObject]
    metadata: JsonObject


def check_revision(storage: Storage, query: Mapping[str, str]) -> None:
    """Refuse a GET whose resource version the storage has not reached. Raises ApiStatusError (400, 504)."""
    requested = parse_revision(query)
    if requested is not None and requested > storage.revision:
        raise revision_too_large(requested, storage.revision)


def get_object(storage: Storage, type_: ResourceType, key: ObjectKey) -> StoredObject:
    """Return the object with this key. Raises ApiStatusError (404)."""
    stored = storage.get(type_.store, key)
    if stored is None:
        raise object_not_found(type_.group, type_.plural, key.name)
    return stored


def parse_selector(type_: ResourceType, options: ListOptions) -> ObjectSelector:
    """Return the selector of a list or watch. Raises ApiStatusError (400)."""
    return selector_of(
        options.label_selector, options.field_selector, type_.selectable_fields, unsupported=_unsupported_field(type_)
    )


def _unsupported_field(type_: ResourceType) -> str:
    """Return the message about a field that the kind cannot be selected by; Kubernetes has three for it."""
    if type_.group == "resource.k8s.io" and "spec.driver" in type_.selectable_fields:
        return f"field label not supported for {type_.api_version(type_.versions[0])}, Kind={type_.kind}: {{}}"
    if type_.is_custom or type_.selectable_fields.keys() - {"metadata.name", "metadata.namespace"}:
        return "field label not supported: {}"
    return '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def list_objects(storage: Storage, type_: ResourceType, namespace: str, options: ListOptions) -> ObjectPage:
    """Return the objects that the options select, or the next chunk of them.

    Raises ApiStatusError (400 for a bad selector or token, 410 for a revision before the history, 504 for a later one).
    """
    selector = parse_selector(type_, options)
    token = _ContinueToken.decode(options.continue_) if options.continue_ else None
    revision = _revision_to_list(storage, options, token)
    try:
        matching = [
            each for each in storage.items(type_.store, namespace, revision=revision) if selector.matches(each.body)
        ]
    except ExpiredRevisionError as error:
        raise _list_expired(error, token) from error
    if token:
        matching = [each for each in matching if each.key > token.after]
    metadata: JsonObject = {"resourceVersion": str(revision)}
    if not options.limit or len(matching) <= options.limit:
        return ObjectPage(matching, metadata)
    page = matching[: options.limit]
    metadata["continue"] = _ContinueToken(revision, (page[-1].key.namespace, page[-1].key.name)).encode()
    if not options.label_selector and not options.field_selector:
        metadata["remainingItemCount"] = len(matching) - len(page)
    return ObjectPage(page, metadata)


def _revision_to_list(storage: Storage, options: ListOptions, token: _ContinueToken | None) -> int:
    if token:
        return storage.revision if token.revision < 0 else token.revision
    requested = options.revision
    if not requested:
        return storage.revision
    if requested > storage.revision:
        raise revision_too_large(requested, storage.revision)
    # Without resourceVersionMatch a chunked list means exactly that revision, any other that or a later one.
    exact = options.match == "Exact" or (not options.match and options.limit)
    return requested if exact else storage.revision


def _list_expired(error: ExpiredRevisionError, token: _ContinueToken | None) -> ApiStatusError:
    if token is None:
        return expired(f"The resourceVersion for the provided list is too old. {error}")
    return expired(_LIST_TOO_OLD, continue_=_ContinueToken(-1, token.after).encode())
