"""Field ownership: who set which field (``metadata.managedFields``), and server-side apply on top of it.

Rules (Kubernetes "Server-Side Apply"; ``sigs.k8s.io/structured-merge-diff`` v6, ``merge/update.go``):

- an update owns every field that it changed, and takes it from all other managers;
- an apply owns every field of its configuration. A field that another manager set to another value is a conflict,
  unless the apply is forced. A field that the same manager applied last time and that is in
  no configuration now is removed, if no other manager owns it.

So when "a" applied ``{x: 1, y: 1}`` and "b" updates ``x`` to 2, an apply of ``{y: 1}`` by "a" leaves ``x``, which "b"
owns; without that update it would remove ``x``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.meta.documents import JsonValue, without
from kerf_dra.driver.local.apiserver.meta.field_sets import (
    FieldPath,
    FieldSet,
    compare,
    field_set_of,
    format_path,
    from_fields_v1,
    is_associative,
    path_element,
    to_fields_v1,
    with_parents,
)
from kerf_dra.driver.local.apiserver.meta.merge_schema import MergeSchema
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError, apply_conflict, bad_request, quoted

_BEFORE_FIRST_APPLY: Final = "before-first-apply"
"""The manager of all fields of an object that has no managed fields at its first apply."""

_UNOWNED: Final[FieldSet] = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "generation",
                "managedFields",
                "resourceVersion",
            )
        ),
    }
)
"""Fields without an owner: they identify the object, or the server sets them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldManager:
    """The manager of one write: its name, the version and endpoint it writes through, and the time."""

    name: str
    api_version: str
    subresource: str
    time: str


@dataclass(frozen=True, slots=True)
class _ManagerId:
    """What two entries of ``managedFields`` of one manager have in common; applies are one entry over all versions."""

    manager: str
    operation: str
    api_version: str
    subresource: str


@dataclass(frozen=True, slots=True)
class _OwnedFields:
    """The fields that a manager owns, as its last write spelled them."""

    api_version: str
    time: str
    fields: FieldSet


_ManagedFields: TypeAlias = dict[_ManagerId, _OwnedFields]


def _decode(entries: Iterable[JsonObject]) -> _ManagedFields:
    owners: _ManagedFields = {}
    for entry in entries:
        operation, api_version = entry.get("operation", ""), entry.get("apiVersion", "")
        owner = _ManagerId(
            manager=entry.get("manager", ""),
            operation=operation,
            api_version=api_version if operation == "Update" else "",
            subresource=entry.get("subresource", ""),
        )
        owners[owner] = _OwnedFields(api_version, entry.get("time", ""), from_fields_v1(entry.get("fieldsV1") or {}))
    return owners


def _encode(owners: Mapping[_ManagerId, _OwnedFields]) -> list[JsonObject]:
    entries = []
    for owner, owned in owners.items():
        if not owned.fields:
            continue
        entry = {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": owned.api_version,
            "time": owned.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(owned.fields),
            "subresource": owner.subresource,
        }
        entries.append({name: value for name, value in entry.items() if value or name == "manager"})
    return sorted(entries, key=lambda entry: (entry["operation"], entry.get("time", ""), entry["manager"]))


def _take_away(owners: _ManagedFields, fields: FieldSet) -> _ManagedFields:
    return {owner: replace(owned, fields=owned.fields - fields) for owner, owned in owners.items()}


def _select_entries(old: JsonObject | None, new: JsonObject) -> list[JsonObject]:
    """Return the entries before a write: the client may send its own, or reset them with ``[{}]``."""
    given = new["metadata"].get("managedFields")
    if given == [{}]:
        return []
    return given or (old["metadata"].get("managedFields") if old else None) or []


