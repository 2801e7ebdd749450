"""Strategic merge patch: a merge patch in which some lists have items with identity.

Directives: ``$patch: replace | delete`` in an object or list item, ``$deleteFromPrimitiveList/<field>``,
``$setElementOrder/<field>``, ``$retainKeys``. Arguments are never changed.
Source: ``k8s.io/apimachinery`` ``pkg/util/strategicpatch``.
"""

from typing import Any, Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.meta.documents import JsonValue
from kerf_dra.driver.local.apiserver.meta.merge_schema import MergeSchema
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError, bad_request, quoted

_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


def apply_strategic_merge_patch(document: JsonObject, patch: JsonObject, schema: MergeSchema) -> JsonObject:
    """Apply the patch. Raises ApiStatusError (400) for a bad directive, or an item without its merge key."""
    match patch.get(_DIRECTIVE):
        case None | "merge":
            pass
        case "replace":
            return {name: value for name, value in patch.items() if name != _DIRECTIVE}
        case "delete":
            return {}
        case other:
            raise bad_request(f"unknown patch type found: {other}")
    out = dict(document)
    if _RETAIN in patch:
        _check_retained(patch)
        out = {name: value for name, value in out.items() if name in patch[_RETAIN]}
    for name, values in _directives(patch, _DELETE_FROM):
        out[name] = [value for value in out.get(name) or [] if value not in values]
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            out.pop(name, None)
        else:
            out[name] = _patched(out.get(name), value, schema.of(name))
    for name, order in _directives(patch, _ORDER):
        if isinstance(out.get(name), list):
            out[name] = _ordered(out[name], order, schema.of(name), document.get(name) or [])
    return out


def _check_retained(patch: JsonObject) -> None:
    kept = patch[_RETAIN]
    if not isinstance(kept, list) or any(name not in kept for name in patch if not name.startswith("$")):
        raise bad_request("Invalid patch format of retainKeys")


def _directives(patch: JsonObject, prefix: str) -> list[tuple[str, list[Any]]]:
    """Return the fields that directives with this prefix are about, and the lists that they give."""
    return [(name.removeprefix(prefix), value) for name, value in patch.items() if name.startswith(prefix)]


def _patched(value: JsonValue, patch: JsonValue, schema: MergeSchema) -> JsonValue:
    if isinstance(patch, dict):
        return apply_strategic_merge_patch(value if isinstance(value, dict) else {}, patch, schema)
    if not isinstance(patch, list) or not schema.patch_key:
        return patch
    present = value if isinstance(value, list) else []
    if any(isinstance(item, dict) for item in patch):
        return _patched_items(present, patch, schema)
    merged = [*present, *(item for item in dict.fromkeys(patch) if item not in present)]
    return _ordered(merged, patch, schema, present)


def _patched_items(items: list[Any], patch: list[Any], schema: MergeSchema) -> list[Any]:
    """Merge each item of the patch with that of the same key, delete that, or add it; one ``replace`` drops all."""
    key = schema.patch_key
    if any(item.get(_DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if _DIRECTIVE not in item]
    out = list(items)
    for item in patch:
        if key not in item:
            raise _no_key(item, key)
        at = next((index for index, present in enumerate(out) if present.get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            out = [present for present in out if present.get(key) != item[key]]
        elif at is None:
            out.append(apply_strategic_merge_patch({}, item, schema.of_items))
        else:
            out[at] = apply_strategic_merge_patch(out[at], item, schema.of_items)
    return _ordered(out, patch, schema, items)


def _no_key(item: JsonObject, key: str) -> ApiStatusError:
    return bad_request(f"map: {quoted(item)} does not contain declared merge key: {key}")


def _ordered(items: list[Any], order: list[Any], schema: MergeSchema, before: list[Any]) -> list[Any]:
    """Order the items as ``order`` says; each other one goes before the first of them that it preceded.

    An item that was not in the list ``before`` comes ahead of those that ``order`` lacks (``mergeSortedSlice``).
    """
    key = schema.patch_key
    positions = {_identity(item, key): position for position, item in reversed(list(enumerate(order)))}
    previous = {_identity(item, key): position for position, item in reversed(list(enumerate(before)))}
    mentioned = sorted(
        (item for item in items if _identity(item, key) in positions), key=lambda item: positions[_identity(item, key)]
    )
    others = [item for item in items if _identity(item, key) not in positions]
    ordered = []
    while mentioned and others:
        other, named = (previous.get(_identity(items[0], key)) for items in (others, mentioned))
        comes_first = other is not None and named is not None and other < named
        ordered.append((others if comes_first else mentioned).pop(0))
    return [*ordered, *mentioned, *others]


def _identity(item: JsonValue, key: str) -> str:
    return quoted(item.get(key) if isinstance(item, dict) else item)