def record_update(
    old: JsonObject | None, new: JsonObject, *, by: FieldManager, schema: MergeSchema, zero: JsonObject
) -> list[JsonObject]:
    """Return the entries after an update from ``old`` (None: a creation) to ``new``.

    ``zero`` is what an empty object of the kind has too (its zero value): a write does not come to own that.
    """
    owners = _decode(_select_entries(old, new))
    if old is not None and not owners:
        return []  # tracking starts at creation or with the first apply, never in between
    before = _complete(_drop_managed_fields(old or {"metadata": {}}), zero)
    change = compare(before, _drop_managed_fields(new), schema)
    taken = change.written - _UNOWNED
    owners = _take_away(owners, taken | change.removed)
    if taken:
        own = _ManagerId(by.name, "Update", by.api_version, by.subresource)
        previous = owners[own].fields if own in owners else frozenset()
        owners[own] = _OwnedFields(by.api_version, by.time, previous | taken)
    return _encode(owners)


def apply(
    live: JsonObject | None, applied: JsonObject, *, by: FieldManager, schema: MergeSchema, force: bool
) -> JsonObject:
    """Return the object after an apply, with its new ``managedFields``.

    Raises ApiStatusError (400) when ``applied`` has managedFields, (409) with one cause for each conflicting field.
    """
    if applied.get("metadata", {}).get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    base = live or {"metadata": {}}
    owners = _decode(base["metadata"].get("managedFields") or [])
    base = _drop_managed_fields(base)
    if live is not None and not owners:
        owners = _own_existing(base, by, schema)
    own = _ManagerId(by.name, "Apply", "", by.subresource)
    applied_fields = field_set_of(applied, schema) - _UNOWNED
    last = owners[own].fields if own in owners else frozenset()
    others = {owner: owned for owner, owned in owners.items() if owner != own}
    wanted = frozenset().union(applied_fields, *(owned.fields for owned in others.values()))
    overlaid = merge(base, without(applied, "kind", "apiVersion"), schema)
    result = _remove_abandoned(overlaid, last, wanted, schema)
    change = compare(base, result, schema)
    if not force:
        _check_conflicts(others, change.written)
    kept = _take_away(others, change.written | change.removed)
    # The time of an entry is that of the last apply that changed something; one that never did has none.
    before = owners[own].time if own in owners else ""
    time = before if result == base else by.time
    kept[own] = _OwnedFields(by.api_version, time, applied_fields)
    entries = _encode(kept)
    named: JsonObject = {name: applied[name] for name in ("kind", "apiVersion") if name in applied}
    return {**named, **result, "metadata": {**result["metadata"], "managedFields": entries}}


def _own_existing(base: JsonObject, by: FieldManager, schema: MergeSchema) -> _ManagedFields:
    owner = _ManagerId(_BEFORE_FIRST_APPLY, "Update", by.api_version, by.subresource)
    fields = compare({"metadata": {}}, base, schema).written - _UNOWNED
    return {owner: _OwnedFields(by.api_version, by.time, fields)} if fields else {}


def _remove_abandoned(document: JsonObject, last: FieldSet, wanted: FieldSet, schema: MergeSchema) -> JsonObject:
    """Return the document without the fields that this manager applied last time and that no manager sets now."""
    claimed = with_parents(last)
    there = with_parents(field_set_of(document, schema))
    left = with_parents(field_set_of(remove_fields(document, claimed, schema), schema))
    unwanted = (there & claimed) - left - with_parents(wanted) - _UNOWNED
    return remove_fields(document, unwanted, schema) if unwanted else document


def _check_conflicts(others: Mapping[_ManagerId, _OwnedFields], written: FieldSet) -> None:
    conflicts = {
        owner: sorted(owned.fields & written, key=_sort_key)
        for owner, owned in others.items()
        if owned.fields & written
    }
    if conflicts:
        raise _conflict(conflicts)


def _sort_key(path: FieldPath) -> list[tuple[bool, str]]:
    """Order paths by element; at each level a path that ends there comes first."""
    return [(index < len(path) - 1, step) for index, step in enumerate(path)]


def _conflict(conflicts: Mapping[_ManagerId, list[FieldPath]]) -> ApiStatusError:
    names = {owner: _describe(owner) for owner in conflicts}
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {names[owner]}", "field": format_path(path)}
        for owner, paths in conflicts.items()
        for path in paths
    ]
    if len(causes) == 1:
        return apply_conflict(f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}", causes)
    lines = []
    for owner in sorted(conflicts, key=lambda owner: names[owner]):
        lines.append(f"conflicts with {names[owner]}:")
        lines += [f"- {format_path(path)}" for path in conflicts[owner]]
    return apply_conflict(f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines), causes)


def _describe(owner: _ManagerId) -> str:
    name = quoted(owner.manager)
    if owner.subresource:
        name += f" with subresource {quoted(owner.subresource)}"
    if owner.operation == "Update":
        name += f" using {owner.api_version}"
    return name


def merge(live: JsonValue, applied: JsonValue, schema: MergeSchema) -> JsonValue:
    """Merge ``applied`` into ``live``: associative lists merge item by item, other values are those of ``applied``.

    Source: ``typed/merge.go``.
    """
    if isinstance(live, dict) and isinstance(applied, dict) and not schema.atomic:
        out = dict(live)
        for name, value in applied.items():
            out[name] = merge(live[name], value, schema.of(name)) if name in live else value
        return out
    if isinstance(live, list) and isinstance(applied, list) and is_associative(schema):
        return list(_merged_items(live, applied, schema))
    return live if applied is None else applied


def _merged_items(live: list[Any], applied: list[Any], schema: MergeSchema) -> Iterator[Any]:
    """Merge two lists, each item once: those of ``applied`` in its order, others of ``live`` where they stood."""
    ours = {path_element(item, schema): item for item in applied}
    theirs = {path_element(item, schema): item for item in live}
    waiting = list(ours)
    for element, item in theirs.items():
        if element not in ours:
            yield item
            continue
        # The applied items up to and including this shared one come now, unless they came before.
        if element in waiting:
            end = waiting.index(element) + 1
            yield from (_merged_item(theirs.get(each), ours[each], schema) for each in waiting[:end])
            del waiting[:end]
    yield from (_merged_item(theirs.get(each), ours[each], schema) for each in waiting)


def _merged_item(live: JsonValue, applied: JsonValue, schema: MergeSchema) -> JsonValue:
    return applied if live is None else merge(live, applied, schema.of_items)


def remove_fields(document: JsonObject, fields: FieldSet, schema: MergeSchema) -> JsonObject:
    """Return a copy of the document without the given fields and all below them (``typed/remove.go``)."""
    out: JsonObject = _remove_fields(document, fields, schema, ())
    return out


def _remove_fields(value: JsonValue, fields: FieldSet, schema: MergeSchema, path: FieldPath) -> JsonValue:
    if isinstance(value, dict) and not schema.atomic:
        return {
            name: _remove_fields(child, fields, schema.of(name), (*path, f"f:{name}"))
            for name, child in value.items()
            if (*path, f"f:{name}") not in fields
        }
    if isinstance(value, list) and is_associative(schema):
        steps = ((item, (*path, path_element(item, schema))) for item in value)
        return [_remove_fields(item, fields, schema.of_items, here) for item, here in steps if here not in fields]
    return value


def _complete(document: JsonObject, zero: JsonObject) -> JsonObject:
    """Return the document, completed by what it lacks of ``zero``."""
    out = {**zero, **document}
    for name, value in zero.items():
        if isinstance(value, dict) and isinstance(out[name], dict):
            out[name] = _complete(out[name], value)
    return out


def _drop_managed_fields(document: JsonObject) -> JsonObject:
    body = without(document, "kind", "apiVersion")
    return {**body, "metadata": without(body["metadata"], "managedFields")}


def is_unchanged(new: JsonObject, old: JsonObject) -> bool:
    """Whether a write changes nothing; a newer time of a managed fields entry is no change."""
    if without(new, "metadata") != without(old, "metadata"):
        return False
    return _drop_times(new["metadata"]) == _drop_times(old["metadata"])


def _drop_times(metadata: JsonObject) -> JsonObject:
    entries = metadata.get("managedFields") or []
    return {**metadata, "managedFields": [without(entry, "time") for entry in entries]}
